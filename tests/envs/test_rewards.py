"""Rewards are what the metrics say, and shaping changes no order among policies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuyard import Cluster, Workload, load_cluster, load_workload, simulate
from gpuyard.envs.kernels import TERMS
from gpuyard.envs.kinds.host.kind import PickHost
from gpuyard.envs.kinds.job.kind import PickJob
from gpuyard.envs.kinds.switch.kind import PickScheduler
from gpuyard.envs.reward import OBJECTIVES, Objective
from gpuyard.errors import UnknownNameError, UsageError
from gpuyard.metrics import measure
from gpuyard.metrics.jobs import bounded_slowdown, slowdown, turnaround, wait
from gpuyard.model.result import STATUS
from gpuyard.policies import parse_slots
from support.playing import at_random, one_episode, play

KINDS = {
    "job": (PickJob(backfill="easy"), "lublin:jobs=60,nodes=16,load=1.2", "2x8:gpu"),
    "host": (PickHost(), "eda:jobs=120,arrivals=1:3", "hosts:count=5,seed=1"),
    "switch": (PickScheduler(schedulers=("fcfs", "sjf", "edf"), every=60.0), "family:shape=bursty,gpus=4", "4"),
}


def episode(name: str, **changes):
    """An environment of a kind, its workload and cluster."""
    options, workload, cluster = KINDS[name]
    return one_episode(replace(options.left_open(), **changes), load_workload(workload, 7), load_cluster(cluster))


def weighted(*terms: str) -> Objective:
    return Objective("some", "", dict.fromkeys(terms, 1.0), "bsld", per_job=False)


def ended(envs) -> np.ndarray:
    """(jobs,) which are over now."""
    return envs.state(0).rows["status"] >= STATUS.index("done")


PER_JOB = {
    "ended": lambda r: np.ones(len(r.table)),
    "slowdown": slowdown,
    "capped_slowdown": lambda r: np.minimum(slowdown(r), 10) / 10,
    "bsld": bounded_slowdown,
    "missed": lambda r: (r.table["end"] > r.workload.jobs.deadline).astype(float),
    "wait": wait,
    "capped_wait": lambda r: np.minimum(wait(r), 3600) / 3600,
    "turnaround": turnaround,
}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("term", list(PER_JOB))
def test_terms_of_jobs(kind: str, term: str):
    envs = episode(kind, objective=weighted(term))
    envs.reset(0)
    before = ended(envs)
    played = play(envs, at_random(np.random.default_rng(1)))
    expected = PER_JOB[term](played.result)[~before].sum()
    assert played.total == pytest.approx(expected, rel=1e-9)
    assert sum(played.rewards) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", list(KINDS))
def test_terms_of_time(kind: str):
    totals = {}
    for term in ("queue_time", "busy_time", "gpu_seconds", "energy"):
        envs = episode(kind, objective=weighted(term))
        envs.reset(0)
        begin = float(envs.state(0).control["now"][0])
        played = play(envs, at_random(np.random.default_rng(1)))
        totals[term] = played.total
    result, jobs = played.result, played.result.workload.jobs
    held = result.segments
    busy = (held["gpus"] * (held["end"] - np.maximum(held["start"], begin)).clip(0)).sum()
    offered = result.cluster.nodes.gpus.sum() * (np.nanmax(result.table["end"]) - begin)
    queue = (result.table["start"] - np.maximum(jobs.submit, begin)).clip(0).sum()
    gpu = result.cluster.types[0]
    assert totals["queue_time"] == pytest.approx(queue)
    assert totals["busy_time"] == pytest.approx(busy)
    assert totals["gpu_seconds"] == pytest.approx(offered)
    assert totals["energy"] == pytest.approx(gpu.idle_watts * offered + (gpu.busy_watts - gpu.idle_watts) * busy)


def free_over_time(result, begin: float):
    """For each stretch of time in which nothing changes: its begin, its length, GPUs free, and jobs that wait."""
    jobs, held = result.workload.jobs, result.segments
    edges = np.unique(np.concatenate([[begin], jobs.submit, held["start"], held["end"]]))
    edges = edges[edges >= begin]
    at = edges[:-1, None]
    busy = (held["gpus"] * ((held["start"] <= at) & (at < held["end"]))).sum(axis=1)
    waiting = ((jobs.submit <= at) & (at < result.table["start"])).sum(axis=1)
    return edges[:-1], np.diff(edges), result.cluster.nodes.gpus.sum() - busy, waiting


def test_free_time_counts_while_jobs_come_and_while_they_wait():
    totals = {}
    for term in ("idle_time", "stranded_time"):
        envs = episode("job", objective=weighted(term))
        envs.reset(0)
        begin = float(envs.state(0).control["now"][0])
        played = play(envs, at_random(np.random.default_rng(1)))
        totals[term] = played.total
    time, span, free, waiting = free_over_time(played.result, begin)
    last = played.result.workload.jobs.submit.max()
    assert totals["idle_time"] == pytest.approx((span * free)[time < last].sum()) and totals["idle_time"] > 0
    assert totals["stranded_time"] == pytest.approx((span * free)[waiting > 0].sum()) and totals["stranded_time"] > 0


@pytest.mark.parametrize("at_once", [True, False])
def test_the_reward_of_utilisation_orders_runs_as_the_metric_does(at_once: bool):
    rng = np.random.default_rng(3)
    submit = np.zeros(40) if at_once else np.sort(rng.uniform(0, 2000, 40))
    workload = Workload.build({"submit": submit, "gpus": rng.integers(1, 9, 40)}, rng.uniform(1, 900, 40))
    envs = one_episode(replace(PickJob().left_open(), objective=OBJECTIVES["utilization"]), workload, Cluster.uniform(2, 4))
    runs = [play(envs, at_random(np.random.default_rng(seed))) for seed in range(6)]
    by_metric = [measure(run.result, ["utilization"])["utilization"] for run in runs]
    assert np.ptp(by_metric) > 0
    assert np.argsort([run.total for run in runs]).tolist() == np.argsort(by_metric).tolist()


def test_terms_of_choices():
    envs = episode(
        "switch", objective=replace(weighted(), weights={"utilisation": 1.0, "queue": 100.0, "watts": 10_000.0, "power": 1_000_000.0})
    )
    gpu = envs.episode(0)[1].types[0]
    envs.reset(0)
    over = False
    while not over:
        over = len(envs.choose(np.zeros(1))) > 0
        control = envs.state(0).control[0]
        watts = control["up"] * gpu.idle_watts + control["busy"] * (gpu.busy_watts - gpu.idle_watts)
        expected = control["busy"] / control["up"] + min(control["waiting"], 100) + 10_000 * min(watts, 800) / 800
        expected += 1_000_000 * watts / (control["up"] * gpu.busy_watts)
        assert float(envs.reward[0]) == pytest.approx(expected, rel=1e-6)


def test_every_term_is_tested():
    assert set(TERMS) == {*PER_JOB, "queue_time", "busy_time", "gpu_seconds", "idle_time", "stranded_time", "energy", "utilisation",
                          "queue", "power", "watts", "cores", "imbalance"}  # fmt: skip


@pytest.mark.parametrize("name", ["bsld", "slowdown", "wait", "turnaround"])
def test_a_return_is_minus_the_metric(name: str):
    """All jobs come at once: nothing ends before the first choice."""
    rng = np.random.default_rng(0)
    workload = Workload.build({"submit": np.zeros(30), "gpus": rng.integers(1, 5, 30)}, rng.uniform(1, 500, 30))
    envs = one_episode(replace(PickJob().left_open(), objective=OBJECTIVES[name]), workload, Cluster.uniform(2, 4))
    played = play(envs, at_random(rng))
    assert played.total == pytest.approx(-measure(played.result, [OBJECTIVES[name].metric])[OBJECTIVES[name].metric])


def test_with_a_baseline_the_return_is_the_improvement():
    rng = np.random.default_rng(0)
    workload = Workload.build({"submit": np.zeros(30), "gpus": rng.integers(1, 5, 30)}, rng.uniform(1, 500, 30))
    cluster = Cluster.uniform(2, 4)
    baseline = parse_slots("sjf/fewest/none")
    envs = one_episode(replace(PickJob(objective="wait").left_open(), baseline=baseline), workload, cluster)
    played = play(envs, at_random(rng))
    paid = measure(simulate(workload, cluster, baseline), ["wait"])["wait"]
    assert played.total == pytest.approx(1 - measure(played.result, ["wait"])["wait"] / paid)


# ── shaping ──


def every_policy(envs) -> dict[tuple[int, ...], tuple[float, ...]]:
    """All sequences of choices, with their rewards."""
    found, open_ends = {}, [()]
    while open_ends:
        prefix = open_ends.pop()
        seen, rewards, over = envs.reset(0), [], False
        for action in prefix:
            over = len(envs.choose(np.array([action]))) > 0
            rewards.append(envs.exact_reward(0))
        if over:
            found[prefix] = tuple(rewards)
        else:
            open_ends += [(*prefix, int(action)) for action in np.flatnonzero(seen.mask[0])]
    return found


SMALL = {
    "job": (PickJob(backfill="skip"), 7, Cluster.uniform(1, 2)),
    "host": (PickHost(), 8, Cluster.uniform(2, 2)),
    "switch": (PickScheduler(schedulers=("fcfs", "ljf"), every=0.0), 6, Cluster.uniform(1, 2)),
}


@pytest.mark.parametrize("objective", ["bsld", "slowdown", "wait", "turnaround", "balanced"])
@pytest.mark.parametrize("gamma", [1.0, 0.9])
@pytest.mark.parametrize("kind", list(SMALL))
def test_shaping_moves_the_return_of_every_policy_by_the_same(kind: str, gamma: float, objective: str):
    options, jobs, cluster = SMALL[kind]
    rng = np.random.default_rng(5)
    gpus = np.resize([1.0, 1.0, 2.0], jobs)
    columns = {"submit": rng.uniform(0, 20, jobs), "gpus": gpus, "chunk": gpus, "deadline": rng.uniform(30, 400, jobs)}
    workload = Workload.build(columns, rng.uniform(10, 90, jobs))
    opened = replace(options.left_open(), objective=OBJECTIVES[objective], gamma=gamma)
    plain = every_policy(one_episode(opened, workload, cluster))
    shaped = every_policy(one_episode(replace(opened, shaping=1.0), workload, cluster))
    assert plain.keys() == shaped.keys()
    assert len(plain) > 5

    def returns(rewards: dict) -> np.ndarray:
        return np.array([sum(gamma**t * r for t, r in enumerate(rewards[policy])) for policy in plain])

    without, with_shaping = returns(plain), returns(shaped)
    assert np.ptp(without) > 0
    assert np.ptp(with_shaping - without) < 1e-9 * max(np.abs(without).max(), 1.0)
    assert without.argmax() == with_shaping.argmax()
    moved = sum(abs(np.subtract(shaped[policy], plain[policy])).sum() for policy in plain)
    assert moved > 0 or objective == "wait"  # it does something; the wait is charged as it grows already


# ── refused ──


def test_what_is_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'missed'"):
        PickJob(weights=("mised=-5",))
    with pytest.raises(UsageError, match="not TERM=NUMBER"):
        PickJob(weights=("missed",))
    with pytest.raises(UsageError, match="the weight of missed is nan"):
        PickJob(weights=("missed=nan",))
    with pytest.raises(UnknownNameError, match="did you mean 'bsld'"):
        PickJob(objective="bsl")


@pytest.mark.parametrize("term", ["cores", "imbalance"])
def test_use_of_cores_and_imbalance_are_what_the_hosts_show_at_every_choice(term: str):
    envs = episode("host", objective=weighted(term))
    rule, seen, found, over = at_random(np.random.default_rng(1)), envs.reset(0), [], False
    while not over:
        over = len(envs.choose(np.array([rule(envs, seen)]))) > 0
        nodes = envs.state(0).nodes
        used = nodes["cpus"] - nodes["free_cpus"]
        found.append(float(used.sum() / nodes["cpus"].sum() if term == "cores" else np.std(used / nodes["cpus"])))
        assert envs.exact_reward(0) == pytest.approx(found[-1], abs=1e-9)
    assert max(found) > 0.05
    assert found[-1] == pytest.approx(0.0, abs=1e-9)  # at the end all hosts are idle


def test_imbalance_is_of_devices_where_no_cores_are_stated():
    envs = episode("job", objective=weighted("imbalance"))
    rule, seen, over, found = at_random(np.random.default_rng(1)), envs.reset(0), False, []
    while not over:
        over = len(envs.choose(np.array([rule(envs, seen)]))) > 0
        nodes = envs.state(0).nodes
        found.append(float(np.std(nodes["free"] / nodes["gpus"])))
        assert envs.exact_reward(0) == pytest.approx(found[-1], abs=1e-9)
    assert max(found) > 0.05


def test_the_reward_of_four_terms_is_their_weighted_sum():
    """Of the same choices: completion, use of cores, wait and balance, each with its weight, which can be set."""
    weights = {"ended": 1.0, "cores": 0.5, "capped_wait": -1.0, "imbalance": -0.5}
    assert dict(OBJECTIVES["hosts"].weights) == weights
    options = PickHost(objective="hosts", weights=("imbalance=-2", "cores=0"))
    assert dict(options.left_open().objective.weights) == weights | {"imbalance": -2.0, "cores": 0.0}
    objectives = {name: weighted(name) for name in weights} | {"all": replace(OBJECTIVES["hosts"], per_job=False)}
    totals = {name: play(episode("host", objective=each), at_random(np.random.default_rng(2))).total for name, each in objectives.items()}
    assert totals["all"] == pytest.approx(sum(weight * totals[name] for name, weight in weights.items()))
    assert all(totals[name] > 0 for name in weights)
