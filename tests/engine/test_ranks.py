"""The rank pass: by hand, against the reference, as an extension of saf and EASY, and with ranks that change their mind."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard import Rules, Simulation, Workload, load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.errors import UsageError
from gpuyard.model.rules import terms_table
from gpuyard.policies import Scheduler
from gpuyard.policies.ranks import RunTimesTable, gittins
from gpuyard.policies.slots import make_rank
from gpuyard.testing.conformance import compare_with_reference
from gpuyard.testing.invariants import check_invariants
from gpuyard.testing.strategies import Case, random_case
from gpuyard.traces import apply
from support.schedulers import fickle

RULES = (
    "gittins", "srpt-area", "las-log2:every=7", "gittins:hysteresis=1,every=5",
    "gittins:ageing=0.002,stretch=0.5,burden=0,writing=0.1,pay=2,every=3",
    "srpt-area:ageing=0.01,stretch=1,width=5,pay=1,burden=0.1,writing=1", "gittins:pay=0,ageing=0,burden=inf,writing=inf,width=0",
    "gittins:online=1,every=9", "gittins:trust=0,pay=0.1,every=11", "gittins:trust=0.2,online=2,writing=0.1,ageing=0.01,every=7",
)  # fmt: skip
PLACES = ("fewest", "best", "random", "tier2", "fgd", "defrag", "balance", "first", "worst")


def ranked(rule: str, place: str = "fewest") -> Scheduler:
    made = parse_scheduler(f"saf/{place}/easy/{rule}")
    assert isinstance(made, Scheduler)
    return made


@pytest.mark.parametrize("rule", RULES)
def test_the_engine_does_as_the_reference(rule: str):
    first = 1000 * RULES.index(rule)
    for seed in range(first, first + 36):
        found = compare_with_reference(random_case(seed), ranked(rule, PLACES[seed % len(PLACES)]), simulate, seed=seed)
        assert found == [], seed


@pytest.mark.parametrize("scale, seeds", [("deep", range(6)), ("rack", range(12))])
def test_deep_queues_and_indexed_nodes(scale: str, seeds: range):
    for seed in seeds:
        assert compare_with_reference(random_case(seed, scale), ranked(RULES[seed % 3]), simulate, seed=seed) == [], seed


@pytest.mark.parametrize(
    "seed, place, rule",
    [(30004, "random", "gittins:ageing=0.002,stretch=0.5,burden=0,writing=0.1,pay=2,every=3"), (30012, "fgd", RULES[5])],
)
def test_who_does_not_start_in_the_end_takes_nothing_from_the_reservation(seed: int, place: str, rule: str):
    """A job leaves the reservation as it is, but its stops do not pay: those behind it have what it would have taken."""
    assert compare_with_reference(random_case(seed, "deep"), ranked(rule, place), simulate, seed=seed) == []


def test_a_run_competes_from_the_instant_after_its_start():
    """A job of no length ends at once: there are two passes at that instant, and who began in the first may be stopped after the second."""
    case = random_case(41013)
    assert compare_with_reference(case, ranked("gittins:pay=0,ageing=0,burden=inf,writing=inf,width=0", "best"), simulate, seed=41013) == []


def without_terms(case: Case, flag: float) -> Workload:
    return replace(case.workload, jobs=case.workload.jobs.with_stated(preemptible=np.full(len(case.workload), flag)))


@given(seed=st.integers(0, 2**32 - 1), flag=st.sampled_from([0.0, math.nan]), place=st.sampled_from(PLACES))
@settings(max_examples=60, deadline=None)
def test_where_no_job_may_be_stopped_it_is_saf_with_easy(seed: int, flag: float, place: str):
    case = random_case(seed)
    workload = without_terms(case, flag)
    plain = simulate(workload, case.cluster, parse_scheduler(f"saf/{place}/easy"), seed, rules=case.rules)
    by_rank = simulate(workload, case.cluster, ranked("gittins", place), seed, rules=case.rules)
    assert plain.table.tobytes() == by_rank.table.tobytes()


def test_a_rule_that_ranks_takes_saf_and_easy_only():
    for text in ("sjf/fewest/easy/gittins", "saf/fewest/skip/gittins", "saf/fewest/easy:depth=3/gittins"):
        with pytest.raises(UsageError, match="orders and backfills by itself"):
            parse_scheduler(text)


def test_stepping_by_snapshots_is_the_same_run():
    """The timer of a rank rule fires only where some job may be stopped, which somebody outside has to see to."""
    for seed in (seed for seed in range(20) if "terms" in random_case(seed).features):
        case = random_case(seed)
        scheduler = ranked(RULES[seed % 3])
        simulation = Simulation(case.workload, case.cluster, seed=seed, rules=case.rules, every=scheduler.preemption.every)
        while (snapshot := simulation.advance()) is not None:
            simulation.apply(scheduler.decide(snapshot))
        whole = simulate(case.workload, case.cluster, scheduler, seed, rules=case.rules)
        assert simulation.result().table.tobytes() == whole.table.tobytes(), seed


def test_the_invariants_hold():
    for seed in range(40):
        case = random_case(seed)
        result = simulate(case.workload, case.cluster, ranked(RULES[seed % 3]), seed, rules=case.rules, segments=True)
        check_invariants(result.table, result.segments, case.workload, case.cluster, case.rules)


# ── by hand ──


def jobs(submit: list[float], gpus: list[float], runtime: list[float], preemptible: list[float]) -> Workload:
    columns = {"submit": submit, "gpus": gpus, "estimate": runtime, "preemptible": preemptible}
    return Workload.build(columns, runtime)


def starts(workload: Workload, rule: str = "srpt-area", gpus: str = "4", **rules: float) -> tuple[list[float], list[float], list[int]]:
    table = simulate(workload, load_cluster(gpus), ranked(rule), rules=Rules(**rules)).table
    return table["start"].tolist(), table["end"].tolist(), table["preemptions"].tolist()


def test_a_short_job_stops_a_long_one_that_may_be_stopped():
    workload = jobs([0, 10], [4, 4], [1000, 20], [1, math.nan])
    assert starts(workload, checkpoint=0.0, restart_cost=5.0) == ([0, 10], [10 + 20 + 5 + 990, 30], [1, 0])


def test_a_job_that_does_not_say_is_not_stopped():
    workload = jobs([0, 10], [4, 4], [1000, 20], [math.nan, 1])
    assert starts(workload) == ([0, 1000], [1000, 1020], [0, 0])


def test_within_a_level_and_with_hysteresis_the_running_job_stays():
    """990 s are left, halved by the hysteresis: 495 s and 270 s are in one level, 250 s are below it."""
    assert starts(jobs([0, 10], [4, 4], [1000, 270], [1, 1]))[2] == [0, 0]
    assert starts(jobs([0, 10], [4, 4], [1000, 60], [1, 1]))[2] == [1, 0]


def test_what_a_stop_would_lose_counts_for_the_running_job():
    """At 500 s without a checkpoint a stop loses 500 s: 600 − 500 s are left to gain, so 100 / 2 s against 60 s."""
    workload = jobs([0, 500], [4, 4], [1100, 60], [1, 1])
    assert starts(workload, checkpoint=math.inf)[2] == [0, 0]
    assert starts(workload, checkpoint=0.0)[2] == [1, 0]


def test_a_stop_that_leaves_most_of_the_devices_idle_is_undone():
    """A job of one GPU would stop one of four: three of them would be idle."""
    assert starts(jobs([0, 10], [4, 1], [1000, 20], [1, 1]))[2] == [0, 0]
    assert starts(jobs([0, 10], [4, 2], [1000, 20], [1, 1]))[2] == [1, 0]


def test_the_first_that_does_not_fit_keeps_its_reservation():
    """Behind the job that waits for all GPUs, one that may be stopped starts; one that may not has to respect the reservation."""
    long_after = [0, 1, 2], [3, 4, 1], [100, 100, 5000]
    assert starts(jobs(*long_after, [0, 0, 1]))[0] == [0, 100, 2]
    assert starts(jobs(*long_after, [0, 0, 0]))[0] == [0, 100, 200]
    stopped = starts(jobs(*long_after, [0, 0, 1]))
    assert stopped[2] == [0, 0, 1]


def test_the_worst_ranked_are_stopped_first():
    workload = jobs([0, 0, 10], [2, 2, 2], [4000, 1000, 30], [1, 1, 1])
    assert starts(workload)[2] == [1, 0, 0]


# ── tables ──


def table_of(*rows: list[float], edges: tuple[float, ...] = ()) -> RunTimesTable:
    return RunTimesTable("by hand", False, np.array(edges), np.array(rows, float), {})


def test_gittins_by_hand():
    """Half of the jobs take 10 s, half 1000 s: a new one is worth a try of 10 s; one that has lived longer takes 1000 − age."""
    from gpuyard.engine.kernels.ranks.area import gittins_time

    of = getattr(gittins_time, "py_func", gittins_time)
    table = np.array([10.0, 10.0, 1000.0, 1000.0])
    assert of(table, 0, 4, 0.0, 0.0) == 20.0  # 10 s each, and half of them end
    assert of(table, 0, 4, 10.0, 10.0) == 990.0
    assert of(table, 0, 4, 400.0, 400.0) == 600.0
    assert of(table, 0, 4, 0.0, 400.0) == 1000.0  # what was lost has to be done again; that it is a long one is known
    assert of(table, 0, 4, 1500.0, 1500.0) == 1500.0  # as long again


def test_classes_begin_at_their_edges():
    """A job of the class that begins at 100 s of estimate is taken to be long, one just below it to be short: it goes first."""
    rule = replace(ranked("gittins"), preemption=gittins(table_of([1, 1], [9, 9], edges=(100.0,))))
    for estimates, first in (([100.0, 99.0], 1), ([100.0, 100.0], 0)):
        columns = {"submit": [0, 0], "gpus": [1, 1], "estimate": estimates, "preemptible": [1, 1]}
        result = simulate(Workload.build(columns, [5, 5]), load_cluster("1"), rule)
        assert int(np.argmin(result.table["start"])) == first


def test_a_job_that_outlives_its_class_gives_way():
    """Its class ends after 10 s or after 1000 s; once it has lived 10 s, a new one of the class goes first."""
    workload = jobs([0, 20], [4, 4], [1000, 10], [1, 1])
    rule = replace(ranked("gittins"), preemption=replace(gittins(table_of([10, 10, 1000, 1000])), pay=0.0, width=0.0))
    assert simulate(workload, load_cluster("4"), rule).table["preemptions"].tolist() == [1, 0]


# ── tables that do not fit ──

LENGTHS = 900.0, 1800.0, 3600.0, 7200.0  # s


def with_exact_estimates(preemptible: float) -> Workload:
    """400 jobs of four lengths, known in advance, on four GPUs at a load of about 1.1."""
    rng = np.random.default_rng(5)
    runtime = rng.choice(LENGTHS, 400)
    gpus = rng.choice([1.0, 2.0, 4.0], 400)
    gap = float(gpus @ runtime) / 400 / (1.1 * 4)
    return jobs(np.cumsum(rng.exponential(gap, 400)).tolist(), gpus.tolist(), runtime.tolist(), [preemptible] * 400)


def mean_wait(workload: Workload, scheduler: str, **rules: float) -> float:
    table = simulate(workload, load_cluster("4"), parse_scheduler(scheduler), rules=Rules(**rules)).table
    return float(np.mean(table["end"] - workload.jobs.submit - workload.runtime))


def test_a_table_that_does_not_fit_is_noticed():
    """Estimates are exact here, and by the table a job of an hour may take seconds: trusted, it makes waits much longer."""
    workload = with_exact_estimates(1.0)
    costs = {"checkpoint": 600.0, "restart_cost": 60.0}
    base = mean_wait(workload, "saf/fewest/easy")
    trusted, tested = (mean_wait(workload, f"saf/fewest/easy/gittins:table=gpu,trust={trust}", **costs) for trust in ("inf", "1"))
    assert trusted > 1.3 * base
    assert tested < 1.1 * base


def test_by_estimates_nobody_writes_checkpoints_that_cost_something():
    """The first jobs that end settle it; after that no run spends time on checkpoints, and nobody is stopped."""
    workload = with_exact_estimates(1.0)
    rules = Rules(checkpoint=600.0, restart_cost=60.0, checkpoint_cost=60.0)
    table = simulate(workload, load_cluster("4"), ranked("gittins:table=gpu"), rules=rules).table
    late = table["start"] > np.quantile(table["start"], 0.5)
    assert table["preemptions"][late].sum() == 0
    np.testing.assert_allclose(table["ran"][late], workload.runtime[late])


def test_doubt_by_hand():
    """Two jobs of 8 s with exact estimates: half of the quantiles are right the first time, of the 32 octaves of ratios each may be."""
    from gpuyard.engine.simulation import Simulation

    rule = replace(ranked("gittins"), preemption=replace(gittins(table_of([8.0, 9.0, 100.0, 200.0])), trust=1.0))
    columns = {"submit": [0.0, 10.0], "gpus": [1, 1], "estimate": [8.0, 8.0], "preemptible": [1, 1]}
    simulation = Simulation(Workload.build(columns, [8.0, 8.0]), load_cluster("1"), rule.program())
    simulation.run()

    def bits(x: float) -> float:
        mantissa, exponent = math.frexp(x)
        return exponent - 2 + 2 * mantissa

    by_table = (2 + 0.5) / (4 + 16)
    expected = bits(0.25 / 8) + bits(1.25 / 9) - 2 * bits(by_table)
    assert float(simulation.state.control["misfit"][0]) == pytest.approx(expected / 27)


def test_a_silent_run_is_not_stopped():
    """It would lose all that it did. Nobody else waits when the long one starts, so that checkpoints cost more than they are worth."""
    workload = jobs([0, 10], [4, 4], [100_000, 60], [1, 1])
    costs = {"checkpoint": 600.0, "restart_cost": 0.0}
    assert starts(workload, "gittins:table=hpc,pay=0", **costs)[2] == [1, 0]
    assert starts(workload, "gittins:table=hpc,pay=0", checkpoint_cost=120.0, **costs)[2] == [0, 0]


# ── ranks that change their mind ──


@pytest.mark.parametrize("rules", [Rules(), Rules(checkpoint=math.inf), Rules(checkpoint=40.0, restart_cost=30.0), Rules(restart_cost=9.0)])
def test_stops_are_bounded_whatever_the_ranks(rules: Rules):
    """The bound of the semantics page: fruitless stops by the logarithm of a length, others by the work that each of them keeps."""
    adversary = replace(ranked("gittins"), preemption=make_rank(fickle, "fickle", every=1.0))
    workload = apply(load_workload("gangs:jobs=40,load=3,nodes=1,gpus_per_node=8", 5), "preemptible:1")
    result = simulate(workload, load_cluster("8"), adversary, rules=rules)
    assert np.isfinite(result.table["end"]).all()
    terms = terms_table(["preemptible=yes"], rules)[0]
    for row, runtime in zip(result.table, workload.runtime.tolist(), strict=True):
        overhead, interval = float(terms["restart"]), float(terms["interval"])
        needed = overhead + runtime if math.isinf(interval) else overhead + interval + max(overhead, interval)
        barren = math.ceil(math.log2(max(needed, 1.0))) + 1
        keeps = max(interval, overhead)
        if 0 < keeps < math.inf:
            assert row["preemptions"] <= barren + runtime / keeps
        elif math.isinf(keeps):
            assert row["preemptions"] <= barren
    assert result.table["preemptions"].sum() > 40
