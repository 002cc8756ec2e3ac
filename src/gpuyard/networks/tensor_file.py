"""Arrays and texts in one safetensors file, written and read with the safetensors library.

A file from outside can do no harm: sizes are bounded before anything is read, nothing in it is executed, and every refusal is one
line. The library checks where the tensors lie. The header is checked here as well, for what the library accepts and gpuyard
refuses: keys that are given twice, extra fields, thousands of tensors, types that numpy lacks, and truth values other than 0 and 1.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from gpuyard.arrays import Array
from gpuyard.errors import CheckpointError, DataError
from gpuyard.files import beside, parse_json, reading, writing

Pathlike = str | os.PathLike[str]

_TYPES = {
    "F64": "f8", "I64": "i8", "U64": "u8", "F32": "f4", "I32": "i4", "U32": "u4",
    "F16": "f2", "I16": "i2", "U16": "u2", "BOOL": "?", "I8": "i1", "U8": "u1",
}  # fmt: skip
_SAVED = frozenset(np.dtype(code) for code in _TYPES.values())
_METADATA = "__metadata__"
_SHOWN = 100  # characters of a name in a message
_LIBRARY = re.compile(r"^Error while \w+( header)?: (I/O error: )?| \(os error.*$", re.DOTALL)  # what its errors say around the reason
_CHANGED = "it is cut short or was changed"


@dataclass(frozen=True)
class Caps:
    """The largest file that is accepted; anything beyond is refused unread."""

    file: int  # bytes
    header: int  # bytes
    tensors: int


ANY_SIZE = Caps(file=1 << 48, header=8 << 20, tensors=65_536)


def write_arrays(path: Pathlike, arrays: Mapping[str, Array], meta: Mapping[str, str], *, caps: Caps = ANY_SIZE) -> None:
    """Write arrays of numbers and some texts as one safetensors file, whole or not at all.

    The same arrays with one text give the same bytes; the library puts several texts in any order.
    """
    target = Path(path)
    plain = {name: _plain(np.asarray(array), name, target) for name, array in arrays.items()}
    for key, text in meta.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise CheckpointError(f"{target}: metadata {key!r} is not a text")
    try:
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        with beside(target) as place:
            save_file(plain, place, dict(meta) or None)
            _check_size(place, target, caps)
    except SafetensorError as error:
        raise CheckpointError(f"{target}: cannot be written: {_LIBRARY.sub('', str(error))[:200]}") from None
    except DataError as error:
        raise CheckpointError(str(error)) from None


def _check_size(written: Path, path: Path, caps: Caps) -> None:
    """Refuse to write what could not be read again."""
    try:
        with written.open("rb") as stream:
            _header(stream, written.stat().st_size, path, caps)
    except CheckpointError as error:
        raise CheckpointError(f"{error}: could not be read again") from None


def _plain(array: Array, name: str, path: Path) -> Array:
    """Return the array in C order, the lowest byte first."""
    dtype = array.dtype.newbyteorder("<")
    if dtype not in _SAVED or name == _METADATA:
        raise CheckpointError(f"{path}: tensor {name[:_SHOWN]!r} of type {array.dtype} cannot be saved", hint="use numbers of 8 to 64 bits")
    return np.asarray(array, dtype, order="C")


def read_arrays(path: Pathlike, *, caps: Caps = ANY_SIZE) -> tuple[dict[str, Array], dict[str, str]]:
    """Read the arrays and the texts of a safetensors file."""
    source = Path(path)
    try:
        with reading(source):
            about = source.stat()
            if not stat.S_ISREG(about.st_mode):
                raise CheckpointError(f"{source}: is not a file")
            if about.st_size > caps.file:
                raise CheckpointError(f"{source}: {about.st_size:,} bytes, at most {caps.file:,}")
            with source.open("rb") as stream:
                meta = _header(stream, about.st_size, source, caps)
        arrays = load_file(source)
    except SafetensorError as error:
        raise CheckpointError(f"{source}: not a valid safetensors file: {_LIBRARY.sub('', str(error))[:200]!r}", hint=_CHANGED) from None
    except (ValueError, MemoryError) as error:
        raise CheckpointError(f"{source}: a tensor is too large: {str(error)[:200]}") from None
    except DataError as error:
        raise CheckpointError(str(error)) from None
    odd = [name for name, array in arrays.items() if array.dtype == bool and (array.view(np.uint8) > 1).any()]
    if odd:
        raise CheckpointError(f"{source}: tensor {odd[0][:_SHOWN]!r} has truth values other than 0 and 1")
    return arrays, meta


def _header(stream: BinaryIO, size: int, path: Path, caps: Caps) -> dict[str, str]:
    """Refuse a header that is too large or holds what the library would let pass; return the texts in it."""
    length = int.from_bytes(stream.read(8), "little")
    if length > size - 8:
        raise CheckpointError(f"{path}: not a safetensors file, or cut short: a header of {length:,} bytes in a file of {size:,}")
    if length > caps.header:
        raise CheckpointError(f"{path}: a header of {length:,} bytes, at most {caps.header:,}")
    table = parse_json(stream.read(length), f"{path}: header", strict=True)
    if not isinstance(table, dict):
        raise CheckpointError(f"{path}: not a safetensors file: the header is not a table")
    texts = table.pop(_METADATA, {})
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise CheckpointError(f"{path}: the metadata are not texts")
    if len(table) > caps.tensors:
        raise CheckpointError(f"{path}: {len(table):,} tensors, at most {caps.tensors:,}")
    for name, entry in table.items():
        where = f"{path}: tensor {name[:_SHOWN]!r}"
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise CheckpointError(f"{where}: has fields other than dtype, shape and data_offsets")
        if entry["dtype"] not in list(_TYPES):
            raise CheckpointError(f"{where}: type {str(entry['dtype'])[:_SHOWN]!r} is none of {', '.join(_TYPES)}")
    return texts
