"""The probes themselves: their values are what choosing the best really gives."""

import itertools

import numpy as np
import pytest

from gpuyard.testing.probes import PROBES, LargestRow, Machines, Probe


def returns_of_best(probe: Probe, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """The value claimed at the beginning, and what choosing the best gave in the first episode."""
    probe.reset(7)
    claimed, total, factor, going = probe.values(gamma), np.zeros(probe.count), 1.0, np.ones(probe.count, bool)
    while going.any():
        step = probe.step(probe.best().argmax(1))
        total += factor * step.reward * going
        factor *= gamma
        going &= ~step.done
    return claimed, total


@pytest.mark.parametrize("name", list(PROBES))
def test_values_are_what_the_best_choices_give(name: str) -> None:
    claimed, total = returns_of_best(PROBES[name](16), 1.0 if "machine" in name else 0.9)
    np.testing.assert_allclose(total, claimed, rtol=1e-5)


@pytest.mark.parametrize("name", list(PROBES))
def test_no_choice_is_better_than_the_best(name: str) -> None:
    probe = PROBES[name](64)
    seen = probe.reset(3)
    random = np.random.default_rng(0)
    total, claimed = np.zeros(64), probe.values(1.0)
    for _ in range(40):
        actions = np.array([random.choice(np.flatnonzero(mask)) for mask in seen.mask])
        seen, reward, done = probe.step(actions)
        total += reward
        assert (total[done] <= claimed[done] + 1e-5).all()
        total[done], claimed[done] = 0.0, probe.values(1.0)[done]


@pytest.mark.parametrize("name", list(PROBES))
def test_restored_goes_on_as_if_never_stopped(name: str) -> None:
    probe, other = PROBES[name](8), PROBES[name](8)
    probe.reset(1)
    for k in range(7):
        probe.step(np.full(8, k % probe.actions))
    saved = probe.save()
    there = other.restore(saved)
    assert all((a == b).all() for a, b in zip(there, probe.observe(), strict=True))
    for k in range(12):
        here, there_step = probe.step(np.full(8, k % probe.actions)), other.step(np.full(8, k % probe.actions))
        assert (here.reward == there_step.reward).all()
        assert all((a == b).all() for a, b in zip(here.observation, there_step.observation, strict=True))


def test_illegal_counts_as_the_first_legal() -> None:
    probe = LargestRow(32)
    seen = probe.reset(2)
    first = seen.mask.argmax(1)
    expected = probe.best()[np.arange(32), first]
    step = probe.step(np.where(seen.mask.all(1), first, (~seen.mask).argmax(1)))
    assert (step.reward == expected).all()


def test_one_machine_is_best_by_weight_over_length() -> None:
    probe = Machines.random(3, problems=3, jobs=5, seed=11)
    for problem, best in enumerate(probe.optimum()):
        lengths, weights = probe.lengths[problem], probe.weights[problem]
        order = np.argsort(-weights / lengths)
        np.testing.assert_allclose(best, -(weights[order] * np.cumsum(lengths[order])).sum())


def test_two_machines_are_best_over_all_orders() -> None:
    probe = Machines.random(1, problems=1, jobs=4, seed=2, speeds=(1.0, 3.0))
    tried = []
    for order in itertools.permutations(range(4)):
        probe.reset(0)
        tried.append(sum(float(probe.step(np.array([job])).reward[0]) for job in order))
    np.testing.assert_allclose(probe.optimum(), [max(tried)], rtol=1e-6)
    assert min(tried) < max(tried)
