"""The built-in policies on numbers worked out by hand, and what every registered policy must be."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpuyard import Workload, simulate
from gpuyard.engine.slots import BACKFILLS as CODES
from gpuyard.model.cluster import Cluster, GpuType, Nodes
from gpuyard.policies import BACKFILLS, DECIDERS, ORDERINGS, PLACEMENTS, PREEMPTIONS, SWITCHES, parse_scheduler

# Job 0: 4 GPUs, submitted at 10 s, estimated 100 s, of which 20 are done; job 1: 1 GPU, at 0 s, estimate 0.
JOBS = SimpleNamespace(
    submit=np.array([10.0, 0.0]), gpus=np.array([4.0, 1.0]), estimate=np.array([100.0, 0.0]), remaining=np.array([80.0, 0.0]),
    deadline=np.array([300.0, np.inf]), priority=np.array([2.0, -1.0]), attained=np.array([80.0, 0.0]), walltime=np.array([200.0, np.inf]),
    queued=np.array([10.0, 0.0]), ran=np.array([20.0, 0.0]), run_start=np.array([0.0, 0.0]), status=np.array([1, 1]),
    usage=np.array([0.75, 0.25]), fair_share=np.array([0.5, 0.5]), size_factor=np.array([0.5, 0.125]),
    partition_factor=np.array([1.0, 0.0]), qos_factor=np.array([0.25, 0.0]),
)  # fmt: skip
NOW = 60.0
EXPECTED = {
    "fcfs": (10.0, 0.0),
    "lcfs": (-10.0, 0.0),
    "sjf": (100.0, 0.0),
    "ljf": (-100.0, 0.0),
    "saf": (400.0, 0.0),
    "smallest": (4.0, 1.0),
    "largest": (-4.0, -1.0),
    "srpt": (80.0, 0.0),
    "wfp3": (-(0.5**3) * 4, -(60.0**3)),
    "unicep": (-50.0 / (2.0 * 100.0), -60.0 / math.log2(1 + 1e-15)),
    "f1": (2.0 * 4 + 870.0, -1.0 - 870.0),
    "edf": (300.0, math.inf),
    "priority": (-2.0, 1.0),
    "dynamic": ((300.0 - 60.0 - 80.0) / 3.0, 1e18 + 1.0),
    "las": (80.0, 0.0),
    "multifactor": (
        -(1000 * 50 / 604800 + 500 + 1000 + 250 + 10000 / math.sqrt(8)),
        -(1000 * 60 / 604800 + 125 + 10000 / math.sqrt(2)),
    ),
    "tiresias": (0.0, 0.0),
}


@pytest.mark.parametrize("name", ORDERINGS)
def test_orderings(name: str):
    if name not in EXPECTED:
        pytest.skip("a new ordering: add its numbers here")
    found = [float(ORDERINGS[name].function(JOBS, j, NOW)) for j in (0, 1)]
    assert found == pytest.approx(EXPECTED[name], rel=1e-9)


def test_every_number_belongs_to_an_ordering():
    assert set(EXPECTED) <= set(ORDERINGS)


READ_THE_CLOCK = {"wfp3", "unicep", "dynamic", "multifactor", "tiresias"}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_what_reads_the_clock(name: str):
    assert ORDERINGS[name].reads_clock == (name in READ_THE_CLOCK)


@pytest.mark.parametrize("registry", [ORDERINGS, PLACEMENTS, BACKFILLS, PREEMPTIONS, SWITCHES, DECIDERS], ids=lambda r: r.what)
def test_everything_registered_has_its_name_and_a_title(registry: Any):
    for name, policy in registry.items():
        assert policy.name == name
        assert policy.title
        assert "\n" not in policy.title


@pytest.mark.parametrize("name", ORDERINGS)
def test_an_ordering_is_finite_or_infinite_but_never_nan(name: str):
    """Zeros, infinities and negatives in every column that may have them."""
    extremes = [0.0, 1e-300, 1.0, 1e12]
    for value in extremes:
        columns = ("submit", "gpus", "estimate", "remaining", "attained", "queued", "ran", "run_start", "usage")
        columns += ("size_factor", "partition_factor", "qos_factor")
        jobs = SimpleNamespace(**dict.fromkeys(columns, np.array([value])), fair_share=np.array([0.01]), status=np.array([1]))
        jobs.deadline, jobs.priority, jobs.walltime = np.array([np.inf]), np.array([-1.0]), np.array([np.inf])
        with np.errstate(all="ignore"):
            assert not math.isnan(ORDERINGS[name].function(jobs, 0, np.float64(1e12)))


def test_preemption_rules():
    assert PREEMPTIONS["none"].function is None
    assert PREEMPTIONS["srpt"].function(JOBS, 0, NOW) == 80.0  # type: ignore[misc]
    assert PREEMPTIONS["priority"].function(JOBS, 0, NOW) == -2.0  # type: ignore[misc]
    las = PREEMPTIONS["las"].function
    assert las is not None
    assert [las(JOBS, 0, NOW, threshold) for threshold in (80.0, 81.0)] == [1.0, 0.0]


def test_multifactor_may_favour_small_jobs_and_stops_ageing_at_its_limit():
    function = ORDERINGS["multifactor"].function
    only_size = {"age": 0.0, "partition": 0.0, "qos": 0.0, "fairshare": 0.0, "small": 1.0}
    assert [function(JOBS, j, NOW, **only_size) for j in (0, 1)] == [-500.0, -875.0]
    only_age = {"size": 0.0, "partition": 0.0, "qos": 0.0, "fairshare": 0.0, "max_age": 55.0}
    assert [function(JOBS, j, NOW, **only_age) for j in (0, 1)] == pytest.approx([-1000 * 50 / 55, -1000.0])


def test_the_queues_of_tiresias():
    """Job 0 waits since 10 s, has run for 20 s and received 80 GPU-seconds."""
    rule = PREEMPTIONS["tiresias"].function
    assert rule is ORDERINGS["tiresias"].function
    assert [rule(JOBS, 0, NOW, *limits) for limits in ((81, 82), (80, 81), (79, 80), (10, 20, 80))] == [0.0, 1.0, 2.0, 3.0]
    waits = [rule(JOBS, 0, now, 80.0, promote=2.5) for now in (59.0, 60.0)]
    assert waits == [1.0, 0.0]  # 10 s + 2.5 × 20 s
    running = SimpleNamespace(**{**vars(JOBS), "status": np.array([2, 2]), "run_start": np.array([60.0, 0.0])})
    assert [rule(running, 0, now, 80.0, promote=2.5) for now in (79.0, 80.0)] == [0.0, 1.0]  # 4 GPUs × 20 s since it was promoted
    assert [rule(running, 0, now, 80.0, promote=2.6) for now in (79.0, 80.0)] == [1.0, 1.0]  # it came to run without that


def test_switch_rules():
    system = SimpleNamespace(waiting=4.0, urgent=1.0)
    assert [SWITCHES["backlog"].function(system, NOW, limit) for limit in (3.0, 4.0)] == [1, 0]
    assert [SWITCHES["urgency"].function(system, NOW, share) for share in (0.2, 0.25)] == [1, 0]


def test_random_switching_draws_all_alike_and_the_same_again():
    rule = SWITCHES["random"].function
    assert rule is not None
    drawn = {seed: np.array([rule(SimpleNamespace(schedulers=5.0), 60.0 * k, seed) for k in range(5000)]) for seed in (0.0, 1.0)}
    for each in drawn.values():
        assert np.bincount(each, minlength=5) == pytest.approx(np.full(5, 1000), abs=100)  # 3.5 standard deviations
        pairs = np.bincount(5 * each[:-1] + each[1:], minlength=25)
        assert pairs == pytest.approx(np.full(25, 200), abs=55)
    assert (drawn[0.0] == drawn[1.0]).mean() == pytest.approx(0.2, abs=0.03)
    assert rule(SimpleNamespace(schedulers=5.0), 120.0, 1.0) == drawn[1.0][2]


# --- placements: three nodes with 4, 2 and 8 free devices, of speeds 1, 3 and 2 ----------------------------------------------


def nodes_of(placement: str, gpus: int) -> list[int]:
    columns = Nodes(
        ("a", "b", "c"), np.array([4, 2, 8], np.int32), np.array([0, 1, 2], np.int32), np.full(3, np.inf), np.full(3, np.inf),
        np.zeros(3, np.int32), np.zeros(3, np.int32),
    )  # fmt: skip
    cluster = Cluster(columns, (GpuType("slow", 1.0), GpuType("fast", 3.0), GpuType("middle", 2.0)))
    result = simulate(Workload.build({"submit": [0], "gpus": [gpus]}, [1]), cluster, parse_scheduler(f"fcfs/{placement}"), segments=True)
    return result.segments["node"].tolist()


@pytest.mark.parametrize(
    "placement, one, three, ten",
    [
        ("first", [0], [0], [0, 1, 2]),
        ("best", [1], [0], [1, 0, 2]),
        ("worst", [2], [2], [2, 0]),
        ("fewest", [1], [0], [2, 1]),
        ("fastest", [1], [2], [1, 2]),
    ],
)
def test_placements(placement: str, one: list[int], three: list[int], ten: list[int]):
    assert nodes_of(placement, 1) == one
    assert nodes_of(placement, 3) == three
    assert nodes_of(placement, 10) == ten


def test_random_placement_uses_every_node():
    workload = Workload.build({"submit": np.arange(200) * 10.0}, np.ones(200))
    nodes = simulate(workload, Cluster.uniform(5, 1), parse_scheduler("fcfs/random")).table["node"]
    counts = np.bincount(nodes, minlength=5)
    assert (counts > 20).all()


def test_every_backfill_rule_has_a_code_of_the_engine_and_words_for_a_sentence():
    for name, rule in BACKFILLS.items():
        assert name in CODES and rule.title and rule.words
