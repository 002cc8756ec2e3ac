"""Open outside text, plain or gzip, so that no file can crash the program or fill the memory."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuyard.errors import DataError
from gpuyard.files import pieces, unzipped

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TOO_LARGE = "split the file, or give a larger Limits(size=…) from Python"


@dataclass(frozen=True)
class Limits:
    """Upper limits; a file beyond them is refused. Sizes are after decompression."""

    size: int = 2 << 30  # bytes
    line: int = 1 << 20  # bytes
    rows: int = 20_000_000  # jobs: 128 bytes each once read
    comments: int = 64 << 20  # bytes in a row without a job


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Block:
    """Some whole lines of a file; the last one ends with a line feed too."""

    text: bytes
    first_line: int  # from 1


def blocks(path: Path, limits: Limits) -> Iterator[Block]:
    """Yield the file in blocks of about 1 MiB of whole lines, checked to be UTF-8 text within the limits."""
    pending, line = b"", 1
    for piece in pieces(path, limits.size, hint=_TOO_LARGE):
        whole, feed, rest = piece.rpartition(b"\n")
        if feed:
            yield _checked(path, pending + whole + feed, line)
            line += whole.count(b"\n") + 1
            pending = rest
        else:
            pending += piece
        if len(pending) > limits.line:
            raise DataError(f"{path}:{line}: the line is longer than {limits.line:,} bytes", hint="is this a text file?")
    if pending:
        yield _checked(path, pending + b"\n", line)


def check_comments(path: Path, size: int, limits: Limits) -> int:
    """Return the bytes without a job read in a row, or refuse more than the limit: a file could go on like that for hours."""
    if size > limits.comments:
        raise DataError(f"{path}: more than {limits.comments:,} bytes of comments and blank lines in a row", hint="is this a log of jobs?")
    return size


@dataclass(frozen=True)
class Head:
    """The first whole lines of a file, from which its format is guessed."""

    path: Path
    lines: tuple[str, ...]  # without line ends, blank ones left out

    def fields(self, delimiter: str = ",") -> tuple[str, ...]:
        """Split the first line, the header of a table, at the delimiter."""
        return tuple(field.strip() for field in self.lines[0].split(delimiter)) if self.lines else ()


def head_of(path: Path, size: int = 1 << 16) -> Head | None:
    """Return the first lines within `size` bytes; None for a pipe, which can be read only once, and for an unreadable file.

    Never raises: a fault of the file is reported when it is read.
    """
    if not path.is_file():
        return None
    try:
        with unzipped(path) as stream:
            text = stream.read(size)
    except (DataError, OSError, EOFError, zlib.error):
        return None
    if len(text) == size:
        text = text[: text.rfind(b"\n") + 1] or text
    lines = text.removeprefix(_BYTE_ORDER_MARK).decode("utf-8", errors="replace").splitlines()
    return Head(path, tuple(line for line in lines if line.strip()))


def read_text(path: Path, limits: Limits) -> io.BytesIO:
    """Read the whole file, checked like `blocks`, without its byte order mark."""
    text = io.BytesIO()
    for block in blocks(path, limits):
        text.write(block.text)
    return text


def read_document(path: Path, limits: Limits) -> bytes:
    """Read the whole file, checked like `blocks` except for the length of lines: for formats in which line ends mean nothing."""
    return _checked(path, b"".join(pieces(path, limits.size, hint=_TOO_LARGE)), 1).text


def _checked(path: Path, text: bytes, line: int) -> Block:
    if line == 1:
        text = text.removeprefix(_BYTE_ORDER_MARK)
    at = text.find(b"\0")
    if at >= 0:
        raise DataError(f"{path}:{line + text.count(10, 0, at)}: a zero byte: this is not a text file")
    if not text.isascii():
        try:
            text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}:{line + text.count(10, 0, error.start)}: byte 0x{text[error.start]:02x} is not UTF-8",
                hint="convert the file, e.g. with iconv -t UTF-8",
            ) from None
    return Block(text, line)
