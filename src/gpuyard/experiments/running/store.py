"""The folder of an experiment: whole at every moment, whatever happens to the process that writes it.

    experiment.json     what is run, with which version, on what platform, by which command
    lock                held while a process works here
    parts/              Runs that are done, one Parquet file for each unit: numbers, curves and manifests, whole or not there
    agents/             policies that were trained for it
    runs.parquet        at the end: a row per Run            curves.parquet      what is kept of each besides numbers
    manifests.jsonl     a line per Run: what it was, version, platform, seconds
    complete.json       the last to be written: sizes and hashes of these three
    examples/           whole results of a few Runs

A part's name ends with a hash of its content, so that a damaged one is known before it is parsed. `runs.parquet` and `curves.parquet`
depend on the experiment alone: not on workers, interruptions or clocks.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.errors import DataError, GpuyardError, UsageError
from gpuyard.experiments.design.kinds import Record

if TYPE_CHECKING:
    import polars as pl

EXPERIMENT, LOCK, PARTS, AGENTS, EXAMPLES = "experiment.json", "lock", "parts", "agents", "examples"
RUNS, CURVES, MANIFESTS, COMPLETE = "runs.parquet", "curves.parquet", "manifests.jsonl", "complete.json"
FORMAT, VERSION = "gpuyard-experiment", 1
MAX_BYTES = 1 << 32
BEGIN = "delete the folder and run again"
HALF = ".part"  # ends the name of a file that is being written
_PART = re.compile(r"(?P<unit>[0-9]{7})-(?P<hash>[0-9a-f]{16})\.parquet")


class Store:
    """A folder of results; written to only under `locked`, but for reports."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # ── the experiment ──

    def begin(self, record: Mapping[str, Any], about: Mapping[str, Any]) -> bool:
        """Write down what is run here, or check that it is the same; whether something was begun before."""
        before = self.read_experiment() if (self.path / EXPERIMENT).exists() else None
        if before is None:
            self.refuse_others()
            self.write(EXPERIMENT, json_bytes({"format": FORMAT, "version": VERSION, "experiment": record, **about}))
            return False
        old, new = before["experiment"], json.loads(json.dumps(record))
        if _identity(old) != _identity(new):
            raise UsageError(
                f"{self.path}: holds another experiment ({old.get('name')}): {_difference(_identity(old), _identity(new))}",
                hint="give another --out, or delete the folder to begin anew",
            )
        if before.get("gpuyard") != about.get("gpuyard"):
            raise UsageError(
                f"{self.path}: was begun with gpuyard {before.get('gpuyard')}; its Runs would not be comparable",
                hint="give another --out, or delete the folder to begin anew",
            )
        others = {**dict(before.get("inputs") or {}), **dict(about.get("inputs") or {})}
        changed = [name for name, content in others.items() if (before.get("inputs") or {}).get(name) != content]
        if changed:
            raise UsageError(
                f"{self.path}: {changed[0]} is not what it was when this was begun; its Runs would not be comparable",
                hint="give another --out, or delete the folder to begin anew",
            )
        if old != new:
            self.write(EXPERIMENT, json_bytes({**before, "experiment": new}))
        return True

    def refuse_others(self) -> None:
        """A folder of somebody else's is left as it is."""
        if self.path.is_symlink() or self.path.exists():
            with reading(self.path):
                names = {entry.name for entry in self.path.iterdir()}
            ours = {EXPERIMENT, LOCK, f"{EXPERIMENT}{HALF}"}  # the last one is what a killed process leaves
            if EXPERIMENT not in names and names - ours:
                raise UsageError(f"{self.path}: is not empty and holds no experiment", hint="give another --out")

    def read_experiment(self) -> dict[str, Any]:
        """What `begin` wrote."""
        path = self.path / EXPERIMENT
        found = read_json(path)
        if found.get("format") != FORMAT or found.get("version") != VERSION or not isinstance(found.get("experiment"), dict):
            raise DataError(f"{path}: no experiment of this version of gpuyard")
        return found

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time; the lock goes with the process, however it ends."""
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / LOCK).open("a+", encoding="ascii", errors="replace")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                who = file.read(100).strip()
                raise UsageError(
                    f"{self.path}: another gpuyard run is at work here{f' (process {who})' if who.isdigit() else ''}",
                    hint="wait for it, stop it, or give another --out",
                ) from None
            with suppress(OSError):  # only for the message above
                file.truncate(0)
                file.write(str(os.getpid()))
                file.flush()
            yield

    # ── parts ──

    def done(self) -> set[int]:
        """The units that are there; removes what a killed process left half written."""
        folder = self.path / PARTS
        if not folder.is_dir():
            return set()
        found = set()
        for entry in folder.iterdir():
            match = _PART.fullmatch(entry.name)
            if match:
                found.add(int(match["unit"]))
            elif entry.name.endswith(HALF):
                with writing(entry):
                    entry.unlink()
        return found

    def add(self, unit: int, records: Sequence[Record]) -> None:
        """Keep the Runs of a unit."""
        data = parquet_bytes(_part_frame(records))
        self.write(f"{PARTS}/{unit:07d}-{hashlib.sha256(data).hexdigest()[:16]}.parquet", data)

    def parts(self) -> list[pl.DataFrame]:
        """In the order of units; each is checked before it is read."""
        folder = self.path / PARTS
        names = sorted(entry.name for entry in folder.iterdir() if _PART.fullmatch(entry.name)) if folder.is_dir() else []
        return [self._part(folder / name) for name in names]

    def _part(self, path: Path) -> pl.DataFrame:
        import polars as pl

        match = _PART.fullmatch(path.name)
        data = read_bytes(path)
        if match is None or hashlib.sha256(data).hexdigest()[:16] != match["hash"]:
            raise DataError(
                f"{path}: damaged: its content is not what its name says", hint="delete this file and run again: its Runs are done anew"
            )
        found = parse_parquet(data, path)
        kinds = {"run": pl.Int64, "curves": pl.String, "manifest": pl.String}
        if any(found.schema.get(name) != kind for name, kind in kinds.items()):
            raise DataError(f"{path}: damaged: no Runs of an experiment", hint="delete this file and run again: its Runs are done anew")
        return found

    # ── the end ──

    @property
    def complete(self) -> bool:
        return (self.path / COMPLETE).exists()

    def finish(self, runs: int) -> None:
        """Merge the parts. Killed at any moment, it can be done again."""
        import polars as pl

        try:
            merged = pl.concat(self.parts(), how="diagonal").sort("run")
        except (pl.exceptions.PolarsError, ValueError) as error:
            what = " ".join(str(error).split())[:200]
            raise DataError(f"{self.path / PARTS}: the parts do not fit together: {what}", hint=BEGIN) from None
        if merged.height != runs or merged["run"].to_list() != list(range(runs)):
            raise DataError(f"{self.path}: {merged.height:,} Runs are there, and {runs:,} were expected", hint=BEGIN)
        files: dict[str, bytes] = {
            RUNS: parquet_bytes(merged.drop("curves", "manifest")),
            CURVES: parquet_bytes(_curve_frame(merged)),
            MANIFESTS: "".join(f"{line}\n" for line in merged["manifest"].to_list()).encode(),
        }
        for name, data in files.items():
            self.write(name, data)
        sums = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
        self.write(COMPLETE, json_bytes({"runs": runs, "files": sums}))
        self.clean()

    def clean(self) -> None:
        """Remove the parts, once all is merged."""
        with writing(self.path / PARTS):
            shutil.rmtree(self.path / PARTS, ignore_errors=False) if (self.path / PARTS).exists() else None

    def verify(self) -> None:
        """Refuse a folder that says it is complete and is not."""
        for name in (RUNS, CURVES, MANIFESTS):
            self._checked(name)

    def read(self, name: str) -> pl.DataFrame:
        """`runs.parquet` or `curves.parquet`, checked."""
        return parse_parquet(self._checked(name), self.path / name)

    def manifests(self) -> list[dict[str, Any]]:
        """One for each Run."""
        lines = self._checked(MANIFESTS).decode("utf-8", errors="replace").rstrip("\n").split("\n")
        try:
            return [json.loads(line) for line in lines]
        except ValueError as error:
            raise DataError(f"{self.path / MANIFESTS}: damaged: {error}") from None

    def _checked(self, name: str) -> bytes:
        if not self.complete:
            raise UsageError(f"{self.path}: the experiment is not complete", hint="run it again: it goes on where it stopped")
        files = read_json(self.path / COMPLETE).get("files")
        expected = files.get(name) if isinstance(files, dict) else None
        if not isinstance(expected, dict):
            raise DataError(f"{self.path / COMPLETE}: damaged: it does not tell of {name}", hint="delete this file and run again")
        data = read_bytes(self.path / name)
        if expected.get("sha256") != hashlib.sha256(data).hexdigest():
            raise DataError(f"{self.path / name}: damaged: not what was written", hint=BEGIN)
        return data

    def write(self, name: str, data: bytes, *, alone: bool = True) -> None:
        """A file, whole or not at all. `alone`: nobody else writes here, for this is under the lock."""
        path = self.path / name
        beside = path.with_name(path.name + ("" if alone else f".{secrets.token_hex(4)}") + HALF)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with beside.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                beside.replace(path)
            finally:
                beside.unlink(missing_ok=True)


# ── files ──


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """An error of the file system becomes one line that names the file."""
    try:
        yield
    except OSError as error:
        raise GpuyardError(f"{path}: cannot be written: {error.strerror or error}", hint="what was done before is kept") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """An error of the file system becomes one line that names the file."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None


