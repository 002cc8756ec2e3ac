"""Files on disk: written whole or not at all, locked by one process, and read within bounds.

Everything that gpuyard saves and every JSON or TOML file that it reads passes through here. A failure is one line that names the file.
"""

from __future__ import annotations

import ast
import errno
import fcntl
import gzip
import json
import math
import os
import re
import secrets
import shutil
import stat
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from gpuyard import packed
from gpuyard.errors import DataError, UsageError

LOCK = "lock"  # in a folder: who holds it may work there
PARTIAL = ".part"  # ends the name of a file that is being written
MAX_TOML_BYTES = 1_000_000
MAX_TOML_DEPTH = 8  # tables in tables
_MAX_DEPTH = 50  # of values in a manifest
_NONFINITE = "$float"  # {"$float": "inf"}: JSON has no number for it
_LEFTOVER = 3600.0  # s after which a folder that is being filled is nobody's
_LONGEST = 200  # characters of a reason in a message
_PIECE = 1 << 20  # bytes read at a time

Stream = IO[bytes] | gzip.GzipFile


# ── writing ──


@contextmanager
def writing(path: Path, *, hint: str = "") -> Iterator[None]:
    """Turn a failure of the file system into one line that names the file."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be written: {_reason(error)}", hint=hint) from error


@contextmanager
def beside(path: Path, *, alone: bool = False, hint: str = "") -> Iterator[Path]:
    """Make an empty file to write to, which becomes `path` at the end of the block, unless the block raises.

    Its bytes reach the disk before it takes the name in one step, so that `path` is whole at every moment. With `alone` the caller
    holds a lock: the empty file has a fixed name then, and killed processes never leave more than one.
    """
    place = path.with_name(f"{path.name}{'' if alone else f'.{secrets.token_hex(4)}'}{PARTIAL}")
    with writing(path, hint=hint):
        if path.exists() and not path.is_file():
            raise OSError("it exists and is not a file")
        try:
            place.open("wb" if alone else "xb").close()
            mode = place.stat().st_mode
            yield place
            place.chmod(mode)
            with place.open("rb") as written:
                os.fsync(written.fileno())
            place.replace(path)
        finally:
            place.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path, *, alone: bool = False, hint: str = "") -> Iterator[BinaryIO]:
    """Open a stream whose bytes become the file `path` at the end of the block, unless the block raises."""
    with beside(path, alone=alone, hint=hint) as place, place.open("wb") as stream:
        yield stream


def write_bytes(path: Path, data: bytes, *, alone: bool = False, hint: str = "") -> None:
    """Write a file whole or not at all (see `replacing`); missing folders are made."""
    with writing(path, hint=hint):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, alone=alone, hint=hint) as stream:
        stream.write(data)


@contextmanager
def staged(folder: Path, *, last: str = "") -> Iterator[Path]:
    """Make an empty folder to write files to, which move into `folder` together at the end of the block, unless it raises.

    What takes long is done before the first old file is touched; the file named `last` moves last. What a killed process left is removed
    an hour later.
    """
    place = folder / f".{secrets.token_hex(4)}{PARTIAL}"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f".*{PARTIAL}"):
            if old.is_dir() and time.time() - old.stat().st_mtime > _LEFTOVER:
                shutil.rmtree(old, ignore_errors=True)
        place.mkdir()
    try:
        yield place
        with writing(folder):
            for path in sorted((path for path in place.rglob("*") if path.is_file()), key=lambda path: (path.name == last, path)):
                target = folder / path.relative_to(place)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """Encode a table as JSON for people: indented, in UTF-8, with a line feed at the end."""
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


# ── locks ──


def claim(file: IO[Any]) -> bool:
    """Lock an open file for this process; False if another process holds it. The lock goes with the process, however it ends."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def locked(folder: Path, *, what: str = "", hint: str = "wait for it, stop it, or give another --out") -> Iterator[None]:
    """Hold the folder's lock, a file `lock` with the number of the process; refuse in these words if another process holds it.

    Only its owner may open it: a lock that others could read, they could hold.
    """
    path = folder / LOCK
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        private = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        file = os.fdopen(private, "a+", encoding="ascii", errors="replace")
    with file:
        if not claim(file):
            file.seek(0)
            holder = file.read(20).strip()
            process = f" ({holder})" if holder.isdigit() else ""
            raise UsageError(f"{what or f'{folder}: in use by another gpuyard process'}{process}", hint=hint)
        with suppress(OSError):  # only the message above needs it
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        yield


