"""Bandits with known regret, alone and as learners."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from gpuyard.errors import LearningError, UsageError
from gpuyard.learn import bandits  # noqa: F401  (it registers)
from gpuyard.learn.base import LEARNERS
from gpuyard.policies.deciders.bandits import Bandit, EpsilonGreedy, EpsilonGreedySettings, Exp3, Exp3Settings, LinUcb, LinUcbSettings
from gpuyard.testing.probes import PROBES
from support.learning import exported_scores, trained

MAKERS: dict[str, Callable[[int, int], Bandit]] = {
    "epsilon-greedy": lambda actions, features: EpsilonGreedy(actions, features, EpsilonGreedySettings()),
    "exp3": lambda actions, features: Exp3(actions, features, Exp3Settings()),
    "linucb": lambda actions, features: LinUcb(actions, features, LinUcbSettings()),
}


def regret(bandit: Bandit, means: np.ndarray, steps: int, seed: int) -> float:
    """Expected reward lost per step against always the best, in the second half."""
    rng = np.random.default_rng(seed)
    lost = 0.0
    for step in range(steps):
        action = bandit.choose(np.zeros(1), rng)
        bandit.learn(np.zeros(1), action, float(rng.random() < means[action]))
        lost += (means.max() - means[action]) * (step >= steps // 2)
    return lost / (steps / 2)


@pytest.mark.parametrize("name", MAKERS)
def test_regret_is_far_below_that_of_uniform_choice(name: str) -> None:
    means = np.array([0.2, 0.8, 0.5, 0.3])
    uniform = means.max() - means.mean()
    assert np.mean([regret(MAKERS[name](4, 1), means, 2000, seed) for seed in range(5)]) < 0.3 * uniform


def test_linucb_uses_the_context() -> None:
    rng = np.random.default_rng(0)
    bandit = LinUcb(2, 1, LinUcbSettings())
    won = []
    for _ in range(400):
        signal = rng.choice([-1.0, 1.0], size=1)
        action = bandit.choose(signal, rng)
        won.append(action == (signal[0] > 0))
        bandit.learn(signal, action, signal[0] * (1.0 if action else -1.0) + rng.normal())
    assert np.mean(won[200:]) > 0.97


def test_linucb_is_ridge_regression() -> None:
    rng = np.random.default_rng(1)
    bandit = LinUcb(2, 3, LinUcbSettings(ridge=0.7))
    x, y, actions = rng.normal(size=(50, 3)), rng.normal(size=50), rng.integers(0, 2, size=50)
    for context, reward, action in zip(x, y, actions, strict=True):
        bandit.learn(context, int(action), float(reward))
    weight, bias = bandit.scores()
    for action in (0, 1):
        features = np.c_[x, np.ones(50)][actions == action]
        exact = np.linalg.solve(features.T @ features + 0.7 * np.eye(4), features.T @ y[actions == action])
        assert np.r_[weight[action], bias[action]] == pytest.approx(exact)


def test_one_step_of_exp3_by_hand() -> None:
    bandit = Exp3(2, 1, Exp3Settings(gamma=0.2))
    bandit.learn(np.zeros(1), 0, 0.0, 0.5)  # the only reward so far counts ½
    bandit.learn(np.zeros(1), 1, 4.0, 0.25)  # the highest so far counts 1
    expected = np.exp([0.2 * 0.5 / 0.5 / 2, 0.2 * 1.0 / 0.25 / 2])
    assert bandit.probabilities(np.zeros(1)) == pytest.approx(0.8 * expected / expected.sum() + 0.1)


def test_epsilon_greedy_follows_a_change_with_a_constant_step() -> None:
    bandit = EpsilonGreedy(2, 1, EpsilonGreedySettings(step=0.2))
    rng = np.random.default_rng(0)
    for step in range(600):
        action = bandit.choose(np.zeros(1), rng)
        bandit.learn(np.zeros(1), action, float(action == (step >= 300)))
    assert bandit.mean == pytest.approx([0.0, 1.0], abs=0.1)


@pytest.mark.parametrize("name", MAKERS)
def test_mask(name: str) -> None:
    bandit, rng, mask = MAKERS[name](3, 2), np.random.default_rng(0), np.array([True, False, True])
    for _ in range(60):
        action = bandit.choose(np.ones(2), rng, mask)
        assert mask[action]
        assert bandit.probabilities(np.ones(2), mask).sum() == pytest.approx(1.0)
        bandit.learn(np.ones(2), action, float(action))


@pytest.mark.parametrize(("name", "probe_name"), [(n, "action-reward") for n in MAKERS] + [("linucb", "action-by-observation")])
def test_as_learners(name: str, probe_name: str) -> None:
    kind, probe = LEARNERS[name], PROBES[probe_name](8)
    learner = trained(kind.make(probe, kind.config(), 3), 3000)
    assert probe.best()[np.arange(8), exported_scores(learner, probe.observe()).argmax(1)].all()
    assert learner.update()["return"] > 0.7


@pytest.mark.parametrize("name", MAKERS)
def test_bad_input(name: str) -> None:
    with pytest.raises(LearningError, match="a reward is nan"):
        MAKERS[name](2, 1).learn(np.zeros(1), 0, float("nan"))
    with pytest.raises(UsageError, match="fixed number of actions"):
        LEARNERS[name].make(PROBES["largest-row"](4), LEARNERS[name].config(), 0)


def test_no_jax_is_imported() -> None:
    code = "import sys; import gpuyard.learn.bandits; assert 'jax' not in sys.modules and 'polars' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
