"""Values of the job metrics on hand examples: every outcome, and the edge cases."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpuyard.errors import UsageError
from gpuyard.metrics import METRICS, counts, measure
from gpuyard.metrics.base import values_of

NAN = math.nan

# submit, start, end, runtime, status; the horizon is 200
MIXED = [
    (0.0, 0.0, 100.0, 100.0, "done"),  # wait 0, turnaround 100, slowdown 1
    (10.0, 30.0, 50.0, 5.0, "done"),  # wait 20, turnaround 40, slowdown 8, bsld 4; ran on a device of speed 1/4
    (20.0, 50.0, 200.0, 1000.0, "killed"),  # wait 30, turnaround 180, ran 150: slowdown 1.2
    (40.0, NAN, NAN, 80.0, "waiting"),  # wait and turnaround until 200: 160, slowdown 2
    (50.0, NAN, NAN, 10.0, "rejected"),
]


def per_job(result, name):
    return values_of(result, METRICS[name]).tolist()


def same(values, expected):
    return np.allclose(values, expected, rtol=1e-12, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wait", [0, 20, 30, 160, NAN]),
        ("waiting", [0, 20, 30, 160, NAN]),
        ("turnaround", [100, 40, 180, 160, NAN]),
        ("slowdown", [1, 8, 1.2, 2, NAN]),
        ("bsld", [1, 4, 1.2, 2, NAN]),
        ("gpu_hours", [100 / 3600, 20 / 3600, 150 / 3600, 0, NAN]),
        ("preemptions", [0, 0, 0, 0, NAN]),
        ("completed", [1, 1, 0, 0, 0]),
        ("killed", [0, 0, 1, 0, 0]),
        ("rejected", [0, 0, 0, 0, 1]),
        ("unfinished", [0, 0, 0, 1, 0]),
    ],
)
def test_every_outcome(make, name, expected):
    assert same(per_job(make(MIXED), name), expected)


def test_counts_put_every_job_in_one_group(make):
    assert counts(make(MIXED)) == {"jobs": 5, "done": 2, "killed": 1, "rejected": 1, "unfinished": 1}


def test_run_values_of_the_mixed_run(make):
    measured = measure(make(MIXED), ["makespan", "throughput_drained", "fairness", "bsld.max", "bsld", "turnaround.p50", "wait.std"])
    assert measured["makespan"] == 200.0
    assert measured["throughput_drained"] == pytest.approx(2 / 200 * 3600)
    shares = np.array([1, 1 / 4, 1 / 1.2, 1 / 2])
    assert measured["fairness"] == pytest.approx(shares.sum() ** 2 / (4 * (shares**2).sum()))
    assert measured["bsld.max"] == 4.0
    assert measured["bsld"] == pytest.approx((1 + 4 + 1.2 + 2) / 4)
    assert measured["turnaround.p50"] == 130.0
    assert measured["wait.std"] == pytest.approx(np.std([0, 20, 30, 160]))


def test_a_preempted_job_waits_again(make):
    """Runs 10–20 and 50–70: the first wait is 10, the time in the queue 40."""
    result = make([(0.0, 10.0, 70.0, 30.0, "done")], ran=[30.0], preemptions=[1])
    assert measure(result, ["wait", "waiting", "preemptions", "preemptions.sum"]) == {
        "wait": 10.0, "waiting": 40.0, "preemptions": 1.0, "preemptions.sum": 1.0,
    }  # fmt: skip


def test_zero_runtime_counts_as_one_second_in_slowdown(make):
    result = make([(0.0, 0.0, 0.0, 0.0, "done"), (0.0, 4.0, 4.0, 0.0, "done"), (0.0, 25.0, 25.0, 0.0, "done")])
    assert per_job(result, "slowdown") == [1.0, 5.0, 26.0]
    assert per_job(result, "bsld") == [1.0, 1.0, 2.5]


def test_jobs_that_were_never_submitted_are_unfinished_and_nothing_else(make):
    result = make([(0.0, 0.0, 10.0, 10.0, "done"), (500.0, NAN, NAN, 10.0, "pending")], columns={"deadline": [20.0, 600.0]})
    assert counts(result)["unfinished"] == 1
    for name in ("wait", "turnaround", "slowdown", "bsld", "deadline_met", "tardiness", "gpu_hours"):
        assert math.isnan(per_job(result, name)[1])
    assert measure(result, ["makespan"]) == {"makespan": 10.0}


def test_deadlines_count_rejected_killed_and_unfinished_as_missed(make):
    deadline = [100.0, 49.0, 300.0, 300.0, 300.0]
    result = make(MIXED, columns={"deadline": deadline})
    assert per_job(result, "deadline_met") == [1, 0, 0, 0, 0]
    assert measure(result, ["deadline_met", "deadline_met.sum"]) == {"deadline_met": 0.2, "deadline_met.sum": 1.0}
    assert same(per_job(result, "tardiness"), [0, 1, 0, 0, NAN])


def test_jobs_without_a_deadline_are_not_in_the_share(make):
    result = make(MIXED[:2], columns={"deadline": [100.0, math.inf]})
    assert measure(result, ["deadline_met"]) == {"deadline_met": 1.0}
    assert math.isnan(measure(make(MIXED), ["deadline_met"])["deadline_met"])


def test_fairness_over_users_counts_each_user_once(make):
    """User 0: one job at full speed; user 2: two jobs at half. User 1 has no job."""
    rows = [(0.0, 0.0, 100.0, 100.0, "done"), (0.0, 100.0, 200.0, 100.0, "done"), (0.0, 100.0, 200.0, 100.0, "done")]
    result = make(rows, columns={"user": [0, 2, 2]}, users=("a", "b", "c"))
    measured = measure(result, ["fairness", "fairness_users"])
    assert measured["fairness"] == pytest.approx(2.0**2 / (3 * 1.5))
    assert measured["fairness_users"] == pytest.approx(1.5**2 / (2 * 1.25))


def test_fairness_bounds(make):
    equal = make([(0.0, 50.0, 150.0, 100.0, "done")] * 4)
    assert measure(equal, ["fairness", "fairness_users"]) == {"fairness": pytest.approx(1.0), "fairness_users": pytest.approx(1.0)}
    one = make([(0.0, 0.0, 100.0, 100.0, "done"), (0.0, 1e9, 1e9 + 100, 100.0, "done")])
    assert measure(one, ["fairness"])["fairness"] == pytest.approx(0.5, abs=1e-6)


def test_slowdown_by_priority_counts_a_job_four_times_as_much_as_the_next_lower(make):
    result = make(MIXED, columns={"priority": [0.0, 1.0, 1.0, 3.0, 3.0]})  # slowdowns 1, 8, 1.2 and 2; the last job is rejected
    measured = measure(result, ["weighted_slowdown", "weighted_slowdown:base=1", "weighted_slowdown:base=2", "slowdown"])
    assert measured["weighted_slowdown"] == pytest.approx((1 + 4 * (8 + 1.2) + 64 * 2) / (1 + 4 + 4 + 64))
    assert measured["weighted_slowdown:base=2"] == pytest.approx((1 + 2 * (8 + 1.2) + 8 * 2) / (1 + 2 + 2 + 8))
    assert measured["weighted_slowdown:base=1"] == pytest.approx(measured["slowdown"])
    huge = make(MIXED, columns={"priority": [0.0, 1e5, 1e5, 3.0, 3.0]})  # as a batch system has them
    assert measure(huge, ["weighted_slowdown"])["weighted_slowdown"] == pytest.approx((8 + 1.2) / 2)
    with pytest.raises(UsageError, match=r"base=0.5 is below 1"):
        measure(result, ["weighted_slowdown:base=0.5"])
