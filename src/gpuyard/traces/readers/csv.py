"""Reads tables (CSV, TSV and the like) with named columns, and writes one that reads back equal."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError, UsageError
from gpuyard.model.jobs import LABELS
from gpuyard.model.rules import FLAGS
from gpuyard.model.units import ESCAPED, clean, csv_label
from gpuyard.model.workload import Workload
from gpuyard.traces.base import reader
from gpuyard.traces.checks import Rows, check_count, check_ids
from gpuyard.traces.opening import DEFAULT_LIMITS, Head, Limits, read_text
from gpuyard.traces.readers.columns import LABEL_COLUMNS, UNITS, chosen_columns, holds_jobs, places_of
from gpuyard.traces.readers.tables import YES_NO, quantities, with_devices, workload_of
from gpuyard.traces.writing import LINES, USUAL, WRITERS, Writer, lost_facts, lost_origin, number_texts, written

if TYPE_CHECKING:
    import polars as pl

MAX_COLUMNS = 10_000
_MOST_COMMENTS = 100  # lines before the header among which a table is looked for
MISSING = ["", "NA", "N/A", "null", "NULL", "None"]
_ISO = r"^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:\.\d{1,9})?) ?(?:(Z|UTC)|([+-])(\d\d):?(\d\d))?$"
_BLANKS = (b" ", b"\t", b"\r", b"\v", b"\f")
_STEP = 4 << 20  # bytes looked at together when fields are counted
# First columns of public tables that come with job traces but hold no jobs: an error says what they are.
_NOT_JOBS: dict[tuple[str, ...], str] = {
    ("TIMESTAMP", "ContextTokens", "GeneratedTokens"):
        "requests to a language model (Azure 2023), which have token counts but no run times",
    ("sn", "cpu_milli", "memory_mib", "gpu", "model"): "the machines of openb (the cluster preset `openb`)",
    ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"): "the machines of PAI 2020 (the cluster preset `pai2020`)",
    ("ip", "DSW", "PSW", "ASW"): "the hosts and switches of Lingjun 2023 (the cluster preset `lingjun2023`)",
    ("", "machineId", "number of GPUs"): "the machines of Philly (the cluster preset `philly`)",
    ("vc", "node num"): "the sizes of Philly's virtual clusters",
    ("id", "gpu_num", "job_num", "cpu_job_num"): "a summary of the Helios clusters",
    ("date", "vchbv", "vc4om"): "the sizes of Helios' virtual clusters by day",
    ("gpu_type", "model", "table", "placement"): "measured step times (a speed table, see --speeds)",
    ("model", "exec_plan", "placement", "cpu_threads"): "measured iteration times (a speed table, see --speeds)",
    ("dataset", "network", "batch_size", "optimizer", "power_limit"): "measured power and time per epoch",
    ("dataset", "network", "batch_size", "optimizer", "learning_rate"): "measured epochs to a target",
}  # fmt: skip


def _sniff(head: Head) -> bool:
    lines = [line for line in head.lines[:_MOST_COMMENTS] if not line.startswith("#")][:1]
    return any(holds_jobs(line.split(_delimiter_of(line))) for line in lines)


@reader("csv", glob=("*.csv", "*.tsv"), title="Table with named columns", sniff=_sniff, last=True)
def read_csv(
    path: Path, *, columns: Mapping[str, str] | None = None, unit: Literal["us", "ms", "s", "min", "h", "d"] = "s", delimiter: str = "",
    limits: Limits = DEFAULT_LIMITS,
) -> Workload:  # fmt: skip
    """Read the jobs of a table with a header line; `columns` maps our names to the table's (`submit` → `arrival_s`).

    A column that has our name or a usual one (`Submit Time`, `num_gpus`, `wait (min)`) needs no mapping; the notes say which were
    taken. Required: `submit`, or `start` and `wait`; and `runtime`, or `end` and a start. `unit` applies to times that are numbers
    and whose column does not say its unit, in its name or in the mapping (`runtime=length:min`); instants may be ISO timestamps instead
    (time 0 is then the first submit). `delimiter` is guessed from the header unless given. Lines that begin with # are comments.
    Where a table has cores and no GPUs, a device is a core. Rows without submit, run time or GPUs are dropped and counted; a job may
    take 0 s.
    """
    text = read_text(path, limits)
    names, delimiter = _header(path, text, delimiter)
    if not columns:
        _refuse_known(path, names)
    chosen = chosen_columns(f"{path}:1", names, columns or {}, UNITS[unit])
    table = TextTable(path, *_frame(path, text, names, chosen.places, delimiter, limits))
    values, notes = quantities(table, chosen.units)
    values, machines, more = with_devices(values)
    return workload_of(table, values, (*chosen.notes, *notes, *more), machines=machines)


@dataclass(frozen=True)
class Form:
    """The layout of a table that is known in advance."""

    columns: Mapping[str, str]  # our name → the table's
    also: tuple[str, ...] = ()  # columns that only the reader understands; they keep their names
    names: tuple[str, ...] = ()  # names of all columns, where there is no header line
    delimiter: str = ","


def open_table(path: Path, form: Form, limits: Limits) -> TextTable:
    """Read the columns of a known table as text; other columns are ignored."""
    return table_in(path, read_text(path, limits), form, limits)


def table_in(path: Path, text: io.BytesIO, form: Form, limits: Limits) -> TextTable:
    """Read a known table from text that is already in memory."""
    text.seek(0)
    names = list(form.names) or _header(path, text, form.delimiter)[0]
    places = places_of(f"{path}:1", names, {**form.columns, **{name: name for name in form.also}})
    return TextTable(path, *_frame(path, text, names, places, form.delimiter, limits))


def what_table(names: Sequence[str]) -> str:
    """Describe a table by its first columns; empty where it may hold jobs."""
    return next((what for begin, what in _NOT_JOBS.items() if tuple(names[: len(begin)]) == begin), "")


def what_file(head: Head) -> str:
    """Describe a file by its first lines, as `what_table` does; Gavel's JSON is known as well."""
    if head.lines and head.lines[0].lstrip().startswith("{") and "(batch size" in head.lines[0] + "".join(head.lines[1:5]):
        return "measured throughputs (a speed table, see --speeds)"
    return what_table(head.fields())


