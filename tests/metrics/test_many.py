"""Results measured together have the numbers that each has alone, to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from gpuyard import Result, Rules, load_cluster, load_workload, parse_scheduler, simulate_many
from gpuyard.metrics import AGGREGATIONS, METRICS, measure, measure_many
from gpuyard.metrics.facts import STACKING, stacked

SCHEDULERS = ("fcfs", "srpt", "sjf/fewest/easy", "srpt/fewest/easy/srpt")
NAMES = [name for name in METRICS if METRICS[name].kind == "run"]
NAMES += [f"{name}.{how}" for name in METRICS if METRICS[name].kind != "run" for how in AGGREGATIONS]


def simulated(workload: str, cluster: str) -> list[Result]:
    jobs, nodes = load_workload(workload), load_cluster(cluster)
    return simulate_many(jobs, nodes, [parse_scheduler(text) for text in SCHEDULERS], segments=True)


def same(results: Sequence[Result]) -> None:
    fresh = [replace(result) for result in results]  # nothing is worked out yet
    for numbers, result in zip(measure_many(results, NAMES), fresh, strict=True):
        alone = measure(result, NAMES)
        assert list(numbers) == NAMES
        assert np.array([numbers[name] for name in NAMES]).tobytes() == np.array([alone[name] for name in NAMES]).tobytes()


@pytest.mark.parametrize(("workload", "cluster"), [("family:shape=bursty,gpus=4", "1x4:a100"), ("gangs:jobs=300,nodes=4", "4x8:a100")])
def test_stacked_results(workload: str, cluster: str) -> None:
    results = simulated(workload, cluster)
    made = stacked(results)
    assert made is not None and made.table.shape == (len(results), len(results[0]))
    same(results)


def test_jobs_that_are_killed() -> None:
    jobs = load_workload("family:shape=bursty,gpus=4")
    jobs = replace(jobs, jobs=jobs.jobs.replace(walltime=0.9 * jobs.runtime + 60.0))
    schedulers = [parse_scheduler(text) for text in SCHEDULERS]
    results = simulate_many(jobs, load_cluster("1x4:a100"), schedulers, rules=Rules(walltime_kill=True), segments=True)
    assert stacked(results) is not None and any((result.table["status"] == 4).any() for result in results)
    same(results)


def test_results_with_jobs_that_did_not_end_are_not_stacked() -> None:
    results = simulated("gangs:jobs=300,nodes=4", "1x4:a100")
    assert np.isnan(results[0].table["end"]).any() and stacked(results) is None
    same(results)


def test_results_of_other_jobs_are_not_stacked() -> None:
    results = [simulated(f"family:shape={shape},gpus=4", "1x4:a100")[0] for shape in ("base", "bursty")]
    assert stacked(results) is None
    same(results)


def test_none_and_one() -> None:
    results = simulated("family:shape=base,gpus=4", "1x4:a100")[:1]
    assert measure_many([], ["wait"]) == [] and stacked(results) is None
    same(results)


def test_metrics_that_are_stacked_take_each_job_by_itself() -> None:
    """What `once` has made is right on a table of several results, row by row."""
    results = simulated("family:shape=bursty,gpus=4", "1x4:a100")
    made = stacked([replace(result) for result in results])
    assert made is not None and len(STACKING) >= 8
    for function in STACKING:
        together = function(made)
        for row, result in zip(together, results, strict=True):
            assert row.tobytes() == function(replace(result)).tobytes(), function.__qualname__
