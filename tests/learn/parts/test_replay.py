"""What comes out of the buffer is what went in: returns over n steps, priorities, balance, memory."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard.envs.base import Observation
from gpuyard.errors import DataError, LearningError
from gpuyard.learn.parts import backend
from gpuyard.learn.parts.replay import Replay, ReplayConfig
from gpuyard.learn.parts.saving import generator_from, generator_state


def observation(number: float, envs: int = 2, rows: int = 0) -> Observation:
    """Step `number`; the environment's number is the second feature."""
    context = np.stack([np.full(envs, number), np.arange(envs)], axis=1).astype(np.float32)
    seen = np.full((envs, rows, 3), number, dtype=np.float32)
    return Observation(seen, context, np.ones((envs, max(rows, 4)), dtype=bool))


def filled(steps: int, config: ReplayConfig, *, rewards: list[list[float]] | None = None, dones: list[list[bool]] | None = None) -> Replay:
    buffer = Replay(observation(0), config)
    for t in range(steps):
        reward = np.array(rewards[t] if rewards else [t, -t], dtype=np.float32)
        done = np.array(dones[t] if dones else [False, False])
        buffer.add(observation(t), np.array([t % 4, (t + 1) % 4]), reward, done)
    return buffer


def test_returns_over_three_steps_by_hand() -> None:
    rewards = [[1.0, 1.0], [2.0, 10.0], [4.0, 100.0], [8.0, 1000.0], [16.0, 5.0]]
    dones = [[False, False], [False, True], [False, False], [True, False], [False, False]]
    buffer = filled(5, ReplayConfig(capacity=100, n_step=3, discount=0.5), rewards=rewards, dones=dones)
    batch, items = buffer.sample(1, 200, np.random.default_rng(0))
    by_item = {int(i): (float(r), float(d)) for i, r, d in zip(items[0], batch.returns[0], batch.discount[0], strict=True)}
    assert by_item == {  # item = slot × 2 + environment; slots 2, 3, 4 lack what follows
        0: (1 + 0.5 * 2 + 0.25 * 4, 0.125),
        1: (1 + 0.5 * 10, 0.0),  # the episode ends with the second step
        2: (2 + 0.5 * 4 + 0.25 * 8, 0.0),  # ends with the third
        3: (10.0, 0.0),
    }


@pytest.mark.parametrize("n_step", [1, 2, 5])
@pytest.mark.parametrize("steps", [7, 10, 23])
def test_next_observation_after_the_ring_went_round(n_step: int, steps: int) -> None:
    config = ReplayConfig(capacity=20, n_step=n_step, discount=0.9)
    buffer = filled(steps, config)
    batch, _ = buffer.sample(3, 300, np.random.default_rng(1))
    assert set(batch.context[..., 0].ravel().astype(int)) == set(range(max(0, steps - 10), steps - n_step))
    assert np.array_equal(batch.next_context[..., 0], batch.context[..., 0] + n_step)
    assert np.array_equal(batch.next_context[..., 1], batch.context[..., 1])
    sign = np.where(batch.context[..., 1] == 0, 1.0, -1.0)
    expected = sum(0.9**k * sign * (batch.context[..., 0] + k) for k in range(n_step))
    assert batch.returns == pytest.approx(expected, rel=1e-5)
    assert np.array_equal(batch.action, (batch.context[..., 0] + batch.context[..., 1]) % 4)


def test_rows_and_masks_come_back() -> None:
    buffer = Replay(observation(0, envs=3, rows=5), ReplayConfig(capacity=30))
    for t in range(4):
        seen = observation(t, envs=3, rows=5)
        seen.mask[:, t] = False
        buffer.add(seen, np.zeros(3), np.zeros(3), np.zeros(3, dtype=bool))
    batch, _ = buffer.sample(2, 50, np.random.default_rng(0))
    assert batch.rows.shape == (2, 50, 5, 3)
    number = batch.context[..., 0].astype(int)
    assert np.array_equal(batch.rows[..., 0, 0], number)
    assert not np.take_along_axis(batch.mask, number[..., None], axis=-1).any()
    assert not np.take_along_axis(batch.next_mask, number[..., None] + 1, axis=-1).any()


