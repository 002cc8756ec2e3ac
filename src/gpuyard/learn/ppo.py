"""Proximal policy optimisation (Schulman et al. 2017) with masks: collect, advantages, update."""

from __future__ import annotations

import time
from collections.abc import Mapping
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
from gpuyard.learn.parts.jax_setup import setup
from gpuyard.learn.parts.memory import refuse_if_too_large
from gpuyard.learn.parts.networks import Params
from gpuyard.learn.parts.normalise import Seen, merge, normalised_params, nothing_seen, seen_before
from gpuyard.learn.parts.saving import nested, part
from gpuyard.learn.parts.schedules import COURSES, anneal
from gpuyard.learn.parts.state import pack, unpack
from gpuyard.learn.run.presets import network_for
from gpuyard.model.fields import ANY, MOST, check_limits
from gpuyard.networks.spec import NetworkSpec

WARM_START_ROLLOUTS = 20.0  # how much the normalisation of a network to start with counts


_LIMITS: Mapping[str, tuple[float, float]] = {
    "rollout": (1, 65_536), "epochs": (1, 1_000), "minibatches": (1, 1_000_000), "gamma": (0, 1), "gae_lambda": (0, 1), "clip": (0, ANY),
    "value_clip": (0, ANY), "value_weight": (0, ANY), "entropy": (0, ANY), "entropy_end": (0, ANY), "learning_rate": (0, ANY),
    "updates": (1, MOST), "max_gradient": (0, ANY), "target_kl": (0, ANY),
}  # fmt: skip


@dataclass(frozen=True)
class PpoConfig:
    """Hyper-parameters of PPO."""

    rollout: int = 64  # steps of each environment in one update
    epochs: int = 2
    minibatches: int = 8
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    value_clip: float = 0.2  # in standard deviations of returns where values are normalised; 0: not clipped
    value_weight: float = 0.5
    entropy: float = 0.01
    entropy_end: float = 0.0  # reached, linearly, with the last update
    learning_rate: float = 1e-3
    rate: str = "linear"  # how the learning rate falls: constant, linear, exponential, cosine, warm-up-cosine
    updates: int = 1000  # of the whole training; decides the course of learning rate and entropy
    max_gradient: float = 0.5  # norm; 0: not clipped
    target_kl: float = 0.0  # an update ends early where the policy has moved by more; 0: never
    normalise_observations: bool = True
    normalise_values: bool = True
    network: str = ""  # see gpuyard.learn.parts.networks; empty: kernel where there are rows, else mlp
    width: int = 32
    history: int = 0  # the last features of the context that are history
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_limits("ppo", self, _LIMITS, above=("clip",))
        COURSES[self.rate]  # refuses an unknown name

    @property
    def discounting(self) -> float:
        """What the next step's value counts."""
        return self.gamma


class Rollout(NamedTuple):
    """What was seen and chosen, (steps, envs, …), on the device."""

    rows: jax.Array
    context: jax.Array
    mask: jax.Array
    action: jax.Array  # i4
    log_probability: jax.Array
    value: jax.Array  # as the network gives it


class Agent(NamedTuple):
    """What learning changes."""

    params: Params
    adam: Any
    seen: Seen


class Sample(NamedTuple):
    """A rollout with what is learned from it, (choices, …)."""

    rollout: Rollout
    advantage: jax.Array
    target: jax.Array  # of the value, as the network should give it


# ---- collect


def empty_rollout(config: PpoConfig, envs: int, seen: Observation, device: jax.Device) -> Rollout:
    """Room on the device for what will be seen."""

    def room(example: Array, dtype: Any) -> jax.Array:
        return jnp.zeros((config.rollout, envs, *example.shape[1:]), dtype, device=device)

    number = np.zeros(envs)
    size = config.rollout * (4 * (seen.rows.size + seen.context.size + 3 * envs) + seen.mask.size)
    if device.platform == "cpu":
        refuse_if_too_large("a rollout", size, "lower rollout, the number of environments or the window of waiting jobs")
    return Rollout(
        room(seen.rows, jnp.float32),
        room(seen.context, jnp.float32),
        room(seen.mask, jnp.bool_),
        room(number, jnp.int32),
        room(number, jnp.float32),
        room(number, jnp.float32),
    )


