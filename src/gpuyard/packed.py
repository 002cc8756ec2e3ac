"""Packed files (gzip, bzip2, xz, a zip with one file in it), seen by their first bytes and unpacked piece by piece within bounds."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable
from typing import IO

from gpuyard.errors import DataError

MAX_XZ_MEMORY = 256 << 20  # bytes that a file may make its unpacker take; `xz -9` needs 65 MiB
SUFFIXES = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zip": "zip"}
_PIECE = 1 << 16
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"PK\x03\x04": "zip"}
_REFUSED = {  # formats that Python's library cannot read, and what unpacks them
    b"\x28\xb5\x2f\xfd": ("Zstandard", "zstd -d"), b"\x04\x22\x4d\x18": ("LZ4", "lz4 -d"), b"\x1f\x9d": ("compress", "uncompress"),
    b"7z\xbc\xaf\x27\x1c": ("7-Zip", "7z x"), b"PAR1": ("Parquet", ""),
}  # fmt: skip
LONGEST_MAGIC = 6
DAMAGED = (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


def packing(start: bytes) -> str:
    """Name the packing of a file by its first bytes; empty for a plain file."""
    return next((name for magic, name in _MAGIC.items() if start.startswith(magic)), "")


def refuse_unknown(start: bytes, where: str) -> None:
    """Refuse a packing that cannot be read here, by its name."""
    for magic, (name, command) in _REFUSED.items():
        if start.startswith(magic):
            hint = f"unpack it first: {command} {where}" if command else "read it with Workload.from_frame in Python"
            raise DataError(f"{where}: is packed by {name}" if command else f"{where}: is {name}, not text", hint=hint)


def plain_name(name: str) -> str:
    """Return the name of a file without the suffix of its packing: `log.csv.xz` is a `log.csv`."""
    stem, dot, suffix = name.rpartition(".")
    return stem if stem and dot + suffix.lower() in SUFFIXES else name


def unpacked(raw: IO[bytes], kind: str, where: str) -> IO[bytes] | gzip.GzipFile:
    """Return a stream of what is in a packed file. It raises one of `DAMAGED`, EOFError or OSError where the file is broken."""
    if kind == "gzip":
        return gzip.GzipFile(fileobj=raw)
    if kind == "bzip2":
        return io.BufferedReader(_Unpacking(raw, bz2.BZ2Decompressor))
    if kind == "xz":
        return io.BufferedReader(_Unpacking(raw, lambda: lzma.LZMADecompressor(memlimit=MAX_XZ_MEMORY)))
    return _only_file(raw, where)


class _Unpacking(io.RawIOBase):
    """Unpack streams one behind another, as bzip2 and xz write them when files are joined, never more than is asked for."""

    def __init__(self, raw: IO[bytes], decompressor: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]) -> None:
        self.raw, self.make, self.current, self.rest = raw, decompressor, decompressor(), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while True:
            if self.current.eof:
                self.rest = self.current.unused_data or self.raw.read(_PIECE)
                if not self.rest.strip(b"\0"):  # xz may pad its end
                    return 0
                self.current = self.make()
            elif self.current.needs_input and not self.rest:
                self.rest = self.raw.read(_PIECE)
                if not self.rest:
                    raise EOFError
            try:
                piece = self.current.decompress(self.rest, len(buffer))
            except OSError as error:  # what bzip2 raises for damaged data
                raise zlib.error(str(error)) from None
            self.rest = b""
            if piece:
                buffer[: len(piece)] = piece
                return len(piece)


def _only_file(raw: IO[bytes], where: str) -> IO[bytes]:
    """Open the one file in a zip."""
    if not raw.seekable():
        raise DataError(f"{where}: a zip cannot be read from a pipe", hint="give the file, or unpack it first")
    archive = zipfile.ZipFile(raw)
    files = [each for each in archive.infolist() if not each.is_dir()]
    if len(files) != 1:
        names = ", ".join(repr(each.filename[:60]) for each in files[:5])
        raise DataError(f"{where}: {len(files)} files in the zip{f': {names}' if files else ''}", hint="unpack it and give one of them")
    try:
        return archive.open(files[0])
    except (RuntimeError, NotImplementedError) as error:  # a password; a method that the library does not have
        raise DataError(f"{where}: the zip cannot be opened: {str(error)[:120]}", hint="unpack it first") from None
