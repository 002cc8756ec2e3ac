"""Measure how often 95 % intervals hold the truth, and write docs/reference/coverage.md; exit code 1 if one that should hold does not.

    python benchmarks/interval_coverage.py [--samples N]

Every sample goes through the functions that judge experiments (`gpuyard.experiments.judging.statistics`). The laws are those in `LAWS`,
paired differences of simulations, and logs of 2,000 jobs whose neighbours are correlated. It takes about two minutes on one core.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from gpuyard import load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.arrays import Array
from gpuyard.experiments.judging.statistics import CAUTION, FEWEST, block_interval, mean_interval, paired_difference
from gpuyard.metrics.base import METRICS, values_of

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "coverage.md"
SIZES = (5, 8, 12, 20, 50)
JOBS = 2000  # of a log
LOGS = 400  # drawn for each kind of log; the standard error is about 1 %
POPULATION = 2000  # simulated seeds from which samples are drawn
ENOUGH = 0.93
Draw: TypeAlias = Callable[[np.random.Generator, tuple[int, int]], Array]


def _jumps(rare: float) -> Draw:
    return lambda random, shape: random.normal(size=shape) + 10.0 * (random.random(shape) < rare)


def _outliers(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    return random.normal(size=shape) * np.where(random.random(shape) < 0.1, 10.0, 1.0)


# law → values of (samples, n), and their true mean
LAWS: Mapping[str, tuple[Draw, float]] = MappingProxyType({
    "normal": (lambda random, shape: random.normal(size=shape), 0.0),
    "exponential": (lambda random, shape: random.exponential(size=shape), 1.0),
    "lognormal, σ = 1": (lambda random, shape: random.lognormal(size=shape), math.exp(0.5)),
    "Pareto, α = 3": (lambda random, shape: random.pareto(3.0, shape), 0.5),
    "Student's t, 3 degrees of freedom": (lambda random, shape: random.standard_t(3.0, shape), 0.0),
    "1 in 10 with ten times the spread": (_outliers, 0.0),
    "1 in 5 higher by ten standard deviations": (_jumps(0.2), 2.0),
})  # fmt: skip
UNSEEN = "1 in 5 higher by ten standard deviations"  # too rare for small samples
SIMULATED = {  # title → workload, cluster, schedulers, metric
    "simulated: slowdown, sjf − fcfs, one GPU node": ("family:shape=bursty,gpus=4,horizon=1800", "1x4", ("sjf", "fcfs"), "slowdown"),
    "simulated: wait, sjf − fcfs with EASY, 200 jobs": (
        "lublin:jobs=200,load=0.9", "32x8", ("sjf/fewest/easy", "fcfs/fewest/easy"), "wait",
    ),
}  # fmt: skip


def paired(title: str) -> Array:
    """(seeds,) differences of the means of two schedulers, one for each seed."""
    recipe, cluster_name, names, metric = SIMULATED[title]
    cluster, schedulers = load_cluster(cluster_name), [parse_scheduler(name) for name in names]
    found = []
    for seed in range(POPULATION):
        workload = load_workload(recipe, seed=seed)
        first, second = (values_of(simulate(workload, cluster, each), METRICS[metric]).mean() for each in schedulers)
        found.append(first - second)
    return np.array(found)


def covered_means(values: Array, truth: float) -> float:
    """Share of the samples (samples, n) whose interval holds the truth, asked of the mean and of the paired difference in turn."""
    hits = 0
    for k, sample in enumerate(values):
        interval = mean_interval(sample) if k % 2 and sample.min() < 0 else paired_difference(sample, np.zeros(len(sample)))
        hits += interval.low <= truth <= interval.high
    return hits / len(values)


def independent(samples: int) -> dict[str, dict[int, float]]:
    """Coverage by law and number of pairs."""
    random = np.random.default_rng(13)
    populations = {title: paired(title) for title in SIMULATED}
    draws: dict[str, tuple[Draw, float]] = dict(LAWS)
    for title, values in populations.items():
        draws[title] = (lambda generator, shape, values=values: generator.choice(values, shape), float(values.mean()))  # type: ignore[misc]
    return {law: {n: covered_means(draw(random, (samples, n)), truth) for n in SIZES} for law, (draw, truth) in draws.items()}


# ── logs ──


def autoregression(random: np.random.Generator, keep: float) -> Array:
    """(logs, jobs) stationary values with variance 1 of which neighbours are correlated by `keep`."""
    noise = random.normal(size=(LOGS, JOBS)) * math.sqrt(1 - keep**2)
    values = np.empty_like(noise)
    values[:, 0] = random.normal(size=LOGS)
    for k in range(1, JOBS):
        values[:, k] = keep * values[:, k - 1] + noise[:, k]
    return values


def waits(random: np.random.Generator, load: float) -> Array:
    """(logs, jobs) waits in an M/M/1 queue by Lindley's recursion, after 3,000 jobs that are left out."""
    wait, found = np.zeros(LOGS), np.empty((LOGS, JOBS))
    for k in range(-3000, JOBS):
        wait = np.maximum(wait + random.exponential(load, LOGS) - random.exponential(1.0, LOGS), 0.0)
        if k >= 0:
            found[:, k] = wait
    return found


