"""How Runs are made: who may be judged on what, what is proven of a Run, who may do the work."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from gpuyard import __version__
from gpuyard.errors import UsageError
from gpuyard.experiments.design.cells import checkpoints_in, files_of
from gpuyard.experiments.design.kinds import Context, Prepared, Worker
from gpuyard.experiments.design.spec import Axes, Experiment
from gpuyard.policies import parse_scheduler

WORKLOAD = "family:shape=bursty,intensity=low,gpus=4 on 4"
SMALL = Experiment("x", "X", "", "simulations", Axes((WORKLOAD,), schedulers=("fcfs",), seeds=(0,), objectives=("wait", "waiting")))


def prepared(*schedulers: str, seeds: tuple[int, ...] = (0,)) -> Prepared:
    axes = replace(SMALL.axes, schedulers=schedulers, seeds=seeds)
    return Prepared(Context(replace(SMALL, axes=axes).record()))


@pytest.mark.parametrize(
    "text",
    [
        "learned:direct",
        "learned:meta",
        "fcfs/learned:hosts/none",
        "epsilon-greedy(learned:direct/fewest/none, fcfs/fewest/none)",
        "milp(learned:direct/fewest/easy)",
        "meta:random(fcfs, learned:direct)@60",
    ],
)
def test_checkpoints_are_found_wherever_they_stand(text: str) -> None:
    assert checkpoints_in(parse_scheduler(text))
    assert files_of(parse_scheduler(text)) == []  # those of the package change with its version


@pytest.mark.parametrize("text", ["learned:direct", "epsilon-greedy(learned:direct/fewest/none, fcfs/fewest/none)"])
def test_who_was_trained_on_the_data_is_refused_also_inside_a_decider(text: str) -> None:
    prepared(text).check()
    with pytest.raises(UsageError, match="cannot be evaluated on: the policy was trained on seeds"):
        prepared(text, seeds=(1_000_000,)).check()


def test_no_bound_is_claimed_of_a_wait_that_stopping_jobs_could_avoid() -> None:
    records = Worker(Context(SMALL.record())).work(0)
    assert records[0].values["bound.wait"] == 0
    assert 0 < records[0].values["bound.waiting"] <= records[0].values["waiting"]


def test_no_bound_where_some_job_did_not_end() -> None:
    from gpuyard.experiments.design.kinds import _holding

    assert _holding({"bound.wait": 3.0}, {"n_unfinished": 0}) == {"bound.wait": 3.0}
    assert math.isnan(_holding({"bound.wait": 3.0}, {"n_unfinished": 1})["bound.wait"])


def test_a_worker_of_another_version_does_no_work() -> None:
    with pytest.raises(UsageError, match=f"a worker has gpuyard {__version__}, and 9.9 is asked for"):
        Worker(Context(SMALL.record(), version="9.9"))
