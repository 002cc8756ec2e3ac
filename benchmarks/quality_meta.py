"""How good the meta-scheduler is over 48 regimes, beside the heuristics that it chooses from, random switching and bandits.

    python benchmarks/quality_meta.py [--meta SCHEDULER …] [--seeds 8] [--first 0] [--period 60] [--no-bandits] [--format table|md|json]

A regime is a shape of arrivals, an intensity and a number of GPUs; every scheduler runs on the same seeds of all 48. The gap is the
slowdown over that of the best heuristic of the same run, chosen in hindsight, less 1. Intervals are 95 % bootstrap intervals over seeds
(each the mean over the regimes), differences are paired by run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product

import numpy as np

from gpuyard.engine.simulation import simulate
from gpuyard.experiments.statistics import Interval, bootstrap_mean
from gpuyard.metrics import measure
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.jobs import Array
from gpuyard.policies import AnyScheduler, Decider, parse_scheduler
from gpuyard.policies.online import HEURISTICS
from gpuyard.traces.family import Intensity, Shape, family

SHAPES: tuple[Shape, ...] = ("base", "bursty", "diurnal", "shifted_diurnal")
INTENSITIES: tuple[Intensity, ...] = ("low", "medium", "high")
GPUS = (2, 4, 8, 16)
FURTHER = "lcfs"  # what the meta-scheduler may choose besides the five; no part of the oracle, and a line of its own
METRICS = ("slowdown", "balanced", "deadline_met")


@dataclass(frozen=True)
class Regime:
    """Where jobs come from, and on how many GPUs they run."""

    shape: Shape
    intensity: Intensity
    gpus: int

    def __str__(self) -> str:
        return f"{self.shape} {self.intensity} {self.gpus}"


REGIMES = tuple(Regime(*each) for each in product(SHAPES, INTENSITIES, GPUS))


def runs(schedulers: Sequence[AnyScheduler], regime: Regime, seed: int) -> Array:
    """(schedulers, metrics) of one workload."""
    workload = family(seed, shape=regime.shape, intensity=regime.intensity, gpus=regime.gpus)
    cluster = load_cluster(str(regime.gpus))
    found = [measure(simulate(workload, cluster, scheduler, seed=seed), list(METRICS)) for scheduler in schedulers]
    return np.array([[each[name] for name in METRICS] for each in found])


def measured(texts: Sequence[str], seeds: Sequence[int], regimes: Sequence[Regime] = REGIMES) -> Array:
    """(schedulers, regimes, seeds, metrics)."""
    schedulers = [parse_scheduler(text) for text in texts]
    for scheduler in schedulers:
        if not isinstance(scheduler, Decider):
            scheduler.program()  # here, so that threads do not compile twice
    cells = list(product(regimes, seeds))
    with ThreadPoolExecutor(2) as pool:
        found = np.array(list(pool.map(lambda cell: runs(schedulers, *cell), cells)))
    return found.reshape(len(regimes), len(seeds), len(texts), len(METRICS)).transpose(2, 0, 1, 3)


def gaps(values: Array, heuristics: int) -> Array:
    """(schedulers, regimes, seeds): the slowdown over the lowest of the first `heuristics` schedulers in the same run, less 1."""
    slowdown = values[..., METRICS.index("slowdown")]
    found: Array = slowdown / slowdown[:heuristics].min(axis=0) - 1.0
    return found


def over_seeds(values: Array) -> Interval:
    """Of values (regimes, seeds)."""
    return bootstrap_mean(values.mean(axis=0))


def table(texts: Sequence[str], values: Array, ours: int) -> list[dict[str, object]]:
    """One line per scheduler; `ours` is the position of the one that differences are taken for."""
    gap = gaps(values, len(HEURISTICS))
    lines = []
    for k, text in enumerate(texts):
        slowdown, balanced, met = (values[k, ..., m] for m in range(len(METRICS)))
        ahead = over_seeds(values[ours, ..., METRICS.index("balanced")] - balanced)
        of_gap, of_balanced = over_seeds(gap[k]), over_seeds(balanced)
        lines.append(
            {
                "scheduler": text,
                "slowdown": f"{slowdown.mean():.3f}",
                "gap to the best, %": f"{100 * of_gap.mean:.2f} [{100 * of_gap.low:.2f}, {100 * of_gap.high:.2f}]",
                "balanced": f"{of_balanced.mean:.4f} [{of_balanced.low:.4f}, {of_balanced.high:.4f}]",
                "deadlines met, %": f"{100 * met.mean():.2f}",
                "ours better by": "" if k == ours else f"{ahead.mean:.4f} [{ahead.low:.4f}, {ahead.high:.4f}]",
            }
        )
    return lines


def worst(values: Array, regimes: Sequence[Regime], ours: int, count: int = 5) -> list[str]:
    """The regimes in which ours is furthest behind the heuristic with the best balanced objective, and by how much."""
    balanced = values[..., METRICS.index("balanced")].mean(axis=2)
    behind = balanced[: len(HEURISTICS)].max(axis=0) - balanced[ours]
    return [f"{regimes[r]}: {behind[r]:+.4f}" for r in np.argsort(-behind)[:count]]


def shown(lines: Sequence[dict[str, object]], how: str) -> str:
    """As a table in text or Markdown, or as JSON."""
    if how == "json":
        return json.dumps(list(lines), indent=1)
    names = list(lines[0])
    cells = [names, *([str(line[name]) for name in names] for line in lines)]
    widths = [max(len(row[c]) for row in cells) for c in range(len(names))]
    rows = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    if how == "md":
        rows = [f"| {row} |" for row in (rows[0], " | ".join("-" * width for width in widths), *rows[1:])]
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--meta", action="append", help="what is judged; the first one is ours")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=0, help="the first seed; those of the test part are below 100,000")
    parser.add_argument("--period", default="60", help="s between the choices of random switching and bandits")
    parser.add_argument("--no-bandits", action="store_true")
    parser.add_argument("--format", choices=("table", "md", "json"), default="table")
    given = parser.parse_args()
    five = ", ".join(HEURISTICS)
    others = [FURTHER, f"meta:random({five})@{given.period}"]
    if not given.no_bandits:
        others += [f"{name}:every={given.period}({five})" for name in ("epsilon-greedy", "exp3", "linucb")]
    texts = [*HEURISTICS, *(given.meta or ["learned:meta"]), *others]
    values = measured(texts, range(given.first, given.first + given.seeds))
    ours = len(HEURISTICS)
    print(shown(table(texts, values, ours), given.format))
    if given.format != "json":
        print("\nfurthest behind the best heuristic in the balanced objective:", "; ".join(worst(values, REGIMES, ours)))


if __name__ == "__main__":
    main()
