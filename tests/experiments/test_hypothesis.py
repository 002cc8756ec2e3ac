"""What a log would gain if half of its jobs could be stopped: the numbers, and when nothing is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuyard import parse_scheduler, simulate
from gpuyard.experiments.compare import Plan, Source, compare
from gpuyard.experiments.hypothesis import MOST_JOBS, SUPPOSED, what_if
from gpuyard.experiments.judging.words import answer
from gpuyard.metrics import measure
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.rules import Rules
from gpuyard.model.workload import Workload
from gpuyard.traces import apply

POOL = load_cluster("4")


def busy(jobs: int = 400, **more: object) -> Workload:
    """A queue on 4 GPUs, with logged starts and requested times."""
    rng = np.random.default_rng(3)
    submit = np.sort(rng.uniform(0, 100 * jobs, jobs))
    runtime = rng.lognormal(5.0, 1.5, jobs)
    columns = {"submit": submit, "gpus": rng.choice([1, 2], jobs), "walltime": 3 * runtime, **more}
    return Workload.build(columns, runtime, logged_start=submit + 50.0, name="busy")


def everyone(workload: Workload) -> np.ndarray:
    return np.ones(len(workload), bool)


def test_it_is_two_simulations_of_the_same_jobs() -> None:
    workload, names = busy(), ["delay", "delay.max", "bsld", "delay_preemptible", "delay_others"]
    found = what_if(workload, POOL, Rules(), everyone(workload))
    assert found is not None
    assumed = apply(workload, "preemptible:share=0.5,checkpoint=600,writing=0.02,restart=60", 0)
    assert SUPPOSED == "preemptible:share=0.5,checkpoint=600,writing=0.02,restart=60"
    ours = measure(simulate(assumed, POOL, parse_scheduler("saf/fewest/easy/gittins")), names)
    plain = replace(workload, jobs=workload.jobs.with_stated(preemptible=assumed.jobs.stated["preemptible"]))
    base = measure(simulate(plain, POOL, parse_scheduler("saf/fewest/easy")), names)
    assert found.wait == pytest.approx((base["delay"], ours["delay"]))
    assert found.longest == pytest.approx((base["delay.max"], ours["delay.max"]))
    for share, name in (
        (found.change, "delay"),
        (found.slowdown, "bsld"),
        (found.stoppable, "delay_preemptible"),
        (found.others, "delay_others"),
    ):
        assert share.mean == pytest.approx(ours[name] / base[name] - 1)


def test_only_the_jobs_that_count_are_measured() -> None:
    workload = busy()
    counted = np.arange(len(workload)) % 2 == 0
    found, other = (what_if(workload, POOL, Rules(), who) for who in (counted, ~counted))
    every = what_if(workload, POOL, Rules(), everyone(workload))
    assert found is not None and other is not None and every is not None
    assert (found.wait[0] + other.wait[0]) / 2 == pytest.approx(every.wait[0])


@pytest.mark.parametrize(
    "workload",
    [
        busy(preemptible=np.arange(400) == 7),  # one job says that it may be stopped
        Workload.build({"submit": [0.0, 100.0]}, [5.0, 5.0], logged_start=[0.0, 100.0]),  # nothing waits
    ],
)
def test_where_nothing_is_said(workload: Workload) -> None:
    assert what_if(workload, POOL, Rules(), everyone(workload)) is None


def test_a_long_log_is_not_simulated_again_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuyard.experiments.hypothesis.MOST_JOBS", 399)
    assert what_if(busy(), POOL, Rules(), np.ones(400, bool)) is None
    assert MOST_JOBS == 250_000


def compared(workload: Workload, *, seeded: bool = False) -> list[str]:
    schedulers = tuple(map(parse_scheduler, ("fcfs/fewest/easy", "sjf/fewest/easy")))
    return answer(compare(Plan((Source("busy", lambda seed: workload, seeded, (POOL,)),), schedulers, ("wait",), seeds=(0,)))[0])


def test_the_answer_about_a_log_ends_with_it_and_says_what_is_assumed() -> None:
    said = compared(busy())[-1]
    assert said.startswith(
        "A supposition: if 50 % of the jobs could be stopped (drawn at random; checkpoints every 10m that cost 2 % of the time;"
        " 1m for a restart), with saf/fewest/easy/gittins instead of saf/fewest/easy the mean wait would "
    )
    assert "; the mean bounded slowdown would " in said and "; the longest wait would go from " in said
    for other in (compared(busy(), seeded=True), compared(busy(preemptible=np.ones(400)))):
        assert not any("supposition" in sentence for sentence in other)
