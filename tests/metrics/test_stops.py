"""What stopping jobs costs and who pays, on hand examples."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from gpuyard.metrics import measure, measure_many
from gpuyard.model.cluster import Cluster, GpuType

NAN = math.nan
# submit, start, end, runtime; the second was stopped once: 10 s of work lost and 5 s of restart
ROWS = [
    (0.0, 0.0, 100.0, 100.0, "done"),  # delay 0
    (0.0, 10.0, 90.0, 30.0, "done"),  # ran 45: delay 60
    (0.0, 20.0, 30.0, 10.0, "done"),  # delay 20
    (5.0, NAN, NAN, 10.0, "rejected"),
]


def stopped(make, **given):
    return make(ROWS, ran=[100.0, 45.0, 10.0, 0.0], preemptions=[0, 1, 0, 0], **given)


def test_delay_counts_what_a_stop_costs(make):
    found = measure(stopped(make), ["delay", "delay.max", "waiting", "wait"])
    assert found == {"delay": 80 / 3, "delay.max": 60.0, "waiting": (45 + 20) / 3, "wait": 10.0}


def test_gpu_hours_lost_are_those_beyond_the_run_time(make):
    found = measure(stopped(make, columns={"gpus": [1, 4, 2, 1]}), ["gpu_hours_lost.sum", "lost_share"])
    assert found["gpu_hours_lost.sum"] == pytest.approx(15 * 4 / 3600)
    assert found["lost_share"] == pytest.approx(60 / (100 + 45 * 4 + 20))


def test_a_killed_job_has_lost_nothing(make):
    assert measure(make([(0.0, 0.0, 50.0, 80.0, "killed")]), ["gpu_hours_lost.sum", "delay"]) == {"gpu_hours_lost.sum": 0.0, "delay": 0.0}


@pytest.mark.parametrize("cluster", [Cluster.uniform(1, 4, GpuType("fast", speed=2.0)), replace(Cluster.uniform(2, 4), span_nodes=0.5)])
def test_other_speeds_leave_what_is_lost_unknown(make, cluster):
    found = measure(stopped(make, cluster=cluster), ["gpu_hours_lost", "lost_share"])
    assert all(map(math.isnan, found.values()))


def test_who_may_be_stopped_is_what_the_job_says(make):
    result = stopped(make, columns={"preemptible": [0.0, 1.0, NAN, 1.0]})
    assert measure(result, ["delay_preemptible", "delay_others"]) == {"delay_preemptible": 60.0, "delay_others": 10.0}
    alone = measure(stopped(make), ["delay_preemptible", "delay_others"])
    assert math.isnan(alone["delay_preemptible"])
    assert alone["delay_others"] == measure(stopped(make), ["delay"])["delay"]


def test_sizes_are_thirds_of_the_jobs_by_work(make):
    """Work 100, 60, 40, all jobs one after the other."""
    rows = [(0.0, 0.0, 100.0, 100.0, "done"), (0.0, 100.0, 130.0, 30.0, "done"), (0.0, 130.0, 140.0, 10.0, "done")]
    result = make(rows, columns={"gpus": [1, 2, 4]})
    assert measure(result, ["delay_small", "delay_medium", "delay_large"]) == {
        "delay_small": 130.0, "delay_medium": 100.0, "delay_large": 0.0,
    }  # fmt: skip


def test_worst_users_count_once_each(make):
    """Two users of twenty are the worst-off tenth: means 200 (of two jobs) and 60."""
    delays = [100.0, 300.0, 60.0, *[10.0] * 18]
    rows = [(0.0, each, each + 1.0, 1.0, "done") for each in delays]
    users = [0, 0, *range(1, 20)]
    result = make(rows, columns={"user": users}, users=tuple(f"u{k}" for k in range(20)))
    assert measure(result, ["delay_worst_users"])["delay_worst_users"] == 130.0


def test_results_of_the_same_jobs_may_be_measured_together(make):
    """Stacked results share what is known of their jobs, not what is measured."""
    first = stopped(make)
    done = replace(first, workload=first.workload.take([0, 1, 2]), table=first.table[:3].copy())
    other = replace(done, table=done.table.copy())
    other.table["end"][1] = 80.0
    names = ["delay", "delay_small", "delay_large", "lost_share", "delay_worst_users"]
    assert measure_many([done, other], names) == [measure(replace(each), names) for each in (done, other)]
    assert measure(other, ["delay"])["delay"] == pytest.approx(70 / 3)
