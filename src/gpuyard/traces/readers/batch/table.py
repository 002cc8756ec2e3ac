"""Delimited text with named columns and any delimiter, as columns of text with the line of each row."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError, UsageError
from gpuyard.model.site.notation import Resources
from gpuyard.traces.checks import check_count
from gpuyard.traces.opening import Limits
from gpuyard.traces.readers.batch.records import Coded, first_positive
from gpuyard.traces.readers.csv import MAX_COLUMNS, TextTable, row_marks

T = TypeVar("T")
Broken = Literal["refuse", "drop"]
DELIMITERS = ("|#", "☃", "|", ";", "\t", ",")
_FIRST_NAME = re.compile(r'\s*"?[A-Za-z_]\w*"?([^\w\s"%]{1,8}|\t)')  # a name, and what separates it from the next
_STEP = 4 << 20  # bytes scanned together
_UNIT = "\x1f"  # stands for a delimiter of several bytes
RULED = "\x1e"  # between the fields of a listing in columns of fixed width, once they are cut apart
_RULER = re.compile(r"-+( -+)*\s*")
_MISSING = ["", "Unknown", "None", "N/A", "NULL", "\\N", "(null)", "None assigned", "nan", "NaN"]


@dataclass(frozen=True)
class Layout:
    """How lines are split into fields."""

    delimiter: str
    names: tuple[str, ...]  # lower case; "" for a column without a name
    header: bool  # whether the first line holds the names

    @property
    def quoted(self) -> bool:
        """Whether quotes count: they do where the comma separates; elsewhere a job's name may hold a lone quote."""
        return self.delimiter == ","


def split(line: str, delimiter: str) -> tuple[str, ...]:
    """Split one line into stripped fields."""
    line = line.rstrip("\r\n")
    if delimiter == "," and '"' in line:
        try:
            return tuple(field.strip() for field in next(csv.reader([line])))
        except (csv.Error, StopIteration):
            pass
    return tuple(field.strip() for field in line.split(delimiter))


def header_layout(lines: Sequence[str], known: Collection[str], delimiter: str = "") -> Layout | None:
    """Return the layout with the most known names in the first line; None without any delimiter."""
    if not lines:
        return None
    found = _FIRST_NAME.match(lines[0])
    tried = [delimiter] if delimiter else [*DELIMITERS, *([found[1]] if found else [])]
    cuts = {each: tuple(name.strip('"').lower() for name in split(lines[0], each)) for each in tried if each in lines[0]}
    if not cuts:
        return None
    best = max(cuts, key=lambda each: sum(name in known for name in cuts[each]))
    names = cuts[best]
    if len(lines) > 1 and names[-1] and lines[1].rstrip().endswith(best) and len(split(lines[1], best)) == len(names) + 1:
        names = (*names, "")  # rows end with a delimiter, the header does not
    return Layout(best, names, header=True)


def check_delimiter(delimiter: str) -> str:
    """Return the delimiter that the user names, or `tab`; refuse what cannot separate fields."""
    delimiter = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter)
    if len(delimiter) > 8 or any(mark in delimiter for mark in '"\n\r') or delimiter.isalnum():
        raise UsageError(f"delimiter {delimiter!r} cannot separate fields")
    return delimiter


