"""The findings of a study of a real machine: schedulers as they were measured, and how well the simulator predicted each job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from gpuyard.errors import DataError
from gpuyard.experiments.real.measuring import Rates
from gpuyard.experiments.real.predicting import Calibration, calibrated, errors, measured_result, predict
from gpuyard.experiments.real.replaying import TraceReplay
from gpuyard.experiments.real.study import HEURISTICS, load_study
from gpuyard.experiments.real.traces import CALIBRATION, RealTrace
from gpuyard.metrics import measure

METRICS = ("turnaround", "turnaround.p95", "slowdown", "wait", "deadline_met", "makespan", "fairness")
GOOD = 0.10  # median error of the prediction of exclusive runs that is asked for


@dataclass(frozen=True)
class JudgedReplay:
    """One replay beside its prediction."""

    trace: str
    scheduler: str
    slots: int
    metrics: Mapping[str, float]  # measured
    predicted: Mapping[str, float]
    error: float  # median over jobs of |predicted − measured| / measured turnaround
    run_error: float  # the same of the time between start and end
    agreed: bool  # whether the prediction came to rest
    joules: float
    decision: float  # s, median of those seen
    lost: int
    jobs: int
    changes: tuple[float, ...]  # s from the end of a job to the start of the next, which waited; only where one runs at a time
    trouble: str


@dataclass(frozen=True)
class RealSummary:
    """A study, judged."""

    made: float  # s since 1970, of the first replay
    rates: Rates
    costs: Mapping[int, Calibration]  # by slots
    replays: tuple[JudgedReplay, ...]

    @property
    def slots(self) -> int:
        """The number of jobs that share the device, in the shared part."""
        return max((each.slots for each in self.replays), default=1)

    def of(self, slots: int) -> list[JudgedReplay]:
        """Return the replays with that many slots."""
        return [each for each in self.replays if each.slots == slots]

    def schedulers(self, slots: int) -> list[str]:
        """Return the schedulers that replayed every trace that any replayed, the least mean turnaround first."""
        mine = self.of(slots)
        traces = {each.trace for each in mine}
        whole = [
            name for name in dict.fromkeys(each.scheduler for each in mine) if {e.trace for e in mine if e.scheduler == name} == traces
        ]
        return sorted(whole, key=lambda name: self.mean(name, slots, "turnaround"))

    def mean(self, scheduler: str, slots: int, metric: str, *, predicted: bool = False) -> float:
        """Return the mean over traces."""
        mine = [each for each in self.of(slots) if each.scheduler == scheduler]
        return float(np.mean([(each.predicted if predicted else each.metrics)[metric] for each in mine])) if mine else float("nan")

    def gap(self, scheduler: str, slots: int, metric: str = "turnaround") -> float:
        """Return by what part the scheduler is worse than the best heuristic of each trace, as a mean over traces."""
        gaps = []
        for trace in dict.fromkeys(each.trace for each in self.of(slots)):
            found = {each.scheduler: each.metrics[metric] for each in self.of(slots) if each.trace == trace}
            best = min((value for name, value in found.items() if name in HEURISTICS), default=float("nan"))
            if scheduler in found:
                gaps.append(found[scheduler] / best - 1)
        return float(np.mean(gaps)) if gaps else float("nan")

    def median_error(self, slots: int) -> float:
        """Return the median over replays of their median error."""
        return float(np.median([each.error for each in self.of(slots)])) if self.of(slots) else float("nan")


def judge(folder: Path) -> RealSummary:
    """Judge what a study has written so far."""
    rates, traces, replays = load_study(folder)
    costs = _costs(replays)
    found = [_judged(traces[each.trace], each, rates, costs[each.slots]) for each in replays if _can_be_judged(each, traces, costs)]
    if not found:
        raise DataError(f"{folder}: no replays yet", hint="gpuyard run real")
    return RealSummary(min(each.made for each in replays), rates, costs, tuple(found))


def _costs(replays: Sequence[TraceReplay]) -> dict[int, Calibration]:
    """Return what the calibrations showed, by slots; the pace is that of one job at a time where it was measured."""
    seen = sorted((each for each in replays if each.trace == CALIBRATION), key=lambda each: each.slots)
    found: dict[int, Calibration] = {}
    for each in seen:
        found[each.slots] = calibrated(each, found.get(1, None if each.slots == 1 else Calibration()))
    return found


def _can_be_judged(replay: TraceReplay, traces: Mapping[str, RealTrace], costs: Mapping[int, object]) -> bool:
    return replay.trace != CALIBRATION and replay.trace in traces and replay.slots in costs


def _judged(trace: RealTrace, replay: TraceReplay, rates: Rates, costs: Calibration) -> JudgedReplay:
    measured = measured_result(trace, replay, costs)
    prediction = predict(trace, replay.scheduler, replay.slots, replay.gpu, rates, costs)
    real, guess = (result.table["end"] - result.table["start"] for result in (measured, prediction.result))
    guess = guess - costs.change  # a slot is held from the decision on, a job runs from its first instruction on
    return JudgedReplay(
        trace.name, replay.scheduler, replay.slots, measure(measured, METRICS), measure(prediction.result, METRICS),
        error=float(np.median(errors(measured, prediction.result))),
        run_error=float(np.median(np.abs(guess - real) / np.maximum(real, 1e-9))),
        agreed=prediction.agreed, joules=sum(job.joules for job in replay.jobs),
        decision=float(np.median(replay.decisions)) if replay.decisions else float("nan"),
        lost=replay.lost, jobs=len(replay.jobs), changes=_changes(replay), trouble=replay.trouble,
    )  # fmt: skip


def _changes(replay: TraceReplay) -> tuple[float, ...]:
    ran = sorted(replay.jobs, key=lambda job: job.start) if replay.slots == 1 else []
    return tuple(after.start - before.end for before, after in pairwise(ran) if after.submit <= before.end)


def contention_rows(rates: Rates) -> list[tuple[str, float, list[float], float, float]]:
    """Return per kind: its rate alone, its slowdown beside each kind, and beside all: measured, and by the sum of pairs."""
    kinds = [crowd[0] for crowd in rates.crowds if len(crowd) == 1]
    every = next((crowd for crowd in rates.crowds if len(crowd) > 2), ())
    rows = []
    for kind in kinds:
        others = [other for other in every if other != kind]
        together = rates.alone(kind) / rates.crowds[every][kind] if every else float("nan")
        rows.append((kind, rates.alone(kind), [rates.slowdown(kind, [other]) for other in kinds], together, rates.slowdown(kind, others)))
    return rows


def best_is_predicted(summary: RealSummary, slots: int) -> tuple[int, int]:
    """Return on how many traces the simulator names the scheduler with the least measured turnaround, and on how many it was asked."""
    traces: Sequence[str] = list(dict.fromkeys(each.trace for each in summary.of(slots)))
    right = 0
    for trace in traces:
        mine = [each for each in summary.of(slots) if each.trace == trace]
        best, guess = (min(mine, key=key).scheduler for key in (lambda e: e.metrics["turnaround"], lambda e: e.predicted["turnaround"]))
        right += best == guess
    return right, len(traces)
