"""DQN and each of its parts on problems with known answers."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from gpuyard.envs.base import Observation
from gpuyard.errors import LearningError, UsageError
from gpuyard.features.schema import Schema
from gpuyard.learn.dqn import D3qnConfig, DoubleDqn, Dqn, DqnConfig, RainbowConfig, make_dqn, project
from gpuyard.learn.parts import heads, networks
from gpuyard.networks.spec import NetworkSpec
from gpuyard.testing.probes import PROBES, ActionByObservation, Machines, TwoSteps
from support.learning import SMALL, exported_scores, greedy_return, trained

COMMON: dict[str, Any] = {**SMALL, "epsilon_steps": 3000, "target_every": 40, "low": -2.0, "high": 2.0, "atoms": 21}
CONFIGS = {
    "dqn": DqnConfig(**COMMON),
    "double": DqnConfig(**COMMON, double=True),
    "dueling": DqnConfig(**COMMON, dueling=True),
    "prioritised": DqnConfig(**COMMON, prioritised=True),
    "n-step": DqnConfig(**COMMON, n_step=3),
    "distributional": DqnConfig(**COMMON, distributional=True),
    "noisy": DqnConfig(**COMMON, noisy=True),
    "no target": DqnConfig(**COMMON, target_network=False),
    "balanced": DqnConfig(**COMMON, balanced=True),
    "not normalised": DqnConfig(**COMMON, normalise_observations=False),
    "d3qn": D3qnConfig(**COMMON),
    "rainbow": RainbowConfig(**COMMON),
}


class TwoStepsOfThree(TwoSteps):
    """With a third choice that is never legal, and so of the shape of the masked action: both are learned by the same compiled code."""

    actions = 3

    def observe(self) -> Observation:
        seen = super().observe()
        seen.mask[:, 2] = False
        return seen


@pytest.mark.parametrize("name", CONFIGS)
def test_future_is_discounted_once(name: str) -> None:
    probe = TwoSteps(32) if CONFIGS[name].noisy else TwoStepsOfThree(32)  # noise that dies away must have tried every choice
    learner = trained(make_dqn(probe, CONFIGS[name], seed=1), 6000)
    for _ in range(2):  # what is seen first, and second
        seen = probe.observe()
        assert exported_scores(learner, seen)[:, :2] == pytest.approx(np.repeat(probe.values(0.9)[:, None], 2, 1), abs=0.05)
        probe.step(np.zeros(32, dtype=int))


@pytest.mark.parametrize("name", CONFIGS)
def test_best_legal_choice(name: str) -> None:
    probe = PROBES["masked-action"](32)
    learner = trained(make_dqn(probe, CONFIGS[name], seed=2), 6000)
    seen = probe.observe()
    scores = exported_scores(learner, seen)
    assert probe.best()[np.arange(32), scores.argmax(1)].all()
    assert scores.max(1) == pytest.approx(probe.values(0.9), abs=0.05)
    assert {0.5, 1.0} == set(probe.values(0.9))  # both cases were there


@pytest.mark.parametrize("name", ["dqn", "dueling", "prioritised", "noisy"])
def test_rows(name: str) -> None:
    probe = PROBES["largest-row"](64)
    learner = trained(make_dqn(probe, CONFIGS[name], seed=3), 8000)
    right = []
    for _ in range(8):
        seen = probe.step(np.zeros(64, dtype=int)).observation
        right.append(probe.best()[np.arange(64), exported_scores(learner, seen).argmax(1)])
    assert np.mean(right) > 0.85  # uniform choices: 0.5


REPEATED = [
    pytest.param(*pair, marks=pytest.mark.slow)
    for pair in (("d3qn", "one-machine"), ("prioritised", "one-machine"), ("prioritised", "two-machines"), ("dqn", "two-machines"))
]


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(("name", "problem"), [("dqn", "one-machine"), ("d3qn", "two-machines"), *REPEATED])
def test_optimum_of_small_scheduling_problems(name: str, problem: str) -> None:
    """Wide exploration to the end and a rate that falls to 0: the second best order is within 2 % of the best."""
    probe = PROBES[problem](32)
    assert isinstance(probe, Machines)
    config = replace(CONFIGS[name], discount=1.0, width=32, network="pool", schedule="linear", steps=12_000, steps_per_update=2)
    learner = trained(make_dqn(probe, replace(config, epsilon_end=0.3, epsilon_steps=5000), seed=4), 12_000)
    assert greedy_return(learner, PROBES[problem](32)) == pytest.approx(np.repeat(probe.optimum(), 32), abs=1e-5)


class Remembered(ActionByObservation):
    """What counts is in the history, the last feature; what is seen now says nothing."""

    schema = Schema("probe", 1, (), ("now", "then"))

    def observe(self) -> Observation:
        seen = super().observe()
        return seen._replace(context=np.concatenate([np.zeros_like(seen.context), seen.context], axis=1))


@pytest.mark.parametrize("history", [0, 1])
def test_regime_embedding(history: int) -> None:
    probe = Remembered(32)
    learner = trained(make_dqn(probe, replace(CONFIGS["d3qn"], history=history), seed=5), 5000)
    spec, arrays = learner.network()
    assert bool(spec.memory_layers) == any(name.startswith("memory.") for name in arrays) == bool(history)
    assert exported_scores(learner, probe.observe()) == pytest.approx(probe.rewards(), abs=0.05)


def test_projection_as_the_slow_one() -> None:
    rng = np.random.default_rng(0)
    support = np.linspace(-3.0, 5.0, 9).astype(np.float32)
    chances = rng.dirichlet(np.ones(9), size=40).astype(np.float32)
    returns = rng.uniform(-6, 8, size=40).astype(np.float32)
    returns[:5] = support[:5]
    discount = rng.choice([0.0, 0.5, 0.99, 1.0], size=40).astype(np.float32)
    slow = np.zeros((40, 9))
    for b in range(40):
        for j in range(9):
            at = min(max(float(returns[b] + discount[b] * support[j]), -3.0), 5.0) + 3.0  # the atoms are 1 apart
            below = int(at)
            slow[b, below] += chances[b, j] * (below + 1 - at)
            if at > below:
                slow[b, below + 1] += chances[b, j] * (at - below)
    assert np.asarray(project(support, chances, returns, discount)) == pytest.approx(slow, abs=1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize(
    "spec",
    [
        NetworkSpec(0, 5, 3, context_layers=(8,), head_layers=(), value_layers=()),
        NetworkSpec(0, 5, 3, context_layers=(8,), head_layers=(7, 6), value_layers=(7, 6), atoms=11, low=-1.0, high=2.0),
        NetworkSpec(0, 5, 3, context_layers=(8,), head_layers=(7,), value_layers=(7,), history=2, memory_layers=(4,), act="tanh"),
        NetworkSpec(4, 5, row_layers=(8,), head_layers=(7,), value_layers=(7,), pool="mean"),
    ],
    ids=["linear", "atoms", "memory", "rows"],
)
def test_export_chooses_the_same(spec: NetworkSpec, noisy: bool, dueling: bool) -> None:
    rng = np.random.default_rng(6)
    params = heads.initial(spec, jax.random.key(0), dueling=dueling, noisy=noisy)
    params = {name: rng.normal(size=each.shape).astype(np.float32) for name, each in params.items()}  # type: ignore[misc]
    scaling = {name: np.asarray(each) for name, each in networks.normalisation(networks.init(spec, jax.random.key(0))).items()}
    actions = spec.actions or 6
    rows, context = rng.normal(size=(200, actions if spec.rows else 0, spec.rows)), rng.normal(size=(200, 5))
    mask = rng.random((200, actions)) < 0.6
    mask[:, 0] = True
    used = heads.quiet(params) | scaling  # type: ignore[arg-type]
    seen = (rows.astype(np.float32), context.astype(np.float32), mask)
    values = np.asarray(heads.expected(spec, heads.outputs(spec, used, *seen, dueling=dueling), mask))  # type: ignore[arg-type]
    exported_spec, arrays = heads.plain(spec, params, dueling=dueling)
    scores = np.asarray(networks.apply(exported_spec, arrays | scaling, *seen))  # type: ignore[arg-type]
    assert np.array_equal(values.argmax(1), scores.argmax(1))
    assert len(np.unique(scores.argmax(1))) == actions
    if not spec.rows:
        assert scores == pytest.approx(values, abs=1e-4)


def test_noise_has_the_spread_it_says() -> None:
    spec = NetworkSpec(0, 5, 3, context_layers=(4,), head_layers=(), value_layers=())
    params = heads.initial(spec, jax.random.key(0), dueling=False, noisy=True)
    drawn = np.random.default_rng(0).standard_normal((4000, heads.noise_size(params))).astype(np.float32)
    weights = np.asarray(jax.vmap(lambda each: heads.perturbed(params, each)["head.0.weight"])(drawn))
    assert weights.mean(0) == pytest.approx(np.asarray(params["head.0.weight"]), abs=0.02)
    assert weights.std(0) == pytest.approx(heads.SIGMA / 2 * np.sqrt(2 / np.pi) * np.ones((3, 4)), rel=0.15)  # E|x| of a normal, √4 inputs


def test_epsilon_falls_to_its_last_value_and_all_is_explored_before() -> None:
    learner = make_dqn(PROBES["masked-action"](32), replace(CONFIGS["dqn"], warmup=10**9, epsilon_steps=1000), seed=0)
    assert learner.epsilon == 1.0
    trained(learner, 500)
    assert learner.epsilon == pytest.approx(1 - 0.95 * learner.steps / 1000)
    tried = learner.replay.columns["action"][: learner.replay.added]
    assert np.bincount(tried.ravel(), minlength=3) / tried.size == pytest.approx([5 / 12, 5 / 12, 2 / 12], abs=0.15)
    trained(learner, 2000)
    assert learner.epsilon == pytest.approx(0.05)


def test_target_network_is_copied_every_so_often() -> None:
    learner = make_dqn(PROBES["two-steps"](32), replace(CONFIGS["dqn"], target_every=48, updates_per_round=16), seed=0)
    trained(learner, 256)
    copied = []
    for _ in range(6):
        learner.update()
        state = learner.state
        copied.append((int(state.updates), all(np.array_equal(state.params[name], state.target[name]) for name in state.params)))
    assert copied[0][0] > 0
    assert all(same == (updates % 48 == 0) for updates, same in copied)
    assert any(same for _, same in copied)


def test_refused() -> None:
    with pytest.raises(UsageError, match="a fixed number of actions.*distributional=false"):
        make_dqn(PROBES["largest-row"](4), RainbowConfig(), seed=0)
    with pytest.raises(UsageError, match="'moon', which is not observed; hint: observed: signal"):
        make_dqn(PROBES["two-steps"](4), DqnConfig(balanced=True, balance_by=("moon",)), seed=0)
    with pytest.raises(LearningError, match="GiB are available"):
        make_dqn(PROBES["largest-row"](4), DqnConfig(capacity=10**13), seed=0)


class Myopic(Dqn):
    """Sees no further than the next reward."""

    def target(self, *given: Any) -> jax.Array:
        return 0.0 * super().target(*given)


def test_a_variant_overrides_one_step() -> None:
    probe = PROBES["two-steps"](32)
    learner = trained(Myopic(probe, CONFIGS["dqn"], seed=1), 6000)
    seen = probe.observe()
    expected = np.where(seen.context[:, 0] == 1.0, 1.0, 0.0)  # the reward comes with the second step
    assert exported_scores(learner, seen) == pytest.approx(np.repeat(expected[:, None], 2, 1), abs=0.05)


def test_double_lets_the_online_network_choose_what_the_target_network_judges() -> None:
    learner = make_dqn(PROBES["action-by-observation"](8), CONFIGS["double"], seed=1)
    assert type(learner) is DoubleDqn
    trained(learner, 300)
    flipped = learner.state._replace(target={name: -each for name, each in learner.state.params.items()})
    batch, _ = learner.replay.sample(1, 64, np.random.default_rng(0))
    one = type(batch)(*(each[0] for each in batch))
    given = (flipped, flipped.params, learner.scaling(), one, jax.numpy.zeros((3, 0)))
    judged = learner.outputs(flipped.target, learner.scaling(), one.next_seen, np.zeros(0))[..., 0]
    assert np.array_equal(Dqn.target(learner, *given)[:, 0], judged.max(1))
    assert np.array_equal(
        learner.target(*given)[:, 0], judged[np.arange(64), learner.greedy(flipped.params, given[2], one.next_seen, np.zeros(0))]
    )
    assert not np.array_equal(Dqn.target(learner, *given), learner.target(*given))


def test_equal_learners_share_compiled_code_which_does_not_keep_them_alive() -> None:
    traced = []

    class Counted(Dqn):
        def target(self, *given: Any) -> jax.Array:
            traced.append(1)
            return super().target(*given)

    first = trained(Counted(PROBES["two-steps"](8), CONFIGS["dqn"], seed=1), 600)
    once = len(traced)
    trained(Counted(PROBES["two-steps"](8), CONFIGS["dqn"], seed=2), 600)
    assert 0 < once == len(traced)
    alive = weakref.ref(first)
    del first
    gc.collect()
    assert alive() is None
