"""Small environments with known best choices and values, which a learner must solve before it is trusted with anything else.

After Andy Jones, "Debugging RL, without the agonizing pain" (2021), plus masks, rows and small scheduling problems solved exactly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache

import numpy as np

from gpuyard.arrays import Array
from gpuyard.envs.base import Observation, Step
from gpuyard.features.schema import Schema
from gpuyard.registry import Registry


class Probe(ABC):
    """A batch of environments (gpuyard.envs.base.Envs) in plain numpy; randomness depends only on the seed and the number of steps."""

    schema: Schema
    actions: int

    def __init__(self, count: int = 64) -> None:
        self.count = count
        self._seed = 0
        self._steps = 0
        self._state: dict[str, Array] = {}

    @abstractmethod
    def begin(self, random: np.random.Generator, over: Array) -> None:
        """Begin a new episode where `over` (envs,) says so."""

    @abstractmethod
    def observe(self) -> Observation: ...

    @abstractmethod
    def act(self, actions: Array) -> tuple[Array, Array]:
        """Take legal actions; return the reward (envs,) and whether the episode is over (envs,)."""

    @abstractmethod
    def values(self, gamma: float) -> Array:
        """Return (envs,) the value of the present observation under the best choices."""

    @abstractmethod
    def best(self) -> Array:
        """Return (envs, actions) bool: which choices are the best now."""

    def reset(self, seed: int) -> Observation:
        self._seed, self._steps = seed, 0
        self.begin(self._random(), np.ones(self.count, bool))
        return self.observe()

    def step(self, actions: Array) -> Step:
        mask = self.observe().mask
        legal = mask[np.arange(self.count), actions]
        reward, done = self.act(np.where(legal, actions, mask.argmax(1)))
        self._steps += 1
        self.begin(self._random(), done)
        return Step(self.observe(), reward.astype(np.float32), done)

    def save(self) -> dict[str, Array]:
        return {"seed": np.array(self._seed), "steps": np.array(self._steps)} | {name: each.copy() for name, each in self._state.items()}

    def restore(self, saved: dict[str, Array]) -> Observation:
        self._seed, self._steps = int(saved["seed"]), int(saved["steps"])
        self._state = {name: each.copy() for name, each in saved.items() if name not in ("seed", "steps")}
        return self.observe()

    def _random(self) -> np.random.Generator:
        return np.random.default_rng([self._seed, self._steps])

    def _keep(self, name: str, fresh: Array, over: Array) -> None:
        """Replace the state of the environments that are over."""
        old = self._state.get(name, fresh)
        self._state[name] = np.where(over.reshape(-1, *[1] * (fresh.ndim - 1)), fresh, old)


PROBES: Registry[Callable[[int], Probe]] = Registry("probe")


class _ContextProbe(Probe):
    """Episodes of one step: one number is observed, and there are two choices."""

    schema = Schema("probe", 1, (), ("signal",))
    actions = 2

    @property
    def signal(self) -> Array:
        return self._state["signal"]

    def begin(self, random: np.random.Generator, over: Array) -> None:
        self._keep("signal", random.choice([-1.0, 1.0], self.count), over)

    def observe(self) -> Observation:
        rows = np.zeros((self.count, 0, 0), np.float32)
        return Observation(rows, self.signal[:, None].astype(np.float32), np.ones((self.count, self.actions), bool))

    def act(self, actions: Array) -> tuple[Array, Array]:
        return self.rewards()[np.arange(self.count), actions], np.ones(self.count, bool)

    @abstractmethod
    def rewards(self) -> Array:
        """Return (envs, actions) rewards."""

    def values(self, gamma: float) -> Array:
        found: Array = np.where(self.observe().mask, self.rewards(), -np.inf).max(1)
        return found

    def best(self) -> Array:
        found: Array = self.observe().mask & (self.rewards() == self.values(1.0)[:, None])
        return found


class ConstantReward(_ContextProbe):
    """The reward is always 1: is the value learned at all?"""

    def rewards(self) -> Array:
        return np.ones((self.count, 2))


class ObservedReward(_ContextProbe):
    """The reward is the observation: does the value depend on it?"""

    def rewards(self) -> Array:
        return np.repeat(self.signal[:, None], 2, 1)


class ActionReward(_ContextProbe):
    """The second choice earns 1, the first −1: does the policy learn?"""

    def rewards(self) -> Array:
        return np.tile([-1.0, 1.0], (self.count, 1))


class ActionByObservation(_ContextProbe):
    """The choice must follow the sign of the observation, ±1."""

    def rewards(self) -> Array:
        found: Array = self.signal[:, None] * np.array([-1.0, 1.0])
        return found


class MaskedAction(_ContextProbe):
    """Rewards are 0, 0.5 and 1; the best choice is masked where −1 is observed."""

    actions = 3

    def rewards(self) -> Array:
        return np.tile([0.0, 0.5, 1.0], (self.count, 1))

    def observe(self) -> Observation:
        seen = super().observe()
        seen.mask[:, 2] = self.signal > 0
        return seen


class TwoSteps(_ContextProbe):
    """The observation is 0, then 1; only the second step earns 1: is the future discounted once?"""

    def rewards(self) -> Array:
        return np.repeat(self.signal[:, None], 2, 1)

    def begin(self, random: np.random.Generator, over: Array) -> None:
        self._keep("signal", np.zeros(self.count), over)

    def act(self, actions: Array) -> tuple[Array, Array]:
        reward = self.signal.copy()
        self._state["signal"] = 1.0 - self.signal
        return reward, reward == 1.0

    def values(self, gamma: float) -> Array:
        return np.where(self.signal == 1.0, 1.0, gamma)

    def best(self) -> Array:
        return np.ones((self.count, 2), bool)


class LargestRow(Probe):
    """Choose the row with the largest first feature among the legal ones: reward 1, else 0.

    The number of legal rows is random, and illegal rows look even better.
    """

    schema = Schema("probe", 1, ("size", "noise"), ("zero",))

    def __init__(self, count: int = 64, rows: int = 6) -> None:
        super().__init__(count)
        self.actions = rows

    def begin(self, random: np.random.Generator, over: Array) -> None:
        mask = random.random((self.count, self.actions)) < random.random((self.count, 1))
        mask[np.arange(self.count), random.integers(self.actions, size=self.count)] = True
        rows = random.normal(size=(self.count, self.actions, 2)).astype(np.float32)
        rows[..., 0] += 3.0 * ~mask
        self._keep("mask", mask, over)
        self._keep("rows", rows, over)

    def observe(self) -> Observation:
        return Observation(self._state["rows"].copy(), np.zeros((self.count, 1), np.float32), self._state["mask"].copy())

    def best(self) -> Array:
        size = np.where(self._state["mask"], self._state["rows"][..., 0], -np.inf)
        found: Array = size == size.max(1, keepdims=True)
        return found

    def act(self, actions: Array) -> tuple[Array, Array]:
        return self.best()[np.arange(self.count), actions].astype(np.float32), np.ones(self.count, bool)

    def values(self, gamma: float) -> Array:
        return np.ones(self.count)


class Machines(Probe):
    """Put jobs one after the other on the machine that is free first, to minimise the weighted sum of their ends; solved exactly.

    Environment i always works on problem i modulo their number. One machine: the best order is by weight / length (Smith 1956).
    The reward of a choice is −weight · end of the job; discounting is 1. At most about 8 jobs.
    """

    schema = Schema("probe", 1, ("length", "weight"), ("clock", "spread", "left"))

    def __init__(self, count: int, lengths: Array, weights: Array, speeds: tuple[float, ...] = (1.0,)) -> None:
        """Take `lengths` and `weights` (problems, jobs) in seconds and per second, and `speeds` (machines,)."""
        super().__init__(count)
        self.lengths, self.weights, self.speeds = np.asarray(lengths, float), np.asarray(weights, float), speeds
        self.actions = self.lengths.shape[1]
        self._problem = np.arange(count) % len(self.lengths)

    @staticmethod
    def random(count: int, problems: int, jobs: int, seed: int, speeds: tuple[float, ...] = (1.0,)) -> Machines:
        """Draw whole lengths from 1 to 9 and weights from 0.01 to 0.1."""
        random = np.random.default_rng(seed)
        shape = (problems, jobs)
        return Machines(count, random.integers(1, 10, shape), random.integers(1, 11, shape) / 100, speeds)

    def begin(self, random: np.random.Generator, over: Array) -> None:
        self._keep("left", np.ones((self.count, self.actions), bool), over)
        self._keep("free", np.zeros((self.count, len(self.speeds))), over)  # (envs, machines) s

    def observe(self) -> Observation:
        left, free = self._state["left"], self._state["free"]
        rows = np.stack([self.lengths[self._problem] / 10, self.weights[self._problem] * 10], -1)
        context = np.stack([free.min(1) / 10, (free.max(1) - free.min(1)) / 10, left.mean(1)], 1)
        return Observation((rows * left[..., None]).astype(np.float32), context.astype(np.float32), left.copy())

    def act(self, actions: Array) -> tuple[Array, Array]:
        each, problem = np.arange(self.count), self._problem
        machine = self._state["free"].argmin(1)
        end = self._state["free"][each, machine] + self.lengths[problem, actions] / np.array(self.speeds)[machine]
        self._state["free"][each, machine] = end
        self._state["left"][each, actions] = False
        return -self.weights[problem, actions] * end, self._state["left"].sum(1) == 0

    def optimum(self) -> Array:
        """Return (problems,) the best possible return of an episode, by trying all orders."""
        nothing = (0.0,) * len(self.speeds)
        return np.array([self._solver(problem)((1 << self.actions) - 1, nothing) for problem in range(len(self.lengths))])

    def values(self, gamma: float) -> Array:
        """Return the exact values for `gamma` = 1, the only one supported."""
        return np.array([self._solver(self._problem[env])(self._bits(env), self._free(env)) for env in range(self.count)])

    def best(self) -> Array:
        found = np.zeros((self.count, self.actions), bool)
        for env in range(self.count):
            solve, left, free = self._solver(self._problem[env]), self._bits(env), self._free(env)
            for job in range(self.actions):
                if left >> job & 1:
                    reward, then = self._after(self._problem[env], job, free)
                    found[env, job] = reward + solve(left & ~(1 << job), then) >= solve(left, free) - 1e-9
        return found

    def _bits(self, env: int) -> int:
        return sum(1 << job for job in range(self.actions) if self._state["left"][env, job])

    def _free(self, env: int) -> tuple[float, ...]:
        return tuple(float(each) for each in self._state["free"][env])

    def _after(self, problem: int, job: int, free: tuple[float, ...]) -> tuple[float, tuple[float, ...]]:
        machine = free.index(min(free))
        end = free[machine] + float(self.lengths[problem, job]) / self.speeds[machine]
        return -float(self.weights[problem, job]) * end, (*free[:machine], end, *free[machine + 1 :])

    def _solver(self, problem: int) -> Callable[[int, tuple[float, ...]], float]:
        @cache
        def solve(left: int, free: tuple[float, ...]) -> float:
            if not left:
                return 0.0
            tried = ((left & ~(1 << job), *self._after(problem, job, free)) for job in range(self.actions) if left >> job & 1)
            return max(reward + solve(rest, then) for rest, reward, then in tried)

        return solve


PROBES.add("constant-reward", ConstantReward)
PROBES.add("observed-reward", ObservedReward)
PROBES.add("two-steps", TwoSteps)
PROBES.add("action-reward", ActionReward)
PROBES.add("action-by-observation", ActionByObservation)
PROBES.add("masked-action", MaskedAction)
PROBES.add("largest-row", LargestRow)
PROBES.add("one-machine", lambda count: Machines.random(count, problems=1, jobs=4, seed=3))
PROBES.add("two-machines", lambda count: Machines.random(count, problems=1, jobs=5, seed=5, speeds=(1.0, 2.0)))
