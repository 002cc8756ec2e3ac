"""The folder of an experiment. It is whole at every moment, whatever happens to the process that writes it.

    experiment.json     what is run, by which version and command, on which platform
    lock                held while a process works here
    parts/              finished Runs, a Parquet file per unit or some neighbouring ones: numbers, curves and manifests
    agents/             policies trained for the experiment
    runs.parquet        at the end: a row per Run            curves.parquet      the curves of each Run
    manifests.jsonl     a line per Run: its axes, version, platform, seconds
    complete.json       written last: sizes and hashes of these three
    examples/           full results of a few Runs

A part's name ends with a hash of its content, so that damage shows before it is parsed. `runs.parquet` and `curves.parquet`
depend on the experiment alone: not on workers, interruptions or clocks.
"""

from __future__ import annotations

import binascii
import hashlib
import io
import json
import re
import shutil
import struct
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.arrays import Array
from gpuyard.errors import DataError, UsageError
from gpuyard.experiments.design.kinds import RunRecord
from gpuyard.files import PARTIAL, json_bytes, locked, parse_json, read_bytes, reading, write_bytes, writing

if TYPE_CHECKING:
    import polars as pl

EXPERIMENT, LOCK, PARTS, AGENTS, EXAMPLES = "experiment.json", "lock", "parts", "agents", "examples"
RUNS, CURVES, MANIFESTS, COMPLETE = "runs.parquet", "curves.parquet", "manifests.jsonl", "complete.json"
FORMAT, VERSION = "gpuyard-experiment", 1
MAX_BYTES = 1 << 32
BEGIN = "delete the folder and run again"
_OTHER = "give another --out, or delete the folder to start again"
_AGAIN = "delete this file and run again: its Runs are repeated"
KEPT = "what was done before is kept"
_PART = re.compile(r"(?P<unit>[0-9]{7})(-(?P<last>[0-9]{7}))?-(?P<hash>[0-9a-f]{16})\.parquet")