@partial(jax.jit, static_argnames="spec", donate_argnames="rollout")
def act(
    spec: NetworkSpec, params: Params, rollout: Rollout, t: int, seen: Observation, key: jax.Array, step: int
) -> tuple[Rollout, jax.Array]:
    """Choose in all environments, and write down step `t` of the rollout."""
    scores, value = networks.apply_and_value(spec, params, *seen)
    action = networks.sample(scores, jax.random.fold_in(key, step))
    log_probability = chosen(networks.log_probabilities(scores), action)
    kept = (*seen, action, log_probability, value)
    return Rollout(*(room.at[t].set(each) for room, each in zip(rollout, kept, strict=True))), action


def chosen(of_all: jax.Array, action: jax.Array) -> jax.Array:
    """(…, actions) → (…) at the action."""
    return jnp.take_along_axis(of_all, action[..., None], -1)[..., 0]


# ---- advantages


def advantages(reward: jax.Array, done: jax.Array, value: jax.Array, last: jax.Array, gamma: float, gae_lambda: float) -> jax.Array:
    """Generalised advantage estimation (Schulman et al. 2016): (steps, envs); `last` (envs,) is the value after the last step."""
    goes_on = 1.0 - done

    def back(later: tuple[jax.Array, jax.Array], now: tuple[jax.Array, ...]) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        advantage, value_after = later
        reward, goes_on, value = now
        advantage = reward + gamma * goes_on * value_after - value + gamma * gae_lambda * goes_on * advantage
        return (advantage, value), advantage

    return jax.lax.scan(back, (jnp.zeros_like(last), last), (reward, goes_on, value), reverse=True)[1]


# ---- update


def policy_loss(log_probability: jax.Array, old: jax.Array, advantage: jax.Array, clip: float) -> jax.Array:
    """The clipped surrogate, to be minimised."""
    ratio = jnp.exp(log_probability - old)
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage).mean()


def value_loss(value: jax.Array, old: jax.Array, target: jax.Array, clip: float) -> jax.Array:
    """Half the squared error, the worse of clipped and not; `clip` 0: not clipped."""
    error = (value - target) ** 2
    if clip:
        error = jnp.maximum(error, (old + jnp.clip(value - old, -clip, clip) - target) ** 2)
    return 0.5 * error.mean()


def loss(
    spec: NetworkSpec, config: PpoConfig, trained: Params, fixed: Params, sample: Sample, entropy_weight: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Policy, value and entropy together, and what is worth knowing of each."""
    rollout = sample.rollout
    scores, value = networks.apply_and_value(spec, {**trained, **fixed}, rollout.rows, rollout.context, rollout.mask)
    of_all = networks.log_probabilities(scores)
    log_probability = chosen(of_all, rollout.action)
    advantage = (sample.advantage - sample.advantage.mean()) / (sample.advantage.std() + 1e-8)
    of_policy = policy_loss(log_probability, rollout.log_probability, advantage, config.clip)
    of_value = value_loss(value, rollout.value, sample.target, config.value_clip)
    entropy = networks.entropy(of_all).mean()
    moved = log_probability - rollout.log_probability
    ratio = jnp.exp(moved)
    facts = {
        "loss/policy": of_policy,
        "loss/value": of_value,
        "policy/entropy": entropy,
        "policy/kl": (ratio - 1.0 - moved).mean(),  # Schulman's estimate of low variance
        "policy/clipped": (jnp.abs(ratio - 1.0) > config.clip).mean(),
    }
    return of_policy + config.value_weight * of_value - entropy_weight * entropy, facts


def optimiser(config: PpoConfig) -> Any:
    """Adam after clipping of the gradient's norm; the learning rate is applied by the caller."""
    clipping = optax.clip_by_global_norm(config.max_gradient) if config.max_gradient else optax.identity()
    return optax.chain(clipping, optax.scale_by_adam(eps=1e-5))


def norm(tree: Params) -> jax.Array:
    """Of all arrays together."""
    return jnp.sqrt(sum((jnp.sum(each**2) for each in tree.values()), jnp.zeros(())))


def minibatch_step(
    spec: NetworkSpec, config: PpoConfig, agent: Agent, sample: Sample, rate: jax.Array, entropy_weight: jax.Array
) -> tuple[Agent, dict[str, jax.Array]]:
    """One step of Adam."""
    trained, fixed = networks.trained(agent.params), networks.normalisation(agent.params)
    (total, facts), gradient = jax.value_and_grad(partial(loss, spec, config), has_aux=True)(trained, fixed, sample, entropy_weight)
    change, adam = optimiser(config).update(gradient, agent.adam)
    params = {**jax.tree.map(lambda p, c: p - rate * c, trained, change), **fixed}
    return Agent(params, adam, agent.seen), {**facts, "loss/total": total, "gradient": norm(gradient)}


@partial(jax.jit, static_argnames="spec")
def believed(spec: NetworkSpec, agent: Agent, seen: Observation) -> jax.Array:
    """(envs,) the value in units of the reward."""
    return networks.value(spec, agent.params, *seen) * agent.seen.returns.std + agent.seen.returns.mean


def samples(
    spec: NetworkSpec, config: PpoConfig, agent: Agent, rollout: Rollout, reward: jax.Array, done: jax.Array, last: Observation
) -> tuple[Sample, Seen, jax.Array]:
    """The rollout as one long batch with advantages and targets, what was seen with it counted in, and the explained variance."""
    mean, std = agent.seen.returns.mean, agent.seen.returns.std
    value = rollout.value * std + mean
    after = believed(spec, agent, last)
    advantage = advantages(reward, done, value, after, config.gamma, config.gae_lambda)
    returns = advantage + value
    seen = agent.seen
    if config.normalise_values:
        seen = seen._replace(returns=merge(seen.returns, returns))
    if config.normalise_observations:
        seen = seen._replace(context=merge(seen.context, rollout.context))
        if spec.rows:
            seen = seen._replace(rows=merge(seen.rows, rollout.rows, rollout.mask))
    target = (returns - seen.returns.mean) / jnp.maximum(seen.returns.std, 1e-6)
    explained = 1.0 - advantage.var() / jnp.maximum(returns.var(), 1e-12)
    flat: Sample = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), Sample(rollout, advantage, target))
    return flat, seen, explained


