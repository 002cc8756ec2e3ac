"""Discrete SAC: values, masks, and a temperature that settles where the policy is as random as it is to be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gpuyard.learn.parts import networks
from gpuyard.learn.sac import Sac, SacConfig
from gpuyard.testing.probes import PROBES, Machines
from support.learning import SMALL, exported_scores, greedy_return, trained

CONFIG = SacConfig(**SMALL)


def entropy_of(scores: np.ndarray) -> np.ndarray:
    chances = np.exp(scores - scores.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    return -np.sum(np.where(chances > 0, chances * np.log(np.maximum(chances, 1e-30)), 0.0), axis=1)


def test_temperature_settles_where_the_entropy_is_the_target() -> None:
    """Rewards ±1: the policy is softmax(±1 / α), so there is one α at which its entropy is 0.5 · log 2."""
    learner = trained(Sac(PROBES["action-reward"](32), replace(CONFIG, entropy_share=0.5), seed=1), 12_000)
    low, high = 0.1, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        below = entropy_of(np.array([[-1.0, 1.0]]) / middle)[0] < 0.5 * np.log(2)
        low, high = (middle, high) if below else (low, middle)
    assert learner.temperature == pytest.approx(low, rel=0.03)
    assert entropy_of(exported_scores(learner, learner.envs.observe())) == pytest.approx(0.5 * np.log(2), abs=0.02)  # type: ignore[attr-defined]


def test_temperature_falls_without_end_where_all_rewards_are_equal() -> None:
    """Nothing is lost by choosing at random: the policy stays more random than the target, so α is pushed down."""
    learner = Sac(PROBES["constant-reward"](32), CONFIG, seed=1)
    heat = [learner.temperature]
    for steps in (3000, 6000, 9000):
        trained(learner, steps)
        heat.append(learner.temperature)
    assert heat == sorted(heat, reverse=True)
    assert heat[-1] < 0.3 * heat[0]
    assert exported_scores(learner, learner.envs.observe()) == pytest.approx(0.0, abs=5.0)  # type: ignore[attr-defined]


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_gradient_of_the_temperature(share: float) -> None:
    mask = jnp.array([[True, True, True, False], [True, False, False, False]])
    slope = jax.grad(Sac(PROBES["action-reward"](2), replace(CONFIG, entropy_share=share), seed=1).temperature_loss)
    uniform = jnp.where(mask, -jnp.log(mask.sum(1, keepdims=True)), -1e9)
    certain = jnp.array([[0.0, -50.0, -50.0, -1e9], [0.0, -1e9, -1e9, -1e9]])
    alpha = 0.3
    at = jnp.log(alpha)
    # α · mean over states of (entropy − share · log legal); the second state has one legal action and adds nothing
    assert float(slope(at, uniform, mask)) == pytest.approx(alpha * (1 - share) * np.log(3) / 2, rel=1e-5)
    assert float(slope(at, certain, mask)) == pytest.approx(-alpha * share * np.log(3) / 2, rel=1e-5)


def test_soft_value_of_the_future() -> None:
    """Two steps, equal rewards, fixed α: the value of the first is γ (1 + α log 2), as the second choice is random for free."""
    probe = PROBES["two-steps"](32)
    learner = trained(Sac(probe, replace(CONFIG, learn_temperature=False, temperature=0.5, tau=0.05), seed=3), 12_000)
    assert learner.temperature == pytest.approx(0.5)
    seen = probe.observe()
    expected = np.where(seen.context[:, 0] == 1.0, 1.0, 0.9 * (1 + 0.5 * np.log(2)))
    for critic in range(2):
        params = {name: each[critic] for name, each in learner.state.parts["critics"].items()} | learner.scaling()
        assert np.asarray(networks.apply(learner.spec, params, *seen)) == pytest.approx(np.repeat(expected[:, None], 2, 1), abs=0.05)


class HardTarget(Sac):
    """Values the future without its entropy."""

    def target(self, parts: Any, target: Any, scaling: Any, batch: Any) -> jax.Array:
        return super().target(parts | {"log_temperature": -jnp.inf}, target, scaling, batch)


def test_a_variant_overrides_one_step() -> None:
    """Two steps as above: without the entropy of the second choice, the first is worth γ."""
    probe = PROBES["two-steps"](32)
    learner = trained(HardTarget(probe, replace(CONFIG, learn_temperature=False, temperature=0.5, tau=0.05), seed=3), 12_000)
    seen = probe.observe()
    params = {name: each[0] for name, each in learner.state.parts["critics"].items()} | learner.scaling()
    expected = np.where(seen.context[:, 0] == 1.0, 1.0, 0.9)
    assert np.asarray(networks.apply(learner.spec, params, *seen)) == pytest.approx(np.repeat(expected[:, None], 2, 1), abs=0.05)


def test_best_legal_choice() -> None:
    probe = PROBES["masked-action"](32)
    learner = trained(Sac(probe, CONFIG, seed=2), 9000)
    assert probe.best()[np.arange(32), exported_scores(learner, probe.observe()).argmax(1)].all()


@pytest.mark.parametrize("extra", [{"prioritised": True}, {"n_step": 3}, {"balanced": True}], ids=str)
def test_with_parts_of_replay(extra: dict[str, object]) -> None:
    probe = PROBES["action-by-observation"](32)
    learner = trained(Sac(probe, replace(CONFIG, **extra), seed=2), 6000)  # type: ignore[arg-type]
    assert probe.best()[np.arange(32), exported_scores(learner, probe.observe()).argmax(1)].all()


def test_optimum_of_a_small_scheduling_problem() -> None:
    probe = PROBES["one-machine"](32)
    assert isinstance(probe, Machines)
    learner = trained(Sac(probe, replace(CONFIG, discount=1.0, width=32, entropy_share=0.05), seed=4), 15_000)
    assert greedy_return(learner, PROBES["one-machine"](32)) == pytest.approx(np.repeat(probe.optimum(), 32), abs=1e-5)