@dataclass(frozen=True)
class LogTable(TextTable):
    """A table whose values are parsed once for each distinct text, and the lines that were left out, by reason."""

    dropped: dict[str, int]

    def values(self, name: str, parse: Callable[[str], float], default: float = np.nan) -> Array:
        """Parse a column of numbers; a missing value is the default."""
        found, codes = self.parsed(name, lambda text: parse(text) if text else default)
        values: Array = np.array(found)[codes]
        return values

    def parsed(self, name: str, parse: Callable[[str], T]) -> tuple[list[T], Array]:
        """Parse each distinct text of a column once; return the parsed values, and which of them each row has."""
        column = self.coded(name)
        found = []
        for code, text in enumerate(column.labels):
            try:
                found.append(parse(text))
            except ValueError as error:
                raise self.rows.error(int(np.argmax(column.codes == code)), f"{name} = {text[:60]!r} {error}") from None
        return found, column.codes

    def resources(self, name: str, parse: Callable[[str], Resources]) -> ResourceColumns:
        """Parse a column of resources; `parse` is called once for each distinct text."""
        found, codes = self.parsed(name, parse)
        parts = ("cpus", "memory", "nodes", "gpus", "shards")
        cpus, memory, nodes, gpus, shards = (np.array([getattr(each, part) for each in found])[codes] for part in parts)
        return ResourceColumns(cpus, memory, nodes, gpus, Coded(tuple(each.gpu_type for each in found), codes).merged(), shards)

    def without_nodes(self) -> Array:
        """Return (rows,) bool: the log names nodes, but none for this job."""
        missing = np.zeros(len(self), bool) if "nodelist" not in self else self.frame["nodelist"].is_null().to_numpy()
        return np.zeros(len(self), bool) if missing.all() else missing

    def coded(self, name: str) -> Coded:
        """Return a column as labels and codes; missing values have the empty label."""
        import polars as pl

        if name not in self:
            return Coded.constant(len(self))
        text = self.frame[name].fill_null("")
        labels = text.unique().sort()
        codes = text.replace_strict(labels, pl.Series(np.arange(len(labels), dtype=np.int32)))
        return Coded(tuple(labels.to_list()), codes.to_numpy())

    def instants(self, name: str, parse: Callable[[str], float]) -> Array:
        """Return seconds since 1970: plain ISO times all at once, other forms through `parse`, once for each distinct text."""
        import polars as pl

        if name not in self:
            return np.full(len(self), np.nan)
        text = self.frame[name]
        when = text.str.to_datetime("%Y-%m-%dT%H:%M:%S", strict=False, time_unit="ms").dt.epoch("ms").cast(pl.Float64) / 1e3
        odd = (when.is_null() & text.is_not_null()).arg_true()
        found: Array = when.fill_null(np.nan).to_numpy().copy()
        if len(odd):
            rest = LogTable(self.path, pl.DataFrame({name: text.gather(odd)}), self.lines[odd.to_numpy()], {})
            found[odd.to_numpy()] = rest.values(name, parse)
        return found


# ── listings for people: columns of fixed width below a line of dashes ──


def is_ruled(lines: Sequence[str]) -> bool:
    """Whether the second line is a ruler."""
    return len(lines) > 1 and bool(_RULER.fullmatch(lines[1].rstrip("\r\n")))


def cut_fields(line: str, ruler: str) -> list[str]:
    """Return the fields of a line, without blanks around them."""
    return [line[each.start() : each.end()].strip() for each in re.finditer("-+", ruler)]


def delimited(path: Path, text: io.BytesIO, free: Collection[str]) -> io.BytesIO:
    """Return the text with `RULED` between fields, the ruler blank. Values that were cut off (`gpu+`) are refused but in `free` columns."""
    lines = text.getvalue().decode("utf-8").split("\n")
    ruler = lines[1].rstrip("\r")
    names = [name.lower() for name in cut_fields(lines[0], ruler)]
    parts = [RULED.join(names), ""]
    for number, line in enumerate(lines[2:], 3):
        fields = cut_fields(line, ruler) if line.strip() else []
        if len(line.rstrip()) > len(ruler):
            raise DataError(f"{path}:{number}: the line is wider than the ruler in line 2", hint="print it with --parsable2")
        for name, value in zip(names, fields, strict=False):
            if value.endswith("+") and name not in free:
                raise DataError(f"{path}:{number}: {name} = {value[:40]!r} is cut off", hint="print it with --parsable2")
        parts.append(RULED.join(fields))
    return io.BytesIO("\n".join(parts).encode())


# ── reading ──


def read_table(path: Path, text: io.BytesIO, layout: Layout, wanted: Collection[str], limits: Limits, broken: Broken) -> LogTable:
    """Read the wanted columns. A line with the wrong number of fields is refused, or dropped and counted; see `_last_is_free`."""
    import polars as pl

    if len(layout.names) > MAX_COLUMNS:
        raise DataError(f"{path}:1: {len(layout.names):,} columns; at most {MAX_COLUMNS:,}", hint="is this a table of jobs?")
    data, mark = text.getvalue(), layout.delimiter
    if len(mark.encode()) > 1:
        data, mark = data.replace(mark.encode(), _UNIT.encode()), _UNIT
    body = data.find(b"\n") + 1 if layout.header else 0
    lines, good, dropped = _lines(path, data, body, layout, mark, limits, broken)
    picked = {name: k for k, name in reversed(list(enumerate(layout.names))) if name in wanted}
    guide = mark.join(f"c{k}" for k in range(len(layout.names))).encode() + b"\n"  # so that no first line sets the width
    try:
        frame = pl.read_csv(
            guide + data[body:], separator=mark, infer_schema=False, columns=[f"c{k}" for k in sorted(picked.values())],
            null_values=_MISSING, quote_char='"' if layout.quoted else None, truncate_ragged_lines=True,
        )  # fmt: skip
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path}: not a table ({str(error).splitlines()[0]})") from None
    if len(frame) != len(lines):
        raise DataError(f"{path}: {len(lines):,} lines but {len(frame):,} rows", hint="is there a stray quote character?")
    if not good.all():
        frame, lines = frame.filter(good), lines[good]
    blanks = any(mark_or_end in data for mark_or_end in (b"\r", b" " + mark.encode(), mark.encode() + b" ", b" \n", b"\n "))
    columns = {name: frame[f"c{k}"].str.strip_chars() if blanks else frame[f"c{k}"] for name, k in picked.items()}
    return LogTable(path, pl.DataFrame(columns), lines, dropped)


