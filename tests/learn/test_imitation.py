"""Imitation: the teacher's choices are learned, and PPO can go on from there."""

import jax
import numpy as np
import pytest

from gpuyard.envs.base import Observation
from gpuyard.errors import LearningError
from gpuyard.learn.imitation import DOUBT, agreement, demonstrations, doubt, imitate, shuffled, softened, taught
from gpuyard.learn.parts import networks
from gpuyard.learn.parts.presets import network_for
from gpuyard.learn.ppo import Ppo, PpoConfig
from gpuyard.testing.probes import LargestRow, Machines


def largest(seen: Observation) -> np.ndarray:
    return np.where(seen.mask, seen.rows[..., 0], -np.inf).argmax(1)


def smith(seen: Observation) -> np.ndarray:
    return np.where(seen.mask, seen.rows[..., 1] / np.maximum(seen.rows[..., 0], 1e-6), -np.inf).argmax(1)


def test_teacher_is_learned() -> None:
    envs = LargestRow(64)
    spec = network_for(envs.schema, envs.actions, width=16)
    pairs = shuffled(demonstrations(envs, largest, 100, seed=1), 128, np.random.default_rng(0))
    params, losses, agreement = imitate(networks.init(spec, jax.random.key(0)), spec, pairs, epochs=4)
    assert losses[-1] < 0.3 * losses[0]
    assert np.mean(agreement[-10:]) > 0.95
    seen = envs.reset(2)
    assert (np.asarray(networks.apply(spec, params, *seen)).argmax(1) == largest(seen)).mean() > 0.9


def test_pairs_are_what_was_seen_before_the_choice() -> None:
    envs, again = Machines.random(4, 2, 3, seed=1), Machines.random(4, 2, 3, seed=1)
    seen = again.reset(6)
    for kept, actions in list(demonstrations(envs, smith, 7, seed=6)):
        assert all(np.array_equal(a, b) for a, b in zip(kept, seen, strict=True))
        assert np.array_equal(actions, smith(seen))
        seen = again.step(actions).observation


def test_exploring_leaves_the_way_but_not_the_teacher() -> None:
    strayed = list(demonstrations(Machines.random(16, 2, 4, seed=1), smith, 8, seed=6, explore=1.0))
    straight = list(demonstrations(Machines.random(16, 2, 4, seed=1), smith, 8, seed=6))
    assert all(np.array_equal(actions, smith(seen)) for seen, actions in strayed)
    assert any(not np.array_equal(a[0].mask, b[0].mask) for a, b in zip(strayed, straight, strict=True))


@pytest.mark.parametrize("size", [3, 8, 20])
def test_shuffling_keeps_pairs_together_and_loses_only_the_rest(size: int) -> None:
    numbers = [np.arange(8) + 8 * k for k in range(5)]
    pairs = [(Observation(np.zeros((8, 0, 0)), each[:, None], np.ones((8, 2), bool)), each) for each in numbers]
    together = shuffled(pairs, size, np.random.default_rng(1))
    assert {len(actions) for _, actions in together} == {size}
    kept = np.concatenate([actions for _, actions in together])
    assert np.array_equal(np.concatenate([seen.context[:, 0] for seen, _ in together]), kept)
    assert len(np.unique(kept)) == len(kept) == 40 // size * size
    assert not np.array_equal(kept, np.sort(kept))


def test_choices_stay_and_doubt_comes_back() -> None:
    envs = LargestRow(64)
    spec = network_for(envs.schema, envs.actions, width=16)
    pairs = shuffled(demonstrations(envs, largest, 100, seed=1), 128, np.random.default_rng(0))
    drawn = networks.init(spec, jax.random.key(0))
    sure = imitate(drawn, spec, pairs, epochs=8).params
    soft = softened(sure, spec, pairs)
    assert doubt(sure, spec, pairs) < 0.9 * DOUBT
    assert doubt(soft, spec, pairs) == pytest.approx(DOUBT, abs=0.01)
    assert agreement(soft, spec, pairs) == pytest.approx(agreement(sure, spec, pairs), abs=0.001)
    assert doubt(drawn, spec, pairs) > 0.95
    assert all(np.array_equal(softened(drawn, spec, pairs)[name], drawn[name]) for name in drawn)


def test_too_much_for_the_memory_is_refused() -> None:
    envs = LargestRow(4)
    spec = network_for(envs.schema, envs.actions, width=8)
    with pytest.raises(LearningError, match=r"imitation needs .* GiB of memory"):
        taught(spec, {}, envs, largest, 1 << 50, seed=0)


def test_ppo_starts_where_imitation_ended() -> None:
    envs = Machines.random(32, problems=2, jobs=4, seed=3)
    config = PpoConfig(rollout=8, minibatches=2, width=16, discount=1.0, updates=10)
    learner, fresh = Ppo(envs, config, seed=1), Ppo(Machines.random(32, problems=2, jobs=4, seed=3), config, seed=1)
    pairs = shuffled(demonstrations(envs, smith, 120, seed=1, explore=0.3), 128, np.random.default_rng(0))
    learner.start_from(imitate(learner.state.params, learner.spec, pairs, epochs=10).params)
    best = float(envs.optimum().mean())
    with_start, without = learner.update()["return"], fresh.update()["return"]
    assert best - with_start < 0.3 * (best - without)


def test_without_normalisation_the_four_arrays_stay() -> None:
    envs = LargestRow(16)
    spec = network_for(envs.schema, envs.actions, width=8)
    start = networks.init(spec, jax.random.key(0))
    params = imitate(start, spec, demonstrations(envs, largest, 3, seed=1), normalise=False).params
    assert all(np.array_equal(params[name], start[name]) for name in networks.NORMALISATION)
    assert not np.array_equal(params["head.0.weight"], start["head.0.weight"])
