"""Metrics of runs of the reference simulator, against plain loops and against laws that bind them."""

from __future__ import annotations

import math
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import pytest

from gpuyard.metrics import METRICS, counts, measure
from gpuyard.metrics.base import values_of
from gpuyard.model.result import BIN, Result
from gpuyard.policies import Backfill, Ordering, Placement, Preemption, Scheduler
from gpuyard.testing.strategies import random_case

SEEDS = range(40)


def first_come(jobs, j, now):
    return jobs.submit[j]


def by_priority(jobs, j, now):
    return -jobs.priority[j]


SCHEDULER = Scheduler(
    Ordering("fcfs", "first come", first_come, (), False),
    Placement("best", "best fit", None, (), "score"),
    Backfill("skip"),
    Preemption("priority", "by priority", by_priority, ()),
)


@pytest.fixture(scope="module", params=SEEDS)
def run(request):
    """A reference run as a Result (without timeline), and the reference's own account."""
    from gpuyard.testing.reference import reference

    case = random_case(request.param)
    out = reference(case.workload, case.cluster, SCHEDULER, 0, case.rules)
    result = Result(
        case.workload, case.cluster, "by hand", 0, out.table, np.zeros(0, BIN), out.segment_table,
        MappingProxyType({"failures": float(out.failures), "queue_integral": out.queue_integral}),
    )  # fmt: skip
    return result, out


def test_waiting_is_the_integral_of_the_queue(run):
    """Little's law, exactly: jobs waiting over time and time waiting over jobs are the same area."""
    result, out = run
    if counts(result)["unfinished"]:
        pytest.skip("jobs are left waiting: the queue has no end")
    total = measure(result, ["waiting.sum"])["waiting.sum"]
    assert np.nan_to_num(total) == pytest.approx(out.queue_integral, rel=1e-9, abs=1e-6)


def test_stops_are_those_of_the_rule_and_of_outages(run):
    result, out = run
    assert np.nan_to_num(measure(result, ["preemptions.sum"])["preemptions.sum"]) == out.preemptions + out.failures


def test_nodes_held_what_jobs_had(run):
    result, _ = run
    load = values_of(result, METRICS["node_utilization"])
    gpus = result.cluster.nodes.gpus
    end = result.table["end"]
    if not len(result.segments) or np.isnan(load).all() or np.isnan(end).all():
        pytest.skip("nothing ran on devices")
    window = np.nanmax(end) - result.workload.jobs.submit.min()
    assert np.nansum(load * gpus) * window == pytest.approx(result.table["gpu_seconds"].sum(), rel=1e-9, abs=1e-6)


def test_times_and_ratios_by_plain_loops(run):
    result, out = run
    if counts(result)["unfinished"]:
        pytest.skip("jobs without an end")
    found = {name: values_of(result, METRICS[name]) for name in ("wait", "turnaround", "bsld", "deadline_met")}
    for j, row in enumerate(out.rows):
        submit, runtime = float(result.workload.jobs.submit[j]), float(result.workload.runtime[j])
        deadline = float(result.workload.jobs.deadline[j])
        if math.isfinite(deadline):
            assert found["deadline_met"][j] == (row.status == "done" and row.end <= deadline)
        if row.status == "rejected":
            assert math.isnan(found["wait"][j]) and math.isnan(found["bsld"][j])
            continue
        alone = min(runtime, row.ran) if row.status == "killed" else runtime
        assert found["wait"][j] == row.start - submit
        assert found["turnaround"][j] == row.end - submit
        assert found["bsld"][j] == max(1.0, (row.end - submit) / max(alone, 10.0))


def down_at(cluster, node, time):
    whole = any(o.node == node and o.gpus is None and o.start <= time < o.end for o in cluster.outages)
    part = sum(o.gpus or 0 for o in cluster.outages if o.node == node and o.start <= time < o.end)
    return int(cluster.nodes.gpus[node]) if whole else min(part, int(cluster.nodes.gpus[node]))


def test_node_fragmentation_by_looking_at_every_stretch(run):
    result, out = run
    end = result.table["end"]
    if not out.segments or np.isnan(end).all():
        pytest.skip("nothing ran")
    first, last = float(result.workload.jobs.submit.min()), float(np.nanmax(end))
    instants = {first, last} | {t for s in out.segments for t in (s.start, s.end)}
    instants |= {t for o in result.cluster.outages for t in (o.start, o.end)}
    stretches = sorted(t for t in instants if first <= t <= last)
    free_all = free_partly = 0.0
    for begin, close in pairwise(stretches):
        for node, gpus in enumerate(result.cluster.nodes.gpus):
            middle = (begin + close) / 2
            used = sum(s.gpus for s in out.segments if s.node == node and s.start <= middle < s.end)
            free = max(int(gpus) - used - down_at(result.cluster, node, middle), 0.0)
            free_all += free * (close - begin)
            free_partly += free * (close - begin) * (used > 1e-6 and free > 1e-6)
    found = measure(result, ["node_fragmentation"])["node_fragmentation"]
    if free_all == 0:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(free_partly / free_all, rel=1e-6, abs=1e-9)