def _lines(
    path: Path, data: bytes, body: int, layout: Layout, mark: str, limits: Limits, broken: Broken
) -> tuple[Array, Array, dict[str, int]]:
    """Return the line of each row, whether it is read, and counts of what is not."""
    header = 1 if layout.header else 0
    if layout.quoted:
        end, separators, feeds = row_marks(path, data, body, mark, limits)
        begin, found = np.concatenate(([body], end[:-1] + 1))[: len(end)], np.diff(separators, prepend=0) + 1
        lines = np.searchsorted(feeds, begin) + header + 1
    else:
        end, found = _ends(path, data, body, mark, limits)
        begin, lines = np.concatenate(([body], end[:-1] + 1))[: len(end)], np.arange(len(end)) + header + 1
    filled = (end - begin > 1) | ((end - begin == 1) & (np.frombuffer(data, np.uint8)[begin] > ord(" ")))  # else blank, or a lone \\r
    width = len(layout.names)
    wrong = filled & ((found < width) | ((found > width) & (not _last_is_free(layout))))
    if wrong.any() and broken == "refuse":
        row = int(np.argmax(wrong))
        hint = f"--with broken=drop leaves out such lines ({int(wrong.sum()):,} here) and counts them"
        raise DataError(f"{path}:{lines[row]}: {found[row]} fields instead of {width}", hint=hint)
    good = filled & ~wrong
    if not good.any():
        raise DataError(f"{path}: no records" + (", only a header" if layout.header else ""))
    return lines, good, {"line with the wrong number of fields": int(wrong.sum())} if wrong.any() else {}


def _ends(path: Path, data: bytes, body: int, mark: str, limits: Limits) -> tuple[Array, Array]:
    """Return where lines end and how many fields each has, where quotes do not count: only the marks are scanned, not every byte."""
    ends, fields, carried, lines = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0, 0
    for at in range(body, len(data), _STEP):
        piece = np.frombuffer(data, np.uint8, min(_STEP, len(data) - at), at)
        marks = np.flatnonzero((piece == ord(mark)) | (piece == ord("\n")))
        last = np.flatnonzero(piece[marks] == ord("\n"))
        count = np.diff(last, prepend=-1)
        if len(count):
            count[0] += carried
            carried = 0
        carried += len(marks) - (int(last[-1]) + 1 if len(last) else 0)
        ends.append(at + marks[last])
        fields.append(count)
        lines += len(last)
        check_count(path, lines, limits, "rows")
    return np.concatenate(ends), np.concatenate(fields)


def _last_is_free(layout: Layout) -> bool:
    """Whether surplus fields belong to the last one: a job's name may hold the delimiter."""
    return layout.names[-1] == "jobname"


@dataclass(frozen=True)
class ResourceColumns:
    """Resources that jobs asked for or got, row by row; nan where the log says nothing."""

    cpus: Array
    memory: Array  # GB
    nodes: Array
    gpus: Array
    gpu_type: Coded
    shards: Array  # of GPUs

    def over(self, other: ResourceColumns) -> ResourceColumns:
        """Return these values, or the other's where these are missing."""
        return ResourceColumns(
            first_positive(self.cpus, other.cpus), first_positive(self.memory, other.memory), first_positive(self.nodes, other.nodes),
            first_positive(self.gpus, other.gpus), self.gpu_type.over(other.gpu_type), first_positive(self.shards, other.shards),
        )  # fmt: skip

    def binding_type(self, ran_type: Coded) -> Coded:
        """Return the type that a job needs where these were asked for: the one it ran on, but none where it asked for untyped GPUs."""
        free = (self.gpus > 0) & ~self.gpu_type.filled
        codes = np.where(free, len(ran_type.labels), ran_type.codes).astype(np.int32)
        return Coded((*ran_type.labels, ""), codes).merged()
