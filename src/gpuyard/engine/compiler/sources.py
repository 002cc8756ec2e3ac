"""Finds the sources that compiled code depends on: those of every kernel behind an entry."""

from __future__ import annotations

import re
import zlib
from pathlib import Path


def source_hash(module: str) -> int:
    """A number that changes with the source of `module` and of every gpuyard module that it imports, directly or not.

    Numba's cache watches the file of the entry alone. Imports are followed, so that a kernel that moves cannot be left out.
    """
    sources = {name: path.read_bytes() for name, path in _imported(module).items()}
    return 1 + zlib.crc32(b"".join(name.encode() + source for name, source in sorted(sources.items())))


def _imported(module: str) -> dict[str, Path]:
    """Module → file, for a module and all of gpuyard that it imports; what a package exports counts as imported."""
    found: dict[str, Path] = {}
    todo = [module]
    while todo:
        name = todo.pop()
        path = _file_of(name)
        if path is None or name in found:
            continue
        found[name] = path
        for package, names in _IMPORT.findall(path.read_text("utf-8")):
            todo += [package, *(f"{package}.{each}" for each in _NAME.findall(names))]
    return found


_ROOT = Path(__file__).parents[3]  # the folder that holds the package
_IMPORT = re.compile(r"^[ \t]*from (gpuyard(?:\.\w+)*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_NAME = re.compile(r"\w+")


def _file_of(module: str) -> Path | None:
    """The file of a module or package; None: it is a name inside a module."""
    path = _ROOT.joinpath(*module.split("."))
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)
