"""DQN that tries every choice in copies of the environments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpuyard.arrays import Array
from gpuyard.envs.base import Observation
from gpuyard.envs.kinds.engine import make_envs
from gpuyard.envs.kinds.switch.kind import PickScheduler
from gpuyard.errors import UsageError
from gpuyard.features.schema import Schema
from gpuyard.learn.dqn import D3qnConfig, DqnConfig, TriedDqn, make_dqn
from gpuyard.learn.parts.replay import TriedReplay
from gpuyard.testing.probes import PROBES, Probe
from gpuyard.traces.recipes import Workloads
from support.learning import SMALL, exported_scores, trained

TRIED: dict[str, Any] = {**SMALL, "try_all": True, "steps_per_update": 32, "epsilon_steps": 3000, "target_every": 40}
CONFIGS = {
    "double": D3qnConfig(**TRIED, n_step=2),
    "no bootstrap": D3qnConfig(**TRIED, n_step=2, bootstrap=False),
    "held": D3qnConfig(**TRIED, n_step=2, hold=2, bootstrap=False),
    "drawn otherwise": DqnConfig(**TRIED, n_step=2, prioritised=True, balanced=True),
}


class Storm(Probe):
    """Two steps. The first choice is worth 0, 0.3 or 0.6 × what is seen, beside luck a hundred times as large that no choice changes."""

    schema = Schema("storm", 1, (), ("size", "step"))
    actions = 3

    def begin(self, random: np.random.Generator, over: Array) -> None:
        self._keep("size", random.uniform(0.5, 1.5, self.count), over)
        self._keep("luck", random.normal(0, 30, self.count), over)
        self._keep("step", np.zeros(self.count), over)

    def observe(self) -> Observation:
        context = np.stack([self._state["size"], self._state["step"]], 1).astype(np.float32)
        return Observation(np.zeros((self.count, 0, 0), np.float32), context, np.ones((self.count, 3), bool))

    def act(self, actions: Array) -> tuple[Array, Array]:
        first = self._state["step"] == 0
        reward = np.where(first, 0.3 * actions * self._state["size"], 0.0) + self._state["luck"]
        self._state["step"] = self._state["step"] + 1
        return reward, ~first

    def values(self, gamma: float) -> Array:
        return np.zeros(self.count)

    def best(self) -> Array:
        return np.tile(np.arange(3) == 2, (self.count, 1))

    def branches(self, times: int) -> Storm:
        return Storm(times * self.count)

    def fork(self, given: Storm) -> None:
        times = self.count // given.count
        self._seed, self._steps = given._seed, given._steps
        self._state = {name: np.repeat(each, times, axis=0) for name, each in given._state.items()}


@pytest.mark.parametrize("name", CONFIGS)
def test_differences_between_choices_are_found_in_a_storm(name: str):
    learner = trained(make_dqn(Storm(32), CONFIGS[name], seed=1), 24_000)
    probe = Storm(64)
    scores = exported_scores(learner, probe.reset(9))
    found = scores - scores.mean(1, keepdims=True)
    wanted = 0.3 * (np.arange(3) - 1.0) * probe._state["size"][:, None]
    assert np.abs(found - wanted).max() < 0.15
    assert (scores.argmax(1) == 2).all()


def test_without_copies_the_storm_hides_them():
    config = D3qnConfig(**{**TRIED, "try_all": False, "steps_per_update": 4}, n_step=2, bootstrap=False)
    learner = trained(make_dqn(Storm(32), config, seed=1), 24_000)
    scores = exported_scores(learner, Storm(64).reset(9))
    wanted = 0.3 * (np.arange(3) - 1.0)
    assert np.abs(scores - scores.mean(1, keepdims=True) - wanted).max() > 0.15


def switching(count: int = 4) -> Any:
    options = PickScheduler(schedulers=("fcfs", "srpt", "edf"), every=0.0, shaping=1.0, foresight=True, gamma=0.9, pool=6, threads=1)
    return make_envs(
        Workloads(("family:shape=bursty,intensity=medium,gpus=2|4,horizon=600 on 1x{gpus}:a100",), "").part("train"), options, count, 0
    )


def test_returns_are_those_of_the_choices():
    config = D3qnConfig(**{**TRIED, "reward_scale": 2.0}, n_step=5, hold=5)
    learner, by_hand = make_dqn(switching(), config, seed=3), switching()
    assert isinstance(learner, TriedDqn)
    returns, discount, *_ = learner.tried(learner.scaling())
    seed = int(np.random.SeedSequence(3).generate_state(3)[2])
    for action in range(3):
        by_hand.reset(seed)
        total, factor = np.zeros(4), np.ones(4)
        for _ in range(5):
            step = by_hand.step(np.full(4, action, np.int32))
            total += factor * step.reward
            factor *= 0.9 * ~step.done
        assert returns[:, action] == pytest.approx(2.0 * total)
        assert discount[:, action] == pytest.approx(factor)


def test_resumed_as_if_never_stopped():
    config = D3qnConfig(**{**TRIED, "warmup": 100}, n_step=3, bootstrap=False)
    one, other = (make_dqn(switching(), config, seed=5) for _ in range(2))
    for _ in range(3):
        one.update()
    other.restore({name: array.copy() for name, array in one.save().items()})
    for learner in (one, other):
        learner.update()
    for mine, theirs in zip(one.network()[1].values(), other.network()[1].values(), strict=True):
        assert np.array_equal(mine, theirs)
    assert one.steps == other.steps


def test_steps_count_every_choice():
    learner = make_dqn(switching(), D3qnConfig(**TRIED, n_step=3), seed=1)
    learner.update()
    assert learner.steps == learner.round_steps * 4 * (3 + 3 * 3)
    assert isinstance(learner.replay, TriedReplay)
    assert learner.replay.ready == learner.round_steps * 4


def test_refused():
    with pytest.raises(UsageError, match="not distributions"):
        D3qnConfig(try_all=True, distributional=True)
    with pytest.raises(UsageError, match="too many choices"):
        make_dqn(PROBES["largest-row"](8), DqnConfig(**TRIED), seed=0)
