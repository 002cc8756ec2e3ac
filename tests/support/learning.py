"""Checks of learners on probes: train, look at the exported network, play an episode with it."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from gpuyard.arrays import Array
from gpuyard.envs.base import Observation
from gpuyard.learn.base import Learner
from gpuyard.learn.parts import networks
from gpuyard.testing.probes import Probe

SMALL: dict[str, Any] = {"width": 16, "warmup": 256, "discount": 0.9, "learning_rate": 3e-3, "capacity": 20_000, "steps": 10_000}
"""Settings of learners with a replay buffer for small probes."""

L = TypeVar("L", bound=Learner)

_apply = jax.jit(networks.apply, static_argnums=0)  # one program: alone, each operation of each shape is compiled


def trained(learner: L, steps: int) -> L:
    """Train the learner for at least that many choices."""
    while learner.steps < steps:
        learner.update()
    return learner


def exported_scores(learner: Learner, seen: Observation) -> Array:
    """Return (envs, actions) scores of the exported network."""
    spec, arrays = learner.network()
    params = {name: jnp.asarray(each) for name, each in arrays.items()}
    return np.asarray(_apply(spec, params, *seen))


def greedy_return(learner: Learner, probe: Probe) -> Array:
    """Return (envs,) the returns of one episode of the exported network; all episodes of the probe have the same length."""
    seen, total, over = probe.reset(77), np.zeros(probe.count), False
    while not over:
        seen, reward, done = probe.step(exported_scores(learner, seen).argmax(1))
        total += reward
        over = bool(done.all())
    return total
