"""Behaviour cloning: train a network to choose as a teacher does, as a start for reinforcement learning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gpuyard.arrays import Array
from gpuyard.envs.base import Envs, Observation
from gpuyard.errors import LearningError
from gpuyard.learn.base import Arrays
from gpuyard.learn.parts import networks
from gpuyard.learn.parts.backend import refuse_if_too_large, setup
from gpuyard.learn.parts.networks import Params
from gpuyard.learn.parts.normalise import merge_observations, no_statistics, normalised_params
from gpuyard.networks.spec import NetworkSpec

Teacher = Callable[[Observation], Array]  # (envs,) i4

EXPLORE = 0.1  # share of random choices in demonstrations, so that situations are learned that a teacher never reaches
BATCH_SIZE, EPOCHS, LEARNING_RATES = 256, 6, (3e-3, 1e-3, 3e-4)  # so many epochs at each learning rate
DOUBT = 0.5  # entropy of the first choices, as a share of that of pure chance
HELD_OUT = 8  # one of so many parts of the demonstrations is not learned from


class Imitated(NamedTuple):
    """The network, and how well it chose as the teacher did, batch by batch."""

    params: Params
    losses: list[float]  # masked cross-entropy in nats
    agreement: list[float]  # share of equal choices, before learning from the batch


def demonstrations(envs: Envs, teacher: Teacher, steps: int, seed: int, explore: float = 0.0) -> Iterator[tuple[Observation, Array]]:
    """Yield a batch (envs,) for each step: the observation, and the teacher's choice.

    With probability `explore` a random legal choice is made instead, so that situations off the teacher's way are seen too;
    the teacher's choice is yielded all the same.
    """
    random = np.random.default_rng(seed)
    seen = envs.reset(seed)
    for _ in range(steps):
        kept = Observation(*(each.copy() for each in seen))
        actions = np.asarray(teacher(kept), np.int32)
        yield kept, actions
        stray = np.where(kept.mask, random.random(kept.mask.shape), -1.0).argmax(1)
        seen = envs.step(np.where(random.random(envs.count) < explore, stray, actions).astype(np.int32)).observation


def shuffled(pairs: Iterable[tuple[Observation, Array]], size: int, random: np.random.Generator) -> list[tuple[Observation, Array]]:
    """Return the pairs in random order, in batches of `size`; a rest that does not fill one is left out."""
    together = [np.concatenate(parts) for parts in zip(*((*seen, actions) for seen, actions in pairs), strict=True)]
    order = random.permutation(len(together[-1]))
    found = []
    for start in range(0, len(order) - size + 1, size):
        rows, context, mask, chosen = (each[order[start : start + size]] for each in together)
        found.append((Observation(rows, context, mask), chosen))
    return found


def imitate(
    params: Params,
    spec: NetworkSpec,
    batches: Iterable[tuple[Observation, Array]],
    learning_rate: float = 3e-3,
    normalise: bool = True,
    epochs: int = 1,
) -> Imitated:
    """Minimise the masked cross-entropy over pairs of observation and choice, by Adam, one step a batch; all batches of one size.

    `normalise` sets rows.mean … context.scale from all pairs first. More than one epoch, or normalising, keeps all batches in memory.
    """
    if normalise or epochs > 1:
        batches = list(batches)
    if normalise:
        seen, add = no_statistics(spec.rows, spec.context), jax.jit(merge_observations)
        for observation, _ in batches:
            seen = add(seen, *observation)
        params = normalised_params(params, seen)
    adam = optax.adam(1.0).init(networks.trained(params))
    losses, agreement = [], []
    for _ in range(epochs):
        for observation, chosen in batches:
            params, adam, loss, same = _imitation_step(spec, params, adam, observation, chosen, np.float32(learning_rate))
            losses.append(float(loss))
            agreement.append(float(same))
            if not np.isfinite(losses[-1]):
                raise LearningError(f"the loss of imitation is not finite in batch {len(losses) - 1}", hint="lower the learning rate")
    return Imitated(params, losses, agreement)


def taught(spec: NetworkSpec, arrays: Arrays, envs: Envs, teacher: Teacher, steps: int, seed: int) -> tuple[Arrays, float]:
    """Train a network on `steps` choices of a teacher, on the CPU; also return how often it agrees on demonstrations held out.

    The last part of the demonstrations is held out. The network is left uncertain enough to go on learning.
    """
    rounds = max(steps // envs.count, 2)
    size = 3 * rounds * sum(each.nbytes for each in envs.reset(seed))  # as collected, concatenated, and in batches
    refuse_if_too_large("imitation", size, "lower training.start_steps")
    pairs = list(demonstrations(envs, teacher, rounds, seed, EXPLORE))
    last = max(rounds // HELD_OUT, 1)
    batches = shuffled(pairs[:-last], BATCH_SIZE, np.random.default_rng([seed, 0x696D69]))
    with jax.default_device(setup("cpu")):
        params = {name: jnp.asarray(array) for name, array in arrays.items()}
        for k, rate in enumerate(LEARNING_RATES):
            params = imitate(params, spec, batches, rate, normalise=k == 0, epochs=EPOCHS).params
        same = agreement(params, spec, pairs[-last:])
        params = softened(params, spec, pairs[-last:])
    return {name: np.array(each) for name, each in params.items()}, same


def softened(params: Params, spec: NetworkSpec, batches: Sequence[tuple[Observation, Array]]) -> Params:
    """Divide the scores by the number that gives enough doubt: the same choice stays best, but others are tried as well."""
    low, high = 1.0, 1000.0
    for _ in range(20):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if doubt(_divided(params, spec, middle), spec, batches) < DOUBT else (low, middle)
    return _divided(params, spec, low)


def doubt(params: Params, spec: NetworkSpec, batches: Iterable[tuple[Observation, Array]]) -> float:
    """Return the mean entropy of choices as a share of that of pure chance."""
    entropy, most = np.sum([_entropies(spec, params, observation) for observation, _ in batches], axis=0)
    return float(entropy / most) if most else 1.0


def _divided(params: Params, spec: NetworkSpec, by: float) -> Params:
    """Return the network with its scores divided by a number."""
    last = f"head.{len(spec.head_layers)}"
    return {name: each / np.float32(by) if name in (f"{last}.weight", f"{last}.bias") else each for name, each in params.items()}


@partial(jax.jit, static_argnames="spec")
def _entropies(spec: NetworkSpec, params: Params, observation: Observation) -> jax.Array:
    """Return sums over a batch: the entropy of the choices, and that of pure chance."""
    every = networks.log_probabilities(networks.apply(spec, params, *observation))
    return jnp.stack([networks.entropy(every).sum(), jnp.log(jnp.asarray(observation.mask).sum(-1)).sum()])


def agreement(params: Params, spec: NetworkSpec, batches: Iterable[tuple[Observation, Array]]) -> float:
    """Return the share of choices that are the teacher's."""
    same = [np.asarray(_choices(spec, params, observation)) == chosen for observation, chosen in batches]
    return float(np.mean(np.concatenate(same)))


@partial(jax.jit, static_argnames="spec")
def _choices(spec: NetworkSpec, params: Params, observation: Observation) -> jax.Array:
    return networks.apply(spec, params, *observation).argmax(-1)


@partial(jax.jit, static_argnames="spec")
def _imitation_step(
    spec: NetworkSpec, params: Params, adam: Any, observation: Observation, chosen: jax.Array, rate: jax.Array
) -> tuple[Params, Any, jax.Array, jax.Array]:
    fixed = networks.normalisation(params)

    def cross_entropy(trained: Params) -> tuple[jax.Array, jax.Array]:
        scores = networks.apply(spec, {**trained, **fixed}, *observation)
        every = networks.log_probabilities(scores)
        loss = -jnp.take_along_axis(every, chosen[:, None], -1).mean()
        return loss, (scores.argmax(-1) == chosen).mean()

    (loss, same), gradient = jax.value_and_grad(cross_entropy, has_aux=True)(networks.trained(params))
    change, adam = optax.adam(1.0).update(gradient, adam)  # −1 × the direction: the learning rate is an argument
    return {**jax.tree.map(lambda p, c: p + rate * c, networks.trained(params), change), **fixed}, adam, loss, same
