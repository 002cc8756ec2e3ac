"""What holds for every learner of this family: resuming, masks, bad rewards, files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from gpuyard.arrays import Array
from gpuyard.envs.base import Observation, Step
from gpuyard.errors import LearningError, UsageError
from gpuyard.learn import bandits, dqn, sac  # noqa: F401  (they register)
from gpuyard.learn.base import LEARNERS, Learner
from gpuyard.testing.probes import PROBES, ConstantReward, LargestRow, MaskedAction, ObservedReward, Probe
from support.learning import SMALL, exported_scores, trained

OFF: dict[str, Any] = {**SMALL, "capacity": 600, "warmup": 200, "updates_per_round": 8, "batch_size": 16}
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("dqn", OFF, "largest-row"),
    ("d3qn", {**OFF, "prioritised": True, "balanced": True, "n_step": 2}, "two-steps"),
    ("rainbow", {**OFF, "atoms": 5, "low": -2.0, "high": 2.0, "schedule": "cosine"}, "masked-action"),
    ("sac", OFF, "largest-row"),
    ("epsilon-greedy", {"rollout": 3}, "masked-action"),
    ("exp3", {"rollout": 3}, "masked-action"),
    ("linucb", {"rollout": 3}, "masked-action"),
]
NAMES = [name for name, _, _ in CASES]


def made(name: str, settings: dict[str, Any], probe: Probe, seed: int = 5) -> Learner:
    return LEARNERS[name].make(probe, LEARNERS[name].config(**settings), seed)


@pytest.mark.parametrize(("name", "settings", "probe"), CASES, ids=NAMES)
def test_resumed_is_as_never_stopped(name: str, settings: dict[str, Any], probe: str) -> None:
    one = made(name, settings, PROBES[probe](8))
    for _ in range(12):
        one.update()
    saved = one.save()
    kept = {key: values.copy() for key, values in saved.items()}
    shown = [one.update() for _ in range(12)]
    assert all(np.array_equal(saved[key], kept[key]) for key in kept)  # what was saved did not go on with it
    two = made(name, settings, PROBES[probe](8), seed=99)
    two.restore(load(save(kept)))
    again = [two.update() for _ in range(12)]
    for left, right in zip(shown, again, strict=True):
        assert left.keys() == right.keys()
        assert all(np.array_equal(left[key], right[key], equal_nan=True) for key in left if not key.startswith("time/"))
    ours, theirs = one.save(), two.save()
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[key], theirs[key]) for key in ours)
    assert one.steps == two.steps > 0
    if "capacity" in settings:
        assert int(ours["replay/added"]) * 8 > 600  # the ring went round


@pytest.mark.parametrize(("name", "settings", "probe"), CASES, ids=NAMES)
def test_seed_decides_everything(name: str, settings: dict[str, Any], probe: str) -> None:
    runs = []
    for seed in (1, 1, 2):
        learner = made(name, settings, PROBES[probe](8), seed)
        for _ in range(8):
            learner.update()
        runs.append(learner.save())
    assert all(np.array_equal(runs[0][key], runs[1][key]) for key in runs[0])
    assert any(not np.array_equal(runs[0][key], runs[2][key]) for key in runs[0])


class StrictRows(LargestRow):
    def step(self, actions: Array) -> Step:
        assert self.observe().mask[np.arange(self.count), actions].all()
        return super().step(actions)


class StrictActions(MaskedAction):
    def step(self, actions: Array) -> Step:
        assert self.observe().mask[np.arange(self.count), actions].all()
        return super().step(actions)


@pytest.mark.parametrize(("name", "settings"), [(name, settings) for name, settings, _ in CASES], ids=NAMES)
def test_masks_are_never_violated(name: str, settings: dict[str, Any]) -> None:
    probes: list[Probe] = [StrictActions(8)]
    if name in ("dqn", "sac"):
        probes.append(StrictRows(8))
    for probe in probes:
        learner = made(name, settings, probe)
        while learner.steps < 1500:
            learner.update()


class NanReward(MaskedAction):
    def act(self, actions: Array) -> tuple[Array, Array]:
        reward, done = super().act(actions)
        reward[3] = np.nan if self._steps == 7 else reward[3]
        return reward, done


@pytest.mark.parametrize(("name", "settings"), [(name, settings) for name, settings, _ in CASES], ids=NAMES)
def test_reward_that_is_no_number(name: str, settings: dict[str, Any]) -> None:
    learner = made(name, settings, NanReward(8))
    with pytest.raises(LearningError, match="reward.* nan; hint: "):
        for _ in range(10):
            learner.update()


@pytest.mark.parametrize(("name", "settings", "probe"), CASES, ids=NAMES)
def test_what_an_update_tells(name: str, settings: dict[str, Any], probe: str) -> None:
    learner = made(name, settings, PROBES[probe](8))
    before = learner.steps
    told = learner.update()
    assert before == 0 < learner.steps
    assert {"return", "time/collect", "time/learn"} <= told.keys()
    assert min(told["time/collect"], told["time/learn"]) >= 0


@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_a_hidden_feature_changes_no_score(name: str) -> None:
    """The reward is what is seen; who cannot see it values both signals alike."""
    probe = ObservedReward(8)
    settings = {**OFF, "learning_rate": 1e-2}
    seeing = trained(made(name, settings, probe), 1500)
    blind = trained(made(name, {**settings, "hidden": ("signal",)}, ObservedReward(8)), 1500)
    rows, mask = np.zeros((2, 0, 0), np.float32), np.ones((2, 2), bool)
    both = Observation(rows, np.array([[-1.0], [1.0]], np.float32), mask)
    assert np.array_equal(*exported_scores(blind, both))
    assert not np.array_equal(*exported_scores(seeing, both))
    _, arrays = blind.network()
    assert arrays["context.scale"].tolist() == [0.0]


def test_a_hidden_feature_must_exist() -> None:
    with pytest.raises(UsageError, match="signall"):
        made("dqn", {**OFF, "hidden": ("signall",)}, ObservedReward(8))


def test_rewards_are_scaled_for_learning_only() -> None:
    """The reward is always 1, an episode one step."""
    learner = trained(made("dqn", {**OFF, "reward_scale": 7.0, "learning_rate": 1e-2}, ConstantReward(8)), 3000)
    seen = Observation(np.zeros((1, 0, 0), np.float32), np.ones((1, 1), np.float32), np.ones((1, 2), bool))
    assert exported_scores(learner, seen)[0] == pytest.approx([7.0, 7.0], abs=0.3)
    assert learner.update()["return"] == pytest.approx(1.0)
