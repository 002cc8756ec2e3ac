"""Deep Q-learning (Mnih et al. 2015) with the parts of Rainbow (Hessel et al. 2018) as switches."""

from __future__ import annotations

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
from gpuyard.errors import UsageError
from gpuyard.learn.base import Arrays, learner
from gpuyard.learn.parts import heads
from gpuyard.learn.parts.networks import Params, support
from gpuyard.learn.parts.off_policy import OffPolicy, OffPolicyConfig, merged
from gpuyard.learn.parts.replay import Batch, Data
from gpuyard.learn.parts.schedules import anneal
from gpuyard.learn.run.presets import network_for
from gpuyard.model.fields import MOST, check_limits
from gpuyard.networks.shapes import check_spec
from gpuyard.networks.spec import NetworkSpec


@dataclass(frozen=True)
class DqnConfig(OffPolicyConfig):
    """Of `Dqn`."""

    double: bool = False  # the online network chooses, the target network judges (van Hasselt et al. 2016)
    dueling: bool = False  # value and advantages apart (Wang et al. 2016)
    distributional: bool = False  # C51 (Bellemare et al. 2017)
    noisy: bool = False  # noise on the weights explores instead of ε (Fortunato et al. 2018)
    target_network: bool = True
    target_every: int = 250  # updates between copies into the target network
    atoms: int = 51
    low: float = -20.0  # support of the distribution of returns
    high: float = 20.0
    epsilon_first: float = 1.0
    epsilon_last: float = 0.05
    epsilon_steps: int = 50_000  # from the first to the last, linearly

    def __post_init__(self) -> None:
        super().__post_init__()
        limits = {"target_every": (1, MOST), "epsilon_first": (0.0, 1.0), "epsilon_last": (0.0, 1.0), "epsilon_steps": (0, MOST)}
        check_limits("dqn", self, limits)
        if self.distributional and (self.atoms < 2 or self.low >= self.high):
            raise UsageError(f"{self.atoms} atoms from {self.low} to {self.high} are no support of a distribution", hint="low < high")


@dataclass(frozen=True)
class D3qnConfig(DqnConfig):
    """Dueling double DQN."""

    double: bool = True
    dueling: bool = True


@dataclass(frozen=True)
class RainbowConfig(D3qnConfig):
    """All parts."""

    prioritised: bool = True
    n_step: int = 3
    distributional: bool = True
    noisy: bool = True


class DqnState(NamedTuple):
    """All that updates change."""

    params: Params
    target: Params
    optimiser: Any
    updates: jax.Array  # () i4


@learner("dqn", title="Deep Q-network", config=DqnConfig)
@learner("d3qn", title="Dueling double deep Q-network", config=D3qnConfig)
@learner("rainbow", title="Rainbow: DQN with all its parts", config=RainbowConfig)
class Dqn(OffPolicy):
    """Values of choices, learned from what was tried; the highest is chosen."""

    def __init__(self, envs: Envs, config: DqnConfig, seed: int) -> None:
        super().__init__(envs, config, seed)
        self.config = config
        self.spec = _spec(envs, config)
        params = heads.initial(self.spec, self.key, dueling=config.dueling, noisy=config.noisy)
        self.state = jax.device_put(DqnState(params, params, _optimiser(config).init(params), jnp.zeros((), jnp.int32)), self.device)

    @property
    def state(self) -> DqnState:
        return self._state

    @state.setter
    def state(self, state: DqnState) -> None:
        self._state = state

    @property
    def epsilon(self) -> float:
        """Share of random choices now."""
        c = self.config
        return 0.0 if c.noisy else anneal("linear", c.epsilon_first, c.epsilon_last, self.steps / max(1, c.epsilon_steps))

    def choose(self, seen: Observation, scaling: Params) -> Array:
        """The best, or with probability ε any legal one."""
        best = np.asarray(_greedy(self.spec, self.config.dueling, self.state.params, scaling, *seen, self._noise()))
        if self.config.noisy:
            return best
        random = np.where(seen.mask, self.rng.random(seen.mask.shape), -1.0).argmax(axis=1)
        return np.where(self.rng.random(len(best)) < self.epsilon, random, best).astype(np.int32)

    def learn(self, batches: Batch, scaling: Params, rate: float) -> tuple[Array, Mapping[str, float]]:
        """One call for all updates of the round."""
        noise = self._noise(self.updates, 3)
        self.state, (errors, shown) = _all_updates(self.spec, self.config, self.state, scaling, batches, np.float32(rate), noise)
        return np.asarray(errors), {"epsilon": self.epsilon} | {name: float(value) for name, value in shown.items()}

    def _noise(self, *shape: int) -> Array:
        """Standard normal numbers for `heads.perturbed`; none where no layer is noisy."""
        return self.rng.standard_normal((*shape, heads.noise_size(self.state.params)), dtype=np.float32)

    def network(self) -> tuple[NetworkSpec, Arrays]:
        """Q-values as scores; advantages for dueling networks over rows, which choose the same."""
        spec, arrays = heads.plain(self.spec, self.state.params, dueling=self.config.dueling)
        return spec, arrays | {name: np.asarray(each) for name, each in self.scaling().items()}