@pytest.mark.parametrize("balance", [(), (1,)])
def test_priorities_decide_and_weights_make_up_for_them(balance: tuple[int, ...]) -> None:
    config = ReplayConfig(capacity=12, prioritised=True, alpha=0.5, balance=balance, bins=2)
    buffer = filled(9, config)  # went round: slots 0 … 2 are new, slot 2 cannot be drawn
    errors = np.array([4.0, 1.0, 9.0, 1.0, 16.0, 1.0, 1.0, 4.0, 25.0, 1.0])
    able = np.array([6, 7, 8, 9, 10, 11, 0, 1, 2, 3])
    buffer.learned(able, errors)
    items, weights = buffer.draw(60_000, np.random.default_rng(2), beta=1.0)
    expected = np.zeros(12)
    roots = np.sqrt(errors)
    for env in (0, 1):
        mine = able % 2 == env
        expected[able[mine]] = roots[mine] / (roots[mine].sum() * 2 if balance else roots.sum())
    drawn = np.bincount(items, minlength=12) / len(items)
    assert drawn == pytest.approx(expected, abs=0.008)
    assert np.bincount(items, weights, minlength=12)[able] / len(items) == pytest.approx(np.full(10, 0.1), abs=0.006)


def test_new_experience_has_the_highest_priority_seen() -> None:
    buffer = filled(4, ReplayConfig(capacity=20, prioritised=True, alpha=1.0))
    buffer.learned(np.array([0, 1]), np.array([7.0, 0.5]))
    buffer.add(observation(4), np.zeros(2), np.zeros(2), np.zeros(2, dtype=bool))
    assert buffer.tree is not None
    assert buffer.tree.weights[:8] == pytest.approx([7.0, 0.5, 1, 1, 1, 1, 7.0, 7.0], rel=1e-5)
    assert buffer.tree.weights[8:10].tolist() == [0.0, 0.0]


def test_balanced_draws_every_regime_alike() -> None:
    buffer = Replay(observation(0), ReplayConfig(capacity=2000, balance=(0,), bins=4))
    rng = np.random.default_rng(0)
    for t in range(1000):  # one step in 20 is from the busy regime
        load = 10.0 if t % 20 == 0 else rng.random()
        buffer.add(observation(load), np.zeros(2), np.zeros(2), np.zeros(2, dtype=bool))
    batch, _ = buffer.sample(1, 20_000, rng)
    busy = float(np.mean(batch.context[0, :, 0] > 5))
    assert busy == pytest.approx(0.5, abs=0.02)  # two of the four bins hold something
    plain = Replay(observation(0), ReplayConfig(capacity=2000))
    plain.columns, plain.added = buffer.columns, buffer.added
    batch, _ = plain.sample(1, 20_000, rng)
    assert float(np.mean(batch.context[0, :, 0] > 5)) == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize("config", [ReplayConfig(capacity=16), ReplayConfig(capacity=16, prioritised=True, balance=(0, 1), n_step=2)])
def test_goes_on_from_what_was_saved(config: ReplayConfig) -> None:
    one, rng = filled(11, config), np.random.default_rng(5)
    one.learned(one.draw(5, rng, 1.0)[0], rng.random(5))
    saved, state = one.save(), generator_state(rng)
    two = Replay(observation(0), config)
    two.restore(saved)
    for buffer, source in ((one, rng), (two, generator_from(state))):
        buffer.add(observation(11), np.ones(2), np.ones(2), np.ones(2, dtype=bool))
        buffer.drawn = buffer.sample(4, 8, source, 0.7)  # type: ignore[attr-defined]
    for left, right in zip(one.drawn[0], two.drawn[0], strict=True):  # type: ignore[attr-defined]
        assert np.array_equal(left, right)


def test_refused_when_memory_is_too_small() -> None:
    with pytest.raises(LearningError, match=r"needs \d+\.\d GiB of memory and \d+\.\d GiB are available; hint: "):
        Replay(observation(0, rows=1000), ReplayConfig(capacity=10**10))


def test_refused_when_the_allocation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "available_memory", lambda: 1 << 62)  # what a system that overcommits says
    with pytest.raises(LearningError, match="GiB are available"):
        Replay(observation(0, rows=1000), ReplayConfig(capacity=10**13))


def test_nothing_to_draw() -> None:
    with pytest.raises(LearningError, match="empty replay buffer"):
        filled(1, ReplayConfig(capacity=10)).sample(1, 1, np.random.default_rng(0))


def test_saved_with_other_settings() -> None:
    saved = filled(11, ReplayConfig(capacity=16)).save()
    with pytest.raises(DataError, match="does not fit .*; hint: resume with the settings"):
        Replay(observation(0), ReplayConfig(capacity=20)).restore(saved)
    with pytest.raises(DataError, match="does not fit"):
        Replay(observation(0, envs=3), ReplayConfig(capacity=24)).restore(saved)
