"""Tables of run times by class of jobs, from which `gittins` ranks: fitted by counting, kept in a safetensors file like other policies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard.arrays import Array, quantiles
from gpuyard.engine.rows.ranking import BY_EITHER, BY_ESTIMATE, BY_WALLTIME, packed_table
from gpuyard.errors import CheckpointError, DataError, UsageError
from gpuyard.files import is_file, parse_json
from gpuyard.networks.tensor_file import Caps, Pathlike, read_arrays, write_arrays
from gpuyard.policies.slots import DEFAULT_TABLE, PREEMPTIONS, RankRule
from gpuyard.registry import unknown_name

KEY = "gpuyard-run-times"  # names the manifest in the metadata of the file
SUFFIX = ".safetensors"
SHIPPED = Path(__file__).parent / "tables"
CLASSES, COUNT = 20, 32  # of jobs, and quantiles of each, unless told otherwise
LEAST = 20  # jobs to fit a table
MOST_CLASSES, MOST_COUNT = 1000, 1000
_CAPS = Caps(file=16 << 20, header=1 << 20, tensors=10)
GITTINS = "gittins"


@dataclass(frozen=True, eq=False)
class RunTimesTable:
    """How long jobs ran, by class: (classes, count) ascending quantiles; class k has keys from edges[k - 1] up to edges[k].

    The key is the requested time, if `by_walltime` and the job has one, else the estimate. `about` says how the table was made.
    `otherwise` is the table for jobs that requested no time, where they have one of their own.
    """

    name: str
    by_walltime: bool
    edges: Array  # (classes - 1,) s, ascending
    quantiles: Array  # (classes, count) s
    about: Mapping[str, Any]
    otherwise: RunTimesTable | None = None

    @cached_property
    def packed(self) -> tuple[float, ...]:
        """The table as kernels take it."""
        by = BY_EITHER if self.otherwise is not None else BY_WALLTIME if self.by_walltime else BY_ESTIMATE
        own = tuple(packed_table(by, self.edges, self.quantiles).tolist())
        return own if self.otherwise is None else own + self.otherwise.packed


def fit_run_times(
    key: Array, runtime: Array, *, name: str = "fitted", by_walltime: bool, classes: int = CLASSES, count: int = COUNT,
    about: Mapping[str, Any] | None = None,
) -> RunTimesTable:  # fmt: skip
    """Count run times (s) by classes of a key (s) that have about the same number of jobs; equal keys are in one class."""
    if not 1 <= classes <= MOST_CLASSES or not 2 <= count <= MOST_COUNT:
        raise UsageError(f"classes = {classes}, quantiles = {count}: at most {MOST_CLASSES} classes, and 2 to {MOST_COUNT} quantiles")
    good = np.isfinite(key) & (runtime > 0)
    key, runtime = np.asarray(key, float)[good], np.asarray(runtime, float)[good]
    if len(key) < LEAST:
        raise DataError(f"{name}: {len(key)} jobs with a run time are too few for a table", hint=f"at least {LEAST}")
    edges = np.unique(quantiles(key, np.arange(1, classes) / classes))
    edges = edges[edges > key.min()]
    kind = np.searchsorted(edges, key, side="right")
    levels = (np.arange(count) + 0.5) / count
    rows = np.array([quantiles(runtime[kind == k], levels) for k in range(len(edges) + 1)])
    return RunTimesTable(name, by_walltime, edges, rows, {**(about or {}), "jobs": len(key)})


def write_run_times(path: Pathlike, table: RunTimesTable) -> None:
    """Write a table as one file, whole or not at all."""
    manifest = {"version": 1, "by_walltime": table.by_walltime, "about": dict(table.about)}
    arrays = {"edges": table.edges.astype(np.float64), "quantiles": np.ascontiguousarray(table.quantiles, np.float64)}
    write_arrays(path, arrays, {KEY: json.dumps(manifest, allow_nan=False)}, caps=_CAPS)


def read_run_times(path: Pathlike, name: str = "") -> RunTimesTable:
    """Read a table and check it; every fault is one line that names the file."""
    try:
        arrays, meta = read_arrays(path, caps=_CAPS)
        if KEY not in meta:
            hint = "make one: gpuyard train rank --workload LOG"
            raise CheckpointError(f"{path}: a safetensors file without a table of run times", hint=hint)
        manifest = parse_json(meta[KEY], f"{path}: manifest", strict=True)
        table = _checked(path, manifest, arrays)
    except DataError as error:
        text = str(error)
        raise CheckpointError(text if str(path) in text else f"{path}: {text}") from None
    return replace(table, name=name or str(path))


def _checked(path: Pathlike, manifest: Any, arrays: Mapping[str, Array]) -> RunTimesTable:
    if not isinstance(manifest, dict) or manifest.get("version") != 1 or not isinstance(manifest.get("by_walltime"), bool):
        raise CheckpointError(f"{path}: its manifest is not one of a table of run times of version 1")
    edges, rows = arrays.get("edges"), arrays.get("quantiles")
    if edges is None or rows is None or set(arrays) != {"edges", "quantiles"}:
        raise CheckpointError(f"{path}: has the arrays {', '.join(sorted(arrays))[:80]}, not edges and quantiles")
    shaped = edges.ndim == 1 and rows.ndim == 2 and rows.shape[0] == len(edges) + 1 and edges.dtype == rows.dtype == np.float64
    if not shaped or not len(edges) < MOST_CLASSES or not 2 <= rows.shape[1] <= MOST_COUNT:
        raise CheckpointError(f"{path}: edges {edges.shape} and quantiles {rows.shape} are not those of a table")
    values = np.concatenate([edges, rows.ravel()])
    if not (np.isfinite(values).all() and (values >= 0).all() and (np.diff(edges) > 0).all() and (np.diff(rows, axis=1) >= 0).all()):
        raise CheckpointError(f"{path}: edges or quantiles are not ascending times")
    about = manifest.get("about")
    return RunTimesTable(str(path), manifest["by_walltime"], edges, rows, about if isinstance(about, dict) else {})


# ── gittins in the preemption slot ──


def table_names() -> tuple[str, ...]:
    """Return the names of the tables that come with gpuyard."""
    return tuple(sorted(path.stem for path in SHIPPED.glob(f"*{SUFFIX}")))


@dataclass(frozen=True)
class NamedTable:
    """A table by its name or path, read when it is needed; `auto` is `hpc` for jobs that requested a time, `gpu` for the others."""

    name: str

    @property
    def table(self) -> RunTimesTable:
        if self.name == DEFAULT_TABLE:
            return _either()
        path = SHIPPED / f"{self.name}{SUFFIX}" if self.name in table_names() else Path(self.name)
        if not is_file(path):
            raise unknown_name("table of run times", self.name, (DEFAULT_TABLE, *table_names()))
        return _read_once(path, path.stat().st_mtime_ns, self.name)

    @property
    def packed(self) -> tuple[float, ...]:
        return self.table.packed

    @property
    def by_walltime(self) -> bool:
        return self.table.by_walltime

    @property
    def edges(self) -> Array:
        return self.table.edges

    @property
    def quantiles(self) -> Array:
        return self.table.quantiles

    @property
    def otherwise(self) -> RunTimesTable | None:
        return self.table.otherwise


@lru_cache(maxsize=1)
def _either() -> RunTimesTable:
    return replace(NamedTable("hpc").table, name=DEFAULT_TABLE, otherwise=NamedTable("gpu").table)


@lru_cache(maxsize=64)
def _read_once(path: Path, changed: int, name: str) -> RunTimesTable:
    return read_run_times(path, name)


def gittins(table: RunTimesTable | NamedTable) -> RankRule:
    """Return the rule that ranks by a table."""
    return replace(_GITTINS, table=table)


def with_table(text: str) -> tuple[str, NamedTable | None]:
    """Split `table=NAME` off the parameters of a rank rule."""
    name, _, given = text.partition(":")
    parts = given.split(",") if given else []
    tables = [part.removeprefix("table=") for part in parts if part.startswith("table=")]
    if not tables:
        return text, None
    found = NamedTable(tables[-1])
    found.table  # noqa: B018 - refuses a table that is not there
    rest = ",".join(part for part in parts if not part.startswith("table="))
    return f"{name}:{rest}" if rest else name, found


_TITLE = "Gittins rank by a table of run times: what ends soonest per GPU goes first, through the rank pass"
# Chosen on windows of nine logs, none of them in the last 40 % of the seven that the shipped tables were counted on (record 34).
_GITTINS = RankRule(
    GITTINS, _TITLE, every=60.0, width=64.0, pay=0.5, ageing=12.0, stretch=10.0, burden=0.25, writing=0.3, trust=1.0,
    table=NamedTable(DEFAULT_TABLE),
)  # fmt: skip
PREEMPTIONS.add(GITTINS, _GITTINS)