def _refuse_known(path: Path, names: list[str]) -> None:
    what = what_table(names)
    if what:
        raise DataError(f"{path}: {what}, not a list of jobs", hint="to read it as one anyway, name the columns, e.g. submit=NAME")


def _header(path: Path, text: io.BytesIO, delimiter: str) -> tuple[list[str], str]:
    """Return the names of the columns and the delimiter; leave `text` at the line behind the header, which comments may precede."""
    text.seek(0)
    line, number, comment = text.readline(), 1, b""
    while line.startswith(b"#") and (behind := text.readline()):
        line, number, comment = behind, number + 1, line
    if not line.strip():
        raise DataError(f"{path}:{number}: the line is blank; it should name the columns")
    names, delimiter = _names(f"{path}:{number}", line, delimiter)
    if comment and not holds_jobs(names):  # "#job id,submitted,…" is a header too
        inside, its = _names(f"{path}:{number - 1}", comment, delimiter)
        if len(inside) == len(names):
            text.seek(-len(line), io.SEEK_CUR)
            return inside, its
    return names, delimiter


def _names(where: str, line: bytes, delimiter: str) -> tuple[list[str], str]:
    header = line.decode("utf-8").rstrip("\r\n")
    delimiter = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter) or _delimiter_of(header)
    if len(delimiter) != 1 or delimiter == '"' or not delimiter.isascii():
        raise UsageError(f"delimiter {delimiter!r} is not one plain character")
    try:
        names = next(csv.reader([header], delimiter=delimiter))
    except csv.Error as error:
        raise DataError(f"{where}: {error}") from None
    if len(names) > MAX_COLUMNS:
        raise DataError(f"{where}: {len(names):,} columns; at most {MAX_COLUMNS:,}", hint="is this a table of jobs?")
    return [name.strip() for name in names], delimiter


def _delimiter_of(header: str) -> str:
    return max(",\t;|", key=header.count)