class Store:
    """A folder of results. Only the process that holds `locked` writes here, except for reports."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # ── the experiment ──

    def begin(self, record: Mapping[str, Any], about: Mapping[str, Any]) -> bool:
        """Record what is run here, or check that it is the same as before; return whether a record was there."""
        before = self.read_experiment() if (self.path / EXPERIMENT).exists() else None
        if before is None:
            self.refuse_others()
            self.write(EXPERIMENT, json_bytes({"format": FORMAT, "version": VERSION, "experiment": record, **about}))
            return False
        old, new = before["experiment"], json.loads(json.dumps(record))
        if _identity(old) != _identity(new):
            raise UsageError(
                f"{self.path}: holds another experiment ({old.get('name')}): {_difference(_identity(old), _identity(new))}", hint=_OTHER
            )
        if before.get("gpuyard") != about.get("gpuyard"):
            raise UsageError(f"{self.path}: was begun with gpuyard {before.get('gpuyard')}; new Runs would not be comparable", hint=_OTHER)
        others = {**dict(before.get("inputs") or {}), **dict(about.get("inputs") or {})}
        changed = [name for name, content in others.items() if (before.get("inputs") or {}).get(name) != content]
        if changed:
            raise UsageError(f"{self.path}: {changed[0]} has changed since the first Run; new Runs would not be comparable", hint=_OTHER)
        if old != new:
            self.write(EXPERIMENT, json_bytes({**before, "experiment": new}))
        return True

    def refuse_others(self) -> None:
        """Refuse a folder that holds something other than an experiment."""
        with reading(self.path):
            names = {entry.name for entry in self.path.iterdir()} if self.path.is_symlink() or self.path.exists() else None
        if names is not None:
            ours = {EXPERIMENT, LOCK, f"{EXPERIMENT}{PARTIAL}"}  # a killed process leaves the last one
            if EXPERIMENT not in names and names - ours:
                raise UsageError(f"{self.path}: is not empty and holds no experiment", hint="give another --out")

    def read_experiment(self) -> dict[str, Any]:
        """Return the record that `begin` wrote."""
        path = self.path / EXPERIMENT
        found = read_json(path)
        if found.get("format") != FORMAT or found.get("version") != VERSION or not isinstance(found.get("experiment"), dict):
            raise DataError(f"{path}: not an experiment of this version of gpuyard")
        return found

    def locked(self) -> AbstractContextManager[None]:
        """Hold the folder for this process alone."""
        return locked(self.path)

    # ── parts ──

    def done(self) -> set[int]:
        """Return the finished units; remove files that a killed process left half written."""
        folder = self.path / PARTS
        if not folder.is_dir():
            return set()
        found: set[int] = set()
        for entry in folder.iterdir():
            match = _PART.fullmatch(entry.name)
            if match:
                found.update(range(int(match["unit"]), int(match["last"] or match["unit"]) + 1))
            elif entry.name.endswith(PARTIAL):
                with writing(entry, hint=KEPT):
                    entry.unlink()
        return found

    def add(self, unit: int, records: Sequence[RunRecord], last: int | None = None) -> None:
        """Save the Runs of a unit, or of all units from that one to the `last`."""
        data = parquet_bytes(_part_frame(records))
        units = f"{unit:07d}" if last is None or last == unit else f"{unit:07d}-{last:07d}"
        self.write(f"{PARTS}/{units}-{hashlib.sha256(data).hexdigest()[:16]}.parquet", data)

    def add_all(self, units: Mapping[int, Sequence[RunRecord]]) -> None:
        """Save the Runs of several units, neighbours in one file: a file takes 10 ms, as long as the Runs of a small unit."""
        blocks: list[list[int]] = []
        for number in sorted(units):
            if blocks and number == blocks[-1][-1] + 1:
                blocks[-1].append(number)
            else:
                blocks.append([number])
        for block in blocks:
            self.add(block[0], [record for number in block for record in units[number]], block[-1])

    def parts(self) -> list[pl.DataFrame]:
        """Return the parts in the order of their units, each checked before it is parsed."""
        folder = self.path / PARTS
        names = sorted(entry.name for entry in folder.iterdir() if _PART.fullmatch(entry.name)) if folder.is_dir() else []
        return [self._part(folder / name) for name in names]

    def _part(self, path: Path) -> pl.DataFrame:
        import polars as pl

        match = _PART.fullmatch(path.name)
        data = read_bytes(path, MAX_BYTES, "results")
        if match is None or hashlib.sha256(data).hexdigest()[:16] != match["hash"]:
            raise DataError(f"{path}: damaged: its content does not match the hash in its name", hint=_AGAIN)
        found = parse_parquet(data, path)
        kinds = {"run": pl.Int64, "curves": pl.String, "manifest": pl.String}
        if any(found.schema.get(name) != kind for name, kind in kinds.items()):
            raise DataError(f"{path}: damaged: it has no Runs of an experiment", hint=_AGAIN)
        return found

    # ── the end ──

    @property
    def complete(self) -> bool:
        return (self.path / COMPLETE).exists()

    def finish(self, runs: int) -> None:
        """Merge the parts. If the process is killed meanwhile, this can be repeated."""
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
        """Remove the parts after they are merged."""
        with writing(self.path / PARTS, hint=KEPT):
            shutil.rmtree(self.path / PARTS, ignore_errors=False) if (self.path / PARTS).exists() else None

    def verify(self) -> None:
        """Refuse a folder that is marked complete but lacks a file or has a damaged one."""
        for name in (RUNS, CURVES, MANIFESTS):
            self._checked(name)

    def read(self, name: str) -> pl.DataFrame:
        """Read `runs.parquet` or `curves.parquet` and check it against its hash."""
        return parse_parquet(self._checked(name), self.path / name)

    def manifests(self) -> list[dict[str, Any]]:
        """Return the manifest of each Run."""
        lines = self._checked(MANIFESTS).decode("utf-8", errors="replace").rstrip("\n").split("\n")
        return [parse_json(line, f"{self.path / MANIFESTS}: damaged", constants=True) for line in lines]

    def _checked(self, name: str) -> bytes:
        if not self.complete:
            raise UsageError(f"{self.path}: the experiment is not complete", hint="run it again: it continues where it stopped")
        files = read_json(self.path / COMPLETE).get("files")
        expected = files.get(name) if isinstance(files, dict) else None
        if not isinstance(expected, dict):
            raise DataError(f"{self.path / COMPLETE}: damaged: it does not list {name}", hint="delete this file and run again")
        data = read_bytes(self.path / name, MAX_BYTES, "results")
        if expected.get("sha256") != hashlib.sha256(data).hexdigest():
            raise DataError(f"{self.path / name}: damaged: its content has changed", hint=BEGIN)
        return data

    def write(self, name: str, data: bytes, *, alone: bool = True) -> None:
        """Write a file whole or not at all. `alone`: the caller holds the lock, so no other process writes here."""
        write_bytes(self.path / name, data, alone=alone, hint=KEPT)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object that a run wrote; what is damaged is named, with what to do."""
    found = parse_json(read_bytes(path, MAX_BYTES, "results"), f"{path}: damaged", constants=True, hint=BEGIN)
    if not isinstance(found, dict):
        raise DataError(f"{path}: damaged: not a JSON object", hint=BEGIN)
    return found


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """Encode a table in memory, so that the disk sees one write and errors come from the file system only."""
    target = io.BytesIO()
    frame.write_parquet(target, compression="zstd", statistics=False)
    return target.getvalue()


