"""An environment whose choices are those of a scheduler gives that scheduler's result, to the bit."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

from gpuyard import Rules, Workload, parse_scheduler, simulate
from gpuyard.envs.kinds.host.kind import PickHost
from gpuyard.envs.kinds.job.kind import PickJob, PickTypedJob
from gpuyard.envs.kinds.switch.kind import PickScheduler, PickSchedulerBySize
from gpuyard.envs.rollout import closed_program
from gpuyard.features.hosts import HOST
from gpuyard.features.jobs import JOB, JOB_TYPES
from gpuyard.features.system import SWITCH, SWITCH_SIZES
from gpuyard.model.cluster_file import cluster_from_dict
from gpuyard.networks.network import Network
from gpuyard.networks.shapes import tensor_shapes
from gpuyard.networks.spec import NetworkSpec
from gpuyard.policies import parse_slots
from gpuyard.policies.learned import network_ordering
from gpuyard.testing.conformance import compare_segments, compare_tables
from gpuyard.testing.reference.network import random_arrays
from gpuyard.testing.strategies import random_case
from support.playing import by_network, jobs_in_rows, one_episode, play

SEEDS = hs.integers(0, 2**32 - 1)
ORDERING = NetworkSpec(rows=len(JOB.rows), context=len(JOB.context), head_layers=(8,))
POOLED = {
    pool: NetworkSpec(
        rows=len(JOB.rows), context=len(JOB.context), row_layers=(8,), context_layers=(4,), pool=pool, heads=heads, head_layers=(8,)
    )
    for pool, heads in (("attention", 2), ("mean", 1))
}
TYPED = NetworkSpec(
    rows=len(JOB_TYPES.rows), context=len(JOB_TYPES.context), row_layers=(8,), context_layers=(4,), pool="mean", head_layers=(8,)
)
PLACEMENT = NetworkSpec(
    rows=len(HOST.rows), context=len(HOST.context), row_layers=(8,), context_layers=(4,), pool="attention", heads=2, head_layers=(8,)
)
CHOICE = NetworkSpec(rows=0, context=len(SWITCH.context), actions=3, context_layers=(8,), history=32, memory_layers=(4,), head_layers=(8,))
SCHEDULERS = ("fcfs", "sjf/best/skip", "largest/fewest/easy")


def network(spec: NetworkSpec, seed: int) -> Network:
    return Network.of(spec, random_arrays(spec, np.random.default_rng(seed)))


def differences(opened, rule, scheduler, case) -> list[str]:
    """Between an environment played by a rule and a scheduler; none where the environment has no choice to make."""
    played = play(one_episode(opened, case.workload, case.cluster, case.rules), rule)
    if played is None:
        return []
    expected = simulate(case.workload, case.cluster, scheduler, rules=case.rules, segments=True)
    return compare_tables(played.result.table, expected.table) + compare_segments(played.result.segments, expected.segments)


# ── networks ──


@pytest.mark.parametrize("backfill", ["none", "skip", "easy"])
@given(seed=SEEDS)
@settings(max_examples=40)
def test_a_network_orders_jobs_as_in_the_engine(backfill: str, seed: int):
    options = PickJob(backfill=backfill)
    net = network(ORDERING, seed)
    scheduler = options.scheduler(net)
    assert differences(options.left_open(), by_network(net), scheduler, random_case(seed)) == []


@pytest.mark.parametrize("pool", POOLED)
@pytest.mark.parametrize("backfill", ["none", "skip", "easy"])
def test_a_network_that_looks_at_all_jobs_sees_those_that_may_be_chosen(backfill: str, pool: str):
    """Behind a head that waits these are the jobs that may pass it; one case in a hundred shows if others are seen too."""
    options = PickJob(backfill=backfill)
    opened, odd = options.left_open(), []
    for seed in range(150):
        net = network(POOLED[pool], seed)
        scheduler = options.scheduler(net)
        if differences(opened, by_network(net), scheduler, random_case(seed)):
            odd.append(seed)
    assert odd == []


@pytest.mark.parametrize("backfill", ["none", "skip", "easy"])
@given(seed=SEEDS)
@settings(max_examples=40)
def test_a_network_that_sees_gpu_types_orders_jobs_as_in_the_engine(backfill: str, seed: int):
    options = PickTypedJob(backfill=backfill)
    net = network(TYPED, seed)
    assert differences(options.left_open(), by_network(net), options.scheduler(net), random_case(seed)) == []


@given(seed=SEEDS)
@settings(max_examples=20)
def test_a_network_that_does_not_heed_gpu_types_orders_jobs_as_one_that_does_not_see_them(seed: int):
    """The first features of PickJob-v1 are those of PickJob-v0."""
    case, plain = random_case(seed), network(ORDERING, seed)
    wide = replace(ORDERING, rows=len(JOB_TYPES.rows), context=len(JOB_TYPES.context))
    arrays = {name: np.zeros(shape, np.float32) for name, shape in tensor_shapes(wide).items()}
    rows, seen = len(JOB.rows), len(JOB_TYPES.rows)
    for name, array in plain.arrays.items():
        if name == "head.0.weight":
            arrays[name][:, :rows] = array[:, :rows]
            arrays[name][:, seen : seen + len(JOB.context)] = array[:, rows:]
        else:
            arrays[name][tuple(slice(size) for size in array.shape)] = array
    one, other = (
        simulate(
            case.workload, case.cluster, replace(parse_slots("fcfs/best/skip"), ordering=network_ordering(net, "net")), rules=case.rules
        )
        for net in (plain, Network.of(wide, arrays))
    )
    assert compare_tables(one.table, other.table) == []


@pytest.mark.parametrize("slots", ["fcfs/fewest/skip", "fcfs/best/easy", "fcfs/fewest/easy/srpt"])
@given(seed=SEEDS)
@settings(max_examples=30)
def test_scores_of_jobs_that_cannot_start_change_nothing(slots: str, seed: int):
    """With a depth, however large, all jobs are scored and walked in order; without one, those that may start are. Nothing is pooled."""
    case, ordering = random_case(seed), network_ordering(network(ORDERING, seed), "net")
    parts = slots.split("/")
    deep = "/".join([*parts[:2], f"{parts[2]}:depth=100000", *parts[3:]])
    one, other = (
        simulate(case.workload, case.cluster, replace(parse_slots(text), ordering=ordering), rules=case.rules, segments=True)
        for text in (slots, deep)
    )
    assert compare_tables(one.table, other.table) + compare_segments(one.segments, other.segments) == []


@pytest.mark.parametrize("backfill", ["none", "skip", "easy"])
@given(seed=SEEDS)
@settings(max_examples=20)
def test_of_equal_scores_the_first_job_goes_first(backfill: str, seed: int):
    """Only the first of the queue is brought to the front: the others stand in any order, and ties still go by (submit, index)."""
    case, zeros = random_case(seed), {name: np.zeros_like(a) for name, a in network(ORDERING, 0).arrays.items()}
    orderings = network_ordering(Network.of(ORDERING, zeros), "net"), parse_slots("fcfs").ordering
    one, other = (
        simulate(case.workload, case.cluster, replace(parse_slots(f"fcfs/fewest/{backfill}"), ordering=ordering), rules=case.rules)
        for ordering in orderings
    )
    assert compare_tables(one.table, other.table) == []


@pytest.mark.parametrize("backfill", ["none", "skip"])
@given(seed=SEEDS)
@settings(max_examples=40)
def test_a_network_places_jobs_as_in_the_engine(backfill: str, seed: int):
    options = PickHost(backfill=backfill, ordering="sjf")
    net = network(PLACEMENT, seed)
    scheduler = options.scheduler(net)
    assert differences(options.left_open(), by_network(net), scheduler, random_case(seed)) == []


@pytest.mark.parametrize(("every", "sized"), [(0.0, False), (20.0, False), (0.0, True)])
@given(seed=SEEDS)
@settings(max_examples=40)
def test_a_network_chooses_schedulers_as_in_the_engine(every: float, sized: bool, seed: int):
    options = (PickSchedulerBySize if sized else PickScheduler)(schedulers=SCHEDULERS, every=every)
    net = network(replace(CHOICE, context=len(SWITCH_SIZES.context)) if sized else CHOICE, seed)
    assert differences(options.left_open(), by_network(net), options.scheduler(net), random_case(seed)) == []


@given(seed=SEEDS)
@settings(max_examples=30)
def test_what_is_switched_between_may_have_networks_or_read_usage(seed: int):
    options = PickScheduler(schedulers=("learned:hpc/fewest/none", "multifactor", "sjf/learned:hosts/none"), every=0.0)
    opened, net = options.left_open(), network(CHOICE, seed)
    gc.collect(1)  # the networks of its schedulers must live on; they are young, and to collect all takes 0.2 s
    assert differences(opened, by_network(net), options.scheduler(net), random_case(seed)) == []


def test_a_closed_decision_has_room_for_all_networks():
    opened = PickJob(placement="learned:hosts").left_open()
    small = network(NetworkSpec(rows=len(JOB.rows), context=len(JOB.context), head_layers=()), 0)
    program = closed_program(opened, small)
    (large,) = parse_slots("fcfs/learned:hosts/none").networks
    assert program.scratch == large.state_scratch > small.state_scratch
    assert {each.address for each in program.keep} >= {program.slots[0].ordering_network, program.slots[0].placement_network}


# ── rules whose schedulers have nothing to do with networks ──


def shortest(envs, seen) -> int:
    jobs = jobs_in_rows(envs)
    legal = np.flatnonzero(seen.mask[0])
    return int(legal[np.argmin(envs.episode(0)[0].jobs.estimate[jobs[legal]])])


@pytest.mark.parametrize("backfill", ["none", "skip", "easy"])
@given(seed=SEEDS)
@settings(max_examples=40)
def test_the_lowest_estimate_first_is_sjf(backfill: str, seed: int):
    assert differences(PickJob(backfill=backfill).left_open(), shortest, parse_scheduler(f"sjf/fewest/{backfill}"), random_case(seed)) == []


def fullest(envs, seen) -> int:
    s = envs.state(0)
    job = s.rows[s.control[0]["open_job"]]
    free = np.empty(envs.rows)
    free[s.nodes["number"]] = s.nodes["free" if job["gpus"] > 0 else "free_cpus"]
    legal = np.flatnonzero(seen.mask[0])
    return int(legal[np.argmin(free[legal])])


@pytest.mark.parametrize("backfill", ["none", "skip"])
@given(seed=SEEDS)
@settings(max_examples=40)
def test_the_fullest_host_is_best_fit(backfill: str, seed: int):
    assert differences(PickHost(backfill=backfill).left_open(), fullest, parse_scheduler(f"fcfs/best/{backfill}"), random_case(seed)) == []


@pytest.mark.parametrize("chosen", range(3))
@given(seed=SEEDS)
@settings(max_examples=20)
def test_always_the_same_scheduler_is_that_scheduler(chosen: int, seed: int):
    options = PickScheduler(schedulers=SCHEDULERS, every=0.0)
    assert differences(options.left_open(), lambda *_: chosen, parse_slots(SCHEDULERS[chosen]), random_case(seed)) == []


def test_there_are_cases_with_every_trait_and_with_choices():
    """Else the tests above would show little."""
    traits, choices = set(), 0
    for seed in range(60):
        case = random_case(seed)
        played = play(one_episode(PickJob(backfill="easy").left_open(), case.workload, case.cluster, case.rules), shortest)
        if played is not None:
            traits |= case.features
            choices += len(played.actions)
    assert traits >= {"gangs", "chunks", "cpus", "memory", "shares", "partitions", "quotas", "whole outages", "partial outages", "kills"}
    assert choices > 500


def test_an_episode_knows_the_priorities_of_partitions():
    partitions = {"day": {"priority": 10.0}, "night": {"priority": 5.0}}
    cluster = cluster_from_dict({"partitions": partitions, "nodes": [{"gpus": 2, "partition": name} for name in partitions]})
    columns = {"submit": [0, 0, 0], "gpus": [1, 2, 2], "partition": [0, 1, 1]}
    work = Workload.build(columns, [10.0, 10.0, 10.0], partitions=("night", "day"))
    envs = one_episode(PickScheduler(schedulers=("multifactor", "fcfs"), every=0.0).left_open(), work, cluster, Rules())
    envs.reset(0)
    assert envs.state(0).partition_factor.tolist() == [0.5, 1.0]
