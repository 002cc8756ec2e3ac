"""A snapshot as a JSON file that people, other programs and later versions can read. It loads back equal.

    {"format": "gpuyard snapshot", "version": 1, "now": 3600.0, "cluster": {…as a cluster file…}, "labels": {"users": ["ann"]},
     "jobs": {"rows": 2, "gpus": 8, "estimate": [600.0, "nan"]}, "live": …, "held": …, "nodes": …, "names": ["17", "18_3"], …}

A column is a list with a value for each row, or one value for all; a column of zeros is left out. Infinities and NaN are texts. What a
file says is checked as far as that it cannot harm: every number that refers to something must refer to something that is there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError, GpuyardError
from gpuyard.files import from_plain, parse_json, read_bytes, to_plain, write_bytes
from gpuyard.model.cluster import MAX_DEVICES
from gpuyard.model.cluster_file import cluster_from_dict, cluster_to_dict
from gpuyard.model.fields import Fields
from gpuyard.model.jobs import JOB, LABELS, Jobs, check_column
from gpuyard.model.rules import Rules, parse_terms
from gpuyard.model.snapshot import ENDED, HALF_LIFE, HELD, LIVE, MIX, NODE, Snapshot

FORMAT, VERSION = "gpuyard snapshot", 1
MAX_BYTES = 64_000_000  # some 200,000 jobs
MAX_PARTS = 500_000  # tables and lists: brackets are counted before the text is parsed, since empty ones would take gigabytes
MAX_ROWS = 1_000_000
_TABLES = {"jobs": JOB, "live": LIVE, "held": HELD, "nodes": NODE, "ended": ENDED, "mix": MIX}
_SCALARS = {"submitted": (0, 2**31), "active": (0, 1000), "seed": (0, 2**63 - 1)}
_NONFINITE = {"inf": np.inf, "-inf": -np.inf, "nan": np.nan}


@dataclass(frozen=True)
class SavedSnapshot:
    """A snapshot, and what only its source knows of it."""

    snapshot: Snapshot
    source: str = ""  # such as "slurm 22.05.8"
    names: tuple[str, ...] = ()  # (jobs,) what the source calls each job; (): its number
    tiers: Mapping[str, int] = field(default_factory=dict)  # partition as jobs name it → its tier; jobs of a higher one go first
    ineligible: Mapping[str, str] = field(default_factory=dict)  # name of a waiting job that is not in the snapshot → why
    notes: tuple[str, ...] = ()  # what a reader could not know, or had to leave out

    def name(self, row: int) -> str:
        """Return what the source calls the job in a row."""
        return self.names[row] if self.names else str(int(self.snapshot.jobs.table["id"][row]))


# ── writing ──


def snapshot_bytes(saved: SavedSnapshot) -> bytes:
    """Return the file: JSON in UTF-8, a line for each part of it."""
    s = saved.snapshot
    parts: dict[str, Any] = {"format": FORMAT, "version": VERSION, "source": saved.source, "now": _plain(s.now)}
    parts |= {name: int(getattr(s, name)) for name in _SCALARS}
    parts |= {"half_life": _plain(s.half_life), "excess": _plain(s.excess)}
    parts |= {"cluster": to_plain(cluster_to_dict(s.cluster), "cluster"), "rules": to_plain(asdict(s.rules), "rules")}
    parts["labels"] = {name: list(texts) for name, texts in s.jobs.labels.items() if texts != ("",)}
    arrays = {"jobs": s.jobs.table, **{name: getattr(s, name) for name in _TABLES if name != "jobs"}}
    parts |= {name: _table_parts(array) for name, array in arrays.items() if array is not None}
    parts["usage"] = [_plain(value) for value in s.usage.tolist()]
    parts |= {"homes": s.homes.tolist(), "spent": dict(s.spent)}
    parts |= {"names": list(saved.names), "tiers": dict(saved.tiers), "ineligible": dict(saved.ineligible), "notes": list(saved.notes)}
    lines = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in parts.items()]
    return ("{" + ",\n ".join(lines) + "}\n").encode()


def write_snapshot(saved: SavedSnapshot, path: Path) -> None:
    """Write the file whole or not at all."""
    write_bytes(path, snapshot_bytes(saved))


def _plain(value: float) -> float | str:
    return value if np.isfinite(value) else str(float(value))


def _table_parts(array: Array) -> dict[str, Any]:
    found: dict[str, Any] = {"rows": len(array)}
    for name in array.dtype.names or ():
        column = array[name]
        values = [_plain(value) for value in column.tolist()]
        if len(values) and column.tobytes() == column[:1].tobytes() * len(column):  # also tells 0.0 from -0.0
            if column[:1].tobytes().strip(b"\0"):
                found[name] = values[0]
        elif values:
            found[name] = values
    return found


# ── reading ──


def read_snapshot(path: Path) -> SavedSnapshot:
    """Read a file of at most MAX_BYTES. Errors name the file, the field and the row."""
    return parse_snapshot(read_bytes(path, MAX_BYTES, "a snapshot"), str(path))


def parse_snapshot(data: bytes, where: str = "snapshot") -> SavedSnapshot:
    """Read the bytes of a file; `where` begins every message."""
    check_parts(data, where)
    return snapshot_from(parse_json(data, where, strict=True, hint="gpuyard snapshot writes such files"), where)


def check_parts(data: bytes, where: str) -> None:
    """Refuse JSON that would take far more memory than it has bytes."""
    if data.count(b"{") + data.count(b"[") > MAX_PARTS:
        raise DataError(f"{where}: more than {MAX_PARTS:,} tables and lists, too many for a snapshot")


def snapshot_from(table: object, where: str) -> SavedSnapshot:
    """Read what the JSON of a file holds."""
    root = Fields(table, where)
    if root.value("format", "") != FORMAT:
        raise DataError(f"{where}: is not a snapshot", hint="gpuyard snapshot writes such files")
    version = root.whole("version", low=1)
    if version != VERSION:
        raise root.error("version", f"is not {VERSION}, which this gpuyard reads", hint="a newer gpuyard wrote it: upgrade this one")
    snapshot = _snapshot(root, where)
    names = root.texts("names", ())
    if names and (len(names) != len(snapshot.jobs) or len(set(names)) != len(names)):
        raise root.error("names", f"does not have one name for each of {len(snapshot.jobs)} jobs")
    tiers = root.table("tiers")
    ineligible = root.table("ineligible")
    saved = SavedSnapshot(
        snapshot, root.text("source", ""), names, {name: tiers.whole(name, high=2**32) for name in tiers.names},
        {name: ineligible.text(name) for name in ineligible.names}, root.texts("notes", ()),
    )  # fmt: skip
    root.done()
    return saved


def _snapshot(root: Fields, where: str) -> Snapshot:
    cluster = cluster_from_dict(root.mapping("cluster"), where=f"{where}: cluster")
    labels = _labels(root.table("labels"))
    tables: dict[str, Any] = {name: _table(root.table(name), kind, where, name) for name, kind in _TABLES.items() if name in root}
    for name in ("jobs", "live", "nodes"):
        if name not in tables:
            raise root.error(name, "is missing")
    jobs = Jobs(tables.pop("jobs"), **labels)
    jobs.check(f"{where}: jobs")
    rules = _rules(root.table("rules"), where)
    usage = _numbers(root.value("usage", []), np.dtype(np.float64), f"{where}: usage")
    homes, spent = _numbers(root.value("homes", []), np.dtype(np.int32), f"{where}: homes"), root.table("spent")
    others: dict[str, Any] = {name: root.whole(name, 0, low=low, high=high) for name, (low, high) in _SCALARS.items()}
    snapshot = Snapshot(
        root.number("now", low=-1e12), jobs, tables.pop("live"), tables.pop("held", np.zeros(0, HELD)), tables.pop("nodes"), cluster, rules,
        usage=usage, half_life=root.number("half_life", HALF_LIFE, above=0.0), excess=root.number("excess", 0.0, low=-1e300, high=1e300),
        **others, **tables, homes=homes, spent={name: spent.number(name, high=1e300) for name in spent.names},
    )  # fmt: skip
    _check_references(snapshot, where)
    return snapshot


def _labels(given: Fields) -> dict[str, Any]:
    found = {name: given.texts(name, ("",)) for name in LABELS.values()}
    for name, texts in found.items():
        if not texts or len(set(texts)) < len(texts):
            raise given.error(name, "is empty or has a text twice")
    try:
        for text in found["term_texts"]:
            parse_terms(text)
    except DataError as error:
        raise DataError(f"{given.where}: labels: {error}") from None
    given.done()
    return found


def _rules(given: Fields, where: str) -> Rules:
    known = {each.name for each in fields(Rules)}
    for name in given.names:
        if name not in known:
            given.done()
    try:
        values = from_plain({name: given.value(name, None) for name in given.names})
        if not all(isinstance(value, bool) == (name == "walltime_kill") for name, value in values.items()):
            raise DataError("a value is of the wrong kind")
        return Rules(**values)
    except (GpuyardError, TypeError) as error:
        raise DataError(f"{where}: rules: {error}") from None


def _table(given: Fields, kind: np.dtype[Any], where: str, title: str) -> Array:
    rows = given.whole("rows", high=MAX_ROWS)
    made = np.zeros(rows, kind)
    for name in kind.names or ():
        if name in given:
            value = given.value(name, None)
            place = f"{where}: {title}: {name}"
            column = _numbers(value if isinstance(value, list) else [value], kind[name], place)
            if isinstance(value, list) and len(column) != rows:
                raise DataError(f"{place} has {len(column)} values for {rows} rows")
            made[name] = column
    given.done()
    return made


def _numbers(values: object, kind: np.dtype[Any], place: str) -> Array:
    """Return a list of JSON values as an array of this kind, or refuse the first that is not of it."""
    if not isinstance(values, list):
        raise DataError(f"{place} is not a list of numbers")
    fits: Callable[[object], bool] = {"f": _is_real, "b": _is_flag}.get(kind.kind) or partial(_is_whole, kind=kind)
    for row, value in enumerate(values):
        if not fits(value):
            what = {"f": "a number", "b": "true or false"}.get(kind.kind, f"a whole number that fits into {8 * kind.itemsize} bits")
            raise DataError(f"{place}: row {row + 1}: {str(value)[:40]!r} is not {what}")
    return np.array([_NONFINITE.get(value, value) for value in values] if kind.kind == "f" else values, kind)


def _is_real(value: object) -> bool:
    if isinstance(value, str):
        return value in _NONFINITE
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_whole(value: object, kind: np.dtype[np.int64]) -> bool:
    limits = np.iinfo(kind)
    return isinstance(value, int) and not isinstance(value, bool) and limits.min <= value <= limits.max


# ── what refers to what ──


def _check_references(s: Snapshot, where: str) -> None:
    """Refuse rows, nodes and devices that are not there, and times that are none."""
    jobs, nodes = s.jobs.table, s.cluster.nodes
    if len(s.live) != len(jobs):
        raise DataError(f"{where}: live has {len(s.live)} rows for {len(jobs)} jobs")
    if len(s.nodes) != len(nodes):
        raise DataError(f"{where}: nodes has {len(s.nodes)} rows for {len(nodes)} nodes of the cluster")
    if len(s.usage) not in (0, len(s.jobs.users)):
        raise DataError(f"{where}: usage has {len(s.usage)} values for {len(s.jobs.users)} users")
    if len(s.homes) not in (0, len(jobs)):
        raise DataError(f"{where}: homes has {len(s.homes)} values for {len(jobs)} jobs")
    _refuse((s.homes < -1) | (s.homes >= len(s.cluster.partitions)), f"{where}: homes", "is no partition of the cluster")
    _refuse((jobs["index"][1:] <= jobs["index"][:-1]), f"{where}: jobs: index", "does not ascend", first=2)
    _refuse(jobs["index"] < 0, f"{where}: jobs: index", "is negative")
    for name in JOB.names or ():
        check_column(jobs[name], name, f"{where}: jobs")
    for name in (each for each in LIVE.names or () if LIVE[each].kind == "f"):
        _refuse(np.isnan(s.live[name]) | (s.live[name] == -np.inf), f"{where}: live: {name}", "is not a time or an amount")
    _refuse(s.live["running"] & ~(s.live["rate"] > 0), f"{where}: live: rate", "is not above 0 for a job that runs")
    full = np.array([(1 << min(count, MAX_DEVICES)) - 1 if count <= MAX_DEVICES else 2**64 - 1 for count in nodes.gpus.tolist()], np.uint64)
    _refuse((s.nodes["off"] < 0) | (s.nodes["off"] > nodes.gpus), f"{where}: nodes: off", "is not a number of the node's GPUs")
    _refuse((s.nodes["mask"] & ~full) > 0, f"{where}: nodes: mask", "names GPUs that the node does not have")
    _check_held(s, full, where)


def _check_held(s: Snapshot, full: Array, where: str) -> None:
    held, jobs, nodes = s.held, s.jobs.table, s.cluster.nodes
    for name, count in (("row", len(jobs)), ("node", len(nodes))):
        _refuse((held[name] < 0) | (held[name] >= count), f"{where}: held: {name}", f"is not one of {count}")
    _refuse(held["row"][1:] < held["row"][:-1], f"{where}: held: row", "does not ascend", first=2)
    _refuse(~s.live["running"][held["row"]], f"{where}: held: row", "is a job that does not run")
    _refuse((held["gpus"] < 0) | (held["gpus"] > nodes.gpus[held["node"]]), f"{where}: held: gpus", "is not a number of the node's GPUs")
    _refuse((held["device"] < -1) | (held["device"] >= nodes.gpus[held["node"]]), f"{where}: held: device", "is not a GPU of the node")
    _refuse((held["devices"] & ~full[held["node"]]) > 0, f"{where}: held: devices", "names GPUs that the node does not have")
    taken = np.zeros(len(nodes), np.int64)
    np.add.at(taken, held["node"], held["gpus"])
    _refuse(taken > nodes.gpus, f"{where}: nodes", "has more GPUs in use than it has")


def _refuse(bad: Array, place: str, why: str, *, first: int = 1) -> None:
    if bad.any():
        raise DataError(f"{place}: row {int(np.argmax(bad)) + first} {why}")
