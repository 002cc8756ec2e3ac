"""Arrays in one safetensors file: eight bytes with the length of a JSON header, the header, the numbers.

Read and written here and not by a library, so that every way a file can be wrong ends in one line of text. Nothing in a file
is ever executed, and a file cannot ask for more memory than it is long.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import CheckpointError

Pathlike = str | os.PathLike[str]

_TYPES = {
    "F64": "<f8", "I64": "<i8", "U64": "<u8", "F32": "<f4", "I32": "<i4", "U32": "<u4",
    "F16": "<f2", "I16": "<i2", "U16": "<u2", "BOOL": "|b1", "I8": "|i1", "U8": "|u1",
}  # fmt: skip
_NAMES = {np.dtype(text): name for name, text in _TYPES.items()}
_METADATA = "__metadata__"
_SHOWN = 100  # characters of a name in a message
_MOST_DIMENSIONS = 8
_MOST_BYTES_OF_ONE = 1 << 48


@dataclass(frozen=True)
class Caps:
    """What is refused unread."""

    file: int  # bytes; 0: any
    header: int  # bytes
    tensors: int


ANY_SIZE = Caps(file=0, header=8 << 20, tensors=65_536)


@dataclass(frozen=True)
class _Tensor:
    """Where an array lies in a file."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int  # bytes from the end of the header
    end: int


def write_arrays(path: Pathlike, arrays: Mapping[str, Array], meta: Mapping[str, str], *, caps: Caps = ANY_SIZE) -> None:
    """Write arrays of numbers and some texts as one safetensors file, which appears whole or not at all.

    The same arrays and texts give the same bytes.
    """
    target = Path(path)
    plain = {name: _plain(np.asarray(array), name, target) for name, array in arrays.items()}
    names = sorted(plain, key=lambda name: (-plain[name].dtype.itemsize, name))  # the widest first: all of them are aligned
    header = _header(names, plain, meta, target)
    size = 8 + len(header) + sum(array.nbytes for array in plain.values())
    if len(header) > caps.header or len(names) > caps.tensors or (caps.file and size > caps.file):
        raise CheckpointError(f"{target}: {size:,} bytes with {len(names):,} tensors and a header of {len(header):,} bytes are too much")
    beside = target.parent / f".{target.name}.{secrets.token_hex(6)}.tmp"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not target.is_file():
            raise CheckpointError(f"{target}: is there and is not a file")
        try:
            with beside.open("xb") as stream:
                stream.write(len(header).to_bytes(8, "little") + header)
                for name in names:
                    stream.write(plain[name].reshape(-1).view(np.uint8).data)
                stream.flush()
                os.fsync(stream.fileno())
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{target}: cannot be written: {_why(error)}") from None


