"""Open outside text, plain or packed, in UTF-8 or UTF-16, so that no file can crash the program or fill the memory."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuyard.errors import DataError
from gpuyard.files import pieces, unzipped
from gpuyard.packed import DAMAGED

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # as spreadsheets write "Unicode text"
_LOOKED_AT = 100  # bytes; of English in UTF-16 every second one is 0
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
    for piece in _as_utf8(path, pieces(path, limits.size, hint=_TOO_LARGE)):
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
    except (DataError, OSError, EOFError, *DAMAGED):
        return None
    if text.startswith(_UTF16_MARKS):
        text = text.decode("utf-16", errors="replace").encode()
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
    return _checked(path, b"".join(_as_utf8(path, pieces(path, limits.size, hint=_TOO_LARGE))), 1).text


def _as_utf8(path: Path, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pieces in UTF-8 if the first begins with a mark of UTF-16, else as they are."""
    decoder = None
    for number, piece in enumerate(pieces):
        if number == 0 and piece.startswith(_UTF16_MARKS):
            decoder = codecs.getincrementaldecoder("utf-16")()
        try:
            yield decoder.decode(piece).encode() if decoder else piece
        except UnicodeError as error:
            raise DataError(f"{path}: is not UTF-16, despite its first bytes ({error})"[:300]) from None
    if decoder and decoder.getstate()[0]:
        raise DataError(f"{path}: truncated: it ends in the middle of a character", hint="copy the file again")


def _checked(path: Path, text: bytes, line: int) -> Block:
    if line == 1:
        text = text.removeprefix(_BYTE_ORDER_MARK)
    at = text.find(b"\0")
    if at >= 0:
        raise DataError(f"{path}:{line + text.count(10, 0, at)}: a zero byte: this is not a text file", hint=_if_utf16(path, text))
    if not text.isascii():
        try:
            text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}:{line + text.count(10, 0, error.start)}: byte 0x{text[error.start]:02x} is not UTF-8",
                hint="convert the file, e.g. with iconv -t UTF-8",
            ) from None
    return Block(text, line)


def _if_utf16(path: Path, text: bytes) -> str:
    """Say how a file is converted if every second byte is zero, as in UTF-16 without its mark; else nothing."""
    start = text[:_LOOKED_AT]
    if start.count(0) * 3 < len(start):
        return ""
    order = "LE" if start[1:2] == b"\0" else "BE"
    return f"UTF-16 without its mark? convert it: iconv -f UTF-16{order} -t UTF-8 {path.name} > text"
