"""Proximal policy optimisation (Schulman et al. 2017) with masks. Its steps are methods, so that a variant overrides one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gpuyard.arrays import Array
from gpuyard.envs.base import Envs, Observation
from gpuyard.errors import LearningError, UsageError
from gpuyard.learn.base import Arrays, learner
from gpuyard.learn.parts import networks
from gpuyard.learn.parts.backend import clipped_adam, compiled, descend, pack, refuse_if_too_large, setup, unpack
from gpuyard.learn.parts.episodes import Episodes
from gpuyard.learn.parts.networks import AnyArray, Params
from gpuyard.learn.parts.normalise import RunningStatistics, inherited, merge, merge_observations, no_statistics, normalised_params
from gpuyard.learn.parts.presets import network_for
from gpuyard.learn.parts.saving import nested, part
from gpuyard.learn.parts.schedules import COURSES, anneal, warmed_up
from gpuyard.model.fields import ANY, MOST, check_limits
from gpuyard.networks.spec import NetworkSpec

WARM_START_ROLLOUTS = 20.0  # rollouts that the normalisation of a network to start from counts as
ADAM_EPS = 1e-5

_LIMITS: Mapping[str, tuple[float, float]] = {
    "rollout": (1, 65_536), "epochs": (1, 1_000), "minibatches": (1, 1_000_000), "discount": (0, 1), "gae_lambda": (0, 1),
    "clip": (0, ANY), "value_clip": (0, ANY), "value_weight": (0, ANY), "entropy": (0, ANY), "entropy_end": (0, ANY),
    "learning_rate": (0, ANY), "updates": (1, MOST), "max_grad_norm": (0, ANY), "target_kl": (0, ANY), "warm_up_steps": (0, MOST),
    "accumulate": (1, 1_000_000),
}  # fmt: skip


@dataclass(frozen=True)
class PpoConfig:
    """Settings of the PPO learner."""

    rollout: int = 64  # steps in each environment per update
    epochs: int = 2
    minibatches: int = 8
    accumulate: int = 1  # minibatches whose gradients make one step: larger batches in the memory of a small one
    discount: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    value_clip: float = 0.2  # in standard deviations of returns where values are normalised; 0: not clipped
    value_weight: float = 0.5
    entropy: float = 0.01  # weight of the entropy bonus in the first update
    entropy_end: float = 0.0  # … and in the last one; linear in between
    learning_rate: float = 1e-3
    schedule: str = "linear"  # how the learning rate falls: constant, linear, exponential, cosine, warm-up-cosine
    warm_up_steps: int = 0  # choices over which the learning rate rises from 0, whatever the schedule
    updates: int = 1000  # length of the whole training; the learning rate and entropy weight fall over it
    max_grad_norm: float = 0.5  # 0: gradients are not clipped
    target_kl: float = 0.0  # an update ends early once the policy has moved by more; 0: never
    normalise_observations: bool = True
    normalise_values: bool = True
    network: str = ""  # see gpuyard.learn.parts.presets; empty: kernel where there are rows, else mlp
    width: int = 32
    history: int = 0  # how many of the last context features are history
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_limits("ppo", self, _LIMITS, above=("clip",))
        COURSES[self.schedule]  # refuses an unknown name


class Rollout(NamedTuple):
    """Observations and choices (steps, envs, …) on the device."""

    rows: jax.Array
    context: jax.Array
    mask: jax.Array
    action: jax.Array  # i4
    log_probability: jax.Array
    value: jax.Array  # as the network gives it: normalised


class Sample(NamedTuple):
    """A rollout with its learning targets, (choices, …)."""

    rollout: Rollout
    advantage: jax.Array
    target: jax.Array  # of the value, normalised as the network gives it


class PpoState(NamedTuple):
    """Everything that learning changes. The names of the fields are those of the saved arrays."""

    params: Params
    adam: Any
    seen: RunningStatistics


@learner("ppo", title="Proximal policy optimisation", config=PpoConfig)
class Ppo:
    """Learns a policy and a value function from its own latest rollout.

    Choices depend on (seed, steps so far), the order of minibatches on (seed, updates so far): a resumed run continues bit for bit.
    """

    state: PpoState
    _keys: tuple[jax.Array, jax.Array]

    def __init__(self, envs: Envs, config: PpoConfig, seed: int, spec: NetworkSpec | None = None) -> None:
        """`spec` replaces the network that the configuration names."""
        if config.rollout * envs.count % config.minibatches:
            size = f"{config.rollout} steps × {envs.count} environments"
            raise UsageError(f"{size} cannot be split into {config.minibatches} minibatches", hint="choose a number that divides it")
        if config.minibatches % config.accumulate:
            which = f"{config.minibatches} minibatches cannot be taken {config.accumulate} at a time"
            raise UsageError(f"ppo: {which}", hint="choose a number for accumulate that divides minibatches")
        self.device = setup(config.device)
        self.envs, self.config, self.seed = envs, config, seed
        self.spec = spec or network_for(envs.schema, envs.actions, config.network, config.width, config.history)
        self.updates = 0
        self.episodes = Episodes(envs.count)
        self._seen = envs.reset(seed)
        self._reward = np.zeros((config.rollout, envs.count), np.float32)
        self._done = np.zeros((config.rollout, envs.count), np.float32)
        self._rollout = empty_rollout(config, envs.count, self._seen, self.device)
        self._begin(networks.init(self.spec, jax.random.key(seed)), no_statistics(self.spec.rows, self.spec.context))

    @property
    def steps(self) -> int:
        return self.updates * self.config.rollout * self.envs.count

    def start_from(self, params: Mapping[str, Array | jax.Array]) -> None:
        """Continue with these weights (from imitation or a checkpoint) and a fresh optimiser."""
        expected = networks.shapes(self.spec)
        if {name: np.shape(each) for name, each in params.items()} != expected:
            raise UsageError("the network to start from has other shapes than this learner's", hint="name the same network and width")
        taken = {name: jnp.asarray(each, jnp.float32) for name, each in params.items()}
        rows, context = inherited(taken, WARM_START_ROLLOUTS)
        self._begin(taken, self.state.seen._replace(rows=rows, context=context))

    def update(self) -> dict[str, float]:
        """Collect a rollout and learn from it."""
        began = time.perf_counter()
        self.collect()
        collected = time.perf_counter()
        config, progress = self.config, self.updates / self.config.updates
        done = self.steps + config.rollout * self.envs.count
        rate = warmed_up(anneal(config.schedule, config.learning_rate, 0.0, progress), done, config.warm_up_steps)
        entropy_weight = anneal("linear", config.entropy, config.entropy_end, progress)
        key = jax.random.fold_in(self._keys[1], self.updates)
        numbers = (np.float32(rate), np.float32(entropy_weight))
        state, facts = self.learn(self.state, self._rollout, self._reward, self._done, self._seen, key, *numbers)
        found = {name: float(each) for name, each in jax.device_get(facts).items()}
        if not np.isfinite(found["loss/total"]):
            self._refuse_loss()
        self.state = state
        self.updates += 1
        timing = {"time/collect": collected - began, "time/learn": time.perf_counter() - collected}
        ended = self.episodes.take_ended()
        mean = float(np.mean(ended)) if ended else float("nan")
        return {"return": mean, "episodes": float(len(ended)), "learning_rate": rate, "entropy_weight": entropy_weight, **found, **timing}

    # ── collect ──

    def collect(self) -> None:
        """Step all environments `rollout` times."""
        before = self.steps // self.envs.count
        for t in range(self.config.rollout):
            self._rollout, action = self.act(self._rollout, self.state.params, t, self._seen, self._keys[0], before + t)
            self._seen, reward, done = self.envs.step(np.asarray(action))
            self.episodes.add(reward, done, before + t)
            self._reward[t], self._done[t] = reward, done

    @partial(compiled, donate="rollout")
    def act(self, rollout: Rollout, params: Params, t: int, seen: Observation, key: jax.Array, step: int) -> tuple[Rollout, jax.Array]:
        """Choose in all environments, and write step `t` of the rollout."""
        scores, value = networks.apply_and_value(self.spec, params, *seen)
        action = networks.sample(scores, jax.random.fold_in(key, step))
        log_probability = chosen(networks.log_probabilities(scores), action)
        kept = (*seen, action, log_probability, value)
        return Rollout(*(room.at[t].set(each) for room, each in zip(rollout, kept, strict=True))), action

    # ── advantages ──

    def advantages(self, reward: AnyArray, done: AnyArray, value: jax.Array, last: jax.Array) -> jax.Array:
        """Estimate advantages (steps, envs) by GAE (Schulman et al. 2016); `last` (envs,) is the value after the last step."""
        discount, gae_lambda, goes_on = self.config.discount, self.config.gae_lambda, 1.0 - jnp.asarray(done)

        def back(later: tuple[jax.Array, jax.Array], now: tuple[jax.Array, ...]) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            advantage, value_after = later
            reward, goes_on, value = now
            advantage = reward + discount * goes_on * value_after - value + discount * gae_lambda * goes_on * advantage
            return (advantage, value), advantage

        return jax.lax.scan(back, (jnp.zeros_like(last), last), (jnp.asarray(reward), goes_on, value), reverse=True)[1]

    @compiled
    def value(self, state: PpoState, seen: Observation) -> jax.Array:
        """Predict the return (envs,) of the rest of the episode, in units of the reward."""
        return networks.value(self.spec, state.params, *seen) * state.seen.returns.std + state.seen.returns.mean

    def samples(
        self, state: PpoState, rollout: Rollout, reward: AnyArray, done: AnyArray, last: Observation
    ) -> tuple[Sample, RunningStatistics, jax.Array]:
        """Return the rollout as one long batch with advantages and targets, the statistics with it, and the explained variance."""
        seen = state.seen
        value = rollout.value * seen.returns.std + seen.returns.mean
        advantage = self.advantages(reward, done, value, self.value(state, last))
        returns = advantage + value
        if self.config.normalise_values:
            seen = seen._replace(returns=merge(seen.returns, returns))
        if self.config.normalise_observations:
            seen = merge_observations(seen, rollout.rows, rollout.context, rollout.mask)
        target = (returns - seen.returns.mean) / jnp.maximum(seen.returns.std, 1e-6)
        explained = 1.0 - advantage.var() / jnp.maximum(returns.var(), 1e-12)
        flat: Sample = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), Sample(rollout, advantage, target))
        return flat, seen, explained

    # ── loss ──

    def policy_loss(self, log_probability: jax.Array, old: jax.Array, advantage: jax.Array) -> jax.Array:
        """Return the clipped surrogate, to be minimised."""
        ratio, clip = jnp.exp(log_probability - old), self.config.clip
        return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage).mean()

    def value_loss(self, value: jax.Array, old: jax.Array, target: jax.Array) -> jax.Array:
        """Return half the squared error, clipped or not, whichever is worse; `value_clip` 0: not clipped."""
        error, clip = (value - target) ** 2, self.config.value_clip
        if clip:
            error = jnp.maximum(error, (old + jnp.clip(value - old, -clip, clip) - target) ** 2)
        return 0.5 * error.mean()

    def loss(self, trained: Params, fixed: Params, sample: Sample, entropy_weight: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Add up policy, value and entropy; also return what is shown of each. Advantages are normalised."""
        rollout = sample.rollout
        scores, value = networks.apply_and_value(self.spec, {**trained, **fixed}, rollout.rows, rollout.context, rollout.mask)
        every = networks.log_probabilities(scores)
        log_probability = chosen(every, rollout.action)
        policy = self.policy_loss(log_probability, rollout.log_probability, sample.advantage)
        error = self.value_loss(value, rollout.value, sample.target)
        entropy = networks.entropy(every).mean()
        moved = log_probability - rollout.log_probability
        ratio = jnp.exp(moved)
        facts = {
            "loss/policy": policy,
            "loss/value": error,
            "policy/entropy": entropy,
            "policy/kl": (ratio - 1.0 - moved).mean(),  # Schulman's estimate of low variance
            "policy/clipped": (jnp.abs(ratio - 1.0) > self.config.clip).mean(),
        }
        return policy + self.config.value_weight * error - entropy_weight * entropy, facts

    # ── learn ──

    def minibatch(
        self, state: PpoState, sample: Sample, rate: jax.Array, entropy_weight: jax.Array
    ) -> tuple[PpoState, dict[str, jax.Array]]:
        """Make one step of Adam, by the mean gradient of `accumulate` parts of the sample, one after the other."""
        trained, fixed = networks.trained(state.params), networks.normalisation(state.params)
        advantage = (sample.advantage - sample.advantage.mean()) / (sample.advantage.std() + 1e-8)
        sample = sample._replace(advantage=advantage)
        of_part = partial(jax.value_and_grad(self.loss, has_aux=True), trained, fixed)
        if self.config.accumulate == 1:
            (total, facts), gradient = of_part(sample, entropy_weight)
        else:
            (total, facts), gradient = self._accumulated(of_part, sample, entropy_weight)
        change, adam = clipped_adam(self.config.max_grad_norm, ADAM_EPS).update(gradient, state.adam)
        params = {**descend(trained, change, rate), **fixed}
        return PpoState(params, adam, state.seen), {**facts, "loss/total": total, "gradient": optax.tree.norm(gradient)}

    def _accumulated(self, of_part: Callable[..., Any], sample: Sample, entropy_weight: jax.Array) -> Any:
        """Return the means over the parts; only one part at a time is in memory besides a sum of gradients."""
        count = self.config.accumulate
        parts = jax.tree.map(lambda x: x.reshape(count, x.shape[0] // count, *x.shape[1:]), sample)
        first = jax.tree.map(lambda x: x[0], parts)
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(of_part, first, entropy_weight))

        def add(sums: Any, part: Sample) -> Any:
            return jax.tree.map(jnp.add, sums, of_part(part, entropy_weight)), None

        return jax.tree.map(lambda x: x / count, jax.lax.scan(add, nothing, parts)[0])

    @compiled
    def learn(
        self, state: PpoState, rollout: Rollout, reward: AnyArray, done: AnyArray, last: Observation, key: jax.Array,
        rate: Any, entropy_weight: Any,
    ) -> tuple[PpoState, dict[str, jax.Array]]:  # fmt: skip
        """Run all epochs over all minibatches. The normalisation changes only afterwards, so that the old policy stays what it was."""
        config = self.config
        sample, seen, explained = self.samples(state, rollout, reward, done, last)
        size = reward.size
        orders = jax.vmap(lambda k: jax.random.permutation(k, size))(jax.random.split(key, config.epochs))
        steps = config.minibatches // config.accumulate
        orders = orders.reshape(config.epochs * steps, size // steps)

        def one(carry: tuple[PpoState, jax.Array], order: jax.Array) -> tuple[tuple[PpoState, jax.Array], Any]:
            state, going = carry
            batch: Sample = jax.tree.map(lambda x: x[order], sample)
            step = partial(self.minibatch, state, batch, rate, entropy_weight)
            if not config.target_kl:
                state, facts = step()
                return (state, going), (facts, going)
            nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(step)[1])
            state, facts = jax.lax.cond(going, step, lambda: (state, nothing))
            return (state, going & (facts["policy/kl"] <= config.target_kl)), (facts, going)

        (state, _), (facts, counted) = jax.lax.scan(one, (state, jnp.asarray(True)), orders)
        means = {name: (each * counted).sum() / counted.sum() for name, each in facts.items()}
        params = normalised_params(state.params, seen) if config.normalise_observations else state.params
        return PpoState(params, state.adam, seen), {**means, "value/explained": explained, "minibatches": counted.sum()}

    # ── the state ──

    def network(self) -> tuple[NetworkSpec, Arrays]:
        return self.spec, {name: np.array(each) for name, each in self.state.params.items()}

    def save(self) -> Arrays:
        own = {"seed": np.array(self.seed), "updates": np.array(self.updates), "returns": self.episodes.running.copy()}
        return own | pack("agent", self.state) | nested("envs", self.envs.save())

    def restore(self, saved: Arrays) -> None:
        self.seed, self.updates = int(saved["seed"]), int(saved["updates"])
        self.episodes.running = saved["returns"].copy()
        self._take(unpack("agent", self.state, saved))
        self._seen = self.envs.restore(part("envs", saved))

    def _begin(self, params: Params, seen: RunningStatistics) -> None:
        adam = clipped_adam(self.config.max_grad_norm, ADAM_EPS).init(networks.trained(params))
        self._take(PpoState(params, adam, seen))

    def _take(self, state: PpoState) -> None:
        self.state = jax.device_put(state, self.device)
        self._keys = jax.device_put(tuple(jax.random.split(jax.random.key(self.seed))), self.device)

    def _refuse_loss(self) -> None:
        value = np.asarray(self._rollout.value)
        if not np.isfinite(value).all():
            step, env = np.argwhere(~np.isfinite(value))[0]
            where = f"environment {env} at its step {self.steps // self.envs.count + step}"
            raise LearningError(f"the observation of {where} is not finite", hint="check the workload")
        raise LearningError(f"the loss is not finite in update {self.updates}", hint="lower the learning rate or the scale of the rewards")


def empty_rollout(config: PpoConfig, envs: int, seen: Observation, device: jax.Device) -> Rollout:
    """Allocate a rollout on the device."""

    def room(example: Array, dtype: Any) -> jax.Array:
        return jnp.zeros((config.rollout, envs, *example.shape[1:]), dtype, device=device)

    size = config.rollout * (4 * (seen.rows.size + seen.context.size + 3 * envs) + seen.mask.size)
    if device.platform == "cpu":
        refuse_if_too_large("a rollout", size, "lower rollout, the number of environments or the window of waiting jobs")
    observed = (room(each, dtype) for each, dtype in zip(seen, (jnp.float32, jnp.float32, jnp.bool_), strict=True))
    return Rollout(*observed, *(room(np.zeros(envs), dtype) for dtype in (jnp.int32, jnp.float32, jnp.float32)))


def chosen(every: jax.Array, action: jax.Array) -> jax.Array:
    """Return the entries (…) of (…, actions) at the actions."""
    return jnp.take_along_axis(every, action[..., None], -1)[..., 0]