def read_bytes(path: Path) -> bytes:
    with reading(path):
        if path.stat().st_size > MAX_BYTES:
            raise DataError(f"{path}: more than {MAX_BYTES:,} bytes")
        return path.read_bytes()


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: damaged: {' '.join(str(error).split())[:200]}", hint=BEGIN) from None
    if not isinstance(found, dict):
        raise DataError(f"{path}: damaged: no JSON object", hint=BEGIN)
    return found


def json_bytes(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """In memory first: the disk then sees one write, whose errors are the file system's own."""
    target = io.BytesIO()
    frame.write_parquet(target, compression="zstd", statistics=False)
    return target.getvalue()


def parse_parquet(data: bytes, path: Path) -> pl.DataFrame:
    import polars as pl

    try:
        return pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise DataError(f"{path}: no Parquet file: {' '.join(str(error).split())[:200]}") from None


def _part_frame(records: Sequence[Record]) -> pl.DataFrame:
    """A row per Run. Curves are one text each: their names and lengths differ from experiment to experiment."""
    import polars as pl

    rows = [{"run": record.run, **record.values} for record in records]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    whole = [name for name in frame.columns if frame[name].dtype == pl.Null]
    frame = frame.with_columns(pl.col(name).cast(pl.Int64) for name in whole)
    curves = [json.dumps({name: [c.x.tolist(), c.y.tolist(), list(c.labels)] for name, c in record.curves.items()}) for record in records]
    manifests = [json.dumps(record.manifest, ensure_ascii=False) for record in records]
    return frame.with_columns(pl.Series("curves", curves), pl.Series("manifest", manifests))


def _curve_frame(merged: pl.DataFrame) -> pl.DataFrame:
    """A row per Run and curve: lists of x, y and labels."""
    import polars as pl

    rows: dict[str, list[Any]] = {"run": [], "curve": [], "x": [], "y": [], "labels": []}
    for run, text in zip(merged["run"].to_list(), merged["curves"].to_list(), strict=True):
        for name, (x, y, labels) in json.loads(text).items():
            for key, value in zip(rows, (run, name, x, y, labels), strict=True):
                rows[key].append(value)
    kinds: Any = {"run": pl.Int64, "curve": pl.String, "x": pl.List(pl.Float64), "y": pl.List(pl.Float64), "labels": pl.List(pl.String)}
    return pl.DataFrame(rows, schema=kinds)


def _identity(record: Mapping[str, Any]) -> dict[str, Any]:
    """What the numbers depend on: not how they are shown."""
    return {key: value for key, value in record.items() if key not in ("title", "question", "figures")}


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first key that differs."""
    now = json.loads(json.dumps(now))
    for key in dict.fromkeys((*before, *now)):
        if before.get(key) != now.get(key):
            inner = before.get(key), now.get(key)
            if isinstance(inner[0], dict) and isinstance(inner[1], dict):
                return f"{key}.{_difference(inner[0], inner[1])}"
            return f"{key} differs"
    return "it differs"
