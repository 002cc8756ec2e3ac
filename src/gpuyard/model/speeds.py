"""Read measured speed tables: how fast each device type runs each class of jobs, from the files of several studies.

    {"resnet": {"a100": 1.0, "v100": 0.4}}                              # plain JSON: class → type → speed
    {"v100": {"('ResNet-50 (batch size 64)', 1)": {"null": 4.4}}}       # Gavel (OSDI'20): steps/s alone; JSON
    gpu_type,model,table,placement,…,local_bsz,step_time                # Pollux (OSDI'21), Sia (SOSP'23): s per step; CSV
    model,exec_plan,placement,…,iter_time                               # Rubick: s per iteration on A800; CSV

Files are plain or gzip. A speed of 0 means that jobs of the class do not fit on the type.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from gpuyard.errors import DataError, UsageError
from gpuyard.files import parse_json, pieces, user_path
from gpuyard.model.cluster import Cluster
from gpuyard.model.workload import Workload
from gpuyard.registry import unknown_name

Speeds = dict[str, dict[str, float]]  # class → type → speed
SpeedTable = Mapping[str, Mapping[str, float]]  # the same, read-only
Times = dict[str, dict[str, dict[tuple[str, ...], float]]]  # class → type → (placement, batch …) → s

MAX_BYTES = 16_000_000  # after decompression
MAX_OBJECTS = 1_000_000  # of JSON: tables and lists
MAX_CLASSES = 100_000
DEFAULT_REFERENCE = "v100"  # the type that most studies measured
_GAVEL_KEY = re.compile(r"\('(.{1,200})', ([1-9][0-9]{0,5})\)")
_UNCONSOLIDATED = "_unconsolidated"  # Gavel: workers spread over servers, not a device type
# Sia's names of clusters → their devices; `dgx` is the same as `dgx-ext` with fewer batch sizes.
_DEVICES = {"aws": "t4", "azure": "v100", "dgx-ext": "a100-40gb", "quad": "rtx6000", "rtx": "rtx2080ti"}


def load_speeds(path: Path | str, reference: str = "") -> Speeds:
    """Read the table in a file: class → type → speed, relative to `reference` (v100 unless given, or the only type there is).

    A class without a measurement on the reference is left out; 0 means "does not fit". Classes have their names from the file. Gavel's
    are `ResNet-50 (batch size 64)` for one GPU and `ResNet-50 (batch size 64), 4 GPUs` for more. Those of Pollux, Sia and Rubick are
    models; their speeds are geometric means over the settings measured on both types, on the fewest GPUs.
    """
    path = Path(path)
    text = _text(path)
    if not text.lstrip().startswith(("{", "[")):
        return _relative(path, _step_times(path, text), reference)
    data = _json(path, text)
    if not isinstance(data, dict) or not data or not all(isinstance(row, dict) for row in data.values()):
        raise DataError(f"{path}: is not a speed table", hint="a table is {class: {type: speed}}, or Gavel's or Sia's throughputs")
    if any(isinstance(entry, dict) for row in data.values() for entry in row.values()):
        return _throughput_ratios(path, throughputs_in(path, data), reference)
    return _plain(path, data, reference)


def speeds_text(text: str, folder: Path = Path()) -> Speeds:
    """Read the table that `FILE` or `FILE:reference=TYPE` names; the file is looked for in `folder`."""
    name, separator, given = text.partition(":reference=")
    if not name or (separator and not given):
        raise UsageError(f"{text!r} is not FILE or FILE:reference=TYPE")
    return load_speeds(folder / user_path(name), given)


def load_throughputs(path: Path | str) -> dict[str, dict[tuple[str, int], float]]:
    """Read Gavel's table: type → (job type, GPUs) → steps/s of a job alone."""
    path = Path(path)
    data = _json(path, _text(path))
    if not isinstance(data, dict):
        raise DataError(f"{path}: is not a table of throughputs")
    return throughputs_in(path, data)


