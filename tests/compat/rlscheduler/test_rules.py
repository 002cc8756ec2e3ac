"""The compatibility mode against the published digits, and its kernel against a slow twin written from the rules."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard.compat.rlscheduler.reader import load_rlscheduler
from gpuyard.compat.rlscheduler.rules import RLSCHEDULER_ORDERINGS, rlscheduler
from gpuyard.errors import DataError, SimulationError, UnknownNameError
from gpuyard.metrics.jobs import bounded_slowdown
from gpuyard.model.workload import Workload

STARTS = (1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085)
PUBLISHED = {
    ("fcfs", False, True): "7273.77", ("wfp3", False, True): "19753.53", ("unicep", False, True): "22274.74",
    ("sjf", False, True): "277.35", ("f1", False, True): "258.37",
    ("wfp3", False, False): "337.34", ("unicep", False, False): "381.71",
    ("fcfs", True, True): "235.82", ("wfp3", True, True): "133.87", ("unicep", True, True): "307.23",
    ("sjf", True, True): "73.31", ("f1", True, True): "75.07",
    ("wfp3", True, False): "126.50", ("unicep", True, False): "103.10",
}  # fmt: skip


@pytest.fixture(scope="module")
def lublin(shared: Path) -> Workload:
    path = shared / "traces" / "swf" / "lublin_256.swf.gz"
    if not path.is_file():
        pytest.skip("needs ../shared/traces/swf/lublin_256.swf.gz, which is absent")
    return load_rlscheduler(path)


@pytest.mark.parametrize(("ordering", "backfill", "bug"), PUBLISHED)
def test_equals_every_published_digit(lublin: Workload, ordering: str, backfill: bool, bug: bool) -> None:
    parts = [lublin.take(np.arange(start, start + 1024)) for start in STARTS]
    runs = [rlscheduler(part, 256, ordering, backfill=backfill, published_wait_bug=bug) for part in parts]
    mean = np.mean([bounded_slowdown(run).mean() for run in runs])
    assert f"{mean:.2f}" == PUBLISHED[ordering, backfill, bug]


# ── the slow twin: lists of objects, sorted in place by Python ──


@dataclass(eq=False)
class Job:
    submit: float
    procs: int
    requested: float
    run: float
    start: float = -1.0


def wfp3(job: Job, wait: float) -> float:
    ratio = wait / job.requested
    return -(ratio * ratio * ratio) * job.procs


SCORES: dict[str, Any] = {
    "fcfs": lambda job, wait: job.submit,
    "sjf": lambda job, wait: (job.requested, job.submit),
    "f1": lambda job, wait: math.log10(job.requested or 0.1) * job.procs + 870.0 * math.log10(job.submit or 0.1),
    "wfp3": wfp3,
    "unicep": lambda job, wait: -(wait + 1e-15) / (math.log2(job.procs + 1e-15) * job.requested),
}


@dataclass
class Twin:
    jobs: list[Job]
    free: int
    now: float = 0.0
    queue: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    arrived: int = 0

    def event(self) -> None:
        self.running.sort(key=lambda job: job.start + job.run)
        end = self.running[0].start + self.running[0].run if self.running else math.inf
        if self.arrived < len(self.jobs) and self.jobs[self.arrived].submit <= end:
            self.now = max(self.now, self.jobs[self.arrived].submit)
            self.queue.append(self.jobs[self.arrived])
            self.arrived += 1
        else:
            self.now = max(self.now, end)
            self.free += self.running.pop(0).procs

    def start(self, job: Job) -> None:
        self.queue.remove(job)
        self.running.append(job)
        self.free -= job.procs
        job.start = self.now

    def shadow(self, head: Job) -> float:
        self.running.sort(key=lambda job: job.start + job.requested)
        free = self.free
        for job in self.running:
            free += job.procs
            if free >= head.procs:
                return job.start + job.requested
        raise AssertionError("the head needs more than there is")

    def backfill(self, shadow: float) -> None:
        self.queue.sort(key=lambda job: job.submit)
        for job in list(self.queue):
            if job.procs <= self.free and self.now + job.requested < shadow:
                self.start(job)

    def simulate(self, ordering: str, backfill: bool, bug: bool) -> list[float]:
        while self.queue or self.arrived < len(self.jobs):
            while not self.queue:
                self.event()
            self.queue.sort(key=lambda job: SCORES[ordering](job, (-1.0 if bug else self.now) - job.submit))
            head = self.queue[0]
            shadow = self.shadow(head) if backfill and head.procs > self.free else 0.0
            while head.procs > self.free:
                if backfill:
                    self.backfill(shadow)
                self.event()
            self.start(head)
        return [job.start for job in self.jobs]


def random_workload(rng: np.random.Generator, processors: int) -> Workload:
    """Few distinct values, so that there are many ties; requested times that are too short as well as too long."""
    n = int(rng.integers(1, 60))
    runtime = rng.integers(1, 30, n).astype(float)
    estimate = np.maximum(np.round(runtime * rng.choice([0.5, 1.0, 1.0, 2.0], n)), 1.0)
    submit = np.sort(rng.integers(0, rng.choice([5, 60, 300]), n)).astype(float)
    return Workload.build({"submit": submit, "gpus": rng.integers(1, processors + 1, n), "estimate": estimate}, runtime)


@pytest.mark.parametrize("backfill", [False, True])
@pytest.mark.parametrize("bug", [False, True])
@pytest.mark.parametrize("ordering", RLSCHEDULER_ORDERINGS)
def test_kernel_equals_the_slow_twin(ordering: str, bug: bool, backfill: bool) -> None:
    rng = np.random.default_rng([list(RLSCHEDULER_ORDERINGS).index(ordering), bug, backfill])
    for _ in range(60):
        processors = int(rng.integers(1, 20))
        workload = random_workload(rng, processors)
        columns = zip(workload.jobs.submit, workload.jobs.gpus, workload.jobs.estimate, workload.runtime, strict=True)
        twin = Twin([Job(float(s), int(p), float(e), float(r)) for s, p, e, r in columns], processors)
        expected = twin.simulate(ordering, backfill, bug)
        result = rlscheduler(workload, processors, ordering, backfill=backfill, published_wait_bug=bug)
        assert result.table["start"].tolist() == expected


def test_the_head_is_committed_to() -> None:
    """Job 1 is chosen and waits for job 0; the shorter job 2, which comes meanwhile and would go first, has to wait for it."""
    workload = Workload.build({"submit": [0, 1, 2], "gpus": [2, 2, 2], "estimate": [10, 5, 1]}, [10, 5, 1])
    assert rlscheduler(workload, 2, "sjf").table["start"].tolist() == [0, 10, 15]


def test_backfilling_ends_strictly_before_the_shadow() -> None:
    workload = Workload.build({"submit": [0, 1, 2, 3], "gpus": [2, 3, 1, 1], "estimate": [10, 5, 8, 6]}, [10, 5, 8, 6])
    assert rlscheduler(workload, 3, backfill=True).table["start"].tolist() == [0, 10, 15, 3]


def test_an_unknown_ordering_and_a_job_that_is_too_large_are_refused() -> None:
    workload = Workload.build({"submit": [0], "gpus": [4]}, [10])
    with pytest.raises(UnknownNameError, match="did you mean 'wfp3'"):
        rlscheduler(workload, 8, "wfp")
    with pytest.raises(SimulationError, match="job 1 asks for 4 of 3 processors"):
        rlscheduler(workload, 3)


def swf_line(number: int, submit: float, run: float, allocated: int, requested: int, time: float) -> str:
    return f"{number} {submit} -1 {run} {allocated} -1 -1 {requested} {time} -1 1 1 1 1 1 1 -1 -1\n"


def test_loading_follows_their_rules(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    lines = [swf_line(2, 5, 7, 3, 4, -1), swf_line(1, 4, -1, 2, -1, 60), swf_line(3, 6, 0, 1, 1, 1)]
    path.write_text("; MaxProcs: 8\n" + "".join(lines))
    workload = load_rlscheduler(path)
    assert workload.jobs.id.tolist() == [1, 2]
    assert workload.jobs.gpus.tolist() == [2, 4]
    assert workload.runtime.tolist() == [10, 7]
    assert workload.jobs.estimate.tolist() == [60, 7]
    assert dict(workload.dropped) == {"run time 0": 1}


def test_a_log_that_is_not_in_order_of_submission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(swf_line(1, 9, 7, 3, 4, -1) + swf_line(2, 5, 7, 3, 4, -1))
    with pytest.raises(DataError, match="log.swf:2: submit time = 5 is before"):
        load_rlscheduler(path)