def read_arrays(path: Pathlike, *, caps: Caps = ANY_SIZE) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays and the texts of a safetensors file."""
    source = Path(path)
    try:
        about = source.stat()
        if not stat.S_ISREG(about.st_mode):
            raise CheckpointError(f"{source}: is not a file")
        if caps.file and about.st_size > caps.file:
            raise CheckpointError(f"{source}: {about.st_size:,} bytes, at most {caps.file:,}")
        with source.open("rb") as stream:
            return _read(stream, about.st_size, source, caps)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{source}: cannot be read: {_why(error)}") from None
    except MemoryError:
        raise CheckpointError(f"{source}: does not fit into memory") from None


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)[:200]


def _plain(array: Array, name: str, path: Path) -> Array:
    """In C order, the lowest byte first."""
    dtype = array.dtype.newbyteorder("<")
    if dtype not in _NAMES or name == _METADATA:
        raise CheckpointError(f"{path}: tensor {name[:_SHOWN]!r} of type {array.dtype} cannot be saved", hint="use numbers of 8 to 64 bits")
    return np.asarray(array, dtype, order="C")


def _header(names: list[str], arrays: Mapping[str, Array], meta: Mapping[str, str], path: Path) -> bytes:
    for key, text in meta.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise CheckpointError(f"{path}: metadata {key!r} is not a text")
    table: dict[str, Any] = {_METADATA: dict(meta)} if meta else {}
    at = 0
    for name in names:
        array = arrays[name]
        table[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    raw = json.dumps(table, separators=(",", ":")).encode("ascii")
    return raw + b" " * (-len(raw) % 8)


def _read(stream: BinaryIO, size: int, path: Path, caps: Caps) -> tuple[dict[str, Array], dict[str, str]]:
    first = stream.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or length > size - 8:
        raise CheckpointError(f"{path}: not a safetensors file, or cut short: a header of {length:,} bytes in a file of {size:,}")
    if length > caps.header:
        raise CheckpointError(f"{path}: a header of {length:,} bytes, at most {caps.header:,}")
    table = strict_json(stream.read(length), f"{path}: header")
    if not isinstance(table, dict):
        raise CheckpointError(f"{path}: not a safetensors file: the header is not a table")
    meta = _texts(table.pop(_METADATA, {}), path)
    if len(table) > caps.tensors:
        raise CheckpointError(f"{path}: {len(table):,} tensors, at most {caps.tensors:,}")
    tensors = sorted((_tensor(name, entry, path) for name, entry in table.items()), key=lambda tensor: (tensor.begin, tensor.end))
    _check_places(tensors, size - 8 - length, path)
    return {tensor.name: _numbers(stream, tensor, 8 + length, path) for tensor in tensors}, meta


def strict_json(raw: bytes, where: str) -> Any:
    """JSON in UTF-8 without NaN, infinities, keys that are there twice and halves of characters."""

    def refuse(text: str) -> float:
        raise ValueError(f"{text} is not a number in JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            raise ValueError("a key is there twice")
        return table

    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=refuse, object_pairs_hook=once)
        if b"\\ud" in raw.lower():
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # half a character cannot be encoded
        return value
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: not JSON: {str(error)[:_SHOWN]!r}") from None


def _texts(meta: object, path: Path) -> dict[str, str]:
    if not isinstance(meta, dict) or not all(isinstance(text, str) for text in meta.values()):
        raise CheckpointError(f"{path}: the metadata are not texts")
    return meta


def _tensor(name: str, entry: object, path: Path) -> _Tensor:
    where = f"{path}: tensor {name[:_SHOWN]!r}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"{where}: has something else than dtype, shape and data_offsets")
    kind, shape, places = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in _TYPES:
        raise CheckpointError(f"{where}: type {str(kind)[:_SHOWN]!r} is none of {', '.join(_TYPES)}")
    if not _is_whole_numbers(shape) or len(shape) > _MOST_DIMENSIONS:
        raise CheckpointError(f"{where}: shape {str(shape)[:_SHOWN]!r} is not a list of at most {_MOST_DIMENSIONS} sizes")
    if not _is_whole_numbers(places) or len(places) != 2:
        raise CheckpointError(f"{where}: data_offsets {str(places)[:_SHOWN]!r} are not two places")
    dtype = np.dtype(_TYPES[kind])
    if math.prod(max(size, 1) for size in shape) * dtype.itemsize > _MOST_BYTES_OF_ONE:
        raise CheckpointError(f"{where}: shape {str(shape)[:_SHOWN]!r} is too large")
    if math.prod(shape) * dtype.itemsize != places[1] - places[0]:
        raise CheckpointError(f"{where}: shape {shape} of {kind} does not fill {str(places)[:_SHOWN]}")
    return _Tensor(name, dtype, tuple(shape), places[0], places[1])


def _is_whole_numbers(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 2**63 for item in value)


def _check_places(tensors: list[_Tensor], size: int, path: Path) -> None:
    """Arrays lie one after the other and fill the file."""
    at = 0
    for tensor in tensors:
        if tensor.begin != at:
            raise CheckpointError(f"{path}: tensor {tensor.name[:_SHOWN]!r} begins at {tensor.begin:,}, not at {at:,}")
        at = tensor.end
    if at != size:
        raise CheckpointError(f"{path}: the tensors have {at:,} bytes, the file {size:,}", hint="it is cut short or was changed")


def _numbers(stream: BinaryIO, tensor: _Tensor, start: int, path: Path) -> Array:
    stream.seek(start + tensor.begin)
    array = np.empty(tensor.shape, tensor.dtype)
    if stream.readinto(array.reshape(-1).view(np.uint8).data) != tensor.end - tensor.begin:  # type: ignore[attr-defined]
        raise CheckpointError(f"{path}: tensor {tensor.name[:_SHOWN]!r} is cut short")
    if tensor.dtype.kind == "b" and (array.view(np.uint8) > 1).any():
        raise CheckpointError(f"{path}: tensor {tensor.name[:_SHOWN]!r} has truth values other than 0 and 1")
    return array