def simulated_logs() -> tuple[dict[str, Array], Array]:
    """Values job by job (logs, jobs) of schedulers and of their differences on logs of the Lublin model, and the submits."""
    cluster, names = load_cluster("32x8"), ("fcfs/fewest/easy", "sjf/fewest/easy", "saf/fewest/easy")
    values, submits = np.empty((3, 2, LOGS, JOBS)), np.empty((LOGS, JOBS))
    for seed in range(LOGS):
        workload = load_workload(f"lublin:jobs={JOBS}", seed=seed)
        submits[seed] = workload.jobs.submit
        for k, name in enumerate(names):
            result = simulate(workload, cluster, parse_scheduler(name))
            values[k, :, seed] = [values_of(result, METRICS[metric]) for metric in ("wait", "bsld")]
    found = {}
    for (fcfs, sjf, saf), metric in zip(values.swapaxes(0, 1), ("wait", "bounded slowdown"), strict=True):
        found |= {f"simulated: {metric}, sjf − fcfs with EASY": sjf - fcfs, f"simulated: {metric}, saf − sjf with EASY": saf - sjf}
    return found | {"simulated: wait under fcfs with EASY alone": values[0, 0]}, submits


def logs() -> dict[str, float]:
    """Coverage by kind of log."""
    random, times = np.random.default_rng(17), np.arange(float(JOBS))
    found = {}
    for keep in (0.9, 0.98, 0.99):
        plain = autoregression(random, keep)
        found[f"neighbours correlated by {keep}, normal"] = _covered(plain, times, 0.0)
        found[f"neighbours correlated by {keep}, lognormal"] = _covered(np.exp(plain), times, math.exp(0.5))
    for load in (0.7, 0.9):
        found[f"waits in an M/M/1 queue, load {load}"] = _covered(waits(random, load), times, load**2 / (1 - load))
    simulated, submits = simulated_logs()
    return found | {title: _covered(values, submits, float(values.mean())) for title, values in simulated.items()}


def _covered(values: Array, times: Array, truth: float) -> float:
    """Share of the logs (logs, jobs) whose interval holds the truth; times of all logs, or (logs, jobs)."""
    intervals = [block_interval(each, when) for each, when in zip(values, np.broadcast_to(times, values.shape), strict=True)]
    return float(np.mean([each.low <= truth <= each.high for each in intervals]))


# ── the page ──

INTRODUCTION = f"""# How often intervals hold the truth

Made by `python benchmarks/interval_coverage.py`; do not edit. Intervals say 95 %. The tables show in how many of 100 samples they hold the
true mean, measured with the functions that judge `compare`, `evaluate` and `run`. Why this method:
[record 21](../decisions/0021-intervals-that-hold.md).

An interval holds the values that a test at 5 % does not refuse: the more lenient of Student's t and of Hall's t, which is corrected for
skewness, with p × (1 + {CAUTION:g}/n). So an interval excludes 0 exactly where p < 0.05. Below {FEWEST} values no difference is claimed,
and tables say that they are **too few to tell**.
"""
RARE = """What is too rare to be in the sample no calculation can see: of five values none is one of the high ones (1 in 5) in 33 of 100
samples, of eight in 17, of twelve in 7. Such cells are in brackets: there the values are too few to tell, and the sample does not show it.
As a rule, n seeds say nothing about what happens less often than in 3 of n.
"""
BLOCKS = f"""## One log

Logs of {JOBS:,} jobs, summed over 5, 8 or 16 blocks of equally many jobs; {LOGS} logs each, so that the standard error is about 1 %.
"""


def _cell(value: float, *, seen: bool = True) -> str:
    text = f"{100 * value:.1f}"
    return text if value >= ENOUGH else f"**{text}**" if seen else f"({text})"


def page(means: Mapping[str, Mapping[int, float]], by_log: Mapping[str, float], samples: int) -> str:
    """The page as Markdown."""
    head = (
        f"## Pairs\n\n{samples:,} samples in each cell; standard error at most 0.5 %.\n\n| values | "
        + " | ".join(f"n = {n}" for n in SIZES)
        + " |"
    )
    lines = [head, "|---" * (1 + len(SIZES)) + "|"]
    lines += [f"| {law} | " + " | ".join(_cell(row[n], seen=law != UNSEEN) for n in SIZES) + " |" for law, row in means.items()]
    table = ["| jobs | covered, % |", "|---|---|", *(f"| {law} | {_cell(value)} |" for law, value in by_log.items())]
    return "\n".join([INTRODUCTION, *lines, "", RARE, BLOCKS, *table, ""])


def main() -> int:
    """Measure, write the page, and say whether every interval that should hold does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=4000, help="samples in each cell of the first table")
    samples = parser.parse_args().samples
    means, by_log = independent(samples), logs()
    PAGE.write_text(page(means, by_log, samples))
    weak = [
        f"{law}, n = {n}: {value:.1%}"
        for law, row in means.items()
        if law != UNSEEN
        for n, value in row.items()
        if n >= 8 and value < ENOUGH
    ]
    weak += [f"{law}: {value:.1%}" for law, value in by_log.items() if value < ENOUGH]
    sys.stdout.write("\n".join([f"wrote {PAGE}", *(f"too low: {each}" for each in weak)]) + "\n")
    return 1 if weak else 0


if __name__ == "__main__":
    sys.exit(main())
