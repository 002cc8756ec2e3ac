"""Soft actor-critic for discrete choices (Haarnoja et al. 2018; Christodoulou 2019), with masks and a learned temperature."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gpuyard.arrays import Array
from gpuyard.envs.base import Envs, Observation
from gpuyard.learn.base import Arrays, learner
from gpuyard.learn.parts import networks
from gpuyard.learn.parts.networks import Params
from gpuyard.learn.parts.off_policy import OffPolicy, OffPolicyConfig, merged
from gpuyard.learn.parts.replay import Batch, Data
from gpuyard.learn.run.presets import network_for
from gpuyard.model.fields import ANY, check_limits
from gpuyard.networks.spec import NetworkSpec


@dataclass(frozen=True)
class SacConfig(OffPolicyConfig):
    """Of `Sac`."""

    entropy_share: float = 0.3  # of the entropy of a uniform choice among the legal ones, which the policy is to have
    temperature: float = 0.2  # the first one
    learn_temperature: bool = True
    tau: float = 0.005  # share by which the target critics follow in each update

    def __post_init__(self) -> None:
        super().__post_init__()
        check_limits("sac", self, {"entropy_share": (0, 1), "temperature": (0, ANY), "tau": (0, 1)}, above=("temperature", "tau"))


class SacState(NamedTuple):
    """All that updates change; `parts` holds actor, critics (a leading axis of two) and log_temperature."""

    parts: dict[str, Any]
    target: Params
    optimisers: dict[str, Any]


@learner("sac", title="Discrete soft actor-critic", config=SacConfig)
class Sac(OffPolicy):
    """A policy that earns much while staying as random as it is told to; two critics, of which the lower one counts."""

    def __init__(self, envs: Envs, config: SacConfig, seed: int) -> None:
        super().__init__(envs, config, seed)
        self.config = config
        spec = network_for(envs.schema, envs.actions, config.network, config.width, config.history)
        self.spec = replace(spec, value_layers=())
        actor, *critics = (_initial(self.spec, key) for key in jax.random.split(self.key, 3))
        both = jax.tree.map(lambda *each: jnp.stack(each), *critics)
        parts = {"actor": actor, "critics": both, "log_temperature": jnp.array(math.log(config.temperature), jnp.float32)}
        optimisers = {name: _optimiser(config).init(each) for name, each in parts.items()}
        self.state = jax.device_put(SacState(parts, both, optimisers), self.device)

    @property
    def state(self) -> SacState:
        return self._state

    @state.setter
    def state(self, state: SacState) -> None:
        self._state = state

    @property
    def temperature(self) -> float:
        """What a nat of entropy is worth, in reward."""
        return float(np.exp(self.state.parts["log_temperature"]))

    def choose(self, seen: Observation, scaling: Params) -> Array:
        """Drawn from the policy."""
        return np.asarray(_sample(self.spec, self.state.parts["actor"], scaling, *seen, self.key, np.uint32(self.steps)))

    def learn(self, batches: Batch, scaling: Params, rate: float) -> tuple[Array, Mapping[str, float]]:
        """One call for all updates of the round."""
        self.state, (errors, shown) = _all_updates(self.spec, self.config, self.state, scaling, batches, np.float32(rate))
        return np.asarray(errors), {name: float(value) for name, value in shown.items()} | {"temperature": self.temperature}

    def network(self) -> tuple[NetworkSpec, Arrays]:
        """The policy's logits as scores."""
        return self.spec, {name: np.asarray(each) for name, each in self.state.parts["actor"].items()} | {
            name: np.asarray(each) for name, each in self.scaling().items()
        }


def _initial(spec: NetworkSpec, key: jax.Array) -> Params:
    params = networks.trained(networks.init(spec, key))
    return {name: each for name, each in params.items() if not name.startswith("value_head.")}


def _optimiser(config: SacConfig) -> Any:
    """Of each part by itself; the learning rate is applied by the caller."""
    return optax.chain(optax.clip_by_global_norm(config.gradient_clip), optax.scale_by_adam())


@partial(jax.jit, static_argnames="spec")
def _sample(
    spec: NetworkSpec, actor: Params, scaling: Params, rows: Data, context: Data, mask: Data, key: jax.Array, step: Data
) -> jax.Array:
    return networks.sample(networks.apply(spec, merged(actor, scaling), rows, context, mask), jax.random.fold_in(key, step))


