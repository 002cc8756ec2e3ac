"""The cost of changes of phase: regret over time, and the distance to the best fixed scheduler as a phase goes on.

Both are made from the curves `phases.METRIC` that Runs on a drifting workload keep. They count each job at the time it was submitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.experiments.design.cells import entries_of
from gpuyard.experiments.judging.curves import PARTS, Curve
from gpuyard.experiments.judging.statistics import paired_difference
from gpuyard.experiments.running.results import Results
from gpuyard.metrics import resolve

CURVE = "phases."


@dataclass(frozen=True)
class PhaseSums:
    """The schedulers of one unit: a workload at a seed. Sums are signed so that less is better."""

    seed: int
    begin: Array  # (phases × PARTS,) s
    sums: Mapping[int, Array]  # Run → (phases × PARTS,) over the jobs that came then
    names: Mapping[int, str]  # Run → scheduler
    fixed: tuple[int, ...]  # Runs of the schedulers that one could have kept to

    @property
    def best(self) -> Array:
        """Sums of the best fixed scheduler of the whole run, in hindsight."""
        return self.sums[min(self.fixed, key=lambda run: float(self.sums[run].sum()))]

    @property
    def best_by_phase(self) -> Array:
        """Sums of the best fixed scheduler of each phase, (phases, PARTS)."""
        each = np.array([self.sums[run].reshape(-1, PARTS) for run in self.fixed])
        chosen = each.sum(axis=2).argmin(axis=0)
        return np.asarray(each[chosen, np.arange(each.shape[1])])


def metric_of_phases(results: Results) -> str:
    """Name the metric whose sums over phases were kept; empty where none was."""
    names = [name for name in results.experiment.curves if name.startswith(CURVE)]
    known = names and any(len(curve.x) for curve in results.curves(names[0]).values())
    return names[0].removeprefix(CURVE) if known else ""


def phase_sums(results: Results) -> Iterator[PhaseSums]:
    """Yield the units whose workloads have phases."""
    metric = metric_of_phases(results)
    if not metric:
        return
    curves: Mapping[int, Curve] = results.curves(f"{CURVE}{metric}")
    sign = -1.0 if resolve(metric)[0].better == "higher" else 1.0
    width, judge = len(entries_of(results.experiment)), results.experiment.judge
    names = dict(zip(results.columns["run"].tolist(), results.columns["scheduler"].tolist(), strict=True))
    seeds = dict(zip(results.columns["run"].tolist(), results.columns["seed"].tolist(), strict=True))
    for first in range(0, len(results), width):
        runs = [run for run in range(first, first + width) if run in curves and len(curves[run].x)]
        fixed = tuple(run for run in runs if names[run] in (judge.oracle or results.schedulers))
        if fixed:
            sums = {run: sign * curves[run].y for run in runs}
            yield PhaseSums(int(seeds[first]), curves[runs[0]].x, sums, {run: str(names[run]) for run in runs}, fixed)


def regrets(results: Results, grid: Array) -> dict[str, Array]:
    """Return for each scheduler (seeds, times): what it lost against the best fixed scheduler of the run up to each time of the grid."""
    found: dict[str, dict[int, list[Array]]] = {}
    for unit in phase_sums(results):
        ends = np.append(unit.begin[1:], 2 * unit.begin[-1] - unit.begin[-2])
        for run, sums in unit.sums.items():
            lost = np.interp(grid, np.append(unit.begin[0], ends), np.append(0.0, np.cumsum(sums - unit.best)))
            found.setdefault(unit.names[run], {}).setdefault(unit.seed, []).append(lost)
    return {name: np.array([np.mean(each, axis=0) for each in by_seed.values()]) for name, by_seed in found.items()}


def gaps_by_part(results: Results) -> dict[str, Array]:
    """Return for each scheduler (seeds, PARTS): by which share jobs do worse than under the best fixed scheduler of their phase.

    Column k is about jobs that came in part k of a phase; the first phase, which nothing changed into, is left out.
    """
    own: dict[str, dict[int, Array]] = {}
    best: dict[str, dict[int, Array]] = {}
    for unit in phase_sums(results):
        fixed = unit.best_by_phase[1:].sum(axis=0)
        for run, sums in unit.sums.items():
            mine = sums.reshape(-1, PARTS)[1:].sum(axis=0)
            for table, values in ((own, mine), (best, fixed)):
                row = table.setdefault(unit.names[run], {})
                row[unit.seed] = row.get(unit.seed, np.zeros(PARTS)) + values
    found = {}
    for name, rows in own.items():
        base = np.array([best[name][seed] for seed in rows])
        gap = np.array(list(rows.values())) - base
        found[name] = np.divide(gap, np.abs(base), out=np.full(base.shape, np.nan), where=base != 0)
    return found


def adaptations(results: Results) -> Iterator[str]:
    """Yield a line for each challenger: whether it was closer to the best fixed scheduler late in a phase than early in it."""
    gaps = gaps_by_part(results)
    for name in (name for name in results.experiment.judge.challengers if name in gaps):
        early, late = gaps[name][:, 0], gaps[name][:, -1]
        change = paired_difference(late, early)
        word = ("adapted" if change.mean < 0 else "fell behind") if change.clear else "no clear change"
        behind = f"{100 * early.mean():.3g} → {100 * late.mean():.3g} % behind the best fixed scheduler of a phase"
        yield f"{name}: {word}, {behind} for the jobs that came in its first and in its last sixth"
