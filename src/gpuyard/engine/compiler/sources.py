"""Finds the sources that compiled code depends on: those of every kernel behind an entry."""

from __future__ import annotations

import os
import re
import zlib
from functools import cache
from pathlib import Path


def source_hash(module: str) -> int:
    """A number that changes with the source of `module` and of every gpuyard module that it imports, directly or not.

    Numba's cache watches the file of the entry alone. Imports are followed, so that a kernel that moves cannot be left out.
    """
    sources = _imported(module)
    return 1 + zlib.crc32(b"".join(name.encode() + source for name, source in sorted(sources.items())))


def _imported(module: str) -> dict[str, bytes]:
    """Module → source, for a module and all of gpuyard that it imports; what a package exports counts as imported."""
    found: dict[str, bytes] = {}
    todo = [module]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        known = _read(_ROOT, name)
        if known is not None:
            found[name], imports = known
            todo += imports
    return found


_ROOT = Path(__file__).parents[3]  # the folder that holds the package
_IMPORT = re.compile(r"^[ \t]*from (gpuyard(?:\.\w+)*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_NAME = re.compile(r"\w+")


@cache  # a start asks for the hashes of six entries, which share most of their modules: 10 ms each
def _read(root: Path, module: str) -> tuple[bytes, tuple[str, ...]] | None:
    """The source of a module or package and what it imports from gpuyard; None: it is a name inside a module."""
    path = os.path.join(root, *module.split("."))  # noqa: PTH118 - of 700 names; as paths they take 5 ms more
    for file in (f"{path}.py", os.path.join(path, "__init__.py")):  # noqa: PTH118
        try:
            source = Path(file).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        imports = [(package, _NAME.findall(names)) for package, names in _IMPORT.findall(source.decode("utf-8"))]
        return source, tuple(each for package, names in imports for each in (package, *(f"{package}.{name}" for name in names)))
    return None
