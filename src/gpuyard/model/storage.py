"""Tables on disk: a folder with `manifest.json` (text) and `arrays.npz` (plain arrays, stored uncompressed).

Nothing is ever unpickled. Every array has one allowed dtype and a size that must agree with the file's, so a hostile file can
neither run code nor ask for more memory than it is long. A folder appears whole or not at all.
"""

from __future__ import annotations

import ast
import json
import os
import secrets
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.files import is_file, parse_json, read_bytes, replacing, write_bytes

MANIFEST, ARRAYS = "manifest.json", "arrays.npz"
MAX_MANIFEST_BYTES = 1 << 29

Dtypes = Mapping[str, np.dtype[Any]]  # of each array, by name


def is_saved(path: Path) -> bool:
    """Return whether a folder looks like one that `save_folder` wrote."""
    return is_file(path / MANIFEST) and is_file(path / ARRAYS)


def save_folder(folder: str | os.PathLike[str], manifest: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write a new folder. An earlier one of this kind is replaced; anything else there is refused and stays."""
    target = Path(folder)
    text = json.dumps(manifest, indent=1, allow_nan=False)
    try:
        _refuse_foreign(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        work = _beside(target)
        work.mkdir()
        try:
            write_bytes(work / MANIFEST, text.encode("ascii"))
            _write_arrays(work / ARRAYS, arrays)
            _swap(work, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except (OSError, ValueError) as error:
        raise DataError(f"{target}: the result cannot be saved: {error}") from None


def read_manifest(folder: Path) -> Any:
    """Read the manifest of a folder that `save_folder` wrote."""
    return parse_json(read_bytes(folder / MANIFEST, MAX_MANIFEST_BYTES, "a manifest"), str(folder / MANIFEST))


def read_folder(folder: str | os.PathLike[str], dtypes: Dtypes, optional: frozenset[str]) -> tuple[Any, dict[str, Array]]:
    """Read the manifest and the arrays of a folder that `save_folder` wrote. It holds every array but the `optional` ones."""
    source = Path(folder)
    manifest = read_manifest(source)
    try:
        return manifest, _read_arrays(source / ARRAYS, dtypes, optional)
    except (OSError, ValueError) as error:
        raise DataError(f"{source}: the result cannot be read: {error}") from None


def _refuse_foreign(target: Path) -> None:
    """Refuse to replace anything but an earlier result or an empty folder."""
    if not target.exists() and not target.is_symlink():
        return
    if target.is_symlink() or not target.is_dir() or not {item.name for item in target.iterdir()} <= {MANIFEST, ARRAYS}:
        raise DataError(f"{target}: exists and is not a saved result", hint="name another folder")


def _swap(work: Path, target: Path) -> None:
    """Put `work` in the place of `target`; on failure `target` is restored."""
    if not target.exists():
        work.rename(target)
        return
    earlier = _beside(target)
    target.rename(earlier)
    try:
        work.rename(target)
    except OSError:
        earlier.rename(target)
        raise
    shutil.rmtree(earlier, ignore_errors=True)


def _beside(target: Path) -> Path:
    """Return a new hidden name in the same folder, so that a rename stays on one disk."""
    return target.parent / f".{target.name}.{secrets.token_hex(6)}.tmp"


def _write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an .npz that `numpy.load` also reads. It holds no clock time: the same arrays give the same bytes."""
    with replacing(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)


def _read_arrays(path: Path, dtypes: Dtypes, optional: frozenset[str]) -> dict[str, Array]:
    size = path.stat().st_size
    if not path.is_file():
        raise DataError(f"{path}: not a file")
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            if len(entries) != len(archive.infolist()) or not set(dtypes) - optional <= set(entries) <= set(dtypes):
                raise DataError(f"{path}: holds {sorted(entries)[:20]}, not {sorted(dtypes)}")
            for name, entry in entries.items():
                if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 or entry.file_size > size:
                    raise DataError(f"{path}: {name} is not stored plainly")
            return {name: _read_array(archive.read(entry), name, dtypes[name], path) for name, entry in entries.items()}
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{path}: damaged: {error}", hint="it is cut short or was changed") from None


def _read_array(raw: bytes, name: str, dtype: np.dtype[Any], path: Path) -> Array:
    """Return the array in the bytes of an .npy file (format 1.0): one dimension, this dtype, exactly as long as its header says.

    The header is read here and not by numpy, whose parser raises half a dozen kinds of exceptions on bad input.
    """
    start = 10 + int.from_bytes(raw[8:10], "little")
    try:
        about = ast.literal_eval(raw[10:start].decode("latin-1"))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        about = None
    if raw[:8] != b"\x93NUMPY\x01\x00" or not isinstance(about, dict) or set(about) != {"descr", "fortran_order", "shape"}:
        raise DataError(f"{path}: {name} has a damaged header")
    shape = about["shape"]
    if about["descr"] != np.lib.format.dtype_to_descr(dtype):
        raise DataError(f"{path}: {name} has dtype {str(about['descr'])[:200]!r}, not {dtype}")
    count, rest = divmod(len(raw) - start, dtype.itemsize)
    if rest or shape != (count,):
        raise DataError(f"{path}: {name} says shape {str(shape)[:60]} and holds {len(raw) - start} bytes")
    return np.frombuffer(raw, dtype, offset=start).copy()
