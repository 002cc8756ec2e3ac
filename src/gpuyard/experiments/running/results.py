"""Measured results as columns, from which summaries, tables, figures and reports are made.

`gpuyard run` keeps Results in a folder and `load_results` reads them; `compare` and `evaluate` hold them in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.experiments.design.cells import column, entries_of, texts_of
from gpuyard.experiments.design.kinds import PLACE as PLACE
from gpuyard.experiments.design.spec import Experiment, from_table
from gpuyard.experiments.judging.curves import Curve
from gpuyard.experiments.judging.statistics import Interval
from gpuyard.experiments.running.store import AGENTS, BEGIN, CURVES, EXPERIMENT, RUNS, Store, read_json
from gpuyard.files import is_file
from gpuyard.metrics import resolve
from gpuyard.traces.recipes import parse_recipe

if TYPE_CHECKING:
    import polars as pl

    from gpuyard.experiments.hypothesis import WhatIf
    from gpuyard.experiments.judging.answering.provenance import Provenance
    from gpuyard.experiments.judging.answering.waits import Waits
    from gpuyard.experiments.questions.calibration import SiteFit
    from gpuyard.experiments.questions.stability import Stability


@dataclass(frozen=True, eq=False)
class OneSample:
    """The values by which a single sample, such as a log, is judged: by blocks of time, because there are no seeds."""

    submit: Array  # (jobs,) s
    intervals: Mapping[str, Mapping[str, Interval]]  # scheduler → metrics that are means over jobs → interval by blocks of time
    per_job: Mapping[str, Array]  # scheduler → (jobs,) the first objective; empty where it is not a mean over jobs


@dataclass(frozen=True, eq=False)
class Results:
    """Runs in the order of the experiment's axes. `columns`: name → (runs,) values; texts are arrays of objects."""

    folder: Path | None  # None: held in memory, for one workload on one cluster; nothing but columns was kept
    experiment: Experiment
    about: Mapping[str, Any]  # version, platform, command
    columns: Mapping[str, Array]
    windows: bool = False  # seeds number windows of logs, not draws of a generator
    sample: OneSample | None = None
    titles: Mapping[str, str] = field(default_factory=dict)  # scheduler → its name for a sentence, with its code
    names: Mapping[str, str] = field(default_factory=dict)  # scheduler → its name for people, without
    waits: Waits | None = None  # who waited how long, by groups of jobs; None: nothing was kept
    provenance: Provenance | None = None  # of jobs and cluster; None: the experiment says it
    accuracy: Mapping[str, float] = field(default_factory=dict)  # of the estimates
    paired: int = 0  # jobs that every line of a log is measured over
    notes: tuple[str, ...] = ()
    seen: frozenset[str] = frozenset()  # schedulers whose networks were trained on some of these jobs
    what_if: WhatIf | None = None  # of a log in which no job may be stopped
    stability: Stability | None = None  # of the winner on a log
    calibration: SiteFit | None = None  # of the cluster of a log

    def __len__(self) -> int:
        return len(self.columns["run"])

    @property
    def device(self) -> str:
        """Say what jobs ask for, in the plural: GPUs, or processors or nodes of a log that counts these."""
        return self.provenance.device if self.provenance else "GPUs"

    @property
    def schedulers(self) -> tuple[str, ...]:
        """Every scheduler, in the order of the axis; for a log that says when its jobs started, `log` is the first."""
        return self.experiment.axes.schedulers

    def title(self, scheduler: str) -> str:
        """Name a scheduler in a sentence: `shortest job first with EASY (sjf/fewest/easy)`."""
        return self.titles.get(scheduler, scheduler)

    def name(self, scheduler: str) -> str:
        """Name a scheduler for people: `Shortest job first + EASY`; its label where no other name is known."""
        return self.names.get(scheduler, scheduler)

    def counts(self, scheduler: str) -> dict[str, int]:
        """Count the jobs of a scheduler over all its Runs: jobs, done, killed, rejected, unfinished."""
        mine = self.where(scheduler=scheduler)
        return {name[2:]: int(values[mine].sum()) for name, values in self.columns.items() if name.startswith("n_")}

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Columns by which workloads differ: parameters of generators that take more than one value."""
        fixed = {"run", *PLACE, "seed", "scheduler", "training_seed", *self.experiment.measured, "speedup", "ratio_to_optimum", "preempts"}
        names = [name for name in self.columns if name not in fixed and not name.startswith(("n_", "bound."))]
        return tuple(name for name in names if len(set(self.columns[name].tolist())) > 1)

    @cached_property
    def manifests(self) -> list[dict[str, Any]]:
        """One for each Run; empty where none was kept."""
        return Store(self.folder).manifests() if self.folder else []

    @property
    def estimates(self) -> str:
        """Say what the estimates of run times were, by the manifests of the Runs; empty where these do not say it."""
        found = Counter(str(each["estimates"]).partition(";")[0] for each in self.manifests if "estimates" in each)
        if len(found) <= 1:
            return next(iter(found), "")
        return ", ".join(f"{name} in {count:,} Runs" for name, count in found.most_common())

    @cached_property
    def _curve_frame(self) -> pl.DataFrame | None:
        if self.folder is None:
            return None
        frame = Store(self.folder).read(CURVES)
        missing = {"run", "curve", "x", "y", "labels"} - set(frame.columns)
        if missing:
            raise DataError(f"{self.folder / CURVES}: has no column {min(missing)!r}")
        return frame

    @cached_property
    def _curves(self) -> dict[str, dict[int, Curve]]:
        return {}

    def curves(self, name: str) -> Mapping[int, Curve]:
        """Run → its curve of that name; empty where none was kept."""
        if name not in self._curves:
            frame = self._curve_frame
            rows = () if frame is None else frame.filter(frame["curve"] == name).select("run", "x", "y", "labels").iter_rows()
            self._curves[name] = {run: Curve(np.array(x), np.array(y), tuple(labels)) for run, x, y, labels in rows}
        return self._curves[name]

    @cached_property
    def agents(self) -> Mapping[str, dict[str, Any]]:
        """Label of a trained agent → objective, steps, wall_s, curve."""
        folder = self.folder / AGENTS if self.folder else None
        return {path.stem: read_json(path) for path in sorted(folder.glob("*.json"))} if folder and folder.is_dir() else {}

    def where(self, **values: Any) -> Array:
        """(runs,) bool: the Runs whose columns have these values."""
        chosen = np.ones(len(self), bool)
        for name, value in values.items():
            chosen &= self.columns[name] == value
        return chosen

    def along(self, name: str = "") -> Array:
        """(runs,) bool: the Runs in which nothing is varied but `name`; without a name those at the centre, without [vary] all."""
        return self.where(**{column(each): value for each, value in self.experiment.centre.items() if each != name})


def load_results(folder: Path) -> Results:
    """Read the results in a folder that `gpuyard run` has completed."""
    if not is_file(folder / EXPERIMENT):
        raise DataError(f"{folder}: holds no experiment", hint="gpuyard run NAME --out DIR makes one")
    store = Store(folder)
    about = store.read_experiment()
    experiment = from_table(about.pop("experiment"), str(folder / EXPERIMENT))
    frame = store.read(RUNS)
    columns = {
        name: frame[name].to_numpy() if frame[name].dtype.is_numeric() else np.array(frame[name].to_list(), object)
        for name in frame.columns
    }
    measured = {name for name in experiment.metrics if resolve(name)[0].reproducible}
    needed = {"run", *PLACE, "seed", "scheduler", "training_seed", *experiment.axes.objectives, *measured}
    missing = sorted(needed - set(columns))
    if missing:
        raise DataError(f"{folder / RUNS}: has no column {missing[0]!r}")
    texts = {*PLACE, "scheduler"}
    wrong = sorted(name for name in needed if (columns[name].dtype == object) != (name in texts))
    if wrong:
        raise DataError(f"{folder / RUNS}: column {wrong[0]!r} does not hold {'texts' if wrong[0] in texts else 'numbers'}")
    _check_axes(folder, experiment, columns)
    return Results(folder, experiment, about, columns, windows=has_windows(experiment))


def _check_axes(folder: Path, experiment: Experiment, columns: Mapping[str, Array]) -> None:
    """Refuse Runs that are not those of the experiment's axes, in their order: the two files are not of one experiment."""
    seeds, names = experiment.axes.seeds, [entry.name for entry in entries_of(experiment)]
    height = len(columns["run"])
    cells, rest = divmod(height, len(seeds) * len(names))
    axes = {"run": range(height), "seed": np.tile(np.repeat(seeds, len(names)), cells), "scheduler": names * (len(seeds) * cells)}
    for name, expected in axes.items():
        if cells == 0 or rest or columns[name].tolist() != list(expected):
            raise DataError(f"{folder / RUNS}: {height:,} Runs are not those of the axes in {EXPERIMENT} ({name})", hint=BEGIN)


def has_windows(experiment: Experiment) -> bool:
    """Whether every workload is a log, so that seeds number its windows."""
    texts = [texts_of(experiment, given)[0] for given in experiment.axes.workloads]
    return bool(texts) and not any(parse_recipe(text).is_generator for text in texts)
