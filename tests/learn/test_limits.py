"""Hyper-parameters that mean nothing are refused in one line, before anything is made of them."""

from __future__ import annotations

import pytest

from gpuyard.errors import GpuyardError, UsageError
from gpuyard.learn.base import find_learner
from gpuyard.learn.run.plan import TrainingRequest, TrainingSettings, plan_again, plan_of
from gpuyard.testing.probes import PROBES

WRONG = [
    ("ppo", "minibatches", 0), ("ppo", "minibatches", -2), ("ppo", "rollout", 0), ("ppo", "rollout", -4), ("ppo", "epochs", 0),
    ("ppo", "updates", 0), ("ppo", "discount", 5.0), ("ppo", "clip", -1.0), ("ppo", "learning_rate", -1.0), ("ppo", "max_grad_norm", -1.0),
    ("ppo", "schedule", "no"), ("dqn", "batch_size", 0), ("dqn", "capacity", -5), ("dqn", "capacity", 10**400), ("dqn", "n_step", 0),
    ("dqn", "n_step", -1), ("dqn", "steps", 0), ("dqn", "steps_per_update", 0), ("dqn", "updates_per_round", 10**12),
    ("dqn", "target_every", 0), ("dqn", "bins", 0), ("dqn", "max_grad_norm", 0.0), ("dqn", "alpha", -1.0), ("dqn", "discount", 2.0),
    ("dqn", "epsilon", 1.5), ("dqn", "schedule", "no"), ("rainbow", "atoms", 0), ("rainbow", "low", 20.0), ("sac", "temperature", 0.0),
    ("sac", "temperature", -1.0), ("sac", "tau", 5.0), ("sac", "entropy_share", -1.0), ("sac", "batch_size", -1),
    ("evolution", "schedule", "no"),    ("evolution", "threads", -2), ("evolution", "decay", 5.0), ("evolution", "pairs", 0),
    ("epsilon-greedy", "epsilon", 2.0),
    ("epsilon-greedy", "epsilon", -1.0), ("epsilon-greedy", "step", 5.0), ("exp3", "gamma", 0.0), ("exp3", "gamma", 2.0),
    ("linucb", "ridge", 0.0), ("linucb", "ridge", -1.0), ("linucb", "alpha", -1.0),
]  # fmt: skip


@pytest.mark.parametrize(("learner", "name", "value"), WRONG)
def test_a_number_that_means_nothing_is_refused(learner, name, value):
    with pytest.raises(UsageError, match=f"{name} = |unknown|cannot support"):
        find_learner(learner).config(**{name: value})


@pytest.mark.parametrize(("learner", "setting"), [
    ("ppo", {"width": 0}), ("ppo", {"width": -3}), ("ppo", {"width": 10**9}), ("ppo", {"history": -1}), ("ppo", {"history": 99}),
    ("dqn", {"width": 10**9}), ("evolution", {"width": -1}), ("rainbow", {"atoms": 10**9}), ("exp3", {"rollout": 0}),
])  # fmt: skip
def test_a_size_that_no_network_or_round_can_have_is_refused(learner, setting):
    kind = find_learner(learner)
    with pytest.raises(GpuyardError, match="network|rollout|atoms"):
        kind.make(PROBES["action-by-observation"](2), kind.config(**setting), 0)


@pytest.mark.parametrize(("name", "value"), [("envs", 0), ("envs", 10**9), ("steps", 0), ("steps", 10**400), ("patience", -1)])
def test_a_training_that_cannot_be_is_refused(name, value):
    with pytest.raises(UsageError, match=f"training: {name} = "):
        TrainingSettings(**{name: value})


@pytest.mark.parametrize(("learner", "sets", "gamma"), [
    ("ppo", (), 1.0), ("ppo", ("shaping=1",), 0.99), ("ppo", ("shaping=1", "learner.discount=0.9"), 0.9),
    ("dqn", ("shaping=1", "discount=0.5"), 0.5),
    ("evolution", ("shaping=1",), 1.0), ("exp3", ("shaping=1", "learner.gamma=0.2"), 1.0), ("ppo", ("shaping=1", "env.gamma=1"), 1.0),
])  # fmt: skip
def test_shaping_discounts_as_the_learner_does(learner, sets, gamma):
    plan = plan_of(TrainingRequest("Switch", learner, ("family:gpus=4 on 4",), sets=sets))
    assert plan.options.gamma == gamma
    assert plan_again(plan.record(), TrainingRequest(), "run").options == plan.options