@partial(jax.jit, static_argnames=("spec", "config"))
def learn(
    spec: NetworkSpec,
    config: PpoConfig,
    agent: Agent,
    rollout: Rollout,
    reward: jax.Array,
    done: jax.Array,
    last: Observation,
    key: jax.Array,
    rate: jax.Array,
    entropy_weight: jax.Array,
) -> tuple[Agent, dict[str, jax.Array]]:
    """All epochs over all minibatches. What was seen changes the normalisation only afterwards: the old policy stays what it was."""
    sample, seen, explained = samples(spec, config, agent, rollout, reward, done, last)
    size = reward.size
    orders = jax.vmap(lambda k: jax.random.permutation(k, size))(jax.random.split(key, config.epochs))
    orders = orders.reshape(config.epochs * config.minibatches, size // config.minibatches)
    step = partial(minibatch_step, spec, config)

    def one(state: tuple[Agent, jax.Array], order: jax.Array) -> tuple[tuple[Agent, jax.Array], tuple[dict[str, jax.Array], jax.Array]]:
        agent, going = state
        batch: Sample = jax.tree.map(lambda x: x[order], sample)
        if not config.target_kl:
            agent, facts = step(agent, batch, rate, entropy_weight)
            return (agent, going), (facts, going)
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(step, agent, batch, rate, entropy_weight)[1])
        agent, facts = jax.lax.cond(going, lambda: step(agent, batch, rate, entropy_weight), lambda: (agent, nothing))
        return (agent, going & (facts["policy/kl"] <= config.target_kl)), (facts, going)

    (agent, _), (facts, counted) = jax.lax.scan(one, (agent, jnp.asarray(True)), orders)
    means = {name: (each * counted).sum() / counted.sum() for name, each in facts.items()}
    params = normalised_params(agent.params, seen) if config.normalise_observations else agent.params
    return Agent(params, agent.adam, seen), {**means, "value/explained": explained, "minibatches": counted.sum()}


# ---- the learner


