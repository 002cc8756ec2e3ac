"""Max-min shares worked out by hand, and what they come to in simulations."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from gpuyard import Cluster, Workload, simulate
from gpuyard.errors import UsageError
from gpuyard.model.cluster import GpuType, Nodes
from gpuyard.model.result import STATUS
from gpuyard.policies import parse_scheduler
from gpuyard.policies.deciders.gavel import fair_fractions
from gpuyard.policies.milp.solver import Solver
from gpuyard.testing.invariants import check_invariants
from gpuyard.testing.strategies import random_case

INF = np.inf


def fractions(speeds: list[list[float]], gpus: list[float], devices: list[float], quota: float = INF) -> np.ndarray:
    return fair_fractions(np.array(speeds), np.array(gpus), np.array(devices), quota, Solver())


def test_opposite_affinities_get_a_type_each():
    assert fractions([[1.0, 0.25], [0.25, 1.0]], [1.0, 1.0], [1.0, 1.0]) == pytest.approx(np.eye(2), abs=1e-5)


def test_two_jobs_that_differ_in_affinity():
    """A: 1 and 0.2, on average 0.6. B: 1 and 0.9, on average 0.95. With x of B's time on the first type and the rest on the second,
    A has (1 − 0.8 x) / 0.6 and B (0.9 + 0.1 x) / 0.95; both are 1 at x = 1/2."""
    assert fractions([[1.0, 0.2], [1.0, 0.9]], [1.0, 1.0], [1.0, 1.0]) == pytest.approx(np.full((2, 2), 0.5), abs=1e-5)


def test_equal_jobs_on_one_type_get_equal_shares():
    assert fractions([[2.0]] * 3, [1.0] * 3, [2.0]) == pytest.approx(np.full((3, 1), 2 / 3), abs=1e-5)


def test_a_gang_gets_as_much_gpu_time_as_a_small_job():
    """4 devices; a job of 4 GPUs and eight of 1: 4 a + 8 b = 4 with 4 a = b."""
    found = fractions([[1.0]] * 9, [4.0] + [1.0] * 8, [4.0])
    assert 4 * found[0, 0] == pytest.approx(4 / 9, abs=1e-5)
    assert found[1:, 0] == pytest.approx(np.full(8, 4 / 9), abs=1e-5)


def test_the_quota_counts():
    assert fractions([[1.0]] * 2, [1.0] * 2, [2.0], quota=1.0).sum() == pytest.approx(1.0)


def test_what_the_worst_off_cannot_use_is_given_to_others():
    """The first job can only use the first type, whole; the second has the other type."""
    found = fractions([[1.0, 0.0], [1.0, 1.0]], [1.0, 1.0], [1.0, 1.0])
    assert found[0] == pytest.approx([1.0, 0.0], abs=1e-5)
    assert found[1, 1] == pytest.approx(1.0, abs=1e-5)


def two_types(count: int = 1) -> Cluster:
    nodes = Nodes(
        names=("a", "b"), gpus=np.full(2, count, np.int32), gpu_type=np.array([0, 1], np.int32), cpus=np.full(2, INF),
        memory=np.full(2, INF), rack=np.zeros(2, np.int32), partition=np.zeros(2, np.int32),
    )  # fmt: skip
    speed = MappingProxyType({"left": MappingProxyType({"a": 1.0, "b": 0.25}), "right": MappingProxyType({"a": 0.25, "b": 1.0})})
    return Cluster(nodes, (GpuType("a"), GpuType("b")), speed=speed)


def test_jobs_run_on_the_type_that_suits_them():
    workload = Workload.build({"submit": [0.0, 0.0], "job_class": [1, 0]}, [5000.0, 5000.0], classes=("left", "right"))
    result = simulate(workload, two_types(), parse_scheduler("gavel"))
    assert result.table["end"].tolist() == [5000.0, 5000.0]
    assert result.table["node"].tolist() == [1, 0]


def test_a_job_changes_type_at_the_next_round():
    """The second, of class right, finds only type a free. At 300 s the first leaves b to the third, of class left.

    The round at 360 s gives a to the fourth, which had nothing yet, and b to the second.
    """
    columns = {"submit": [0.0, 1.0, 2.0, 3.0], "job_class": [1, 1, 0, 0]}
    workload = Workload.build(columns, [300.0, 5000.0, 5000.0, 5000.0], classes=("left", "right"))
    result = simulate(workload, two_types(), parse_scheduler("gavel"), segments=True)
    runs = {job: [(int(s["node"]), float(s["start"])) for s in result.segments if s["job"] == job] for job in (1, 2, 3)}
    assert runs[1][:2] == [(0, 1.0), (1, 360.0)]
    assert runs[2][0] == (1, 300.0)
    assert runs[3][0] == (0, 360.0)  # never served so far: before the third


def test_three_jobs_share_two_devices_evenly():
    """3 × 9,000 s of work on two devices: all end about 13,500 s; first come, first served would end at 9,000 and 18,000."""
    workload = Workload.build({"submit": [0.0, 0.0, 0.0]}, [9000.0] * 3)
    ends = simulate(workload, Cluster.uniform(1, 2), parse_scheduler("gavel")).table["end"]
    assert ends.max() - ends.min() <= 720.0
    assert ends.max() == pytest.approx(13_500.0, abs=360.0)


def test_a_gang_is_not_starved_by_a_stream_of_small_jobs():
    """Four devices, always wanted by more small jobs than there are; the gang of four comes at 1,000 s."""
    submit = np.arange(0.0, 60_000.0, 200.0)
    columns = {"submit": [*submit.tolist(), 1000.0], "gpus": [1.0] * len(submit) + [4.0]}
    workload = Workload.build(columns, [1000.0] * len(submit) + [3000.0])
    gang = int(np.argmax(workload.jobs.gpus))
    gavel = simulate(workload, Cluster.uniform(1, 4), parse_scheduler("gavel")).table[gang]
    assert gavel["start"] <= 1080.0  # the next multiple of 360 s
    greedy = simulate(workload, Cluster.uniform(1, 4), parse_scheduler("fcfs/fewest/skip")).table[gang]
    assert greedy["start"] > 50_000.0


def test_the_report_counts():
    workload = Workload.build({"submit": [0.0, 0.0, 0.0]}, [900.0] * 3)
    result = simulate(workload, Cluster.uniform(1, 2), parse_scheduler("gavel:every=100"))
    report = result.manifest["decider"]
    assert report["stopped"] == result.totals["preemptions"] > 0
    assert report["rounds"] >= report["programs"] > 1


@pytest.mark.parametrize("text", ["gavel:every=0", "gavel:most=0", "gavel:every=-1"])
def test_bad_parameters_are_refused(text: str):
    with pytest.raises(UsageError):
        simulate(Workload.build({"submit": [0.0]}, [1.0]), Cluster.uniform(1, 1), parse_scheduler(text))


@pytest.mark.parametrize("text", ["gavel", "gavel:every=20", "gavel:every=20,most=2"])
def test_the_laws_hold_and_everybody_ends(text: str):
    ends = {STATUS.index("done"), STATUS.index("killed"), STATUS.index("rejected")}
    for seed in range(630_000, 630_020):
        case = random_case(seed)
        result = simulate(case.workload, case.cluster, parse_scheduler(text), seed=seed, rules=case.rules, segments=True)
        check_invariants(result.table, result.segments, case.workload, case.cluster, case.rules)
        plain = simulate(case.workload, case.cluster, parse_scheduler("fcfs/fewest/skip"), seed=seed, rules=case.rules)
        left = [sum(int(s) not in ends for s in each.table["status"]) for each in (result, plain)]
        assert left[0] == left[1], seed
