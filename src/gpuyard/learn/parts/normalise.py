"""Running means and variances over rollouts, for observations and values; on the device, inside compiled updates."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gpuyard.learn.parts.networks import Params

MEMORY = 100.0  # rollouts that are remembered: what is older fades
LEAST_STD = 0.05  # a feature that hardly varied in training is not blown up: by 20 at most


class Statistics(NamedTuple):
    """Of numbers seen so far; `rollouts` 0: none, and then the mean counts as 0 and the deviation as 1."""

    mean: jax.Array  # (features,) or ()
    variance: jax.Array
    rollouts: jax.Array  # () f4

    @property
    def std(self) -> jax.Array:
        return jnp.sqrt(self.variance)


class Seen(NamedTuple):
    """What is normalised."""

    rows: Statistics
    context: Statistics
    returns: Statistics


def nothing_seen(rows: int, context: int) -> Seen:
    """Before training."""
    return Seen(*(Statistics(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(())) for shape in ((rows,), (context,), ())))


def seen_before(params: Params, rollouts: float) -> tuple[Statistics, Statistics]:
    """Statistics of rows and context from a network that brings its normalisation along, as if of that many rollouts."""

    def of(part: str) -> Statistics:
        mean, scale = params.get(f"{part}.mean", jnp.zeros(0)), params.get(f"{part}.scale", jnp.ones(0))
        return Statistics(mean, 1.0 / scale**2, jnp.full((), rollouts))

    return of("rows"), of("context")


def merge(old: Statistics, x: jax.Array, weight: jax.Array | None = None, memory: float = MEMORY) -> Statistics:
    """With one more rollout: x (…, features) or (…), counted where `weight` (…) is 1. The new one counts 1 of at most `memory`."""
    axes = tuple(range(x.ndim - old.mean.ndim))
    shape = x.shape[: len(axes)]
    w = jnp.ones(shape) if weight is None else weight.astype(jnp.float32)
    w = (w / jnp.maximum(w.sum(), 1.0)).reshape(shape + (1,) * old.mean.ndim)
    mean = (w * x).sum(axes)
    variance = (w * (x - mean) ** 2).sum(axes)
    total = jnp.minimum(old.rollouts + 1.0, memory)
    share, delta = 1.0 / total, mean - old.mean
    return Statistics(old.mean + share * delta, (1 - share) * old.variance + share * variance + share * (1 - share) * delta**2, total)


def scale(statistics: Statistics) -> jax.Array:
    """What a difference from the mean is multiplied by."""
    return 1.0 / jnp.maximum(statistics.std, LEAST_STD)


def normalised_params(params: Params, seen: Seen) -> Params:
    """The network with the normalisation of what was seen."""
    of_rows = {"rows.mean": seen.rows.mean, "rows.scale": scale(seen.rows)} if "rows.mean" in params else {}
    return {**params, **of_rows, "context.mean": seen.context.mean, "context.scale": scale(seen.context)}