def _spec(envs: Envs, config: DqnConfig) -> NetworkSpec:
    spec = network_for(envs.schema, envs.actions, config.network, config.width, config.history)
    if not config.distributional:
        return replace(spec, value_layers=spec.head_layers)
    if spec.rows:
        message = f"a distribution over returns needs a fixed number of actions; a {envs.schema.decision} decision has rows"
        raise UsageError(message, hint="set distributional=false")
    made = replace(spec, value_layers=spec.head_layers, atoms=config.atoms, low=config.low, high=config.high)
    check_spec(made)
    return made


def _optimiser(config: DqnConfig) -> Any:
    """Adam after clipping of the gradient's norm; the learning rate is applied by the caller."""
    return optax.chain(optax.clip_by_global_norm(config.gradient_clip), optax.scale_by_adam(eps=1.5e-4))


@partial(jax.jit, static_argnames=("spec", "dueling"))
def _greedy(
    spec: NetworkSpec, dueling: bool, params: Params, scaling: Params, rows: Data, context: Data, mask: Data, noise: Data
) -> jax.Array:
    found = heads.outputs(spec, merged(heads.perturbed(params, noise), scaling), rows, context, mask, dueling=dueling)
    return jnp.argmax(heads.expected(spec, found, mask), -1).astype(jnp.int32)


@partial(jax.jit, static_argnames=("spec", "config"))
def _all_updates(
    spec: NetworkSpec, config: DqnConfig, state: DqnState, scaling: Params, batches: Batch, rate: Data, noise: Data
) -> tuple[DqnState, tuple[jax.Array, dict[str, jax.Array]]]:
    """One update after the other, within one compiled loop."""

    def update(state: DqnState, given: tuple[Batch, jax.Array]) -> tuple[DqnState, tuple[jax.Array, dict[str, jax.Array]]]:
        gradient = jax.value_and_grad(partial(_loss, spec, config), has_aux=True)
        (loss, (errors, values)), slopes = gradient(state.params, state.target, scaling, *given)
        changes, optimiser_state = _optimiser(config).update(slopes, state.optimiser)
        params = jax.tree.map(lambda old, change: old - rate * change, state.params, changes)
        count = state.updates + 1
        due = (count % config.target_every == 0) | (not config.target_network)
        target = jax.tree.map(lambda new, old: jnp.where(due, new, old), params, state.target)
        shown = {"loss": loss, "value": values.mean(), "gradient": optax.tree.norm(slopes)}
        return DqnState(params, target, optimiser_state, count), (errors, shown)

    state, (errors, shown) = jax.lax.scan(update, state, (batches, noise))
    return state, (errors, {name: each.mean() for name, each in shown.items()})


def _loss(
    spec: NetworkSpec, config: DqnConfig, params: Params, target: Params, scaling: Params, batch: Batch, noise: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Weighted loss; errors (batch,) that become priorities; values of what was chosen."""
    evaluate = partial(heads.outputs, spec, dueling=config.dueling)
    found = evaluate(merged(heads.perturbed(params, noise[0]), scaling), batch.rows, batch.context, batch.mask)
    then = (batch.next_rows, batch.next_context, batch.next_mask)
    judged = evaluate(merged(heads.perturbed(target, noise[1]), scaling), *then)
    chooser = evaluate(merged(heads.perturbed(params, noise[2]), scaling), *then) if config.double else judged
    next_action = jnp.argmax(heads.expected(spec, chooser, batch.next_mask), -1)
    taken, following = _of(found, batch.action), jax.lax.stop_gradient(_of(judged, next_action))
    loss, errors, values = (_distribution_loss if spec.atoms > 1 else _value_loss)(spec, taken, following, batch)
    return jnp.mean(batch.weight * loss), (errors, values)


def _of(found: jax.Array, action: jax.Array) -> jax.Array:
    """(batch, atoms) of the chosen actions."""
    return jnp.take_along_axis(found, action[:, None, None], axis=1)[:, 0]


def _value_loss(spec: NetworkSpec, taken: jax.Array, following: jax.Array, batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
    error = taken[:, 0] - (batch.returns + batch.discount * following[:, 0])
    return optax.huber_loss(error), jnp.abs(error), taken[:, 0]


def _distribution_loss(spec: NetworkSpec, taken: jax.Array, following: jax.Array, batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
    goal = project(support(spec), jax.nn.softmax(following), batch.returns, batch.discount)
    loss = optax.softmax_cross_entropy(taken, goal)
    distance = loss + jnp.sum(goal * jnp.log(jnp.maximum(goal, 1e-12)), -1)  # Kullback & Leibler: 0 where nothing is to be learned
    return loss, jnp.maximum(distance, 0.0), jax.nn.softmax(taken) @ support(spec)


def project(support: jax.Array, probabilities: jax.Array, returns: jax.Array, discount: jax.Array) -> jax.Array:
    """(batch, atoms): the distribution of returns + discount · Z put back on the support, each atom shared by its two neighbours."""
    moved = jnp.clip(returns[:, None] + discount[:, None] * support, support[0], support[-1])
    apart = jnp.abs(moved[:, None, :] - support[None, :, None]) / (support[1] - support[0])
    return jnp.einsum("bkj,bj->bk", jnp.clip(1.0 - apart, 0.0, 1.0), probabilities)
