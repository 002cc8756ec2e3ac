"""Sites: partitions that share nodes, jobs that may not start yet, and limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard import Cluster, Result, Simulation, Workload, load_cluster, load_workload, simulate
from gpuyard.arrays import Array
from gpuyard.engine.site import has_limits
from gpuyard.errors import DataError, SimulationError, UsageError
from gpuyard.model.cluster_file import cluster_from_dict, cluster_to_dict
from gpuyard.model.decision import Action
from gpuyard.model.result import REASONS, STATUS, WAITS_FOR
from gpuyard.model.site.limits import Limit
from gpuyard.notebook.frames import job_columns
from gpuyard.policies import Scheduler, parse_scheduler
from gpuyard.testing.conformance import compare_with_reference
from gpuyard.testing.invariants import check_invariants
from gpuyard.testing.sites import random_site
from gpuyard.traces.readers.csv import write_csv
from support.schedulers import random_scheduler

PARTS, EACH = 20, 100  # 2,000 cases


def differences(seed: int, scale: str = "small") -> list[str]:
    scheduler = random_scheduler(seed)
    found = compare_with_reference(random_site(seed, scale), scheduler, simulate, seed=seed)
    return [f"site {seed}, {scheduler.label}: {line}" for line in found[:3]]


@pytest.mark.parametrize("part", range(PARTS))
def test_the_engine_does_as_the_reference(part: int):
    assert [line for seed in range(EACH * part, EACH * (part + 1)) for line in differences(seed)] == []


def test_the_laws_hold():
    for seed in range(120):
        case = random_site(seed)
        made = simulate(case.workload, case.cluster, random_scheduler(seed), seed, rules=case.rules, segments=True)
        check_invariants(made.table, made.segments, case.workload, case.cluster, case.rules)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_nodes(part: int):
    assert [line for seed in range(4 * part, 4 * (part + 1)) for line in differences(seed, "rack")] == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(40))
def test_the_engine_does_as_the_reference_on_more_sites(part: int):
    assert [line for seed in range(100_000 + 500 * part, 100_000 + 500 * (part + 1)) for line in differences(seed)] == []


@pytest.mark.parametrize("part", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 10))])
def test_snapshots_decide_as_simulations(part: int):
    for seed in range(40 * part, 40 * (part + 1)):
        case, scheduler = random_site(seed), random_scheduler(seed)
        stops = isinstance(scheduler, Scheduler) and scheduler.preemption.name != "none"
        if not isinstance(scheduler, Scheduler) or (stops and has_limits(case.workload.jobs, case.cluster)):
            continue  # a stop may let in a job that is over a limit, which is in no snapshot
        ours = simulate(case.workload, case.cluster, scheduler, seed, rules=case.rules, segments=True)
        half_life, every = scheduler.half_life or 604_800.0, scheduler.program().timer
        stepped = Simulation(case.workload, case.cluster, seed=seed, rules=case.rules, segments=True, half_life=half_life, every=every)
        while (snapshot := stepped.advance()) is not None:
            stepped.apply(scheduler.decide(snapshot))
        assert stepped.result().table.tobytes() == ours.table.tobytes(), (seed, scheduler.label)


def test_a_snapshot_says_in_which_partition_a_job_runs():
    jobs = work((0, 1, 100, "night"), (1, 1, 100, "night,day"), (2, 1, 10, "day"))
    partitions, nodes = {"day": {}, "night": {"tier": 1.0}}, [{"count": 2, "gpus": 4, "partition": "day,night"}]
    cluster = cluster_from_dict({"partitions": partitions, "nodes": nodes})
    cluster = replace(cluster, limits=(Limit(("partition",), jobs=1.0),))
    stepped, decider = Simulation(jobs, cluster), parse_scheduler("fcfs").begin()
    said = []
    while (snapshot := stepped.advance()) is not None:
        made = decider.decide(snapshot)
        said += [(each.job, cluster.partitions[each.partition].name) for each in made]
        stepped.apply(made)
    assert said == [(0, "night"), (1, "day"), (2, "day")]
    assert stepped.result().table["start"].tolist() == [0, 1, 101]


def test_a_first_decision_knows_limits():
    jobs = owned((0, 1, 100, "ann"), (1, 1, 10, "ann"), (1, 1, 10, "bob"))
    stepped, decider = Simulation(jobs, site()), parse_scheduler("fcfs").begin()
    snapshot = stepped.advance()
    assert snapshot is not None
    stepped.apply(decider.decide(snapshot))
    snapshot = stepped.advance()
    assert snapshot is not None
    seen = replace(snapshot, cluster=limited(Limit(("user",), jobs=1.0)))
    first, held = decider.choose_first(seen), decider.choose_first(seen, row=1)
    assert first is not None and (first.job, first.action) == (2, Action.START)
    assert held is not None and (held.action, held.reason) == (Action.HOLD, "is over a limit now")


def test_a_snapshot_with_limits_that_refers_to_nothing_is_refused():
    stepped = Simulation(owned((0, 1, 100, "ann")), limited(Limit(("user",), jobs=1.0)))
    snapshot = stepped.advance()
    assert snapshot is not None
    table = snapshot.jobs.table.copy()
    table["user"] = 7
    with pytest.raises(DataError, match="refers to rows"):
        parse_scheduler("fcfs").decide(replace(snapshot, jobs=snapshot.jobs.with_table(table)))


# ── by hand ──


def site(**tiers: float) -> Cluster:
    """Two nodes of four GPUs for `day` alone, two for `day` and `night`."""
    partitions = {name: {"tier": tiers.get(name, 0.0)} for name in ("day", "night")}
    nodes = [{"count": 2, "gpus": 4, "partition": "day"}, {"count": 2, "gpus": 4, "partition": "day,night"}]
    return cluster_from_dict({"partitions": partitions, "nodes": nodes})


def work(*jobs: tuple[float, int, float, str]) -> Workload:
    """Jobs (submit, gpus, runtime, partition)."""
    submit, gpus, runtime, names = zip(*jobs, strict=True)
    labels = tuple(dict.fromkeys(names))
    columns: dict[str, Any] = {"submit": submit, "gpus": gpus, "partition": [labels.index(name) for name in names]}
    return Workload.build(columns, runtime, partitions=labels)


def starts(workload: Workload, cluster: Cluster, scheduler: str = "fcfs/first/easy") -> list[float]:
    made: list[float] = simulate(workload, cluster, parse_scheduler(scheduler)).table["start"].tolist()
    return made


def test_a_higher_tier_goes_first_on_shared_nodes():
    jobs = work((0, 16, 10, "day"), (1, 16, 5, "day"), (2, 8, 5, "night"))
    assert starts(jobs, site()) == [0, 10, 15]
    assert starts(jobs, site(night=1)) == [0, 15, 10]


def test_each_partition_has_a_head():
    """The wide job of `night` is not the first in the queue, and still has a reservation that a later job of `day` must respect."""
    jobs = work((0, 12, 10, "day"), (0, 4, 20, "night"), (1, 16, 5, "day"), (2, 8, 5, "night"), (3, 4, 30, "day"))
    assert starts(jobs, site())[3] <= 25


def test_a_job_that_names_several_starts_where_it_can():
    jobs = work((0, 8, 10, "night"), (1, 8, 5, "night"), (1, 8, 5, "night,day"))
    assert starts(jobs, site(night=1)) == [0, 10, 1]


def test_nodes_of_other_partitions_are_of_no_use():
    made = simulate(work((0, 9, 1, "night"), (0, 16, 1, "day")), site(), parse_scheduler("fcfs"))
    assert made.table["status"].tolist() == [5, 3]


def test_a_cluster_file_keeps_partitions_and_tiers():
    assert cluster_from_dict(cluster_to_dict(site(night=2))) == site(night=2)


def test_quotas_of_sharers_are_refused():
    with pytest.raises(DataError, match="partition day has a quota, but shares nodes"):
        cluster_from_dict({"partitions": {"day": {"quota": 3}, "night": {}}, "nodes": [{"gpus": 4, "partition": "day,night"}]})
    apart = cluster_from_dict(
        {"partitions": {"day": {"quota": 3}, "night": {}}, "nodes": [{"gpus": 4, "partition": name} for name in ("day", "night")]}
    )
    with pytest.raises(DataError, match="partition day has a quota, but shares nodes or jobs"):
        simulate(work((0, 1, 1, "day,night")), apart, parse_scheduler("fcfs"))


def test_what_knows_no_shared_nodes_says_so():
    jobs = work((0, 1, 1, "day"))
    with pytest.raises(SimulationError, match="rank rules know no partitions that share nodes"):
        simulate(jobs, site(), parse_scheduler("saf/fewest/easy/gittins"))
    with pytest.raises(UsageError, match="knows no partitions that share nodes"):
        simulate(jobs, site(), parse_scheduler("gavel"))


# ── when jobs may start ──


def told(conditions: list[str], *jobs: tuple[float, int, float, str]) -> Workload:
    made = work(*jobs)
    return replace(made, jobs=made.jobs.with_conditions(conditions))


def test_a_job_waits_for_its_begin_time_and_for_others():
    one = (0.0, 1, 10.0, "day")
    made = simulate(told(["", "delay=3", "after=1", "after_any=2,3", "held=yes", "after=99"], *[one] * 6), site(), parse_scheduler("fcfs"))
    assert made.table["start"].tolist()[:4] == [0, 3, 10, 20]
    assert STATUS[made.table["status"][4]] == "waiting"
    assert made.table["start"][5] == 0  # no job 99
    assert made.waits() == {"after": 30, "held": 30, "begin": 3}


def test_who_waits_for_a_failure_is_rejected_and_so_are_its_followers():
    jobs = told(["", "after=1", "after=2", "after_any=3"], (0, 17, 1, "day"), (0, 1, 1, "day"), (5, 1, 1, "day"), (6, 1, 1, "day"))
    made = simulate(jobs, site(), parse_scheduler("fcfs"))
    assert [STATUS[status] for status in made.table["status"]] == ["rejected"] * 3 + ["done"]
    assert [REASONS[reason] for reason in made.table["reason"]][1:3] == ["a job that had to succeed first did not"] * 2


def test_so_many_tasks_of_an_array_run_at_once():
    tasks = told(["array=7 array_limit=2"] * 5, *[(0.0, 1, 10.0, "day")] * 5)
    assert starts(tasks, site()) == [0, 0, 10, 10, 20]


def test_conditions_that_make_no_sense_are_refused():
    for text, words in (
        ("delay=-1", "is not a time"),
        ("after=x", "not a whole number"),
        ("soon=1", "is not one of"),
        ("held=no", "held is yes"),
    ):
        with pytest.raises(DataError, match=words):
            told([text], (0, 1, 1, "day"))


def test_a_table_keeps_conditions(tmp_path: Path):
    jobs = told(["preemptible=no delay=5", "after=1"], (0, 1, 1, "day"), (0, 1, 1, "day"))
    write_csv(jobs, tmp_path / "jobs.csv")
    read = load_workload(str(tmp_path / "jobs.csv"))
    assert read.jobs.conditions == ["delay=5", "after=1"] == jobs.jobs.conditions
    assert jobs.jobs.with_stated(drain=[1, 1]).conditions == jobs.jobs.conditions


# ── limits ──


def limited(*limits: Limit) -> Cluster:
    return replace(site(), limits=limits)


def owned(*jobs: tuple[float, int, float, str]) -> Workload:
    """Jobs (submit, gpus, runtime, user)."""
    submit, gpus, runtime, names = zip(*jobs, strict=True)
    users = tuple(dict.fromkeys(names))
    columns: dict[str, Any] = {"submit": submit, "gpus": gpus, "user": [users.index(name) for name in names]}
    return Workload.build(columns, runtime, users=users, partitions=("day",))


@pytest.mark.parametrize("backfill", ["none", "easy"])
def test_who_comes_behind_a_job_over_a_limit_starts_at_once(backfill: str):
    jobs = owned((0, 8, 100, "ann"), (1, 1, 50, "bob"), (10, 4, 100, "cy"))
    cluster = replace(Cluster.uniform(1, 8), limits=(Limit(("user",), gpus=4),))
    assert starts(jobs, cluster, f"fcfs/fewest/{backfill}")[1:] == [1, 10]


def test_a_user_at_a_limit_is_passed():
    jobs = owned((0, 4, 10, "ann"), (1, 4, 10, "ann"), (2, 4, 10, "bob"))
    made = simulate(jobs, limited(Limit(("user",), gpus=4)), parse_scheduler("fcfs/first/none"))
    assert made.table["start"].tolist() == [0, 10, 2]
    assert made.waits() == {"user-limit": 9}
    assert made.ineligible.tolist() == [(1, WAITS_FOR.index("user-limit"), 9.0)]


def test_gpu_minutes_are_spent():
    jobs = owned((0, 2, 60, "ann"), (100, 2, 60, "ann"), (200, 2, 61, "ann"), (300, 1, 1, "bob"))
    made = simulate(jobs, limited(Limit(user="ann", gpu_minutes=4)), parse_scheduler("fcfs"))
    assert [STATUS[status] for status in made.table["status"]] == ["done", "done", "waiting", "done"]


def test_one_job_too_many_is_rejected():
    jobs = owned((0, 1, 10, "ann"), (0, 1, 10, "ann"), (5, 1, 10, "ann"), (12, 1, 1, "ann"))
    made = simulate(jobs, limited(Limit(("user",), submitted=2)), parse_scheduler("fcfs"))
    assert [REASONS[reason] for reason in made.table["reason"]] == ["", "", "over the limit on submitted jobs", ""]


def most_at_once(made: Result, mine: Array, amount: Array) -> float:
    """Return the most that jobs had of something at one time."""
    start, end = made.table["start"][mine], made.table["end"][mine]
    times = start[~np.isnan(start)]
    return max((float(amount[mine][(start <= time) & (end > time)].sum()) for time in times), default=0.0)


@pytest.mark.parametrize("backfill", ["none", "skip", "easy", "conservative"])
def test_no_limit_is_ever_exceeded(backfill: str):
    workload, cluster = load_workload("demo:jobs=150", 3), load_cluster("8x8:a100")
    limits = (Limit(("user",), gpus=8), Limit(jobs=11), Limit(("user",), running_gpu_minutes=5000))
    made = simulate(workload, replace(cluster, limits=limits), parse_scheduler(f"saf/fewest/{backfill}"))
    jobs = workload.jobs
    asked = jobs.gpus * np.where(np.isfinite(jobs.walltime), jobs.walltime, jobs.estimate)
    everybody = np.ones(len(jobs), bool)
    assert most_at_once(made, everybody, np.ones(len(jobs))) == 11
    for user in range(len(jobs.users)):
        assert most_at_once(made, jobs.user == user, jobs.gpus) <= 8
        assert most_at_once(made, jobs.user == user, asked) <= 5000 * 60
    assert made.waits()


def test_results_and_cluster_files_keep_it(tmp_path: Path):
    cluster = limited(Limit(("user",), gpus=4), Limit(qos="long", each=("account",), submitted=3))
    assert cluster_from_dict(cluster_to_dict(cluster)) == cluster
    made = simulate(owned((0, 4, 10, "ann"), (1, 4, 10, "ann")), cluster, parse_scheduler("fcfs"))
    made.save(tmp_path / "run")
    assert Result.load(tmp_path / "run") == made
    columns = job_columns(made)
    assert list(columns["waited_for"]) == ["", "user-limit"]


def test_what_knows_no_limits_says_so():
    apart = replace(Cluster.uniform(1, 4), limits=(Limit(jobs=1),))
    with pytest.raises(SimulationError, match="rank rules know no limits"):
        simulate(owned((0, 1, 1, "ann")), apart, parse_scheduler("saf/fewest/easy/gittins"))
    with pytest.raises(UsageError, match="this scheduler knows no limits"):
        simulate(owned((0, 1, 1, "ann")), apart, parse_scheduler("gavel"))
    with pytest.raises(DataError, match="it limits nothing"):
        Limit(("user",))
    with pytest.raises(DataError, match="each = 'group'"):
        Limit(("group",), jobs=1)
