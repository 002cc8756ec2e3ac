"""Running means and variances of observations and returns; kept on the device, inside compiled updates."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gpuyard.learn.parts.networks import AnyArray, Params

MEMORY = 100.0  # rollouts that are remembered: older ones fade
LEAST_STD = 0.05  # a feature that hardly varied in training is magnified by at most 20


class Moments(NamedTuple):
    """Mean and variance over the rollouts so far; before the first one, 0 and 1."""

    mean: jax.Array  # (features,) or ()
    variance: jax.Array
    rollouts: jax.Array  # () f4

    @property
    def std(self) -> jax.Array:
        return jnp.sqrt(self.variance)


class RunningStatistics(NamedTuple):
    """Moments of everything that is normalised."""

    rows: Moments
    context: Moments
    returns: Moments


def no_statistics(rows: int, context: int) -> RunningStatistics:
    """Return the statistics before training, for so many features of rows and context."""
    return RunningStatistics(*(Moments(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(())) for shape in ((rows,), (context,), ())))


def inherited(params: Params, rollouts: float) -> tuple[Moments, Moments]:
    """Return the moments of rows and context that a network brings along, counted as that many rollouts."""

    def moments(part: str) -> Moments:
        mean, scale = params.get(f"{part}.mean", jnp.zeros(0)), params.get(f"{part}.scale", jnp.ones(0))
        return Moments(mean, 1.0 / scale**2, jnp.full((), rollouts))

    return moments("rows"), moments("context")


def merge(old: Moments, x: jax.Array, weight: jax.Array | None = None, memory: float = MEMORY) -> Moments:
    """Add one rollout: x (…, features) or (…), counted where `weight` (…) is 1. It counts as one of at most `memory` rollouts."""
    axes = tuple(range(x.ndim - old.mean.ndim))
    shape = x.shape[: len(axes)]
    w = jnp.ones(shape) if weight is None else weight.astype(jnp.float32)
    w = (w / jnp.maximum(w.sum(), 1.0)).reshape(shape + (1,) * old.mean.ndim)
    mean = (w * x).sum(axes)
    variance = (w * (x - mean) ** 2).sum(axes)
    total = jnp.minimum(old.rollouts + 1.0, memory)
    share, delta = 1.0 / total, mean - old.mean
    return Moments(old.mean + share * delta, (1 - share) * old.variance + share * variance + share * (1 - share) * delta**2, total)


def merge_observations(
    old: RunningStatistics, rows: AnyArray, context: AnyArray, mask: AnyArray, memory: float = MEMORY
) -> RunningStatistics:
    """Add the observations of one rollout; only rows that could be chosen count."""
    found = old._replace(context=merge(old.context, jnp.asarray(context), memory=memory))
    return found._replace(rows=merge(old.rows, jnp.asarray(rows), jnp.asarray(mask), memory)) if old.rows.mean.size else found


def scale(moments: Moments) -> jax.Array:
    """Return the factor for a difference from the mean."""
    return 1.0 / jnp.maximum(moments.std, LEAST_STD)


def normalised_params(params: Params, seen: RunningStatistics) -> Params:
    """Return the network with the normalisation that these statistics give."""
    for_rows = {"rows.mean": seen.rows.mean, "rows.scale": scale(seen.rows)} if "rows.mean" in params else {}
    return {**params, **for_rows, "context.mean": seen.context.mean, "context.scale": scale(seen.context)}