def throughputs_in(path: Path, data: Mapping[str, Any]) -> dict[str, dict[tuple[str, int], float]]:
    """Extract the throughputs from JSON, as `load_throughputs` does from a file."""
    found: dict[str, dict[tuple[str, int], float]] = {}
    for kind, row in data.items():
        if kind.endswith(_UNCONSOLIDATED):
            continue
        if not isinstance(row, dict):
            raise DataError(f"{path}: {kind[:60]!r} is not a table of job types")
        for key, entry in row.items():
            match = _GAVEL_KEY.fullmatch(key)
            if match is None or not isinstance(entry, dict) or "null" not in entry:
                raise DataError(f"{path}: {kind[:60]}: {key[:60]!r} is not ('JOB TYPE', GPUS) with an entry \"null\"")
            rate = _number(entry["null"], f"{path}: {kind[:60]}: {key[:60]}")
            found.setdefault(kind, {})[match[1], int(match[2])] = rate
    if not found:
        raise DataError(f"{path}: no throughputs")
    return found


def class_name(job_type: str, gpus: int) -> str:
    """Return the class of the jobs of a Gavel job type on that many GPUs."""
    return job_type if gpus == 1 else f"{job_type}, {gpus} GPUs"


def with_speeds(cluster: Cluster, speeds: SpeedTable) -> Cluster:
    """Add the table's rows for the cluster's types; rows that it already has win. Pairs of speed 0 are left out: see `fitting`."""
    types = {kind.name for kind in cluster.types}
    table = {name: {kind: speed for kind, speed in row.items() if kind in types and speed > 0} for name, row in speeds.items()}
    merged = {name: MappingProxyType({**row, **cluster.speed.get(name, {})}) for name, row in table.items() if row}
    return replace(cluster, speed=MappingProxyType({**cluster.speed, **merged}))


def fitting(workload: Workload, speeds: SpeedTable, types: Iterable[str]) -> Workload:
    """Keep jobs off the types on which their class does not fit (speed 0); `types` are those of the clusters."""
    jobs, everything = workload.jobs, tuple(types)
    unfit = {k: {kind for kind, speed in speeds.get(name, {}).items() if speed == 0} for k, name in enumerate(jobs.classes)}
    pairs = np.unique(np.stack([jobs.job_class, jobs.gpu_type]), axis=1).T.tolist() if len(jobs) else []
    labels, codes = list(jobs.gpu_types), jobs.gpu_type.copy()
    for job_class, kind in pairs:
        if not unfit[job_class]:
            continue
        row = speeds[jobs.classes[job_class]]
        asked = [name for name in jobs.gpu_types[kind].split("|") if name] or [
            *everything,
            *(name for name in row if name not in everything),
        ]
        label = "|".join(name for name in asked if name not in unfit[job_class]) or "none"
        if label not in labels:
            labels.append(label)
        codes[(jobs.job_class == job_class) & (jobs.gpu_type == kind)] = labels.index(label)
    if len(labels) == len(jobs.gpu_types) and np.array_equal(codes, jobs.gpu_type):
        return workload
    return replace(workload, jobs=replace(jobs, gpu_types=tuple(labels)).replace(gpu_type=codes))


def _text(path: Path) -> str:
    try:
        return b"".join(pieces(path, MAX_BYTES, hint="too large for a speed table")).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8") from None


def _json(path: Path, text: str) -> Any:
    """Parse JSON. Brackets are counted first: empty tables in a few megabytes of text would take gigabytes of memory."""
    if text.count("{") + text.count("[") > MAX_OBJECTS:
        raise DataError(f"{path}: more than {MAX_OBJECTS:,} tables and lists: too many for a speed table")
    return parse_json(text, str(path), constants=True)


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise DataError(f"{where} = {str(value)[:40]!r} is not a number from 0")
    return float(value)


def _reference(path: Path, types: Iterable[str], given: str) -> str:
    known = list(dict.fromkeys(types))
    wanted = given or (known[0] if len(known) == 1 else DEFAULT_REFERENCE)
    if wanted not in known:
        raise DataError(f"{path}: {unknown_name('reference type', wanted, known)}")
    return wanted


