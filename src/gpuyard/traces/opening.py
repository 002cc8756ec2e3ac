"""Opening outside text, plain or gzip, so that no file can crash the program or fill the memory."""

from __future__ import annotations

import gzip
import io
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gpuyard.errors import DataError

Stream = IO[bytes] | gzip.GzipFile

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLOCK = 1 << 20  # bytes read at a time


@dataclass(frozen=True)
class Limits:
    """What a file may at most be; beyond it the file is refused. Sizes are those after decompression."""

    size: int = 2 << 30  # bytes
    line: int = 1 << 20  # bytes
    rows: int = 20_000_000  # jobs: 128 bytes each once read


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Block:
    """Some whole lines of a file, the last one ended with a line feed too."""

    text: bytes
    first_line: int  # from 1


def blocks(path: Path, limits: Limits) -> Iterator[Block]:
    """The file in blocks of about 1 MiB of whole lines, checked to be UTF-8 text within the limits."""
    pending, line, size = b"", 1, 0
    with _opened(path) as stream:
        while piece := _read(stream, path, size):
            size += len(piece)
            if size > limits.size:
                raise DataError(
                    f"{path}: more than {limits.size:,} bytes of text", hint="split the file, or give a larger Limits(size=…) from Python"
                )
            whole, feed, rest = piece.rpartition(b"\n")
            if feed:
                yield _checked(path, pending + whole + feed, line)
                line += whole.count(b"\n") + 1
                pending = rest
            else:
                pending += piece
            if len(pending) > limits.line:
                raise DataError(f"{path}:{line}: the line is longer than {limits.line:,} bytes", hint="is this a text file?")
    if size == 0:
        raise DataError(f"{path}: the file is empty")
    if pending:
        yield _checked(path, pending + b"\n", line)


@dataclass(frozen=True)
class Head:
    """The first whole lines of a file, by which its format is told."""

    path: Path
    lines: tuple[str, ...]  # without line ends, blank ones left out

    def fields(self, delimiter: str = ",") -> tuple[str, ...]:
        """The first line, cut at the delimiter and stripped: the header of a table."""
        return tuple(field.strip() for field in self.lines[0].split(delimiter)) if self.lines else ()


def head_of(path: Path, size: int = 1 << 16) -> Head | None:
    """The first lines within `size` bytes; None where the file cannot be looked into (a pipe is read only once).

    Never raises: what is wrong with the file is told when it is read.
    """
    if not path.is_file():
        return None
    try:
        with _opened(path) as stream:
            text = stream.read(size)
    except (DataError, OSError, EOFError, zlib.error):
        return None
    if len(text) == size:
        text = text[: text.rfind(b"\n") + 1] or text
    lines = text.removeprefix(_BYTE_ORDER_MARK).decode("utf-8", errors="replace").splitlines()
    return Head(path, tuple(line for line in lines if line.strip()))


def read_text(path: Path, limits: Limits) -> io.BytesIO:
    """The whole file, checked like `blocks`, without its byte order mark."""
    text = io.BytesIO()
    for block in blocks(path, limits):
        text.write(block.text)
    return text


def read_document(path: Path, limits: Limits) -> bytes:
    """The whole file, checked like `blocks` but for the length of its lines: for formats in which line ends mean nothing."""
    pieces, size = [], 0
    with _opened(path) as stream:
        while piece := _read(stream, path, size):
            size += len(piece)
            if size > limits.size:
                raise DataError(
                    f"{path}: more than {limits.size:,} bytes of text", hint="split the file, or give a larger Limits(size=…) from Python"
                )
            pieces.append(piece)
    if size == 0:
        raise DataError(f"{path}: the file is empty")
    return _checked(path, b"".join(pieces), 1).text


def _checked(path: Path, text: bytes, line: int) -> Block:
    if line == 1:
        text = text.removeprefix(_BYTE_ORDER_MARK)
    at = text.find(b"\0")
    if at >= 0:
        raise DataError(f"{path}:{line + text.count(10, 0, at)}: a zero byte; this is not a text file")
    if not text.isascii():
        try:
            text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}:{line + text.count(10, 0, error.start)}: byte 0x{text[error.start]:02x} is not UTF-8",
                hint="convert the file, e.g. with iconv -t UTF-8",
            ) from None
    return Block(text, line)


@contextmanager
def _opened(path: Path) -> Iterator[Stream]:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise DataError(f"{path}: is a directory, not a file")
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise DataError(f"{path}: is neither a file nor a pipe")
        raw = path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: {_reason(error)}") from None
    with raw:
        zipped = raw.peek(2)[:2] == _GZIP_MAGIC
        if path.suffix.lower() == ".gz" and not zipped and raw.peek(1):
            raise DataError(f"{path}: is not gzip, despite its name", hint="rename it if it is plain text")
        if zipped:
            with gzip.GzipFile(fileobj=raw) as unzipped:
                yield unzipped
        else:
            yield raw


def _read(stream: Stream, path: Path, done: int) -> bytes:
    try:
        return stream.read(_BLOCK)
    except EOFError:
        raise DataError(f"{path}: truncated gzip, it breaks off after some {done:,} bytes of text", hint="copy the file again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip after some {done:,} bytes of text ({error})", hint="copy the file again") from None
    except OSError as error:
        raise DataError(f"{path}: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower() if error.errno != 2 else "no such file"
