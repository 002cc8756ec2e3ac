"""Where a decider places the jobs that an agent orders, an environment is still a simulation with one decision left open."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace

import numpy as np
import pytest

from gpuyard import load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.envs.decided import DecidedEnvs
from gpuyard.envs.kinds.engine import make_envs
from gpuyard.envs.kinds.job.kind import PickJob, PickTypedJob
from gpuyard.errors import PolicyError, UsageError
from gpuyard.features.jobs import JOB, JOB_TYPES
from gpuyard.metrics import measure
from gpuyard.networks.network import Network
from gpuyard.networks.spec import NetworkSpec
from gpuyard.testing.conformance import compare_segments, compare_tables
from gpuyard.testing.reference.network import random_arrays
from gpuyard.testing.strategies import random_case
from gpuyard.traces.recipes import Workloads
from support.playing import at_random, by_network, play

SPEC = NetworkSpec(rows=len(JOB.rows), context=len(JOB.context), head_layers=(8,))
TYPED = NetworkSpec(rows=len(JOB_TYPES.rows), context=len(JOB_TYPES.context), head_layers=(8,))
MILP = "milp:k=6,limit=60"  # a limit that is never struck: the answer does not depend on the machine
TEXT = "lublin:jobs=60,nodes=16,load=1.2 on 2x8:gpu"


def network(seed: int, spec: NetworkSpec = SPEC) -> Network:
    return Network.of(spec, random_arrays(spec, np.random.default_rng(seed)))


def one(options: PickJob, workload, cluster, rules=None) -> DecidedEnvs:
    opened = replace(options.left_open(), recorded=True, **({"rules": rules} if rules else {}))
    made = options.envs(opened, lambda _: (workload, cluster), [0], 1)
    assert isinstance(made, DecidedEnvs)
    return made


@pytest.mark.parametrize(
    ("kind", "spec", "backfill"), [(PickJob, SPEC, "none"), (PickJob, SPEC, "skip"), (PickJob, SPEC, "easy"), (PickTypedJob, TYPED, "easy")]
)
def test_a_network_that_chooses_gives_what_the_decider_gives_with_that_network(kind, spec: NetworkSpec, backfill: str):
    options, played_through = kind(placement=MILP, backfill=backfill), 0
    for seed in range(15):
        case, net = random_case(seed), network(seed, spec)
        played = play(one(options, case.workload, case.cluster, case.rules), by_network(net))
        if played is None:
            continue
        expected = simulate(case.workload, case.cluster, options.scheduler(net), rules=case.rules, segments=True)
        assert compare_tables(played.result.table, expected.table) + compare_segments(played.result.segments, expected.segments) == [], seed
        played_through += 1
    assert played_through > 5


def test_the_solver_makes_a_difference_and_rewards_are_those_of_the_run():
    workload, cluster = load_workload("lublin:jobs=60,nodes=32,load=1.3", 3), load_cluster("2x8:a100+2x8:t4")
    placed, plain = PickJob(placement=MILP, objective="turnaround"), PickJob(placement="fewest", objective="turnaround")
    net = network(1)
    envs = one(placed, workload, cluster)
    envs.reset(0)
    early = envs.now(0)
    played = play(envs, by_network(net))
    mine = measure(played.result, ["turnaround"])["turnaround"]
    assert mine != measure(simulate(workload, cluster, plain.scheduler(net)), ["turnaround"])["turnaround"]
    [[value]] = envs.rollouts(net).returns([net], [0])
    assert value == pytest.approx(-mine)
    after = played.result.table["end"] > early  # what ended before the first choice is not its doing
    paid = (played.result.table["end"] - workload.jobs.submit)[after].sum() / len(workload)
    assert played.total == pytest.approx(-paid)


def test_many_step_together_and_go_on_from_where_they_were_saved():
    def made() -> DecidedEnvs:
        return make_envs(Workloads([TEXT]).part("train"), PickJob(placement=MILP, pool=3, threads=2), 4, 0)

    envs, rng = made(), np.random.default_rng(0)
    seen = envs.reset(5)
    for _ in range(60):
        seen = envs.step(np.array([rng.choice(np.flatnonzero(mask)) for mask in seen.mask])).observation
    again = made()
    restored = again.restore(envs.save())
    assert all(np.array_equal(a, b) for a, b in zip(restored, seen, strict=True))
    actions = seen.mask.argmax(axis=1)
    one_step, other = envs.step(actions), again.step(actions)
    assert np.array_equal(one_step.reward, other.reward) and np.array_equal(one_step.observation.rows, other.observation.rows)


def test_threads_end_with_their_environments():
    def running() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name.startswith("episode of milp")]

    gc.collect()
    for thread in running():
        thread.join(10)
    envs = make_envs(Workloads([TEXT]).part("train"), PickJob(placement=MILP, pool=2), 4, 0)
    envs.reset(0)
    first = running()
    assert len(first) == 4
    envs.skip()
    second = [thread for thread in running() if thread not in first]
    del envs
    gc.collect()
    for thread in (*first, *second):
        thread.join(10)
    assert len(second) == 4 and not running()


OWN = """
from gpuyard import Decision
class Few:
    def __init__(self, inner, *, most=3.0):
        self._inner, self._most = inner.begin(), int(most)
    def decide(self, snapshot):
        if snapshot.now > {late}:
            raise ValueError("too late")
        return self._inner.decide(snapshot)[: self._most]
"""


def test_a_users_decider_can_place_the_jobs(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN.format(late=1e9))
    options, net = PickJob(placement=f"{path}:Few:most=1"), network(2)
    workload, cluster = load_workload("gangs:jobs=40,load=1.5", 1), load_cluster("2x8:a100")
    played = play(one(options, workload, cluster), by_network(net))
    expected = simulate(workload, cluster, options.scheduler(net), segments=True)
    assert compare_tables(played.result.table, expected.table) == []
    assert parse_scheduler(f"sjf/{path}:Few/easy").inner.label == "sjf/fewest/easy"


def test_an_error_of_a_decider_comes_out_of_the_step(tmp_path):
    path = tmp_path / "late.py"
    path.write_text(OWN.format(late=100))
    envs = one(PickJob(placement=f"{path}:Few"), load_workload("gangs:jobs=40,load=1.5", 1), load_cluster("2x8:a100"))
    with pytest.raises(PolicyError, match=r"late.py:8 Few: decide, at .*too late"):
        play(envs, at_random(np.random.default_rng(0)))


def test_what_cannot_place_jobs_is_refused():
    with pytest.raises(UsageError, match="decider 'gavel' in the place of a placement"):
        PickJob(placement="gavel").left_open()
    with pytest.raises(UsageError, match="decider 'exp3' in the place of a placement"):
        parse_scheduler("sjf/exp3/easy")
    with pytest.raises(UsageError, match="rules easy: decider 'milp' is the placement"):
        PickJob(placement="milp", rules=("easy",))
    with pytest.raises(UsageError, match="preempts"):
        parse_scheduler("srpt/milp/easy/srpt").begin()


def test_texts_of_slots_with_a_decider():
    assert parse_scheduler("saf/milp:k=8/easy").label == "milp:k=8(saf/fewest/easy)"
    assert parse_scheduler("saf/milp(best)/easy").label == "milp(saf/best/easy)"
    assert parse_scheduler("learned:gpu/milp").label == "milp(learned:gpu/fewest/none)"
