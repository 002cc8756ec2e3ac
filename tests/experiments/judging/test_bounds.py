"""Bounds that no scheduler beats: exact where the optimum is known, below brute force, and never beaten by a simulated scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from gpuyard.arrays import Array
from gpuyard.engine.simulation import simulate
from gpuyard.errors import UnknownNameError
from gpuyard.experiments.judging.bounds import Bound, bound
from gpuyard.experiments.judging.relaxation import accepted_jobs, most_on_time, one_machine
from gpuyard.metrics.base import METRICS, measure
from gpuyard.metrics.facts import accepted, has_status
from gpuyard.model.cluster import Cluster, GpuType, Nodes, Outage
from gpuyard.model.cluster_file import cluster_from_dict, load_cluster
from gpuyard.model.result import Result
from gpuyard.model.rules import Rules
from gpuyard.model.workload import Workload
from gpuyard.policies import BACKFILLS, ORDERINGS, PLACEMENTS, PREEMPTIONS
from gpuyard.policies.text import parse_scheduler
from gpuyard.testing.strategies import random_case
from gpuyard.traces.changes.perturb import capacity_dips
from gpuyard.traces.generators.family import family
from gpuyard.traces.generators.lublin import lublin
from support.schedulers import suit

BOUNDED = ("turnaround", "wait", "waiting", "slowdown", "bsld", "makespan", "utilization", "utilization_drained", "deadline_met")
ON_HOSTS = ("turnaround", "wait", "waiting", "slowdown", "bsld", "makespan", "deadline_met")
SRPT = "srpt/first/none/srpt"


def value_of(metric: str, workload: Workload, cluster: Cluster, *, rules: Rules | None = None, stops: bool = True) -> float:
    found = bound(metric, workload, cluster, rules=rules, stops=stops)
    assert found is not None
    assert found.method
    return found.value


Known = dict[tuple[str, bool], Bound | None]


def assert_not_beaten(result: Result, rules: Rules | None = None, known: Known | None = None) -> None:
    """Every bounded metric of a run whose jobs all ended keeps to its bound, by a rounding error.

    `known` holds the bounds of the same workload, cluster and rules, which need not be worked out for every scheduler.
    """
    known = {} if known is None else known
    stopped = bool(result.table["preemptions"].any())
    measured = measure(result, BOUNDED)
    for metric, value in measured.items():
        for stops in (True,) if stopped else (True, False):
            if (metric, stops) not in known:
                known[metric, stops] = bound(metric, result.workload, result.cluster, rules=rules, stops=stops)
            found = known[metric, stops]
            if found is None:
                assert np.isnan(value) or not accepted(result).any()
                continue
            sign = 1.0 if METRICS[metric].better == "lower" else -1.0
            slack = _bin(result) if metric == "utilization" and (stopped or result.cluster.outages) else 1e-9
            assert sign * (value - found.value) >= -slack * max(abs(value), 1.0), (metric, value, found, result.scheduler, stops)


def _bin(result: Result) -> float:
    """The share of the time until the last submit that a bin of the timeline is: use until then is so exact where jobs are stopped."""
    submit = result.workload.jobs.submit[accepted(result)]
    return float(result.timeline["span"].max() / max(np.ptp(submit), 1e-9)) if len(submit) and len(result.timeline) else 1.0


def random_workload(seed: int, jobs: int, gpus: int, together: bool = False) -> Workload:
    """Jobs of 1..`gpus` GPUs that come close to each other, some with runtimes below 10 s, with deadlines."""
    rng = np.random.default_rng(seed)
    submit, runtime = np.zeros(jobs) if together else rng.uniform(0, 40, jobs), rng.uniform(1, 40, jobs)
    size = rng.integers(1, gpus + 1, jobs)
    order = np.argsort(submit, kind="stable")
    columns = {"submit": submit[order], "gpus": size.astype(float), "deadline": submit[order] + runtime * rng.uniform(1, 3, jobs)}
    return Workload.build(columns, runtime)


# ── where the optimum is known ──


@pytest.mark.parametrize("seed", range(5))
def test_on_one_gpu_it_is_what_srpt_reaches(seed: int):
    workload, cluster = family(seed, shape="bursty"), load_cluster("1x1")
    reached = measure(simulate(workload, cluster, parse_scheduler(SRPT)), BOUNDED)
    for metric in ("turnaround", "waiting", "makespan", "utilization_drained"):
        assert value_of(metric, workload, cluster) == pytest.approx(reached[metric], rel=1e-9), metric
    assert 0.85 < value_of("slowdown", workload, cluster) / reached["slowdown"] <= 1.0


def test_all_at_once_on_one_gpu_it_is_shortest_first():
    workload, cluster = random_workload(3, 9, 1, together=True), load_cluster("1x1")
    runtime = np.sort(workload.runtime)
    ends = np.cumsum(runtime)
    assert value_of("turnaround", workload, cluster) == pytest.approx(ends.mean())
    assert value_of("waiting", workload, cluster) == pytest.approx((ends - runtime).mean())
    assert value_of("wait", workload, cluster, stops=False) == pytest.approx((ends - runtime).mean())
    assert value_of("slowdown", workload, cluster) == pytest.approx((ends / runtime).mean())


def test_all_at_once_on_several_it_is_no_less_than_eastman_even_and_isaacs_1964():
    workload, cluster = random_workload(4, 30, 1, together=True), load_cluster("1x4")
    runtime = np.sort(workload.runtime)
    known = np.cumsum(runtime).mean() / 4 + 3 / 8 * runtime.mean()
    assert value_of("turnaround", workload, cluster) >= known - 1e-9


def test_gangs_wider_than_half_take_turns():
    workload = Workload.build({"submit": np.zeros(4), "gpus": [5.0, 5.0, 6.0, 1.0]}, [10.0, 20.0, 30.0, 7.0])
    assert value_of("turnaround", workload, load_cluster("1x8")) == pytest.approx((10 + 30 + 60 + 7) / 4)
    assert value_of("makespan", workload, load_cluster("1x8")) == 60.0
    assert value_of("utilization_drained", workload, load_cluster("1x8")) == pytest.approx((50 + 100 + 180 + 7) / (8 * 60))


def test_jobs_that_never_meet_are_alone():
    workload = Workload.build({"submit": [0.0, 100.0], "gpus": [2.0, 4.0]}, [50.0, 4.0])
    cluster = load_cluster("1x4")
    reached = measure(simulate(workload, cluster, parse_scheduler("fcfs")), BOUNDED)
    assert [value_of(metric, workload, cluster) for metric in ("turnaround", "waiting", "bsld", "makespan")] == [27.0, 0.0, 1.0, 104.0]
    assert value_of("utilization", workload, cluster) == pytest.approx(reached["utilization"])


def test_faster_devices_and_transfers_are_reckoned_with():
    fast = Cluster.uniform(1, 1, GpuType("fast", speed=2.0, transfer=0.5))
    workload = Workload.build({"submit": [0.0, 0.0], "transfer": [0.0, 6.0]}, [8.0, 4.0])  # 4 s and 3 + 2 s on it
    assert value_of("turnaround", workload, fast) == pytest.approx((4 + 9) / 2)
    assert value_of("slowdown", workload, fast) == pytest.approx((9 / 8 + 5 / 4) / 2)  # the second first


def test_who_takes_a_slow_device_need_not_wait():
    table = {"nodes": [{"gpus": 1, "type": "fast"}, {"gpus": 1, "type": "slow"}], "speed": {"": {"fast": 10.0, "slow": 1.0}}}
    workload, cluster = Workload.build({"submit": [0.0, 0.0]}, [10.0, 10.0]), cluster_from_dict(table)
    reached = measure(simulate(workload, cluster, parse_scheduler("fcfs")), ["waiting"])
    assert value_of("waiting", workload, cluster) == reached["waiting"] == 0.0
    # The best: the second begins on the slow one and moves to the fast one after 1 s, with 9 to go. Ends at 1 and 1.9 s.
    assert (1 / 1.1 + 2 / 1.1) / 2 < value_of("turnaround", workload, cluster) <= 1.45


def test_a_gang_that_is_faster_over_nodes_is_reckoned_with():
    workload = Workload.build({"submit": [0.0], "gpus": [2.0]}, [10.0])
    cluster = replace(Cluster.uniform(2, 1), span_nodes=2.0)
    reached = measure(simulate(workload, cluster, parse_scheduler("fcfs")), ["turnaround", "slowdown"])
    assert value_of("turnaround", workload, cluster) == reached["turnaround"] == 5.0
    assert value_of("slowdown", workload, cluster) == reached["slowdown"] == 0.5


def test_a_job_killed_at_its_walltime_ends_there():
    workload = Workload.build({"submit": [0.0, 0.0], "walltime": [5.0, 30.0]}, [50.0, 20.0])
    cluster, rules = load_cluster("1x1"), Rules(walltime_kill=True)
    reached = measure(simulate(workload, cluster, parse_scheduler("sjf"), rules=rules), BOUNDED)
    for metric in ("turnaround", "slowdown", "makespan"):
        assert value_of(metric, workload, cluster, rules=rules) == pytest.approx(reached[metric]), metric
    assert value_of("makespan", workload, cluster) == 70.0
    fast = Cluster.uniform(1, 1, GpuType("fast", speed=2.0))
    in_time = Workload.build({"submit": [0.0], "walltime": [30.0]}, [50.0])  # over after 25 s
    assert value_of("slowdown", in_time, fast, rules=rules) == 0.5


def test_deadlines_that_one_machine_cannot_all_meet():
    workload = Workload.build({"submit": np.zeros(4), "deadline": [10.0, 12.0, 21.0, 5.0]}, [10.0, 10.0, 10.0, 6.0])
    assert value_of("deadline_met", workload, load_cluster("1x1")) == 0.5
    assert bound("deadline_met", Workload.build({"submit": [0.0]}, [1.0]), load_cluster("1x1")) is None


# ── against brute force ──


def every_run(workload: Workload, gpus: int) -> Iterator[Array]:
    """The ends (jobs,) of every list order: each job in turn at the first instant from which its gang fits until its end."""
    submit, size, runtime = workload.jobs.submit.tolist(), workload.jobs.gpus.tolist(), workload.runtime.tolist()
    for order in permutations(range(len(workload))):
        placed: list[tuple[float, float, float]] = []  # start, end, GPUs
        end = np.zeros(len(workload))
        for j in order:
            instants = sorted({submit[j], *(e for _, e, _ in placed if e > submit[j])})
            start = next(t for t in instants if fits(placed, t, t + runtime[j], gpus - size[j]))
            placed.append((start, start + runtime[j], size[j]))
            end[j] = start + runtime[j]
        yield end


def fits(placed: list[tuple[float, float, float]], start: float, end: float, room: float) -> bool:
    changes = [start, *(s for s, _, _ in placed if start < s < end)]
    return all(sum(g for s, e, g in placed if s <= t < e) <= room for t in changes)


def _use(workload: Workload, end: Array, gpus: int) -> float:
    submit, last = workload.jobs.submit, float(workload.jobs.submit.max())
    held = np.maximum(np.minimum(end, last) - (end - workload.runtime), 0.0)
    return float(workload.jobs.gpus @ held) / (gpus * (last - float(submit.min())))


def values_of_run(workload: Workload, end: Array, gpus: int) -> dict[str, float]:
    """The metrics by their formulas, without the simulator."""
    submit, runtime = workload.jobs.submit, workload.runtime
    turnaround, span = end - submit, float(end.max() - submit.min())
    return {
        "turnaround": float(turnaround.mean()),
        "wait": float((turnaround - runtime).mean()),
        "waiting": float((turnaround - runtime).mean()),
        "slowdown": float((turnaround / runtime).mean()),
        "bsld": float(np.maximum(turnaround / np.maximum(runtime, 10.0), 1.0).mean()),
        "makespan": span,
        "utilization": _use(workload, end, gpus) if np.ptp(submit) > 0 else float(workload.jobs.gpus @ runtime) / (gpus * span),
        "utilization_drained": float(workload.jobs.gpus @ runtime) / (gpus * span),
        "deadline_met": float((end <= workload.jobs.deadline).mean()),
    }


@pytest.mark.parametrize("gpus", [1, 2, 3])
@pytest.mark.parametrize("widest", [1, 3])
def test_no_order_of_a_few_jobs_beats_it(gpus: int, widest: int):
    tightest = dict.fromkeys(BOUNDED, np.inf)
    for seed in range(12):
        workload = random_workload(100 * gpus + seed, 5, min(widest, gpus), together=seed % 3 == 0)
        runs = [values_of_run(workload, end, gpus) for end in every_run(workload, gpus)]
        for metric in BOUNDED:
            limit = value_of(metric, workload, Cluster.uniform(1, gpus), stops=False)
            sign = 1.0 if METRICS[metric].better == "lower" else -1.0
            gap = min(sign * (run[metric] - limit) for run in runs)
            assert gap >= -1e-9, (metric, seed)
            tightest[metric] = min(tightest[metric], gap)
    assert all(tightest[metric] < 0.25 for metric in ("slowdown", "bsld", "utilization", "utilization_drained", "deadline_met")), tightest
    assert all(tightest[metric] < 5.0 for metric in ("turnaround", "waiting", "makespan")), tightest


@pytest.mark.parametrize("resource", ["cpus", "memory"])
def test_no_order_of_a_few_jobs_beats_it_on_hosts_without_gpus(resource: str):
    """Jobs that hold cores or memory wait for them as others for GPUs; every order of them is tried."""
    tightest = dict.fromkeys(ON_HOSTS, np.inf)
    for seed in range(12):
        twin = random_workload(700 + seed, 5, 3, together=seed % 3 == 0)
        columns = {"submit": twin.jobs.submit, "gpus": np.zeros(5), resource: 8.0 * twin.jobs.gpus, "deadline": twin.jobs.deadline}
        workload = Workload.build(columns, twin.runtime)
        none, room = np.zeros(1, np.int32), np.array([24.0])
        cluster = Cluster(Nodes(("host",), none, none, room, room, none, none), (GpuType("cpu"),))
        runs = [values_of_run(twin, end, 3) for end in every_run(twin, 3)]
        for metric in ON_HOSTS:
            limit = value_of(metric, workload, cluster, stops=False)
            sign = 1.0 if METRICS[metric].better == "lower" else -1.0
            gap = min(sign * (run[metric] - limit) for run in runs)
            assert gap >= -1e-6, (metric, seed)
            tightest[metric] = min(tightest[metric], gap)
    assert all(tightest[metric] < 5.0 for metric in ON_HOSTS), tightest
    assert value_of("wait", workload, cluster, stops=False) > 0


def test_one_machine_works_as_a_step_by_step_reckoning_says():
    submit, work = np.array([0.0, 1.0, 2.0]), np.array([8.0, 2.0, 8.0])
    end, busy = one_machine(submit, work, 2.0, None)  # job 0 until 1, 1 until 2, 0 until 5, 2 until 9
    assert end.tolist() == [5.0, 1.0, 7.0]
    assert busy.tolist() == [(2 * 0.5 + 6 * 3.5) / 8, 0.5, 5.0]
    end, _ = one_machine(submit, work, 2.0, np.array([3.0, 2.0, 1.0]))  # 0 until 1, 1 until 2, 2 until 6, 0 until 9
    assert end.tolist() == [9.0, 1.0, 4.0]


def test_batches_of_equal_begin_stay_apart():
    batch, begin, deadline, work = np.array([0, 0, 1, 1]), np.zeros(4), np.array([4.0, 9.0, 2.0, 3.0]), np.array([4.0, 5.0, 2.0, 9.0])
    assert most_on_time(batch, begin, deadline, work, 1.0) == 3


# ── against simulated schedulers ──


def all_schedulers() -> list[str]:
    names = [f"{name}/best/skip" for name in ORDERINGS] + [f"sjf/{name}/skip" for name in PLACEMENTS]
    names += [f"{rule}/{place}/{fill}" for rule in ("fcfs", "sjf") for place in ("first", "worst") for fill in BACKFILLS]
    names += [f"{rule}/fewest/none/{stop}" for stop in PREEMPTIONS for rule in ("srpt", "las") if suit(rule, "none", stop)]
    return names + [f"saf/fewest/easy/{stop}" for stop in PREEMPTIONS if suit("saf", "easy", stop)]


SCENES: dict[str, Callable[[], tuple[Workload, Cluster]]] = {
    "pool": lambda: (family(1, shape="bursty", gpus=4), load_cluster("1x4")),
    "light": lambda: (family(2, shape="diurnal", intensity="low"), load_cluster("1x16")),
    "gangs": lambda: (family(3, variant="gang", gpus=8), load_cluster("4x8")),
    "lublin": lambda: (lublin(4, jobs=150, nodes=32, load=0.9), load_cluster("4x8")),
    "hetero": lambda: (family(5, variant="gang", intensity="super_high", gpus=8), load_cluster("hetero-demo")),
    "types": lambda: (family(6, variant="hetero", intensity="medium"), load_cluster("hetero-demo")),
}


@pytest.mark.parametrize("dips", [False, True])
@pytest.mark.parametrize("scene", SCENES)
def test_no_registered_scheduler_beats_it(scene: str, dips: bool):
    workload, cluster = SCENES[scene]()
    if dips:
        cluster = capacity_dips(cluster, workload, 0, severity=3)
    known: Known = {}
    for name in all_schedulers():
        result = simulate(workload, cluster, parse_scheduler(name))
        assert has_status(result, "done", "rejected").all()
        assert_not_beaten(result, known=known)


@pytest.mark.parametrize("scale", ["small", "rack"])
def test_nothing_of_the_model_breaks_it(scale: str):
    """Shares, CPU jobs, quotas, partitions, types, locality, transfers, outages, kills, checkpoints and the rest."""
    schedulers = [parse_scheduler(name) for name in ("fcfs/first/skip", SRPT, "las/worst/none/las", "sjf/fastest/easy")]
    checked = 0
    for seed in range(60):
        case, known = random_case(seed, scale), {}
        for scheduler in schedulers:
            result = simulate(case.workload, case.cluster, scheduler, rules=case.rules)
            assert (accepted(result) == accepted_jobs(case.workload, case.cluster)).all()
            if has_status(result, "done", "killed", "rejected").all():
                assert_not_beaten(result, case.rules, known)
                checked += 1
    assert checked > 150


@pytest.mark.parametrize(("intensity", "gpus"), [("low", 2), ("medium", 4), ("high", 8)])
def test_it_is_close_to_what_srpt_reaches_under_load(intensity: str, gpus: int):
    workload, cluster = family(0, intensity=intensity, gpus=gpus), Cluster.uniform(1, gpus)  # type: ignore[arg-type]
    reached = measure(simulate(workload, cluster, parse_scheduler(SRPT)), BOUNDED)
    for metric in ("turnaround", "slowdown", "bsld", "waiting"):
        assert reached[metric] <= 1.06 * value_of(metric, workload, cluster), metric


# ── what is asked for ──


def test_waits_and_utilisation_depend_on_whether_jobs_may_be_stopped():
    workload, cluster = random_workload(8, 20, 1), load_cluster("1x2")
    assert value_of("wait", workload, cluster) == 0.0
    assert value_of("wait", workload, cluster, stops=False) == value_of("waiting", workload, cluster) > 0
    cluster, costly = load_cluster("1x32"), Rules(restart_cost=5.0)
    assert value_of("utilization", workload, cluster, rules=costly) == 1.0
    assert value_of("utilization", workload, cluster, rules=costly, stops=False) == value_of("utilization", workload, cluster) < 1.0


def test_an_outage_takes_devices_off_the_utilisation():
    workload = Workload.build({"submit": [0.0], "gpus": [1.0]}, [10.0])
    cluster = Cluster.uniform(2, 1)
    out = Cluster(cluster.nodes, cluster.types, outages=(Outage(1, 2.0, 7.0),))
    assert value_of("utilization", workload, cluster) == pytest.approx(10 / 20)
    assert value_of("utilization", workload, out) == pytest.approx(10 / 15)
    assert measure(simulate(workload, out, parse_scheduler("fcfs")), ["utilization"])["utilization"] == pytest.approx(10 / 15)


def test_what_has_no_bound_has_none():
    workload, cluster = random_workload(1, 5, 1), load_cluster("1x2")
    assert bound("slowdown.p95", workload, cluster) is None
    assert bound("fairness", workload, cluster) is None
    assert bound("turnaround.mean", workload, cluster) == bound("turnaround", workload, cluster)
    assert bound("turnaround", workload.take(np.arange(0)), cluster) is None
    assert bound("makespan", Workload.build({"submit": [0.0], "gpus": [9.0]}, [1.0]), cluster) is None
    with pytest.raises(UnknownNameError):
        bound("turnarround", workload, cluster)