def parse_parquet(data: bytes, path: Path) -> pl.DataFrame:
    import polars as pl

    try:
        return pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise DataError(f"{path}: not a Parquet file: {' '.join(str(error).split())[:200]}") from None


def _part_frame(records: Sequence[RunRecord]) -> pl.DataFrame:
    """Make a table with a row per Run. Its curves are one JSON text, because names and lengths differ between experiments; their numbers
    are in it as bytes, because to write and read them as digits took as long as a tenth of the Runs."""
    import polars as pl

    rows = [{"run": record.run, **record.values} for record in records]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    whole = [name for name in frame.columns if frame[name].dtype == pl.Null]
    frame = frame.with_columns(pl.col(name).cast(pl.Int64) for name in whole)
    curves = [json.dumps({name: [_packed(c.x), _packed(c.y), c.labels] for name, c in record.curves.items()}) for record in records]
    manifests = [json.dumps(record.manifest, ensure_ascii=False) for record in records]
    return frame.with_columns(pl.Series("curves", curves), pl.Series("manifest", manifests))


def _curve_frame(merged: pl.DataFrame) -> pl.DataFrame:
    """Make a table with a row per Run and curve: lists of x, y and labels."""
    import polars as pl

    rows: dict[str, list[Any]] = {"run": [], "curve": [], "x": [], "y": [], "labels": []}
    for run, text in zip(merged["run"].to_list(), merged["curves"].to_list(), strict=True):
        try:
            curves = [(run, name, _unpacked(x), _unpacked(y), labels) for name, (x, y, labels) in json.loads(text).items()]
        except (ValueError, TypeError, AttributeError, struct.error) as error:
            raise DataError(f"the curves of Run {run} cannot be read: {' '.join(str(error).split())[:200]}", hint=BEGIN) from None
        for curve in curves:
            for key, value in zip(rows, curve, strict=True):
                rows[key].append(value)
    kinds: Any = {"run": pl.Int64, "curve": pl.String, "x": pl.List(pl.Float64), "y": pl.List(pl.Float64), "labels": pl.List(pl.String)}
    return pl.DataFrame(rows, schema=kinds)


def _packed(numbers: Array) -> str:
    return binascii.b2a_base64(numbers.astype("<f8").tobytes(), newline=False).decode()


def _unpacked(text: str) -> list[float]:
    """Return the numbers as a list, of which polars makes a column five times as fast as of arrays."""
    data = binascii.a2b_base64(text)
    return list(struct.unpack(f"<{len(data) // 8}d", data))


def _identity(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a record that the numbers depend on, without titles and figures."""
    return {key: value for key, value in record.items() if key not in ("title", "question", "figures", "sets")}


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Name the first key that differs."""
    now = json.loads(json.dumps(now))
    for key in dict.fromkeys((*before, *now)):
        if before.get(key) != now.get(key):
            inner = before.get(key), now.get(key)
            if isinstance(inner[0], dict) and isinstance(inner[1], dict):
                return f"{key}.{_difference(inner[0], inner[1])}"
            return f"{key} differs"
    return "it differs"