def _plain(path: Path, data: Mapping[str, Mapping[str, Any]], reference: str) -> Speeds:
    """Return the speeds as they stand, or relative to the reference if one is named."""
    table = {name: {kind: _number(speed, f"{path}: {name[:60]}: {kind[:60]}") for kind, speed in row.items()} for name, row in data.items()}
    if not reference:
        return _bounded(path, table)
    wanted = _reference(path, (kind for row in table.values() for kind in row), reference)
    rows = {name: row for name, row in table.items() if row.get(wanted, 0) > 0}
    return _bounded(path, {name: {kind: speed / row[wanted] for kind, speed in row.items()} for name, row in rows.items()})


def _throughput_ratios(path: Path, rates: Mapping[str, Mapping[tuple[str, int], float]], reference: str) -> Speeds:
    base = rates[_reference(path, rates, reference)]
    table: Speeds = {}
    for key, unit in base.items():
        if unit > 0:
            table[class_name(*key)] = {kind: row[key] / unit for kind, row in rates.items() if key in row}
    return _bounded(path, table)


def _step_times(path: Path, text: str) -> Times:
    """Read times of single steps by what was measured, from Sia's or Rubick's columns."""
    lines = csv.DictReader(text.splitlines())
    names = lines.fieldnames or ()
    form = next((form for needed, form in _TIME_FORMS.items() if set(needed) <= set(names)), None)
    if form is None:
        raise DataError(f"{path}: is not a speed table", hint="it is not JSON and lacks the columns of Pollux, Sia or Rubick")
    times: Times = {}
    try:
        for row in lines:
            entry = form(row)
            if entry is not None:
                name, kind, key, seconds = entry
                times.setdefault(name, {}).setdefault(kind, {})[key] = seconds
    except (ValueError, TypeError, csv.Error) as error:
        raise DataError(f"{path}:{lines.line_num}: {str(error)[:120]}") from None
    return times


Entry = tuple[str, str, tuple[str, ...], float]  # class, type, what was measured, s


def _sia(row: Mapping[str, str]) -> Entry | None:
    if row["table"] != "placements" or row["gpu_type"] == "dgx":
        return None
    return row["model"], _DEVICES.get(row["gpu_type"], row["gpu_type"]), (row["placement"], row["local_bsz"]), _seconds(row["step_time"])


def _rubick(row: Mapping[str, str]) -> Entry | None:
    if float(row["iter_time"]) == 0:  # such a plan does not run
        return None
    return row["model"], "a800", (row["placement"], row["exec_plan"], row["cpu_threads"]), _seconds(row["iter_time"])


_TIME_FORMS: dict[tuple[str, ...], Callable[[Mapping[str, str]], Entry | None]] = {
    ("gpu_type", "model", "table", "placement", "local_bsz", "step_time"): _sia,
    ("model", "exec_plan", "placement", "cpu_threads", "iter_time"): _rubick,
}


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e12:
        raise ValueError(f"{text[:40]!r} is not a time")
    return value


def _relative(path: Path, times: Times, reference: str) -> Speeds:
    wanted = _reference(path, (kind for row in times.values() for kind in row), reference)
    table: Speeds = {}
    for name, row in times.items():
        base = row.get(wanted, {})
        speeds = {kind: _ratio(base, measured) for kind, measured in row.items()}
        known = {kind: speed for kind, speed in speeds.items() if speed > 0}
        if known:
            table[name] = known
    return _bounded(path, table)


def _ratio(base: Mapping[tuple[str, ...], float], other: Mapping[tuple[str, ...], float]) -> float:
    """Return how much faster `other` is: the geometric mean over common settings on the fewest GPUs; 0 without common settings."""
    common = [key for key in base if key in other]
    fewest = min((_devices(key[0]) for key in common), default=0)
    logs = [math.log(base[key] / other[key]) for key in common if _devices(key[0]) == fewest]
    return math.exp(sum(logs) / len(logs)) if logs else 0.0


def _devices(placement: str) -> int:
    """Count the GPUs of a placement: one digit per node, `44` is 8."""
    return sum(int(digit) for digit in placement if digit.isdecimal())


def _bounded(path: Path, table: Speeds) -> Speeds:
    if not table:
        raise DataError(f"{path}: no class was measured on the reference type", hint="name another, FILE:reference=TYPE")
    if len(table) > MAX_CLASSES:
        raise DataError(f"{path}: {len(table):,} classes; at most {MAX_CLASSES:,}")
    return table
