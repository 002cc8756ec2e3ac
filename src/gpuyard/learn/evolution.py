"""Evolution strategies on the compiled engine: they optimise the metric itself, over whole episodes, without credit assignment.

Salimans et al. 2017: gradients of the expected outcome under Gaussian noise on the weights, from mirrored pairs, outcomes replaced by their
ranks; all members of a generation run the same episodes. No learning framework is needed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gpuyard.arrays import Array
from gpuyard.envs.base import Envs, Judge, Observation
from gpuyard.errors import LearningError, UsageError
from gpuyard.features.schema import Schema
from gpuyard.learn.base import Arrays, learner
from gpuyard.learn.parts.presets import network_for
from gpuyard.learn.parts.schedules import COURSES, anneal
from gpuyard.model.fields import MOST, check_limits
from gpuyard.networks.network import Network
from gpuyard.networks.shapes import NORMALISATION, tensor_shapes
from gpuyard.networks.spec import NetworkSpec
from gpuyard.registry import unknown_name

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # of Adam (Kingma and Ba 2015)


def centred_ranks(outcomes: Array) -> Array:
    """Rank outcomes (members, episodes) among the members of an episode, from −0.5 to 0.5; equal outcomes share a rank."""
    members = len(outcomes)
    below = (outcomes[None, :, :] < outcomes[:, None, :]).sum(axis=1)
    same = (outcomes[None, :, :] == outcomes[:, None, :]).sum(axis=1)
    ranks: Array = (below + (same - 1) / 2) / max(members - 1, 1) - 0.5
    return ranks


# How good each member of a generation is, from its outcomes (members, episodes): by its ranks in the episodes, where no single one counts
# more than another; by the rank of its mean, where a rare disaster counts; by the mean itself.
FITNESS: Mapping[str, Callable[[Array], Array]] = MappingProxyType(
    {
        "ranks": lambda outcomes: centred_ranks(outcomes).mean(axis=1),
        "rank-of-mean": lambda outcomes: centred_ranks(outcomes.mean(axis=1, keepdims=True))[:, 0],
        "mean": lambda outcomes: outcomes.mean(axis=1) - outcomes.mean(),
    }
)


@dataclass(frozen=True)
class EvolutionConfig:
    """Settings of the evolution learner."""

    pairs: int = 16  # mirrored pairs in a generation
    episodes: int = 16  # run by each member
    sigma: float = 0.05  # standard deviation of the noise on a weight
    learning_rate: float = 0.02
    schedule: str = "cosine"  # how the learning rate falls, down to a tenth: constant, linear, exponential, cosine, warm-up-cosine
    decay: float = 0.0005  # share by which weights shrink per generation
    updates: int = 500  # generations over which the learning rate falls
    network: str = ""  # see gpuyard.learn.parts.presets; empty: kernel where there are rows, else mlp
    width: int = 32
    history: int = 0  # how many of the last context features are history
    threads: int = 0  # 0: as many as the environments have
    fitness: str = "ranks"  # how outcomes become fitness: see FITNESS
    averaging: float = 0.0  # share of the past in the policy, a running mean of the search; 0: its latest place
    first: tuple[str, ...] = ()  # FEATURE=WEIGHT of a row: an initial score, besides small random weights

    def __post_init__(self) -> None:
        positive = ("pairs", "episodes", "sigma", "learning_rate", "updates")
        check_limits("evolution", self, {**dict.fromkeys(positive, (0, MOST)), "decay": (0, 1), "threads": (0, 256)}, above=positive)
        COURSES[self.schedule]  # refuses an unknown name
        if self.fitness not in FITNESS:
            raise unknown_name("fitness", self.fitness, list(FITNESS))
        if not 0 <= self.averaging < 1:
            raise UsageError(f"evolution: averaging = {self.averaging} does not lie in [0, 1)")


@learner("evolution", title="Evolution strategies on the outcome of whole episodes", config=EvolutionConfig)
class Evolution:
    """Searches for weights from generation to generation; one generation is one update."""

    def __init__(self, envs: Envs, config: EvolutionConfig, seed: int) -> None:
        self.config = config
        self.spec = network_for(envs.schema, envs.actions, config.network, width=config.width, history=config.history)
        self._seed = seed
        self._names = [name for name in tensor_shapes(self.spec) if name not in NORMALISATION]
        self._arrays = initial(self.spec, seed)
        if config.first:
            begin_with(self.spec, self._arrays, envs.schema, config.first)
        self._mean = self._flat(self._arrays)
        self._average = self._mean.copy()
        self._first, self._second = np.zeros_like(self._mean), np.zeros_like(self._mean)
        self.updates = 0  # generations so far
        rollouts = getattr(envs, "rollouts", None)  # only some environments run whole episodes
        self._judge: Judge = _SteppedEpisodes(envs, seed)
        if rollouts is not None:
            self._judge = rollouts(self._network(self._mean), threads=config.threads)
        self._before = 0  # choices made before this object was made

    @property
    def steps(self) -> int:
        return self._before + self._judge.asked

    def start_from(self, arrays: Mapping[str, Array]) -> None:
        """Start with these weights."""
        self._arrays = {name: np.asarray(arrays[name], np.float32) for name in tensor_shapes(self.spec)}
        self._mean = self._flat(self._arrays)
        self._average = self._mean.copy()

    def update(self) -> Mapping[str, float]:
        """Run one generation."""
        began = time.perf_counter()
        config = self.config
        rng = np.random.default_rng([self._seed, self.updates])
        noise = rng.standard_normal((config.pairs, len(self._mean))).astype(np.float32)
        episodes = rng.choice(len(self._judge), min(config.episodes, len(self._judge)), replace=False).tolist()
        members = [self._network(self._mean + sign * config.sigma * each) for each in noise for sign in (1.0, -1.0)]
        outcomes = self._judge.returns(members, episodes)
        if not np.isfinite(outcomes).all():
            raise LearningError(f"generation {self.updates}: the outcome of an episode is not a number")
        collected = time.perf_counter()
        gradient = self._gradient(noise, outcomes)
        rate = anneal(config.schedule, config.learning_rate, 0.1 * config.learning_rate, min(self.updates / config.updates, 1.0))
        self._adam(gradient, rate)
        share = min(config.averaging, self.updates / (self.updates + 1))
        self._average = (share * self._average + (1 - share) * self._mean).astype(np.float32)
        self.updates += 1
        return {
            "return": float(outcomes.mean()), "best": float(outcomes.mean(axis=1).max()), "learning_rate": rate,
            "gradient_norm": float(np.linalg.norm(gradient)), "weight_norm": float(np.linalg.norm(self._mean)),
            "time/collect": collected - began, "time/learn": time.perf_counter() - collected,
        }  # fmt: skip

    def _gradient(self, noise: Array, outcomes: Array) -> Array:
        """Estimate the gradient of the expected fitness, up to a factor."""
        fitness = FITNESS[self.config.fitness](outcomes)
        gradient: Array = (fitness[0::2] - fitness[1::2]) @ noise / (2 * self.config.pairs * self.config.sigma)
        return gradient

    def _adam(self, gradient: Array, rate: float) -> None:
        t = self.updates + 1
        self._first = BETA1 * self._first + (1 - BETA1) * gradient
        self._second = BETA2 * self._second + (1 - BETA2) * gradient**2
        step = (self._first / (1 - BETA1**t)) / (np.sqrt(self._second / (1 - BETA2**t)) + EPSILON)
        self._mean = ((1 - self.config.decay) * self._mean + rate * step).astype(np.float32)

    # ── weights as one vector ──

    def _flat(self, arrays: Mapping[str, Array]) -> Array:
        return np.concatenate([arrays[name].ravel() for name in self._names]).astype(np.float32)

    def _unflat(self, vector: Array) -> Arrays:
        found, at = dict(self._arrays), 0
        for name in self._names:
            shape = self._arrays[name].shape
            size = math.prod(shape)
            found[name] = vector[at : at + size].reshape(shape).astype(np.float32)
            at += size
        return found

    def _network(self, vector: Array) -> Network:
        return Network.of(self.spec, self._unflat(vector))

    def network(self) -> tuple[NetworkSpec, Arrays]:
        """Return the latest place of the search, or its running mean."""
        return self.spec, self._unflat(self._average)

    def save(self) -> Arrays:
        """Return the state. The seed and the number of a generation decide it: nothing else is random."""
        numbers = np.array([self.updates, self.steps, self._seed], np.int64)
        fixed = {f"fixed/{name}": self._arrays[name] for name in self._arrays if name in NORMALISATION}
        return {"mean": self._mean, "average": self._average, "first": self._first, "second": self._second, "numbers": numbers, **fixed}

    def restore(self, saved: Arrays) -> None:
        if saved["mean"].shape != self._mean.shape:
            raise LearningError(f"saved with {saved['mean'].size} weights, not {self._mean.size}")
        self._mean, self._first, self._second = saved["mean"], saved["first"], saved["second"]
        self._average = saved["average"]
        self.updates, self._before, self._seed = (int(number) for number in saved["numbers"])
        self._arrays |= {name: saved[f"fixed/{name}"] for name in NORMALISATION if f"fixed/{name}" in saved}
        self._judge.asked = 0


def initial(spec: NetworkSpec, seed: int) -> Arrays:
    """Draw weights N(0, 1 / inputs), in the last layer of the head a tenth of that; biases 0, no normalisation."""
    rng = np.random.default_rng([seed, 0x65766F])
    last = f"head.{len(spec.head_layers)}.weight"
    found = {}
    for name, shape in tensor_shapes(spec).items():
        if name.endswith(".weight"):
            scale = (0.1 if name == last else 1.0) / math.sqrt(shape[1])
            found[name] = (scale * rng.standard_normal(shape)).astype(np.float32)
        else:
            found[name] = np.full(shape, 1.0 if name.endswith(".scale") else 0.0, np.float32)
    return found


def begin_with(spec: NetworkSpec, arrays: Arrays, schema: Schema, first: Sequence[str]) -> None:
    """Let the first unit of each layer carry the score Σ weight · feature, so that choices follow it at first."""
    if spec.row_layers or spec.pool != "none" or not spec.head_layers:
        raise UsageError("evolution: first is for networks whose head sees the features of rows as they are", hint="network=kernel")
    weights = np.zeros(arrays["head.0.weight"].shape[1], np.float32)
    for text in first:
        name, _, value = text.partition("=")
        if name not in schema.rows:
            raise unknown_name("feature of a row:", name, schema.rows)
        try:
            weights[schema.rows.index(name)] = float(value)
        except ValueError:
            raise UsageError(f"evolution: first: {text!r} is not FEATURE=NUMBER", hint="e.g. estimate=-1") from None
    arrays["head.0.weight"][0] = weights
    arrays["head.0.bias"][0] = np.abs(weights).sum()  # features are of order one: never below 0
    for layer in range(1, len(spec.head_layers) + 1):
        arrays[f"head.{layer}.weight"][0] *= 0.0 if layer < len(spec.head_layers) else 1.0
        arrays[f"head.{layer}.weight"][0, 0] = 1.0


class _SteppedEpisodes:
    """Judges networks in environments that can only be stepped: one episode in each of the batch counts as one."""

    def __init__(self, envs: Envs, seed: int) -> None:
        self._envs = envs
        self._seed = seed
        self.asked = 0

    def __len__(self) -> int:
        return 1_000_000

    def returns(self, networks: Sequence[Network], episodes: Sequence[int]) -> Array:
        return np.array([[self._mean_return(network, episode) for episode in episodes] for network in networks])

    def _mean_return(self, network: Network, episode: int) -> float:
        seen = self._envs.reset(self._seed + episode)
        over = np.zeros(self._envs.count, bool)
        total = np.zeros(self._envs.count)
        while not over.all():
            step = self._envs.step(best_actions(network, seen))
            total += np.where(over, 0.0, step.reward)
            over |= step.done
            self.asked += self._envs.count
            seen = step.observation
        return float(total.mean())


def best_actions(network: Network, seen: Observation) -> Array:
    """Return the highest-scored legal actions (envs,)."""
    chosen = np.zeros(len(seen.mask), np.int32)
    for e, mask in enumerate(seen.mask):
        if network.spec.rows:
            legal = np.flatnonzero(mask)
            chosen[e] = legal[int(np.argmax(network.scores(seen.rows[e][legal], seen.context[e])))]
        else:
            chosen[e] = int(np.argmax(np.where(mask, network.scores(seen.rows[e], seen.context[e]), -np.inf)))
    return chosen
