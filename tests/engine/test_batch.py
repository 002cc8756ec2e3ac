"""Several schedulers on the same jobs, set up together, end as each of them does alone."""

from __future__ import annotations

import pytest

from gpuyard import Rules, load_cluster, load_workload, parse_scheduler, simulate, simulate_many, with_estimate
from gpuyard.engine import batch
from gpuyard.engine.kernels.events import BREATH
from gpuyard.errors import UsageError

# Slots of every length: one and several schedulers, with and without tracking, plan, preemption, networks, the mix, and a decider.
SCHEDULERS = (
    "fcfs", "srpt", "learned:meta", "learned:direct", "meta:random(fcfs, srpt, edf)@60", "sjf/fewest/easy", "fcfs/best/conservative",
    "srpt/fewest/easy/srpt", "fcfs/fgd/skip", "migrate(fcfs/best/easy)",
)  # fmt: skip
CASES = (("family:shape=bursty,gpus=4", "1x4:a100"), ("gangs:jobs=200,nodes=4", "4x8:a100"), ("family:variant=hetero", "hetero-demo"))


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize(("workload", "cluster"), CASES)
def test_together_as_alone(workload: str, cluster: str, segments: bool) -> None:
    jobs, nodes, rules = load_workload(workload), load_cluster(cluster), Rules(checkpoint=600.0)
    schedulers = [parse_scheduler(text) for text in SCHEDULERS]
    together = simulate_many(jobs, nodes, schedulers, 3, rules=rules, segments=segments)
    for scheduler, result in zip(schedulers, together, strict=True):
        alone = simulate(jobs, nodes, scheduler, 3, rules=rules, segments=segments)
        assert result.same_bytes(alone), scheduler.label
        assert list(result.totals) == list(alone.totals)
        clocks = {"wall_s", "decision_us", "decider"}
        assert {k: v for k, v in result.manifest.items() if k not in clocks} == {k: v for k, v in alone.manifest.items() if k not in clocks}
        assert result.scheduler == scheduler.label and result.seed == 3 and result.workload is jobs


def test_estimates_that_a_simulation_makes_are_its_own() -> None:
    jobs, nodes = with_estimate(load_workload("family:shape=bursty,gpus=4"), "rolling", 0), load_cluster("1x4:a100")
    schedulers = [parse_scheduler(text) for text in ("sjf", "ljf")]
    for scheduler, result in zip(schedulers, simulate_many(jobs, nodes, schedulers), strict=True):
        alone = simulate(jobs, nodes, scheduler)
        assert result.same_bytes(alone) and result.workload.jobs.estimate.tobytes() == alone.workload.jobs.estimate.tobytes()


def test_long_workloads_are_run_in_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, nodes = load_workload("family:shape=base,gpus=4"), load_cluster("1x4:a100")
    schedulers = [parse_scheduler(text) for text in ("fcfs", "srpt", "edf", "sjf/fewest/easy", "priority")]
    whole = simulate_many(jobs, nodes, schedulers)
    monkeypatch.setattr(batch, "TOGETHER", 2 * len(jobs))
    assert [len(part) for part in batch.batches(schedulers, len(jobs))] == [2, 2, 1]
    assert all(a.same_bytes(b) for a, b in zip(whole, simulate_many(jobs, nodes, schedulers), strict=True))


def test_no_jobs_no_schedulers() -> None:
    jobs, nodes = load_workload("family:shape=base,gpus=4"), load_cluster("1x4:a100")
    assert simulate_many(jobs, nodes, []) == []
    assert [len(result) for result in simulate_many(jobs.head(0), nodes, [parse_scheduler("fcfs"), parse_scheduler("srpt")])] == [0, 0]


def test_a_run_that_comes_back_for_breath_goes_on() -> None:
    jobs, nodes = load_workload("gangs:jobs=6000,nodes=4"), load_cluster("4x8:a100")
    result = simulate_many(jobs, nodes, [parse_scheduler("fcfs"), parse_scheduler("sjf/fewest/easy")])[1]
    assert result.totals["instants"] > BREATH and not (result.table["status"] < 3).any()


def test_a_bad_seed_is_refused() -> None:
    jobs, nodes = load_workload("family:shape=base,gpus=4"), load_cluster("1x4:a100")
    with pytest.raises(UsageError, match="seed = -1"):
        simulate_many(jobs, nodes, [parse_scheduler("fcfs")], -1)
