"""The queue over time: length, recovery, fragmentation."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from gpuyard.metrics import backlog_level, measure, recovery_after
from gpuyard.model.cluster import Cluster, Outage

NAN = math.nan
JOB = [(0.0, 0.0, 100.0, 100.0, "done")]


def bins(queue, span=10.0, busy=8.0, up=8.0):
    return [(i * span, span, q, q, busy, up) for i, q in enumerate(queue)]


def recovery(make, queue, **more):
    return measure(make(JOB, timeline=bins(queue), **more), ["recovery"])["recovery"]


def test_length_of_the_queue(make):
    totals = {"first_submit": 0.0, "last_end": 100.0, "queue_integral": 250.0, "queue_max": 7.0, "queue_explosions": 2.0}
    assert measure(make(JOB, totals=totals), ["queue_mean", "queue_max", "queue_explosions"]) == {
        "queue_mean": 2.5, "queue_max": 7.0, "queue_explosions": 2.0,
    }  # fmt: skip


def test_backlog_level_is_what_the_cluster_could_run_at_once(make):
    """8 GPUs; jobs of 1 and 3 GPUs: 4 at once. CPU jobs and rejected ones do not count."""
    rows = [*JOB, (0.0, 0.0, 1.0, 1.0, "done"), (0.0, 0.0, 1.0, 1.0, "done"), (0.0, NAN, NAN, 1.0, "rejected")]
    assert backlog_level(make(rows, columns={"gpus": [1, 3, 0, 999], "cpus": [1, 1, 1, 1]})) == 4.0
    assert backlog_level(make(JOB, columns={"gpus": [8]})) == 1.0
    assert math.isnan(backlog_level(make(JOB, columns={"gpus": [0], "cpus": [1]})))


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        ([0, 5, 8, 3], 0.0),  # 8 is not more than 8: never behind
        ([0, 9, 20, 15, 10, 8, 0], 20.0),  # the peak ends at 30, the backlog at 50
        ([9, 0, 20, 20, 12, 0, 9, 12, 11, 10, 9, 0], 30.0),  # the longest: the peak ends at 80, the backlog at 110
        ([20, 10, 10], 20.0),  # until the end of the timeline
        ([5, 20, 5], 0.0),  # gone within the bin of its peak
    ],
)
def test_recovery(make, queue, expected):
    assert recovery(make, queue) == expected


def test_recovery_is_undefined_without_timeline_or_gpu_jobs(make):
    assert math.isnan(recovery(make, []))
    assert math.isnan(recovery(make, [9, 9], columns={"gpus": [0], "cpus": [1]}))


def test_recovery_skips_bins_that_were_not_simulated(make):
    empty = (30.0, 0.0, 99.0, 99.0, 0.0, 0.0)
    result = make(JOB, timeline=[*bins([20, 10, 0]), empty])
    assert measure(result, ["recovery"]) == {"recovery": 10.0}


def test_recovery_after_a_known_change(make):
    result = make(JOB, timeline=bins([0, 9, 20, 15, 10, 8, 0]))
    assert recovery_after(result, 25.0) == 25.0
    assert recovery_after(result, 25.0, level=0.0) == 35.0
    assert recovery_after(result, 55.0) == 0.0
    assert recovery_after(result, 25.0, level=-1.0) == 45.0  # never: until the end of the timeline
    assert math.isnan(recovery_after(result, 1000.0))
    assert math.isnan(recovery_after(result, -1.0))


def test_fragmentation_is_the_idle_share_while_jobs_wait(make):
    """Bin 0: nobody waits. Bin 1: 2 of 8 free, all the time. Bin 2: 8 of 8 free, but a job waits for at most half of the bin."""
    timeline = [(0.0, 10.0, 0.0, 0.0, 0.0, 8.0), (10.0, 10.0, 3.0, 4.0, 6.0, 8.0), (20.0, 10.0, 0.5, 1.0, 0.0, 8.0)]
    measured = measure(make(JOB, timeline=timeline), ["fragmentation"])
    assert measured["fragmentation"] == pytest.approx((10 * 2 + 5 * 8) / (10 * 8 + 5 * 8))
    assert math.isnan(measure(make(JOB, timeline=bins([0, 0])), ["fragmentation"])["fragmentation"])


def test_free_devices_on_partly_used_nodes(make):
    """Node 0: 1 of 4 in use for 100 s; node 1: 4 of 4 for 50 s, then empty. Free: 300 there, 200 here."""
    segments = [(0, 0, 1.0, 1, 0.0, 100.0), (1, 1, 4.0, 15, 0.0, 50.0)]
    assert node_fragmentation(make, segments) == pytest.approx(300 / 500)


def node_fragmentation(make, segments, cluster=None):
    result = make(JOB, segments=segments, cluster=cluster, totals={"first_submit": 0.0, "last_end": 100.0})
    return measure(result, ["node_fragmentation"])["node_fragmentation"]


def test_devices_out_of_order_are_not_free(make):
    """As above, with 2 devices of node 0 out for 0–50 s and node 1 down from 60 s on: free 50·1 + 50·3 and 10·4."""
    cluster = replace(Cluster.uniform(2, 4), outages=(Outage(0, 0.0, 50.0, 2), Outage(1, 60.0, 1000.0)))
    segments = [(0, 0, 1.0, 1, 0.0, 100.0), (1, 1, 4.0, 15, 0.0, 50.0)]
    assert node_fragmentation(make, segments, cluster) == pytest.approx(200 / 240)


def test_shares_of_a_device_leave_no_ghosts(make):
    segments = [(0, 0, share, 1, 0.0, 50.0) for share in (0.1, 0.2, 0.7)]
    assert node_fragmentation(make, segments) == pytest.approx(50 * 3 / (50 * 3 + 50 * 4 + 100 * 4))


def test_no_segments_no_node_fragmentation(make):
    assert math.isnan(node_fragmentation(make, []))