@learner("ppo", title="Proximal policy optimisation", config=PpoConfig)
class Ppo:
    """PPO at work.

    Choices depend on (seed, steps so far), the order of minibatches on (seed, updates so far): a resumed run goes on bit for bit.
    """

    agent: Agent
    _keys: tuple[jax.Array, jax.Array]

    def __init__(self, envs: Envs, config: PpoConfig, seed: int, spec: NetworkSpec | None = None) -> None:
        """`spec` replaces the network that the configuration names."""
        if config.rollout * envs.count % config.minibatches:
            size = f"{config.rollout} steps × {envs.count} environments"
            raise UsageError(f"{size} cannot be split into {config.minibatches} minibatches", hint="choose a number that divides it")
        self.device = setup(config.device)
        self.envs, self.config, self.seed = envs, config, seed
        self.spec = spec or network_for(envs.schema, envs.actions, config.network, config.width, config.history)
        self.updates = 0
        self._seen = envs.reset(seed)
        self._returns = np.zeros(envs.count)  # of the episodes that are going on
        self._reward = np.zeros((config.rollout, envs.count), np.float32)
        self._done = np.zeros((config.rollout, envs.count), np.float32)
        self._rollout = empty_rollout(config, envs.count, self._seen, self.device)
        params = networks.init(self.spec, jax.random.key(seed))
        seen = nothing_seen(self.spec.rows, self.spec.context)
        self._take(Agent(params, optimiser(config).init(networks.trained(params)), seen))

    @property
    def steps(self) -> int:
        return self.updates * self.config.rollout * self.envs.count

    def start_from(self, params: Mapping[str, Array | jax.Array]) -> None:
        """Go on with these weights (of imitation, of a checkpoint) and a fresh optimiser."""
        expected = networks.shapes(self.spec)
        if {name: np.shape(each) for name, each in params.items()} != expected:
            raise UsageError("the network to start from has other shapes than this learner's", hint="name the same network and width")
        taken = {name: jnp.asarray(each, jnp.float32) for name, each in params.items()}
        rows, context = seen_before(taken, WARM_START_ROLLOUTS)
        self._take(Agent(taken, optimiser(self.config).init(networks.trained(taken)), self.agent.seen._replace(rows=rows, context=context)))

    def collect(self) -> list[float]:
        """Step all environments `rollout` times; the returns of the episodes that ended."""
        ended: list[float] = []
        before = self.steps // self.envs.count
        for t in range(self.config.rollout):
            self._rollout, action = act(self.spec, self.agent.params, self._rollout, t, self._seen, self._keys[0], before + t)
            self._seen, reward, done = self.envs.step(np.asarray(action))
            self._reward[t], self._done[t] = reward, done
            self._returns += reward
            if done.any():
                ended += self._returns[done].tolist()
                self._returns[done] = 0.0
        refuse_nan(self._reward, "reward", before)
        return ended

    def update(self) -> dict[str, float]:
        """Collect a rollout and learn from it."""
        began = time.perf_counter()
        ended = self.collect()
        collected = time.perf_counter()
        config, progress = self.config, self.updates / self.config.updates
        rate = anneal(config.rate, config.learning_rate, 0.0, progress)
        entropy_weight = anneal("linear", config.entropy, config.entropy_end, progress)
        key = jax.random.fold_in(self._keys[1], self.updates)
        numbers = (np.float32(rate), np.float32(entropy_weight))
        agent, facts = learn(self.spec, config, self.agent, self._rollout, self._reward, self._done, self._seen, key, *numbers)
        found = {name: float(each) for name, each in jax.device_get(facts).items()}
        if not np.isfinite(found["loss/total"]):
            self._refuse_loss()
        self.agent = agent
        self.updates += 1
        timing = {"time/collect": collected - began, "time/learn": time.perf_counter() - collected}
        mean = float(np.mean(ended)) if ended else float("nan")
        return {"return": mean, "episodes": float(len(ended)), "learning_rate": rate, "entropy_weight": entropy_weight, **found, **timing}

    def values(self, seen: Observation) -> Array:
        """(envs,) what the learner believes the rest of the episode to be worth."""
        return np.asarray(believed(self.spec, self.agent, seen))

    def network(self) -> tuple[NetworkSpec, Arrays]:
        return self.spec, {name: np.array(each) for name, each in self.agent.params.items()}

    def save(self) -> Arrays:
        own = {"seed": np.array(self.seed), "updates": np.array(self.updates), "returns": self._returns.copy()}
        return own | pack("agent", self.agent) | nested("envs", self.envs.save())

    def restore(self, saved: Arrays) -> None:
        self.seed, self.updates = int(saved["seed"]), int(saved["updates"])
        self._returns = saved["returns"].copy()
        self._take(unpack("agent", self.agent, saved))
        self._seen = self.envs.restore(part("envs", saved))

    def _take(self, agent: Agent) -> None:
        self.agent = jax.device_put(agent, self.device)
        self._keys = jax.device_put(tuple(jax.random.split(jax.random.key(self.seed))), self.device)

    def _refuse_loss(self) -> None:
        refuse_nan(np.asarray(self._rollout.value), "observation", self.steps // self.envs.count)
        raise LearningError(f"the loss is not finite in update {self.updates}", hint="lower the learning rate or the scale of the rewards")


def refuse_nan(numbers: Array, what: str, before: int) -> None:
    """Raise for the first of `numbers` (steps, envs) that is not finite; `before` counts the steps before the first row."""
    if not np.isfinite(numbers).all():
        step, env = np.argwhere(~np.isfinite(numbers))[0]
        raise LearningError(
            f"the {what} of environment {env} at its step {before + step} is not finite", hint="look at the workload and reward"
        )
