"""What an experiment's folder holds, as columns; the only way in for tables, figures and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.experiments.design.cells import entries_of
from gpuyard.experiments.design.kinds import PLACE as PLACE
from gpuyard.experiments.design.spec import Experiment, from_table
from gpuyard.experiments.judging.curves import Curve
from gpuyard.experiments.running.store import AGENTS, CURVES, EXPERIMENT, RUNS, Store, read_json


@dataclass(frozen=True, eq=False)
class Results:
    """Runs of an experiment in the order of its axes. `columns`: name → (runs,) values; texts are arrays of objects."""

    folder: Path
    experiment: Experiment
    about: Mapping[str, Any]  # version, platform, command
    columns: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.columns["run"])

    @property
    def schedulers(self) -> tuple[str, ...]:
        """In the order of the axis."""
        return self.experiment.axes.schedulers

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Columns by which workloads differ: parameters of generators that take more than one value."""
        fixed = {"run", *PLACE, "seed", "scheduler", "training_seed", *self.experiment.metrics, "speedup", "ratio_to_optimum"}
        names = [name for name in self.columns if name not in fixed and not name.startswith(("n_", "bound."))]
        return tuple(name for name in names if len(set(self.columns[name].tolist())) > 1)

    @cached_property
    def manifests(self) -> list[dict[str, Any]]:
        """One for each Run."""
        return Store(self.folder).manifests()

    @cached_property
    def _curves(self) -> Mapping[str, dict[int, Curve]]:
        frame = Store(self.folder).read(CURVES)
        missing = {"run", "curve", "x", "y", "labels"} - set(frame.columns)
        if missing:
            raise DataError(f"{self.folder / CURVES}: has no column {min(missing)!r}")
        found: dict[str, dict[int, Curve]] = {}
        for run, name, x, y, labels in frame.select("run", "curve", "x", "y", "labels").iter_rows():
            found.setdefault(name, {})[run] = Curve(np.array(x), np.array(y), tuple(labels))
        return found

    def curves(self, name: str) -> Mapping[int, Curve]:
        """Run → its curve of that name; empty where none was kept."""
        return self._curves.get(name, {})

    @cached_property
    def agents(self) -> Mapping[str, dict[str, Any]]:
        """Label of a trained agent → objective, steps, wall_s, curve."""
        folder = self.folder / AGENTS
        return {path.stem: read_json(path) for path in sorted(folder.glob("*.json"))} if folder.is_dir() else {}

    def where(self, **values: Any) -> Array:
        """(runs,) bool: the Runs whose columns have these values."""
        chosen = np.ones(len(self), bool)
        for name, value in values.items():
            chosen &= self.columns[name] == value
        return chosen


def load_results(folder: Path) -> Results:
    """The results in a folder that `gpuyard run` has completed."""
    if not (folder / EXPERIMENT).exists():
        raise DataError(f"{folder}: holds no experiment", hint="gpuyard run NAME --out DIR makes one")
    store = Store(folder)
    about = store.read_experiment()
    experiment = from_table(about.pop("experiment"), str(folder / EXPERIMENT))
    frame = store.read(RUNS)
    columns = {
        name: frame[name].to_numpy() if frame[name].dtype.is_numeric() else np.array(frame[name].to_list(), object)
        for name in frame.columns
    }
    needed = {"run", *PLACE, "seed", "scheduler", "training_seed", *experiment.axes.objectives}
    missing = sorted(needed - set(columns))
    if missing:
        raise DataError(f"{folder / RUNS}: has no column {missing[0]!r}")
    texts = {*PLACE, "scheduler"}
    wrong = sorted(name for name in needed if (columns[name].dtype == object) != (name in texts))
    if wrong:
        raise DataError(f"{folder / RUNS}: column {wrong[0]!r} is no column of {'texts' if wrong[0] in texts else 'numbers'}")
    width = len(experiment.axes.seeds) * len(entries_of(experiment))
    if frame.height == 0 or frame.height % width or columns["run"].tolist() != list(range(frame.height)):
        raise DataError(f"{folder / RUNS}: {frame.height:,} Runs are not those of the axes in {EXPERIMENT}")
    return Results(folder, experiment, about, columns)