@partial(jax.jit, static_argnames=("spec", "config"))
def _all_updates(
    spec: NetworkSpec, config: SacConfig, state: SacState, scaling: Params, batches: Batch, rate: Data
) -> tuple[SacState, tuple[jax.Array, dict[str, jax.Array]]]:
    """One update after the other, within one compiled loop."""

    def update(state: SacState, batch: Batch) -> tuple[SacState, tuple[jax.Array, dict[str, jax.Array]]]:
        gradient = jax.grad(partial(_loss, spec, config), has_aux=True)
        slopes, (errors, shown) = gradient(state.parts, state.target, scaling, batch)
        stepped = {name: _optimiser(config).update(slopes[name], state.optimisers[name]) for name in state.parts}
        parts = {name: jax.tree.map(lambda old, change: old - rate * change, each, stepped[name][0]) for name, each in state.parts.items()}
        target = optax.incremental_update(parts["critics"], state.target, config.tau)
        return SacState(parts, target, {name: each[1] for name, each in stepped.items()}), (errors, shown)

    state, (errors, shown) = jax.lax.scan(update, state, batches)
    return state, (errors, {name: each.mean() for name, each in shown.items()})


def _loss(
    spec: NetworkSpec, config: SacConfig, parts: dict[str, Any], target: Params, scaling: Params, batch: Batch
) -> tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]]]:
    """The sum of three losses, each with the gradient of one part alone."""
    fixed = jax.lax.stop_gradient(parts)
    now, then = (batch.rows, batch.context, batch.mask), (batch.next_rows, batch.next_context, batch.next_mask)
    values = _critics(spec, parts["critics"], scaling, *now)  # (2, batch, actions)
    goal = batch.returns + batch.discount * _soft_value(spec, fixed, target, scaling, then)
    taken = jnp.take_along_axis(values, batch.action[None, :, None], axis=-1)[..., 0]
    errors = taken - goal
    critic_loss = jnp.sum(jnp.mean(batch.weight * optax.huber_loss(errors), -1))
    log_policy = networks.log_probabilities(networks.apply(spec, merged(parts["actor"], scaling), *now))
    temperature = jnp.exp(fixed["log_temperature"])
    lower = jax.lax.stop_gradient(values.min(0))
    actor_loss = jnp.mean(batch.weight * _under(log_policy, temperature * log_policy - lower, batch.mask))
    entropy = _under(log_policy, -log_policy, batch.mask)
    heat = temperature_loss(parts["log_temperature"], jax.lax.stop_gradient(log_policy), batch.mask, config.entropy_share)
    shown = {"loss/critics": critic_loss, "loss/actor": actor_loss, "entropy": entropy.mean(), "value": taken.mean()}
    total = critic_loss + actor_loss + (heat if config.learn_temperature else 0.0)
    return total, (jnp.abs(errors).max(0), shown)


def temperature_loss(log_temperature: jax.Array, log_policy: jax.Array, mask: jax.Array, share: float) -> jax.Array:
    """Mean over states of π(s)ᵀ(−α (log π(s) + H̄(s))), over legal actions; H̄ = share · log(number of legal actions).

    It is α · (entropy − H̄): the temperature falls where the policy is more random than it is to be, and rises where it is less.
    """
    goal = share * jnp.log(mask.sum(-1, keepdims=True).astype(jnp.float32))
    return jnp.mean(_under(log_policy, -jnp.exp(log_temperature) * (log_policy + goal), mask))


def _under(log_policy: jax.Array, values: jax.Array, mask: jax.Array) -> jax.Array:
    """(batch,) means of `values` (batch, actions) under the policy; what may not be chosen adds nothing."""
    return jnp.sum(jnp.where(mask, jnp.exp(log_policy) * jnp.where(mask, values, 0.0), 0.0), -1)


def _critics(spec: NetworkSpec, critics: Params, scaling: Params, *seen: jax.Array) -> jax.Array:
    return jax.vmap(lambda each: networks.apply(spec, merged(each, scaling), *seen))(critics)


def _soft_value(
    spec: NetworkSpec, parts: dict[str, Any], target: Params, scaling: Params, then: tuple[jax.Array, jax.Array, jax.Array]
) -> jax.Array:
    log_policy = networks.log_probabilities(networks.apply(spec, merged(parts["actor"], scaling), *then))
    lower = _critics(spec, target, scaling, *then).min(0)
    return jax.lax.stop_gradient(_under(log_policy, lower - jnp.exp(parts["log_temperature"]) * log_policy, then[2]))
