"""What a comparison says: one table of schedulers, as data classes, flat rows and plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpuyard.experiments.judging.answers import answer
from gpuyard.experiments.judging.statistics import Interval
from gpuyard.metrics import resolve


@dataclass(frozen=True)
class Change:
    """The primary metric minus the baseline's; nan where there is no interval or no test."""

    mean: float
    low: float
    high: float
    wins: int  # pairs that are better than the baseline's
    ties: int
    losses: int
    p: float  # two-sided sign-flip test, corrected for the number of schedulers (Holm)
    n: int
    of: Literal["seed", "job"]  # what is paired

    @property
    def clear(self) -> bool:
        """The interval does not hold 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Line:
    """One scheduler of a comparison."""

    scheduler: str
    words: str  # the same for a sentence
    values: Mapping[str, Interval]  # by metric
    best: frozenset[str]  # the metrics of which no scheduler has a better mean
    change: Change | None  # None: this is the baseline
    against: Change | None  # to the stand-in of a log; None where there is none, or this is it or the log itself
    preempts: bool  # may stop running jobs
    counts: Mapping[str, int]  # jobs, done, killed, rejected, unfinished, over all seeds
    samples: tuple[float, ...] = ()  # the primary metric at each seed


@dataclass(frozen=True)
class Comparison:
    """One table: every scheduler on one workload, cluster and source of estimates."""

    workload: str
    cluster: str
    estimate: str
    seeds: tuple[int, ...]
    baseline: str
    metrics: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    log: bool  # the first line is what really happened
    paired: int  # jobs that every line is measured over; of a log those with a start, and not rejected
    stand_in: str  # the simulated scheduler that stands in for that of the log; empty without a log
    accuracy: Mapping[str, float]  # of the estimates

    @property
    def primary(self) -> str:
        return self.metrics[0]


def as_record(comparison: Comparison, line: Line) -> dict[str, Any]:
    """The line as one flat row, for csv; units are those of the metrics."""
    row: dict[str, Any] = {
        "workload": comparison.workload, "cluster": comparison.cluster, "estimate": comparison.estimate,
        "seeds": len(comparison.seeds), "scheduler": line.scheduler,
    }  # fmt: skip
    for name, value in line.values.items():
        row |= {name: value.mean, f"{name}_low": value.low, f"{name}_high": value.high, f"{name}_best": name in line.best}
    names = {"difference": "mean", "difference_low": "low", "difference_high": "high"} | {k: k for k in ("wins", "ties", "losses", "p")}
    row |= {"baseline": comparison.baseline, "difference_of": comparison.primary}
    row |= {ours: getattr(line.change, theirs) if line.change else None for ours, theirs in names.items()}
    if comparison.stand_in:
        row["stand_in"] = comparison.stand_in
        shown = {"to_stand_in": "mean", "to_stand_in_low": "low", "to_stand_in_high": "high"}
        row |= {ours: getattr(line.against, theirs) if line.against else None for ours, theirs in shown.items()}
    return row | dict(line.counts)


def as_data(comparison: Comparison) -> dict[str, Any]:
    """The whole table as plain values, for json."""
    return {
        "workload": comparison.workload, "cluster": comparison.cluster, "estimate": comparison.estimate,
        "seeds": list(comparison.seeds), "primary": comparison.primary, "baseline": comparison.baseline,
        "units": {name: resolve(name)[0].unit for name in comparison.metrics},
        "better": {name: resolve(name)[0].better for name in comparison.metrics},
        "notes": list(comparison.notes), "answer": answer(comparison), "estimate_accuracy": dict(comparison.accuracy),
        "stand_in": comparison.stand_in or None,
        "schedulers": [
            {
                "scheduler": line.scheduler,
                "metrics": {
                    name: {"mean": v.mean, "low": v.low, "high": v.high, "n": v.n, "of": v.of, "best": name in line.best}
                    for name, v in line.values.items()
                },
                "difference": vars(line.change) if line.change else None,
                "to_stand_in": vars(line.against) if line.against else None,
                "counts": dict(line.counts),
            }
            for line in comparison.lines
        ],
    }  # fmt: skip
