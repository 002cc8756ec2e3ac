"""Deep Q-learning (Mnih et al. 2015) with the parts of Rainbow (Hessel et al. 2018) as settings.

The steps are methods, so that a variant overrides one: double Q-learning overrides `target`, a distribution of returns `errors`,
trying every choice in copies of the environments `collect` and `loss`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from gpuyard.learn.parts.backend import clipped_adam, compiled, descend
from gpuyard.learn.parts.networks import AnyArray, Params, support
from gpuyard.learn.parts.off_policy import OffPolicy, OffPolicyConfig
from gpuyard.learn.parts.presets import network_for
from gpuyard.learn.parts.replay import Batch, Data, Replay, ReplayConfig, TriedReplay
from gpuyard.learn.parts.schedules import anneal
from gpuyard.model.fields import MOST, check_limits
from gpuyard.networks.shapes import check_spec
from gpuyard.networks.spec import NetworkSpec

ADAM_EPS = 1.5e-4


@dataclass(frozen=True)
class DqnConfig(OffPolicyConfig):
    """Settings of the DQN learner."""

    double: bool = False  # the online network chooses, the target network judges (van Hasselt et al. 2016)
    dueling: bool = False  # value and advantages apart (Wang et al. 2016)
    distributional: bool = False  # C51 (Bellemare et al. 2017)
    noisy: bool = False  # noise on the weights explores instead of ε (Fortunato et al. 2018)
    target_network: bool = True
    target_every: int = 250  # updates between copies into the target network
    atoms: int = 51
    low: float = -20.0  # support of the distribution of returns
    high: float = 20.0
    epsilon: float = 1.0  # share of random choices in the first step
    epsilon_end: float = 0.05  # … and after `epsilon_steps`; linear in between
    epsilon_steps: int = 50_000
    bootstrap: bool = True  # False: what comes after `n_step` steps counts nothing
    try_all: bool = False  # every choice is tried in a copy of each environment, for `n_step` steps: see TriedDqn
    hold: int = 1  # steps for which a choice that is tried is held before the policy goes on

    def __post_init__(self) -> None:
        super().__post_init__()
        limits = {
            "target_every": (1, MOST),
            "epsilon": (0.0, 1.0),
            "epsilon_end": (0.0, 1.0),
            "epsilon_steps": (0, MOST),
            "hold": (1, MOST),
        }
        check_limits("dqn", self, limits)
        if self.try_all and self.distributional:
            raise UsageError("try_all learns values, not distributions of returns", hint="set distributional=false")
        if self.distributional and (self.atoms < 2 or self.low >= self.high):
            raise UsageError(f"{self.atoms} atoms from {self.low} to {self.high} cannot support a distribution", hint="low < high")


@dataclass(frozen=True)
class D3qnConfig(DqnConfig):
    """Settings of dueling double DQN."""

    double: bool = True
    dueling: bool = True


@dataclass(frozen=True)
class RainbowConfig(D3qnConfig):
    """Settings of DQN with all its parts."""

    prioritised: bool = True
    n_step: int = 3
    distributional: bool = True
    noisy: bool = True


class DqnState(NamedTuple):
    """Everything that updates change. The names of the fields are those of the saved arrays."""

    params: Params
    target: Params
    optimiser: Any
    updates: jax.Array  # () i4


class Dqn(OffPolicy):
    """Learns the values of choices from what was tried, and chooses the highest. `make_dqn` picks the variant that settings ask for."""

    config: DqnConfig
    state: DqnState

    def __init__(self, envs: Envs, config: DqnConfig, seed: int) -> None:
        super().__init__(envs, config, seed)
        self.spec = _spec(envs, config)
        params = heads.initial(self.spec, self.key, dueling=config.dueling, noisy=config.noisy)
        optimiser = clipped_adam(config.max_grad_norm, ADAM_EPS).init(params)
        self.state = jax.device_put(DqnState(params, params, optimiser, jnp.zeros((), jnp.int32)), self.device)

    @property
    def epsilon(self) -> float:
        """Share of random choices now."""
        c = self.config
        return 0.0 if c.noisy else anneal("linear", c.epsilon, c.epsilon_end, self.steps / max(1, c.epsilon_steps))

    def choose(self, seen: Observation, scaling: Params) -> Array:
        """Choose the best action, or with probability ε any legal one."""
        best = np.asarray(self.greedy(self.state.params, scaling, seen, self.noise()))
        if self.config.noisy:
            return best
        random = np.where(seen.mask, self.rng.random(seen.mask.shape), -1.0).argmax(axis=1)
        return np.where(self.rng.random(len(best)) < self.epsilon, random, best).astype(np.int32)

    def noise(self, *shape: int) -> Array:
        """Draw standard normal numbers for `heads.perturbed`; none where no layer is noisy."""
        return self.rng.standard_normal((*shape, heads.noise_size(self.state.params)), dtype=np.float32)

    def draw(self) -> Array:
        """Draw noise for the three evaluations of each update: what was chosen, what is judged next, what chooses next."""
        return self.noise(self.updates, 3)

    def facts(self) -> dict[str, float]:
        return {"epsilon": self.epsilon}

    # ── steps ──

    def outputs(self, params: Params, scaling: Params, seen: Observation, noise: jax.Array) -> jax.Array:
        """Evaluate the network: values, or with atoms > 1 logits of distributions (…, actions, atoms)."""
        return heads.outputs(self.spec, heads.perturbed(params, noise) | scaling, *seen, dueling=self.config.dueling)

    def best(self, outputs: jax.Array, mask: AnyArray) -> jax.Array:
        """Return the legal actions (…,) of the highest expected value."""
        return jnp.argmax(heads.expected(self.spec, outputs, mask), -1)

    @compiled
    def greedy(self, params: Params, scaling: Params, seen: Observation, noise: Data) -> jax.Array:
        """Choose the best actions (envs,) i4."""
        return self.best(self.outputs(params, scaling, seen, noise), seen.mask).astype(jnp.int32)

    def target(self, state: DqnState, params: Params, scaling: Params, batch: Batch, noise: jax.Array) -> jax.Array:
        """Return the target network's outputs (batch, atoms) for the next action, which it chooses itself."""
        judged = self.outputs(state.target, scaling, batch.next_seen, noise[1])
        return at_action(judged, self.best(judged, batch.next_mask))

    def errors(self, taken: jax.Array, following: jax.Array, batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Compare the outputs (batch, atoms) of what was chosen with what followed: loss, error and value (batch,)."""
        error = taken[:, 0] - (batch.returns + batch.discount * following[:, 0])
        return optax.huber_loss(error), jnp.abs(error), taken[:, 0]

    def loss(
        self, params: Params, state: DqnState, scaling: Params, batch: Batch, noise: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Return the weighted loss, the errors (batch,) that become priorities, and the values of what was chosen."""
        batch = batch if self.config.bootstrap else batch._replace(discount=jnp.zeros_like(batch.discount))
        taken = at_action(self.outputs(params, scaling, batch.seen, noise[0]), batch.action)
        following = jax.lax.stop_gradient(self.target(state, params, scaling, batch, noise))
        loss, errors, values = self.errors(taken, following, batch)
        return jnp.mean(batch.weight * loss), (errors, values)

    def improve(
        self, state: DqnState, scaling: Params, batch: Batch, noise: jax.Array, rate: jax.Array
    ) -> tuple[DqnState, tuple[jax.Array, dict[str, jax.Array]]]:
        (loss, (errors, values)), slopes = jax.value_and_grad(self.loss, has_aux=True)(state.params, state, scaling, batch, noise)
        changes, optimiser = clipped_adam(self.config.max_grad_norm, ADAM_EPS).update(slopes, state.optimiser)
        params = descend(state.params, changes, rate)
        count = state.updates + 1
        due = (count % self.config.target_every == 0) | (not self.config.target_network)
        target = jax.tree.map(lambda new, old: jnp.where(due, new, old), params, state.target)
        shown = {"loss": loss, "value": values.mean(), "gradient": optax.tree.norm(slopes)}
        return DqnState(params, target, optimiser, count), (errors, shown)

    def network(self) -> tuple[NetworkSpec, Arrays]:
        """Return Q-values as scores; advantages for dueling networks over rows, which choose the same."""
        spec, arrays = heads.plain(self.spec, self.state.params, dueling=self.config.dueling)
        return spec, self.exported(arrays)


class DoubleDqn(Dqn):
    """Lets the online network choose the next action, and the target network judge it (van Hasselt et al. 2016)."""

    def target(self, state: DqnState, params: Params, scaling: Params, batch: Batch, noise: jax.Array) -> jax.Array:
        judged = self.outputs(state.target, scaling, batch.next_seen, noise[1])
        return at_action(judged, self.best(self.outputs(params, scaling, batch.next_seen, noise[2]), batch.next_mask))


class DistributionalDqn(Dqn):
    """Learns the distribution of returns on a fixed support (C51, Bellemare et al. 2017)."""

    def errors(self, taken: jax.Array, following: jax.Array, batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
        atoms = support(self.spec)
        goal = project(atoms, jax.nn.softmax(following), batch.returns, batch.discount)
        loss = optax.softmax_cross_entropy(taken, goal)
        distance = loss + jnp.sum(goal * jnp.log(jnp.maximum(goal, 1e-12)), -1)  # Kullback & Leibler: 0 once nothing is left to learn
        return loss, jnp.maximum(distance, 0.0), jax.nn.softmax(taken) @ atoms


class DistributionalDoubleDqn(DistributionalDqn, DoubleDqn):
    """Does both."""


APART = 3  # steps from one situation in which everything is tried to the next: neighbours teach the same
COMMON = 0.05  # weight of the errors that all choices of a situation have in common


class TriedDqn(Dqn):
    """Tries every choice of a situation, each in a copy of the environment that goes on by the policy for `n_step` steps.

    The copies have the same jobs before them, so that the difference between two choices is free of the chance that they share: how
    busy the next hours are. That is most of the variance of a return; what one choice among hundreds changes drowns in it. For the same
    reason errors that all choices of a situation have in common count little: the value of a situation decides nothing.
    """

    def __init__(self, envs: Envs, config: DqnConfig, seed: int) -> None:
        if envs.schema.rows or not hasattr(envs, "branches"):
            hint = "Switch can; leave try_all out elsewhere"
            raise UsageError(f"a {envs.schema.decision} decision has too many choices to try them all", hint=hint)
        super().__init__(envs, config, seed)
        self._branches = envs.branches(envs.actions)

    @property
    def choices(self) -> int:
        return self.envs.count * (APART + self.envs.actions * self.config.n_step)

    def make_replay(self, first: Observation, config: ReplayConfig) -> Replay:
        return TriedReplay(first, replace(config, n_step=0))  # what comes after the steps is stored with the situation

    def collect(self) -> None:
        """Try everything, then go on by the policy; `round_steps` times."""
        scaling = self.scaling()
        for _ in range(self.round_steps):
            found = self.tried(scaling)
            self.replay.add(self.go_on(scaling)[0], *found)
            for _ in range(APART - 1):
                self.go_on(scaling)
        self.see_newest()

    def tried(self, scaling: Params) -> tuple[Array, ...]:
        """Return of every choice (envs, actions) the discounted sum of rewards, the discount of what follows, and what is seen then."""
        envs, actions, config = self.envs.count, self.envs.actions, self.config
        self._branches.fork(self.envs)
        first = np.tile(np.arange(actions, dtype=np.int32), envs)
        total, factor, chosen = np.zeros(envs * actions), np.full(envs * actions, config.reward_scale), first
        for k in range(config.n_step):
            step = self._branches.step(chosen)
            total += factor * step.reward
            factor *= config.discount * ~step.done
            if k + 1 < config.n_step:
                chosen = (
                    first if k + 1 < config.hold else np.asarray(self.greedy(self.state.params, scaling, step.observation, self.noise()))
                )
        self.steps += envs * actions * config.n_step
        found = (total, factor / config.reward_scale, *step.observation)
        return tuple(each.reshape(envs, actions, *each.shape[1:]) for each in found)

    def loss(
        self, params: Params, state: DqnState, scaling: Params, batch: Batch, noise: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Compare the values (batch, actions) of all choices with what came of them."""
        values = self.outputs(params, scaling, batch.seen, noise[0])[..., 0]
        goals = batch.returns
        if self.config.bootstrap:
            led = {name: getattr(batch, name) for name in ("next_rows", "next_context", "next_mask")}
            flat = {name: each.reshape(values.size, *each.shape[2:]) for name, each in led.items()}
            following = jax.lax.stop_gradient(self.target(state, params, scaling, batch._replace(**flat), noise))
            goals = goals + batch.discount * following.reshape(values.shape)
        errors = values - goals
        common = errors.mean(-1, keepdims=True)
        loss = optax.huber_loss(errors - common).sum(-1) + COMMON * optax.huber_loss(common[:, 0])
        return jnp.mean(batch.weight * loss), (jnp.abs(errors - common).mean(-1), values.mean(-1))


class TriedDoubleDqn(TriedDqn, DoubleDqn):
    """Does both."""


_VARIANTS = {  # double, distributional, try_all
    (False, False, False): Dqn, (True, False, False): DoubleDqn, (False, True, False): DistributionalDqn,
    (True, True, False): DistributionalDoubleDqn, (False, False, True): TriedDqn, (True, False, True): TriedDoubleDqn,
}  # fmt: skip


@learner("dqn", title="Deep Q-network", config=DqnConfig)
@learner("d3qn", title="Dueling double deep Q-network", config=D3qnConfig)
@learner("rainbow", title="Rainbow: DQN with all its parts", config=RainbowConfig)
def make_dqn(envs: Envs, config: DqnConfig, seed: int) -> Dqn:
    """Learns the values of choices from what was tried, and chooses the highest."""
    return _VARIANTS[config.double, config.distributional, config.try_all](envs, config, seed)


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


def at_action(outputs: jax.Array, action: jax.Array) -> jax.Array:
    """Return the outputs (batch, atoms) of the chosen actions."""
    return jnp.take_along_axis(outputs, action[:, None, None], axis=1)[:, 0]


def project(support: jax.Array, probabilities: jax.Array, returns: jax.Array, discount: jax.Array) -> jax.Array:
    """Put the distribution of returns + discount · Z back on the support (batch, atoms); each atom is shared by its two neighbours."""
    moved = jnp.clip(returns[:, None] + discount[:, None] * support, support[0], support[-1])
    apart = jnp.abs(moved[:, None, :] - support[None, :, None]) / (support[1] - support[0])
    return jnp.einsum("bkj,bj->bk", jnp.clip(1.0 - apart, 0.0, 1.0), probabilities)