def _frame(
    path: Path, text: io.BytesIO, names: list[str], sources: Mapping[str, int], delimiter: str, limits: Limits
) -> tuple[pl.DataFrame, Array]:
    """Return the wanted columns of the rest of `text`, as text (missing: null), and the line of each row."""
    import polars as pl  # 0.2 s to import: only where a table is read

    data, body = text.getvalue(), text.tell()
    marks = _check_widths(path, data, body, len(names), delimiter, limits)
    lines, filled = marks.lines, marks.filled
    picked = sorted(set(sources.values()))
    skipped = int(body > 0)
    if marks.start > body or marks.comments or (body and lines[0] > 2):
        # blank lines come first, which polars would take for a table of one column; or comments, which it would take for rows
        data, skipped = marks.without_comments(data), 0
    try:
        frame = pl.read_csv(
            data, has_header=False, skip_rows=skipped, separator=delimiter, infer_schema=False, columns=picked, null_values=MISSING,
        )  # fmt: skip
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path}: not a table ({str(error).splitlines()[0]})") from None
    if len(frame) != len(lines):
        raise DataError(f"{path}: {len(lines):,} lines but {len(frame):,} rows", hint="is there a stray quote character?")
    frame = frame.filter(filled)
    named = {ours: frame.to_series(picked.index(k)) for ours, k in sources.items()}
    if data.isascii() and not any(blank in data for blank in _BLANKS):  # nothing to strip: saves 0.2 s a million rows
        return pl.DataFrame(named), lines[filled]
    clean = {ours: series.str.strip_chars() for ours, series in named.items()}
    return pl.DataFrame({ours: series.set(series == "", None) for ours, series in clean.items()}), lines[filled]


@dataclass(frozen=True)
class _Marks:
    """Where the rows of a table are, from the first filled one on."""

    lines: Array  # (rows,) of the file
    filled: Array  # (rows,) bool: neither blank nor a comment
    start: int  # offset of the first
    comments: tuple[tuple[int, int], ...]  # offsets where they begin and end

    def without_comments(self, data: bytes) -> bytes:
        """Return the rows, with a blank line for each comment."""
        parts, at = [], self.start
        for begin, end in self.comments:
            parts.append(data[at:begin])
            at = end
        return b"".join([*parts, data[at:]])


def _check_widths(path: Path, data: bytes, body: int, width: int, delimiter: str, limits: Limits) -> _Marks:
    """Find the rows; refuse one whose width differs from the header's."""
    end, separators, feeds = row_marks(path, data, body, delimiter, limits)
    found = np.diff(separators, prepend=0) + 1
    begin = np.concatenate(([body], end[:-1] + 1))[: len(end)]
    lines = np.searchsorted(feeds, begin) + 1 + data.count(b"\n", 0, body)
    first_byte = np.frombuffer(data, np.uint8)[begin]
    comment = first_byte == ord("#")
    filled = ((end - begin > 1) | ((end - begin == 1) & (first_byte > ord(" ")))) & ~comment  # else blank, or a lone \\r
    wrong = filled & (found != width)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"{path}:{lines[row]}: {found[row]} columns instead of {width}", hint="the header names the columns")
    if not filled.any():
        raise DataError(f"{path}: no jobs, only a header" if body else f"{path}: no jobs")
    first = int(np.argmax(filled))
    comment[:first] = False
    spans = tuple(zip(begin[comment].tolist(), end[comment].tolist(), strict=True))
    return _Marks(lines[first:], filled[first:], int(begin[first]), spans)


