"""The engine equals the slow, obvious reference: every registered policy, every feature of the model, every account."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuyard import load_cluster, load_workload, simulate
from gpuyard.model.rules import Rules
from gpuyard.policies import BACKFILLS, ORDERINGS, PLACEMENTS, PREEMPTIONS, SWITCHES, Meta, Scheduler, parse_scheduler
from gpuyard.testing.conformance import compare_with_reference
from gpuyard.testing.strategies import FEATURES, Case, random_case
from support.schedulers import Fixed, every_policy, random_scheduler

POLICIES = list(every_policy())
EACH = 16  # cases; some 63 policies, so 1,000 in all, and over 2,000 with the slow tests' first part


def differences(seed: int, scheduler: Scheduler | Meta, scale: str = "small") -> list[str]:
    found = compare_with_reference(random_case(seed, scale), scheduler, simulate, seed=seed)
    return [f"case {seed}, {scheduler.label}: {line}" for line in found[:3]]


def name_of(fixed: Fixed) -> str:
    return f"{fixed.slot} {fixed.policy.label}"


def test_there_are_enough_cases_and_nothing_registered_is_left_out():
    assert len(POLICIES) * EACH >= 1000
    for slot, registry in (("ordering", ORDERINGS), ("placement", PLACEMENTS), ("backfill", BACKFILLS), ("switch", SWITCHES)):
        assert set(registry) <= {fixed.policy.name for fixed in POLICIES if fixed.slot == slot}
    assert set(PREEMPTIONS) <= {fixed.policy.name for fixed in POLICIES if fixed.slot == "preemption"}


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fixed", POLICIES, ids=name_of)
def test_each_policy_does_as_in_the_reference(fixed: Fixed, part: int):
    first = 10_000 * POLICIES.index(fixed) + EACH * part
    found = [line for seed in range(first, first + EACH) for line in differences(seed, random_scheduler(seed, fixed))]
    assert found == []


def test_the_cases_have_every_feature():
    seen = frozenset().union(*(random_case(seed).features for seed in range(300)))
    assert seen == set(FEATURES)


def deep_scheduler(seed: int) -> Scheduler | Meta:
    """Any scheduler but those with conservative backfilling, of which the reference makes too much work here."""
    return next(made for made in (random_scheduler(seed + 1000 * k) for k in range(99)) if "conservative" not in made.label)


@pytest.mark.parametrize("part", range(4))
def test_deep_queues(part: int):
    assert [line for seed in range(5 * part, 5 * part + 5) for line in differences(seed, deep_scheduler(seed), "deep")] == []


@pytest.mark.parametrize("spec", ["fcfs/fewest/easy", "sjf/best/easy", "largest/worst/skip", "lcfs/fastest/easy", "wfp3/first/easy"])
def test_deep_queues_that_jobs_join_one_by_one(spec: str):
    """Who comes is looked at alone, as long as nothing else has changed."""
    assert [line for seed in range(5) for line in differences(seed, parse_scheduler(spec), "deep")] == []


@pytest.mark.parametrize("part", range(4))
def test_partitions_whose_nodes_are_indexed(part: int):
    seeds = range(10 * part, 10 * part + 10)
    assert [line for seed in seeds for line in differences(seed, random_scheduler(seed), "rack")] == []


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_hosts_without_gpus(placement: str):
    for seed, backfill in ((0, "none"), (1, "easy")):
        workload = load_workload("eda:jobs=120,cores=1:9,memory=1:40,arrivals=0.3:0.9", seed)
        case = Case(workload, load_cluster(f"hosts:count=9,cores=8:40,memory=32:160,seed={seed}"), Rules(), frozenset())
        found = compare_with_reference(case, parse_scheduler(f"fcfs/{placement}/{backfill}"), simulate, seed)
        assert found == [], (seed, backfill)


@pytest.mark.parametrize("placement", ["best", "worst", "fewest", "tier2", "lexicographic", "defrag"])
def test_fits_by_free_resources_are_not_first_fit_on_hosts_without_gpus(placement: str):
    workload, hosts = load_workload("eda:jobs=400", 1), load_cluster("hosts:count=20,cores=16:32,memory=64:256")
    ours, first = (simulate(workload, hosts, parse_scheduler(f"fcfs/{name}/none")) for name in (placement, "first"))
    assert ours.table.tobytes() != first.table.tobytes()


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_an_index_of_more_than_one_word(placement: str):
    """The index serves plain gangs under these placements; the rest of the scheduler is light so that the reference is quick."""
    for seed, backfill in ((1, "none"), (2, "skip")):
        light = parse_scheduler(f"largest/{placement}/{backfill}")
        assert differences(seed, light, "hall") == []


def test_conservative_plans_know_that_silent_runs_take_less_time():
    """Case 227 has a job that may be stopped, at a price, under a scheduler that stops nobody."""
    assert differences(10_001_227, parse_scheduler("lcfs/balance/conservative")) == []


def test_conservative_plans_over_many_nodes():
    assert differences(3, parse_scheduler("sjf/best/conservative:depth=4"), "hall") == []


@pytest.mark.parametrize("spec", ["fcfs/best/conservative", "sjf/fewest/conservative", "largest/worst/conservative/priority"])
def test_conservative_plans_with_bookings_on_several_nodes(spec: str):
    assert [line for seed in range(4) for line in differences(seed, parse_scheduler(spec), "rack")] == []


@pytest.mark.parametrize("spec", ["fcfs/fewest/skip", pytest.param("largest/worst/easy", marks=pytest.mark.slow)])
def test_an_index_with_more_than_one_word_of_summary(spec: str):
    """More than 64 × 64 nodes."""
    assert differences(0, parse_scheduler(spec), "yard") == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(40))
def test_twenty_thousand_cases(part: int):
    seeds = range(10_000_000 + 500 * part, 10_000_000 + 500 * (part + 1))
    assert [line for seed in seeds for line in differences(seed, random_scheduler(seed))] == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_more_deep_queues(part: int):
    seeds = range(5000 + 20 * part, 5000 + 20 * (part + 1))
    assert [line for seed in seeds for line in differences(seed, deep_scheduler(seed), "deep")] == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_more_cases_with_an_index(part: int):
    seeds = range(1000 + 20 * part, 1000 + 20 * (part + 1))
    assert [line for seed in seeds for line in differences(seed, random_scheduler(seed), "rack")] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_more_cases_with_a_long_index(seed: int):
    assert differences(seed, random_scheduler(seed), "hall") == []


@pytest.mark.slow
@pytest.mark.parametrize("fixed", [fixed for fixed in POLICIES if fixed.slot == "placement"], ids=name_of)
def test_more_cases_with_thousands_of_nodes(fixed: Fixed):
    light = replace(parse_scheduler("saf/first/easy"), placement=fixed.policy)  # type: ignore[arg-type]
    assert differences(7, light, "yard") == []
