"""Traces for a real machine: when which kind of work is submitted, and for how long it would run alone.

Any workload of jobs on one GPU each becomes one: its times are divided by `compress`, and each job becomes one of the kinds of the
workbench, by its class where that tells (`LLM_TRAIN` is `lm`, `VISION_TRAIN` is `cnn` or `vit`, `DATA_PREP` is `etl`), else by lot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from gpuyard.errors import DataError, UsageError
from gpuyard.files import json_bytes, parse_json, read_bytes, write_bytes
from gpuyard.model.fields import Fields
from gpuyard.model.workload import Workload
from gpuyard.traces.splits import SEEDS
from gpuyard.workbench.task import KINDS

VERSION = 1
CALIBRATION = "calibration"
MOST_JOBS = 10_000
MOST_BYTES = 50_000_000  # of a file of the study
SHAPES = ("base", "bursty", "diurnal", "shifted_diurnal")
FIRST_SEED = 77_000  # of the held-out seeds: no policy that comes with gpuyard was trained, chosen or judged on it before
_BY_CLASS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "llm": ("lm",),
        "vision": ("cnn", "vit"),
        "data": ("etl",),
        "eval": ("vit",),
        "lm": ("lm",),
        "cnn": ("cnn",),
        "vit": ("vit",),
        "etl": ("etl",),
    }
)  # how the class of a job begins, in small letters → kinds to choose from


@dataclass(frozen=True)
class RealJob:
    """One job of a trace. Times in s, after compression."""

    submit: float
    kind: str
    seconds: float  # of steps, alone on the device
    deadline: float  # from the origin
    priority: float


@dataclass(frozen=True)
class RealTrace:
    """Jobs in the order of submission."""

    name: str
    source: str  # the workload that it was made from
    compress: float
    jobs: tuple[RealJob, ...]

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        write_record(path, "trace", asdict(self))

    @classmethod
    def load(cls, path: Path) -> RealTrace:
        """Read what `save` wrote."""
        fields = read_record(path, "trace")
        jobs = tuple(_job(row) for row in fields.rows("jobs"))
        made = cls(fields.text("name"), fields.text("source"), fields.number("compress", above=0.0), jobs)
        fields.done()
        return made


def write_record(path: Path, what: str, table: Mapping[str, Any]) -> None:
    """Write a file of the study."""
    write_bytes(path, json_bytes({"format": f"gpuyard-real-{what}", "version": VERSION, **table}))


def read_record(path: Path, what: str) -> Fields:
    """Read a file of the study; another file, or one of another version, is refused."""
    fields = Fields(parse_json(read_bytes(path, MOST_BYTES, f"a {what} of the study"), str(path), strict=True), str(path))
    if fields.text("format", "") != f"gpuyard-real-{what}" or fields.whole("version", 0) != VERSION:
        raise DataError(f"{path}: not a {what} of a real machine, or of another version")
    return fields


def _job(row: Fields) -> RealJob:
    kind = row.text("kind")
    if kind not in KINDS:
        raise row.error("kind", "is not a kind of work")
    made = RealJob(row.number("submit"), kind, row.number("seconds"), row.number("deadline"), row.number("priority", low=-1e9))
    row.done()
    return made


def held_out(count: int, *, jobs: int, compress: float, kinds: Sequence[str] = tuple(KINDS)) -> list[RealTrace]:
    """Return traces of the workload family, one arrival shape after the other, each from a seed of the test part."""
    if not 1 <= count <= 1000:
        raise UsageError(f"{count} traces; from 1 to 1,000")
    made = []
    for number in range(count):
        shape, seed = SHAPES[number % len(SHAPES)], FIRST_SEED + number
        assert seed in SEEDS["test"]
        text = f"family:shape={shape},intensity=low"  # at which eight GPUs are just full: it is more than one GPU can do
        made.append(trace_of(text, seed, jobs=jobs, compress=compress, name=f"{shape}-{seed}", kinds=kinds))
    return made


def trace_of(text: str, seed: int, *, jobs: int, compress: float, name: str = "", kinds: Sequence[str] = tuple(KINDS)) -> RealTrace:
    """Make a trace of the first jobs of a workload, a generator or a file."""
    from gpuyard.traces import load_workload

    workload, source = load_workload(text, seed), f"{text}, seed {seed}"
    return convert(workload, seed, jobs=jobs, compress=compress, name=name or Path(text).stem, source=source, kinds=kinds)


def convert(
    workload: Workload, seed: int, *, jobs: int, compress: float, name: str, source: str, kinds: Sequence[str] = tuple(KINDS)
) -> RealTrace:
    """Make a trace of the first jobs of a workload; work of another kind than these becomes one of them."""
    if not compress > 0:
        raise UsageError(f"compress = {compress:g} is not above 0")
    if not 1 <= jobs <= MOST_JOBS:
        raise UsageError(f"{jobs:,} jobs; from 1 to {MOST_JOBS:,}")
    head = workload.head(jobs)
    if not len(head):
        raise DataError(f"{source}: has no jobs")
    columns, random = head.jobs, np.random.default_rng([seed, 0x7265616C])
    begin = float(columns.submit[0])
    made = []
    for k in range(len(head)):
        label = columns.classes[columns.job_class[k]].lower()
        meant = next((found for start, found in _BY_CLASS.items() if label.startswith(start)), kinds)
        among = [kind for kind in meant if kind in kinds] or kinds
        kind = among[int(random.integers(len(among)))]
        submit, deadline = ((float(column[k]) - begin) / compress for column in (columns.submit, columns.deadline))
        made.append(RealJob(submit, kind, float(head.runtime[k]) / compress, min(deadline, 1e9), float(columns.priority[k])))
    return RealTrace(name, source, compress, tuple(made))


def calibration(kinds: Sequence[str] = tuple(KINDS), spans: Sequence[float] = (0.5, 2.0, 0.5, 2.0)) -> RealTrace:
    """Return a trace that shows what jobs cost: short and long ones of each kind, in turn, all submitted at once."""
    jobs = tuple(RealJob(0.0, kind, seconds, 1e9, 0.0) for seconds in spans for kind in kinds)
    return RealTrace(CALIBRATION, "jobs of every kind at once", 1.0, jobs)