def row_marks(path: Path, data: bytes, body: int, delimiter: str, limits: Limits) -> tuple[Array, Array, Array]:
    """Return where rows end, how many separators precede each end, and where lines end (a quoted field may hold line ends)."""
    none = np.empty(0, np.int64)
    ends, separators, feeds, lines, seen, quote = [none], [none], [none], 0, 0, 0
    for at in range(body, len(data), _STEP):
        piece = np.frombuffer(data, np.uint8, min(_STEP, len(data) - at), at)
        outside = (np.cumsum(piece == ord('"'), dtype=np.uint8) + np.uint8(quote)) & 1 == 0  # only the parity counts: uint8 may wrap
        quote = int(not outside[-1])
        feed = np.flatnonzero(piece == ord("\n"))
        end = feed[outside[feed]]
        count = np.cumsum((piece == ord(delimiter)) & outside, dtype=np.int32)
        separators.append(seen + count[end].astype(np.int64))
        ends.append(at + end)
        feeds.append(at + feed)
        seen += int(count[-1])
        lines += len(feed)
        check_count(path, lines, limits, "rows")
    if quote:
        raise DataError(f"{path}: a quoted field is never closed", hint="look for a stray quote character")
    return np.concatenate(ends), np.concatenate(separators), np.concatenate(feeds)


@dataclass(frozen=True)
class TextTable:
    """Text columns by our names, with the place of each row."""

    path: Path
    frame: pl.DataFrame
    lines: Array

    @property
    def rows(self) -> Rows:
        return Rows(self.path, self.lines)

    def __contains__(self, name: str) -> bool:
        return name in self.frame.columns

    def __len__(self) -> int:
        return len(self.lines)

    def take(self, rows: Array) -> TextTable:
        """Return the given rows; a row may be given several times."""
        return TextTable(self.path, self.frame[rows], self.lines[rows])

    def having(self, name: str, values: Sequence[str] | pl.Series) -> TextTable:
        """Return the table with a column of texts added or replaced."""
        import polars as pl

        return TextTable(self.path, self.frame.with_columns(pl.Series(name, values)), self.lines)

    def equals(self, name: str, *texts: str) -> Array:
        """(rows,) whether the column has one of the texts."""
        return self.frame[name].fill_null("").is_in(texts).to_numpy()

    def numbers(self, name: str) -> Array:
        """Return a column as float64; NaN where the cell is empty."""
        import polars as pl

        text = self.frame[name]
        value = text.cast(pl.Float64, strict=False)
        self._refuse(name, (value.is_null() & text.is_not_null()) | value.is_nan(), "is not a number")
        return value.to_numpy()

    def seconds(self, name: str) -> Array:
        """Return a column of ISO timestamps as seconds since 1970 (UTC unless the text says otherwise); NaN where the cell is empty."""
        import polars as pl

        text = self.frame[name]
        part = text.str.extract_groups(_ISO).struct.unnest()
        date, clock, _, sign, hours, minutes = part.get_columns()
        when = (date + " " + clock).str.to_datetime("%Y-%m-%d %H:%M:%S%.f", strict=False, time_unit="us")
        self._refuse(name, when.is_null() & text.is_not_null(), "is neither a number nor an ISO timestamp")
        offset = (hours.cast(pl.Float64) * 3600 + minutes.cast(pl.Float64) * 60) * sign.replace_strict({"-": -1.0, "+": 1.0}, default=None)
        whole: Array = when.dt.epoch("us").to_numpy() / 1e6 - offset.fill_null(0.0).to_numpy()
        return whole

    def flags(self, name: str) -> Array:
        """Return a column of yes, no (true and false, 1 and 0) and once as 1.0, 0.0 and 2.0; NaN where the cell is empty."""
        import polars as pl

        text = self.frame[name]
        value = text.str.to_lowercase().replace_strict(YES_NO, default=None, return_dtype=pl.Float64)
        self._refuse(name, value.is_null() & text.is_not_null(), "is not yes, no or once")
        return value.to_numpy()

    def is_stamped(self, name: str) -> bool:
        """Whether the first value is not a number, as that of a column of timestamps."""
        import polars as pl

        first = self.frame[name].drop_nulls().head(1)
        return len(first) > 0 and first.cast(pl.Float64, strict=False).null_count() > 0

    def labels(self, name: str, keep: Array) -> tuple[tuple[str, ...], Array]:
        """Return the distinct texts, sorted, and the number of each kept row's text."""
        import polars as pl

        text = self.frame[name].fill_null("").gather(keep)
        found = text.unique().sort()
        if found.str.contains(ESCAPED).any():
            text = text.str.replace(ESCAPED, "$1")
            found = text.unique().sort()
        return tuple(found.to_list()), text.cast(pl.Enum(found)).to_physical().to_numpy()

    def is_empty(self, name: str) -> bool:
        """Whether no row has a value."""
        return bool(self.frame[name].null_count() == len(self.lines))

    def ids(self) -> tuple[Array, tuple[str, ...]]:
        """Return the ids if they are numbers, else row numbers and a note; refuse an id that occurs twice."""
        numbered = np.arange(1, len(self.lines) + 1)
        if "id" not in self:
            return numbered, ()
        text = self.frame["id"]
        if text.is_null().any():
            raise self.rows.error(int(text.is_null().arg_true()[0]), "no id")
        if not text.str.contains(r"^-?\d{1,15}$").all():
            again = (~text.is_first_distinct()).arg_true()
            if len(again):
                raise self.rows.error(int(again[0]), f"id {text[int(again[0])][:40]!r} occurs twice")
            return numbered, ("ids are row numbers: those of the table are not numbers",)
        ids = self.numbers("id")
        check_ids(self.rows, ids)
        return ids.astype(np.int64), ()

    def _refuse(self, name: str, bad: Any, why: str) -> None:
        at = bad.fill_null(False).arg_true()
        if len(at):
            value = self.frame[name][int(at[0])]
            raise self.rows.error(int(at[0]), f"{name} = {value[:40]!r} {why}")


