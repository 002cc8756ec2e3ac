"""Copies of environments between two choices, and rewards that charge what can no longer be avoided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuyard import Workload, load_cluster, load_workload
from gpuyard.envs.kinds.engine import make_envs
from gpuyard.envs.kinds.switch.kind import PickScheduler, PickSchedulerBySize
from gpuyard.envs.vector import EngineEnvs
from gpuyard.errors import UsageError
from gpuyard.features.system import SIZES, SWITCH, SWITCH_SIZES
from gpuyard.metrics.objective import BalancedWeights
from gpuyard.traces.recipes import Workloads
from support.playing import one_episode

GANGS = "family:variant=gang,shape=bursty,intensity=high,gpus=8|16,horizon=1200 on 1x{gpus}:a100"
CHOICES = ("fcfs/fewest/easy", "srpt/fewest/easy", "edf/fewest/easy")


def gangs(count: int, **changes) -> EngineEnvs:
    options = PickSchedulerBySize(schedulers=CHOICES, every=0.0, shaping=1.0, gamma=0.95, pool=8, **changes)
    return make_envs(Workloads((GANGS,), "").part("train"), options, count, seed=0)


@pytest.mark.parametrize("threads", [1, 2])
def test_branches_go_on_as_the_environment_they_branched_off(threads: int):
    random = np.random.default_rng(0)
    envs = gangs(6, foresight=True, threads=threads)
    branches = envs.branches(3)
    envs.reset(3)
    compared, over = 0, np.zeros(6, bool)
    for begin in range(0, 60, 15):  # forked again and again, from branches that are somewhere else
        branches.fork(envs)
        over[:] = False
        for _ in range(15):
            actions = random.integers(0, 3, 6).astype(np.int32)
            one, many = envs.step(actions), branches.step(np.repeat(actions, 3))
            going = np.repeat(~over, 3)
            assert np.array_equal(np.repeat(one.reward, 3)[going], many.reward[going]), begin
            assert np.array_equal(np.repeat(one.done, 3)[going], many.done[going])
            over |= one.done  # the episodes that follow are other ones
            going = np.repeat(~over, 3)
            for mine, theirs in zip(one.observation, many.observation, strict=True):
                assert np.array_equal(np.repeat(mine, 3, axis=0)[going], theirs[going])
            compared += int(going.sum())
    assert compared > 600


def test_a_fork_leaves_its_source_as_it_was():
    envs, alone = gangs(4), gangs(4)
    branches = envs.branches(2)
    envs.reset(1)
    alone.reset(1)
    for k in range(40):
        branches.fork(envs)
        branches.step(np.full(8, k % 3, np.int32))
        one, other = (each.step(np.full(4, k % 2, np.int32)) for each in (envs, alone))
        assert np.array_equal(one.reward, other.reward)
        assert np.array_equal(one.observation.context, other.observation.context)


def test_what_has_not_begun_cannot_be_forked():
    envs = gangs(2)
    with pytest.raises(UsageError, match="no episode has begun"):
        envs.branches(2).fork(envs)


def rewards_of(options: PickScheduler, workload: Workload, gpus: str, choice: int) -> list[float]:
    """Play an episode with one choice: what each step earns."""
    envs = one_episode(options.left_open(), workload, load_cluster(gpus))
    envs.reset(0)
    got = []
    while True:
        ended = envs.choose(np.full(1, choice, np.int32))
        got.append(envs.exact_reward(0))
        if len(ended):
            return got


def test_with_foresight_a_deadline_is_charged_when_it_is_lost():
    """One GPU. A job of 20 s must end by 40 s, another of 30 s goes first at 10 s. It is lost at 20 s; the next choice is at 22 s."""
    columns = {"submit": np.array([0.0, 4.0, 5.0, 22.0, 23.0]), "deadline": np.array([1e3, 1e3, 40.0, 1e3, 1e3])}
    workload = Workload.build(columns, np.array([10.0, 30.0, 20.0, 50.0, 60.0]))
    weights = [f"{name}={-1.0 if name == 'missed' else 0.0}" for name in BalancedWeights().terms()]
    plain = PickScheduler(schedulers=("fcfs", "sjf"), every=0.0, shaping=1.0, weights=tuple(weights))
    late, early = (rewards_of(replace(plain, foresight=each), workload, "1", 0) for each in (False, True))
    assert sum(late) == sum(early) == -1.0
    assert early.index(-1.0) < late.index(-1.0)
    assert -1.0 not in rewards_of(replace(plain, foresight=True), workload, "1", 1)  # the shorter job first: nothing is lost


@pytest.mark.parametrize("foresight", [False, True])
def test_what_one_policy_earns_more_than_another_does_not_depend_on_shaping(foresight: bool):
    workload = load_workload("family:shape=bursty,gpus=4,horizon=900", 5)
    plain = PickScheduler(schedulers=("fcfs", "srpt", "edf"), every=0.0)
    shaped = replace(plain, shaping=1.0, foresight=foresight)
    gains = [sum(rewards_of(each, workload, "4", 1)) - sum(rewards_of(each, workload, "4", 0)) for each in (plain, shaped)]
    assert gains[0] != 0.0
    assert gains[0] == pytest.approx(gains[1])


def test_sizes_by_hand():
    """Eight GPUs, five of them taken: what each ordering would start, how large it is, and whether it fits."""
    columns = {"submit": np.array([0.0, 1.0, 2.0, 3.0]), "gpus": np.array([5.0, 4.0, 2.0, 8.0]), "priority": np.array([0.0, 0.0, 0.0, 3.0])}
    columns |= {"deadline": np.array([1e4, 5e3, 9e3, 8e3])}
    workload = Workload.build(columns, np.array([1000.0, 500.0, 400.0, 300.0]))
    envs = one_episode(PickSchedulerBySize(schedulers=("fcfs", "sjf"), every=0.0).left_open(), workload, load_cluster("1x8:a100"))
    envs.reset(0)
    envs.choose(np.zeros(1, np.int32))
    seen = dict(zip(SWITCH_SIZES.context, envs.observation.context[0].tolist(), strict=True))
    assert envs.now(0) == 3.0
    assert [seen[f"{head}_size"] for head in ("first", "top", "earliest", "shortest", "newest")] == [0.5, 1.0, 0.5, 1.0, 1.0]
    assert [seen[f"{head}_fits"] for head in ("first", "top", "newest")] == [0.0, 0.0, 0.0]
    assert (seen["fitting"], seen["largest"]) == (pytest.approx(1 / 3), 1.0)


def test_the_features_of_the_first_version_have_stayed():
    assert SWITCH.hash == "8c6881c4495a68c6"  # of the checkpoints that are out there
    assert [name for name in SWITCH_SIZES.context if name not in SIZES] == list(SWITCH.context)
    assert SWITCH_SIZES.context[-32:] == SWITCH.context[-32:]  # what a memory is made of
