"""PPO: its parts against plain twins and hand-computed cases, the whole on probes with known values."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gpuyard.envs.base import Observation, Step
from gpuyard.errors import DataError, LearningError, UsageError
from gpuyard.learn.base import LEARNERS
from gpuyard.learn.parts import backend, networks, normalise
from gpuyard.learn.ppo import Ppo, PpoConfig
from gpuyard.testing.probes import PROBES, ActionByObservation, LargestRow, Machines, Probe, TwoSteps

CONFIG = PpoConfig(rollout=16, epochs=4, minibatches=4, discount=0.9, learning_rate=1e-2, updates=60, width=16)
SMALL = PpoConfig(rollout=4, epochs=2, minibatches=2, updates=8, width=4)
# Most tests below share SMALL, 8 environments and one of two probes, and so the compiled code: a program of its own costs 1 to 2 s.


def config_for(name: str) -> PpoConfig:
    return replace(CONFIG, discount=1.0) if "machine" in name else CONFIG


def trained_on(envs: Probe, config: PpoConfig, seed: int = 1) -> tuple[Ppo, list[dict[str, float]]]:
    learner = Ppo(envs, config, seed)
    return learner, [learner.update() for _ in range(config.updates)]


apply = jax.jit(networks.apply, static_argnums=0)


def greedy(learner: Ppo, seen: Observation) -> np.ndarray:
    return np.asarray(apply(learner.spec, learner.state.params, *seen)).argmax(1)


@pytest.mark.parametrize("name", list(PROBES))
def test_probes_are_solved(name: str) -> None:
    envs = PROBES[name](64)
    learner, _ = trained_on(envs, config_for(name))
    seen = envs.observe()
    np.testing.assert_allclose(learner.value(learner.state, seen), envs.values(learner.config.discount), atol=0.05)
    assert envs.best()[np.arange(envs.count), greedy(learner, seen)].all()


@pytest.mark.parametrize("name", ["constant-reward", "two-steps", "observed-reward"])
def test_values_are_learned_without_normalisation_too(name: str) -> None:
    envs = PROBES[name](64)
    learner, _ = trained_on(envs, replace(CONFIG, normalise_values=False, normalise_observations=False, value_clip=0.0))
    np.testing.assert_allclose(learner.value(learner.state, envs.observe()), envs.values(CONFIG.discount), atol=0.05)


@pytest.mark.parametrize(("kind", "speeds"), [("kernel", (1.0,)), ("attention", (1.0, 2.0))])
def test_optimum_of_small_scheduling_problems_is_reached(kind: str, speeds: tuple[float, ...]) -> None:
    envs = Machines.random(64, problems=2, jobs=5, seed=21, speeds=speeds)
    learner, _ = trained_on(envs, replace(CONFIG, discount=1.0, network=kind, updates=80))
    seen, total = envs.reset(0), np.zeros(64)
    for _ in range(5):
        seen, reward, _ = envs.step(greedy(learner, seen))
        total += reward
    np.testing.assert_allclose(total, envs.optimum()[np.arange(64) % 2], rtol=1e-5)


def test_advantages_equal_the_plain_recursion() -> None:
    random = np.random.default_rng(0)
    steps, envs, gamma, lam = 9, 5, 0.93, 0.8
    reward, value, last = random.normal(size=(steps, envs)), random.normal(size=(steps, envs)), random.normal(size=envs)
    done = random.random((steps, envs)) < 0.3
    expected = np.zeros((steps, envs))
    for env in range(envs):
        for start in range(steps):
            factor = 1.0
            for t in range(start, steps):  # Σ (γλ)ᵏ δ, to the end of the episode
                after = 0.0 if done[t, env] else (value[t + 1, env] if t + 1 < steps else last[env])
                expected[start, env] += factor * (reward[t, env] + gamma * after - value[t, env])
                if done[t, env]:
                    break
                factor *= gamma * lam
    learner = Ppo(TwoSteps(8), replace(SMALL, discount=gamma, gae_lambda=lam), seed=1)
    got = learner.advantages(*(jnp.asarray(each, jnp.float32) for each in (reward, done, value, last)))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_policy_loss_by_hand() -> None:
    ratio = jnp.asarray([1.5, 0.5, 1.5, 0.5])
    advantage = jnp.asarray([1.0, 1.0, -1.0, -1.0])
    expected = -np.mean([1.2, 0.5, -1.5, -0.8])  # what would go too far pays no more; what went wrong pays in full
    learner = Ppo(TwoSteps(8), replace(SMALL, clip=0.2), seed=1)
    np.testing.assert_allclose(learner.policy_loss(jnp.log(ratio), jnp.zeros(4), advantage), expected, rtol=1e-6)


def test_value_loss_by_hand() -> None:
    value, old, target = jnp.asarray([1.0, 1.0]), jnp.asarray([0.0, 0.0]), jnp.asarray([1.0, 3.0])
    clipped, free = (Ppo(TwoSteps(8), replace(SMALL, value_clip=clip), seed=1).value_loss for clip in (0.2, 0.0))
    np.testing.assert_allclose(clipped(value, old, target), 0.5 * np.mean([0.8**2, 2.8**2]), rtol=1e-6)
    np.testing.assert_allclose(free(value, old, target), 0.5 * np.mean([0.0, 2.0**2]), rtol=1e-6)
    assert jax.grad(lambda v: clipped(v, jnp.zeros(()), jnp.ones(())))(jnp.asarray(1.0)) == 0.0


def test_gradients_are_clipped_to_their_norm() -> None:
    gradient = {"a": jnp.asarray([3.0, 0.0]), "b": jnp.asarray([4.0])}
    clipped = backend.clipped_adam(0.5)
    as_is = backend.clipped_adam(0.0)
    (_, adam), (_, free) = clipped.update(gradient, clipped.init(gradient))[1], as_is.update(gradient, as_is.init(gradient))[1]
    np.testing.assert_allclose(adam.mu["a"], 0.1 * np.array([0.3, 0.0]), rtol=1e-5)  # 3 · 0.5 / 5, first moment 1 − 0.9
    np.testing.assert_allclose(free.mu["b"], [0.4], rtol=1e-5)
    assert float(optax.tree.norm(adam.mu)) == pytest.approx(0.05, rel=1e-5)


@pytest.mark.parametrize("make", [lambda: LargestRow(8), lambda: TwoSteps(8), lambda: Machines.random(8, 2, 3, seed=1)])
def test_resumed_equals_never_stopped_bit_for_bit(make) -> None:  # type: ignore[no-untyped-def]
    through = Ppo(make(), SMALL, seed=5)
    facts = [through.update() for _ in range(5)]
    before = Ppo(make(), SMALL, seed=5)
    for _ in range(3):
        before.update()
    saved = before.save()
    resumed = Ppo(make(), SMALL, seed=999)
    resumed.update()
    resumed.restore(saved)
    assert resumed.steps == before.steps == 3 * 4 * 8
    again = [resumed.update() for _ in range(2)]
    expected, got = through.save(), resumed.save()
    assert expected.keys() == got.keys()
    assert all(np.array_equal(expected[name], got[name]) for name in expected)
    assert all(each.dtype != object for each in expected.values())
    for one, other in zip(facts[3:], again, strict=True):
        np.testing.assert_equal(*({name: each for name, each in of.items() if "time" not in name} for of in (one, other)))


def test_state_of_another_network_is_refused() -> None:
    saved = Ppo(TwoSteps(8), SMALL, seed=1).save()
    with pytest.raises(DataError, match=r"saved state has no agent/.* of shape"):
        Ppo(TwoSteps(8), replace(SMALL, width=6), seed=1).restore(saved)


class Strict(LargestRow):
    """Refuses what may not be chosen."""

    def step(self, actions: np.ndarray) -> Step:
        assert self.observe().mask[np.arange(self.count), actions].all()
        return super().step(actions)


@pytest.mark.parametrize("kind", ["kernel", "attention"])
def test_masks_are_never_violated(kind: str) -> None:
    learner = Ppo(Strict(8), replace(SMALL, network=kind, updates=96), seed=3)
    for _ in range(96):  # 3,072 choices
        learner.update()
    mask, action = np.asarray(learner._rollout.mask), np.asarray(learner._rollout.action)
    assert np.take_along_axis(mask, action[..., None], -1).all()
    assert not mask.all()


def test_every_step_and_update_draws_anew() -> None:
    learner = Ppo(TwoSteps(8), replace(SMALL, learning_rate=0.0), seed=1)
    drawn = []
    for _ in range(2):
        learner.update()
        drawn += list(np.asarray(learner._rollout.action))
    assert len({tuple(each.tolist()) for each in drawn}) == 8


def test_what_is_kept_of_a_rollout_is_what_was_seen() -> None:
    envs = Machines.random(8, 2, 3, seed=1)
    learner = Ppo(envs, SMALL, seed=5)
    learner.collect()
    again = Machines.random(8, 2, 3, seed=1)
    seen = again.reset(5)
    rollout = jax.device_get(learner._rollout)
    for t in range(SMALL.rollout):
        assert all(np.array_equal(kept[t], now) for kept, now in zip(rollout[:3], seen, strict=True))
        scores = apply(learner.spec, learner.state.params, *seen)
        expected = np.take_along_axis(np.asarray(jax.nn.log_softmax(scores)), rollout.action[t][:, None], 1)[:, 0]
        np.testing.assert_allclose(rollout.log_probability[t], expected, rtol=1e-5)
        seen, reward, _ = again.step(rollout.action[t])
        assert np.array_equal(learner._reward[t], reward)


def test_normalisation_is_that_of_what_was_seen() -> None:
    learner = Ppo(LargestRow(8), replace(SMALL, learning_rate=0.0), seed=2)
    before = learner.network()[1]
    learner.update()
    rollout, after = jax.device_get(learner._rollout), learner.network()[1]
    legal = rollout.rows[rollout.mask]
    np.testing.assert_allclose(after["rows.mean"], legal.mean(0), atol=1e-5)
    np.testing.assert_allclose(after["rows.scale"], 1 / legal.std(0), rtol=1e-4)
    np.testing.assert_allclose(after["context.scale"], [20.0])  # it never varies: not blown up without limit
    assert all(np.array_equal(before[name], after[name]) for name in before if name not in networks.NORMALISATION)


def test_statistics_of_rollouts_of_one_size_are_those_of_all_together() -> None:
    random = np.random.default_rng(0)
    rollouts = [random.normal(loc=k, scale=1 + k, size=(6, 4, 3)).astype(np.float32) for k in range(3)]
    seen = normalise.no_statistics(3, 0).rows
    for each in rollouts:
        seen = normalise.merge(seen, jnp.asarray(each))
    together = np.concatenate(rollouts).reshape(-1, 3)
    np.testing.assert_allclose(seen.mean, together.mean(0), rtol=1e-4)
    np.testing.assert_allclose(seen.variance, together.var(0), rtol=1e-4)


def test_an_update_ends_where_the_policy_has_moved_enough() -> None:
    far = replace(CONFIG, learning_rate=0.3, schedule="constant", rollout=16, entropy=0.0)
    free, bound = (Ppo(ActionByObservation(64), replace(far, target_kl=kl), seed=1).update() for kl in (0.0, 1e-3))
    assert free["minibatches"] == 16
    assert 1 <= bound["minibatches"] < 16


class Broken(TwoSteps):
    """Something is not a number from its third step on."""

    broken = "reward"

    def step(self, actions: np.ndarray) -> Step:
        seen, reward, done = super().step(actions)
        if self._steps >= 3:
            (reward if self.broken == "reward" else seen.context[:, 0])[5] = np.nan
        return Step(seen, reward, done)


class BrokenObservation(Broken):
    broken = "observation"


def test_reward_that_is_no_number_is_named() -> None:
    with pytest.raises(LearningError, match=r"the reward of environment 5 at its step 2 is nan"):
        Ppo(Broken(8), SMALL, seed=1).update()


def test_observation_that_is_no_number_is_named() -> None:
    with pytest.raises(LearningError, match=r"the observation of environment 5 at its step 3 is not finite"):
        Ppo(BrokenObservation(8), SMALL, seed=1).update()


def test_minibatches_that_do_not_divide_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot be split into 3 minibatches"):
        Ppo(TwoSteps(8), replace(SMALL, minibatches=3), seed=1)


def test_a_rollout_that_does_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "available_memory", lambda: 1000)
    with pytest.raises(LearningError, match="a rollout needs .* GiB of memory"):
        Ppo(LargestRow(4), PpoConfig(rollout=64), seed=0)


def test_network_to_start_from() -> None:
    learner, other = Ppo(LargestRow(8), SMALL, seed=1), Ppo(LargestRow(8), SMALL, seed=2)
    other.update()
    learner.start_from(other.network()[1])
    assert all(np.array_equal(a, b) for a, b in zip(learner.network()[1].values(), other.network()[1].values(), strict=True))
    with pytest.raises(UsageError, match="other shapes"):
        learner.start_from(Ppo(LargestRow(8), replace(SMALL, width=6), seed=1).network()[1])


def test_is_found_by_name() -> None:
    kind = LEARNERS["ppo"]
    learner = kind.make(TwoSteps(8), kind.config(rollout=4, epochs=2, minibatches=2, updates=8, width=4), 3)
    facts = learner.update()
    assert {"return", "time/collect", "time/learn", "loss/policy", "loss/value", "policy/entropy", "policy/kl", "gradient"} <= facts.keys()
    assert facts["return"] == 1.0
    spec, params = learner.network()
    assert {name: each.shape for name, each in params.items()} == networks.shapes(spec)


class OneStep(Ppo):
    """Advantages from one step alone: GAE with λ = 0."""

    def advantages(self, reward, done, value, last):  # type: ignore[no-untyped-def]
        after = jnp.concatenate([value[1:], last[None]])
        return reward + self.config.discount * (1.0 - done) * after - value


def test_a_variant_overrides_one_step() -> None:
    variant, usual, same = (
        make(TwoSteps(8), replace(SMALL, gae_lambda=gae_lambda), seed=3) for make, gae_lambda in ((OneStep, 0.95), (Ppo, 0.95), (Ppo, 0.0))
    )
    for learner in (variant, usual, same):
        for _ in range(3):
            learner.update()
    ours, others, expected = (learner.network()[1] for learner in (variant, usual, same))
    for name in ours:
        np.testing.assert_allclose(ours[name], expected[name], rtol=1e-4, atol=1e-6)
    assert any(not np.allclose(ours[name], others[name], rtol=1e-4, atol=1e-6) for name in ours)


def test_accumulated_gradients_are_those_of_one_large_batch() -> None:
    """Four minibatches taken together make the step of one that is four times as large, and not those of two."""
    configs = (replace(SMALL, minibatches=1), replace(SMALL, minibatches=4, accumulate=4), SMALL)
    weights = []
    for config in configs:
        learner = Ppo(LargestRow(8), config, seed=3)
        facts = [learner.update() for _ in range(3)]
        assert np.isfinite([each["loss/total"] for each in facts]).all()
        weights.append(np.concatenate([np.ravel(each) for each in jax.tree.leaves(networks.trained(learner.state.params))]))
    whole, quarters, two = weights
    np.testing.assert_allclose(quarters, whole, rtol=2e-3, atol=2e-5)
    assert np.abs(two - whole).max() > 1e-3


def test_minibatches_that_cannot_be_grouped_are_refused() -> None:
    with pytest.raises(UsageError, match="2 minibatches cannot be taken 3 at a time"):
        Ppo(LargestRow(8), replace(SMALL, accumulate=3), seed=1)


def test_the_learning_rate_rises_over_the_first_steps_whatever_its_course() -> None:
    learner = Ppo(LargestRow(8), replace(SMALL, schedule="constant", learning_rate=0.01, warm_up_steps=96), seed=1)
    rates = [learner.update()["learning_rate"] for _ in range(5)]  # 32 choices an update
    assert rates == pytest.approx([0.01 / 3, 0.02 / 3, 0.01, 0.01, 0.01])