# ── reading ──


@contextmanager
def reading(path: Path, *, hint: str = "") -> Iterator[None]:
    """Turn a failure of the file system into one line that names the file."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise DataError(f"{str(path)[:_LONGEST]}: cannot be read: {_reason(error)}", hint=hint) from None


def user_path(text: str) -> Path:
    """Return a path that a user wrote, with `~` and `~name` as home folders."""
    try:
        return Path(text).expanduser()
    except RuntimeError:  # no such user
        raise DataError(f"{text[:_LONGEST]}: no such home folder", hint="write ./~… for a file whose name begins with ~") from None


def is_file(path: Path | str) -> bool:
    """Return whether a file is there; no file has an impossible name."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def read_bytes(path: Path, most: int, what: str) -> bytes:
    """Read a whole file of at most `most` bytes; `what` names its kind in the message about a larger one."""
    with reading(path), path.open("rb") as stream:
        about = os.fstat(stream.fileno())
        data = b"" if about.st_size > most else stream.read() if stat.S_ISREG(about.st_mode) else stream.read(most + 1)
        if max(len(data), about.st_size) > most:
            raise DataError(f"{path}: larger than {most:,} bytes, too large for {what}")
    return data


@contextmanager
def unzipped(path: Path) -> Iterator[Stream]:
    """Open a file or a pipe that is plain or packed, by its first bytes (see `gpuyard.packed`)."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise DataError(f"{path}: is a directory, not a file")
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise DataError(f"{path}: is neither a file nor a pipe")
        raw = path.open("rb")
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {_why_not(error)}") from None
    with raw:
        try:
            start = raw.peek(packed.LONGEST_MAGIC)
            kind = packed.packing(start)
            packed.refuse_unknown(start, str(path))
            named = packed.SUFFIXES.get(path.suffix.lower())
            if named and kind != named and start:
                raise DataError(f"{path}: is not {named}, despite its name", hint="rename it if it is plain text")
            stream = packed.unpacked(raw, kind, str(path)) if kind else raw
        except OSError as error:  # such as /proc/self/mem, which can be opened but not read
            raise DataError(f"{path}: {_why_not(error)}") from None
        except packed.DAMAGED as error:
            raise DataError(f"{path}: damaged {kind} ({error})", hint="copy the file again") from None
        with stream:
            yield stream


def pieces(path: Path, most: int, *, hint: str = "") -> Iterator[bytes]:
    """Yield a plain or packed file, of at most `most` bytes once unpacked, 1 MiB at a time. An empty file is refused."""
    size = 0
    with unzipped(path) as stream:
        while piece := _read_piece(stream, path, size):
            size += len(piece)
            if size > most:
                raise DataError(f"{path}: more than {most:,} bytes of text", hint=hint)
            yield piece
    if size == 0:
        raise DataError(f"{path}: the file is empty")


def _read_piece(stream: Stream, path: Path, done: int) -> bytes:
    try:
        return stream.read(_PIECE)
    except EOFError:
        raise DataError(f"{path}: truncated: it ends after some {done:,} bytes of text", hint="copy the file again") from None
    except packed.DAMAGED as error:
        raise DataError(f"{path}: damaged after some {done:,} bytes of text ({error})", hint="copy the file again") from None
    except OSError as error:
        raise DataError(f"{path}: {_why_not(error)}") from None


def _why_not(error: Exception) -> str:
    return "no such file" if getattr(error, "errno", 0) == errno.ENOENT else _reason(error).lower()


def parse_json(raw: bytes | str, where: str, *, strict: bool = False, constants: bool = False, hint: str = "") -> Any:
    """Parse JSON in UTF-8. NaN and infinities are refused unless `constants`.

    With `strict`, keys that are given twice and halves of surrogate pairs are refused too.
    """

    def refuse(text: str) -> float:
        raise ValueError(f"{text} is not a number in JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            raise ValueError("a key is given twice")
        return table

    try:
        text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        value = json.loads(text, parse_constant=None if constants else refuse, object_pairs_hook=once if strict else None)
        if strict and "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # half of a pair cannot be encoded
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON: {_reason(error) or 'nested too deeply'}", hint=hint) from None
    return value


def read_toml(path: Path, what: str, most: int = MAX_TOML_BYTES) -> dict[str, Any]:
    """Read the tables of a TOML file of at most `most` bytes; `what` names its kind, such as "a cluster file"."""
    return parse_toml(read_bytes(path, most, what), str(path))


def toml_text(table: Mapping[str, Any], inside: str = "") -> str:
    """Write a table of texts, numbers, lists of these, tables and lists of tables as TOML; `inside` is the path of the table itself."""
    lines = [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in table.items() if not _is_table(value)]
    parts = ["".join(f"{line}\n" for line in lines)] if lines else []
    for key, value in table.items():
        path = f"{inside}.{_toml_key(key)}" if inside else _toml_key(key)
        if isinstance(value, Mapping):
            parts.append(f"[{path}]\n{toml_text(value, path)}")
        elif _is_table(value):
            parts += [f"[[{path}]]\n{toml_text(each, path)}" for each in value]
    return "\n".join(parts)


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and bool(value) and isinstance(value[0], Mapping))


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_value(key)


def _toml_value(value: Any) -> str:
    """Write a text as JSON does: TOML reads its escapes too, and DEL must be one of them."""
    if isinstance(value, list):
        return f"[{', '.join(_toml_value(each) for each in value)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def parse_toml(raw: bytes | str, where: str) -> dict[str, Any]:
    """Parse TOML in UTF-8 with tables at most eight deep. Errors begin with `where` and name the line."""
    try:
        table = tomllib.loads(raw.decode("utf-8") if isinstance(raw, bytes) else raw)
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: byte {error.start} is not UTF-8") from None
    except (ValueError, RecursionError) as error:  # also whole numbers of thousands of digits
        raise DataError(f"{where}: not TOML: {_reason(error) or 'nested too deeply'}") from None
    level: list[Any] = [table]
    for _ in range(MAX_TOML_DEPTH):
        level = [item for each in level for item in (each.values() if isinstance(each, dict) else each) if isinstance(item, dict | list)]
    if level:
        raise DataError(f"{where}: nested more than {MAX_TOML_DEPTH} levels deep")
    return table


def merge_tables(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables key by key, at every depth; later ones win."""
    result: dict[str, Any] = {}
    for table in tables:
        for name, value in table.items():
            old = result.get(name)
            result[name] = merge_tables(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def _reason(error: Exception) -> str:
    """Say in one short line why a file could not be used."""
    return " ".join((getattr(error, "strerror", None) or str(error)).split())[:_LONGEST]


# ── values that JSON can hold ──


def to_plain(value: object, path: str, depth: int = 0) -> Any:
    """Convert to text, numbers, lists and dicts: tuples become lists, infinities and NaN `{"$float": "inf"}`.

    `path` names the value in errors.
    """
    if depth > _MAX_DEPTH:
        raise DataError(f"{path}: nested more than {_MAX_DEPTH} deep")
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {_NONFINITE: str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise DataError(f"{path}: key {wrong[0]!r} is not a text")
        return {key: to_plain(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    raise DataError(f"{path}: a {type(value).__name__} cannot be saved", hint="use text, numbers, lists and tables")


def from_plain(value: Any, depth: int = 0) -> Any:
    """Convert back what `to_plain` made; what was a tuple comes back as a list."""
    if depth > _MAX_DEPTH:
        raise DataError(f"manifest: nested more than {_MAX_DEPTH} deep")
    if isinstance(value, dict):
        if set(value) == {_NONFINITE}:
            if value[_NONFINITE] not in ("inf", "-inf", "nan"):
                raise DataError(f"{_NONFINITE} = {str(value[_NONFINITE])[:60]!r} is none of inf, -inf, nan")
            return float(value[_NONFINITE])
        return {key: from_plain(item, depth + 1) for key, item in value.items()}
    return [from_plain(item, depth + 1) for item in value] if isinstance(value, list) else value


# ── Python files ──


def public_names(path: Path) -> list[str]:
    """Return the functions and classes that a Python file defines, without running it; none of a file that cannot be read."""
    try:
        tree = ast.parse(path.read_bytes() if path.stat().st_size <= MAX_TOML_BYTES else b"")
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    defined = (ast.FunctionDef, ast.ClassDef)
    return [each.name for each in tree.body if isinstance(each, defined) and not each.name.startswith("_")]