def write_csv(workload: Workload, path: Path | str) -> None:
    """Save a workload as CSV (gzip if the name ends in .gz); it reads back with the same jobs, run times, estimates and logged starts.

    Columns in which every job has the usual value are left out; times are seconds with all their digits.
    The same workload gives the same bytes.
    """
    columns = _texts(workload)
    with written(Path(path)) as out:
        out.write((",".join(columns) + "\n").encode())
        rows = zip(*columns.values(), strict=True)
        while block := list(islice(rows, LINES)):
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows(block)
            out.write(text.getvalue().encode())


def _texts(workload: Workload) -> dict[str, Iterator[str]]:
    """Return one text per job for each of our columns."""
    jobs = workload.jobs
    found = {"id": map(str, jobs.id.tolist()), "submit": number_texts(jobs.submit)}
    if workload.logged_start is not None:
        found["start"] = number_texts(workload.logged_start)
    found["runtime"] = number_texts(workload.runtime)
    if workload.estimate_source not in ("requested", "exact") or not np.array_equal(jobs.estimate, workload.requested()):
        found["estimate"] = number_texts(jobs.estimate, infinite="inf")
    found["gpus"] = number_texts(jobs.gpus)
    found |= {name: number_texts(getattr(jobs, name)) for name, usual in USUAL.items() if (getattr(jobs, name) != usual).any()}
    for name, column in jobs.stated.items():
        found[name] = map(_flag_text, column.tolist()) if name == "preemptible" else number_texts(column, infinite="inf")
    if any(conditions := jobs.conditions):
        found["conditions"] = iter(conditions)
    for name, labelled in LABELS.items():
        if name in LABEL_COLUMNS and any(getattr(jobs, labelled)):
            labels = [csv_label(label) for label in getattr(jobs, labelled)]
            found[name] = map(labels.__getitem__, getattr(jobs, name).tolist())
    return found


def _flag_text(value: float) -> str:
    return next((word for word, number in FLAGS.items() if number == value), "")


def _lost(workload: Workload) -> list[str]:
    labels = {label for name in LABEL_COLUMNS for label in getattr(workload.jobs, LABELS[name])} - {""}
    odd = {label for label in labels if label in MISSING or label != label.strip()}
    unclean = {label for label in labels if label != clean(label)} - odd
    shown, replaced = (", ".join(repr(label) for label in sorted(each)[:3]) for each in (odd, unclean))
    return [*([f"the labels {shown} unchanged: a table reads them as blank or strips blanks"] if odd else []),
            *([f"the control characters in the labels {replaced}"] if unclean else []),
            *lost_facts(workload), *lost_origin(workload)]  # fmt: skip


WRITERS[".csv"] = Writer(write_csv, _lost)
