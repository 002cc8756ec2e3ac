"""Soft actor-critic for discrete choices (Haarnoja et al. 2018; Christodoulou 2019), with masks and a learned temperature.

The steps are methods, so that a variant overrides one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gpuyard.arrays import Array
from gpuyard.envs.base import Envs, Observation
from gpuyard.learn.base import Arrays, learner
from gpuyard.learn.parts import networks
from gpuyard.learn.parts.backend import clipped_adam, compiled, descend
from gpuyard.learn.parts.networks import Params
from gpuyard.learn.parts.off_policy import OffPolicy, OffPolicyConfig
from gpuyard.learn.parts.presets import network_for
from gpuyard.learn.parts.replay import Batch, Data
from gpuyard.model.fields import ANY, check_limits
from gpuyard.networks.spec import NetworkSpec


@dataclass(frozen=True)
class SacConfig(OffPolicyConfig):
    """Settings of the SAC learner."""

    entropy_share: float = 0.3  # entropy that the policy aims at, as a share of that of a uniform choice among the legal ones
    temperature: float = 0.2  # at the beginning
    learn_temperature: bool = True
    tau: float = 0.005  # share by which the target critics follow in each update

    def __post_init__(self) -> None:
        super().__post_init__()
        check_limits("sac", self, {"entropy_share": (0, 1), "temperature": (0, ANY), "tau": (0, 1)}, above=("temperature", "tau"))


class SacState(NamedTuple):
    """Everything that updates change; `parts` holds actor, critics (a leading axis of two) and log_temperature."""

    parts: dict[str, Any]
    target: Params
    optimisers: dict[str, Any]


@learner("sac", title="Discrete soft actor-critic", config=SacConfig)
class Sac(OffPolicy):
    """Learns a policy that earns much while it stays as random as asked; of two critics the lower one counts."""

    config: SacConfig
    state: SacState

    def __init__(self, envs: Envs, config: SacConfig, seed: int) -> None:
        super().__init__(envs, config, seed)
        spec = network_for(envs.schema, envs.actions, config.network, config.width, config.history)
        self.spec = replace(spec, value_layers=())
        actor, *critics = (_initial(self.spec, key) for key in jax.random.split(self.key, 3))
        both = jax.tree.map(lambda *each: jnp.stack(each), *critics)
        parts = {"actor": actor, "critics": both, "log_temperature": jnp.array(math.log(config.temperature), jnp.float32)}
        optimisers = {name: clipped_adam(config.max_grad_norm).init(each) for name, each in parts.items()}
        self.state = jax.device_put(SacState(parts, both, optimisers), self.device)

    @property
    def temperature(self) -> float:
        """Worth of one nat of entropy, in units of the reward."""
        return float(np.exp(self.state.parts["log_temperature"]))

    def choose(self, seen: Observation, scaling: Params) -> Array:
        """Draw actions from the policy."""
        return np.asarray(self.sample(self.state.parts["actor"], scaling, seen, self.key, np.uint32(self.steps)))

    def facts(self) -> dict[str, float]:
        return {"temperature": self.temperature}

    # ── steps ──

    @compiled
    def sample(self, actor: Params, scaling: Params, seen: Observation, key: jax.Array, step: Data) -> jax.Array:
        """Draw actions (envs,) i4."""
        return networks.sample(networks.apply(self.spec, actor | scaling, *seen), jax.random.fold_in(key, step))

    def log_policy(self, actor: Params, scaling: Params, seen: Observation) -> jax.Array:
        """Return log probabilities (batch, actions)."""
        return networks.log_probabilities(networks.apply(self.spec, actor | scaling, *seen))

    def values(self, critics: Params, scaling: Params, seen: Observation) -> jax.Array:
        """Return what both critics say (2, batch, actions)."""
        return jax.vmap(lambda each: networks.apply(self.spec, each | scaling, *seen))(critics)

    def target(self, parts: dict[str, Any], target: Params, scaling: Params, batch: Batch) -> jax.Array:
        """Return what the critics should say (batch,): the returns, then the soft value of the next observation."""
        log_policy = self.log_policy(parts["actor"], scaling, batch.next_seen)
        lower = self.values(target, scaling, batch.next_seen).min(0)
        soft = under_policy(log_policy, lower - jnp.exp(parts["log_temperature"]) * log_policy, batch.next_mask)
        return jnp.asarray(batch.returns + batch.discount * jax.lax.stop_gradient(soft))

    def actor_loss(self, log_policy: jax.Array, lower: jax.Array, temperature: jax.Array, batch: Batch) -> jax.Array:
        """Return the weighted mean of temperature · log π − value under the policy."""
        return jnp.mean(batch.weight * under_policy(log_policy, temperature * log_policy - lower, batch.mask))

    def temperature_loss(self, log_temperature: jax.Array, log_policy: jax.Array, mask: jax.Array) -> jax.Array:
        """Return the mean over states of π(s)ᵀ(−α (log π(s) + H̄(s))), over legal actions; H̄ = share · log(number of legal actions).

        It is α · (entropy − H̄): the temperature falls where the policy is more random than asked, and rises where it is less.
        """
        goal = self.config.entropy_share * jnp.log(mask.sum(-1, keepdims=True).astype(jnp.float32))
        return jnp.mean(under_policy(log_policy, -jnp.exp(log_temperature) * (log_policy + goal), mask))

    def loss(
        self, parts: dict[str, Any], target: Params, scaling: Params, batch: Batch
    ) -> tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]]]:
        """Add up three losses, each with the gradient of one part alone."""
        fixed = jax.lax.stop_gradient(parts)
        values = self.values(parts["critics"], scaling, batch.seen)
        goal = self.target(fixed, target, scaling, batch)
        taken = jnp.take_along_axis(values, batch.action[None, :, None], axis=-1)[..., 0]
        errors = taken - goal
        critic_loss = jnp.sum(jnp.mean(batch.weight * optax.huber_loss(errors), -1))
        log_policy = self.log_policy(parts["actor"], scaling, batch.seen)
        lower = jax.lax.stop_gradient(values.min(0))
        actor_loss = self.actor_loss(log_policy, lower, jnp.exp(fixed["log_temperature"]), batch)
        entropy = under_policy(log_policy, -log_policy, batch.mask)
        heat = self.temperature_loss(parts["log_temperature"], jax.lax.stop_gradient(log_policy), batch.mask)
        shown = {"loss/critics": critic_loss, "loss/actor": actor_loss, "entropy": entropy.mean(), "value": taken.mean()}
        total = critic_loss + actor_loss + (heat if self.config.learn_temperature else 0.0)
        return total, (jnp.abs(errors).max(0), shown)

    def improve(
        self, state: SacState, scaling: Params, batch: Batch, noise: jax.Array, rate: jax.Array
    ) -> tuple[SacState, tuple[jax.Array, dict[str, jax.Array]]]:
        slopes, (errors, shown) = jax.grad(self.loss, has_aux=True)(state.parts, state.target, scaling, batch)
        adam = clipped_adam(self.config.max_grad_norm)
        stepped = {name: adam.update(slopes[name], state.optimisers[name]) for name in state.parts}
        parts = {name: descend(each, stepped[name][0], rate) for name, each in state.parts.items()}
        target = optax.incremental_update(parts["critics"], state.target, self.config.tau)
        return SacState(parts, target, {name: each[1] for name, each in stepped.items()}), (errors, shown)

    def network(self) -> tuple[NetworkSpec, Arrays]:
        """Return the policy's logits as scores."""
        return self.spec, self.exported(self.state.parts["actor"])


def _initial(spec: NetworkSpec, key: jax.Array) -> Params:
    params = networks.trained(networks.init(spec, key))
    return {name: each for name, each in params.items() if not name.startswith("value_head.")}


def under_policy(log_policy: jax.Array, values: jax.Array, mask: jax.Array) -> jax.Array:
    """Return means (batch,) of `values` (batch, actions) under the policy; illegal actions add nothing."""
    return jnp.sum(jnp.where(mask, jnp.exp(log_policy) * jnp.where(mask, values, 0.0), 0.0), -1)
