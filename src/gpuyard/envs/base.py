"""The interface between environments and learners: batches that are stepped together, and judges that run whole episodes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import SimulationError, UsageError
from gpuyard.features.schema import Schema
from gpuyard.model.cluster import Cluster
from gpuyard.model.workload import Workload
from gpuyard.networks.network import Network

Instance: TypeAlias = tuple[Workload, Cluster]  # what one episode simulates


class Observation(NamedTuple):
    """A batch of environments as it is seen before each choice. The next step overwrites the arrays: copy what you keep."""

    rows: Array  # (envs, n, features) f4; n = 0 where there are no rows
    context: Array  # (envs, features) f4
    mask: Array  # (envs, actions) bool: what may be chosen; at least one in every environment


class Step(NamedTuple):
    """The result of a choice. Where an episode ended, the observation is already the first of the next one."""

    observation: Observation
    reward: Array  # (envs,) f4
    done: Array  # (envs,) bool: the episode ended with this step


class Envs(Protocol):
    """N environments that are stepped together. An illegal action counts as the first legal one."""

    @property
    def count(self) -> int: ...
    @property
    def actions(self) -> int: ...
    @property
    def schema(self) -> Schema: ...

    def reset(self, seed: int) -> Observation:
        """Begin the first episode of each; `seed` decides everything that is random."""

    def step(self, actions: Array) -> Step:
        """Choose `actions` (envs,) i4."""

    def save(self) -> dict[str, Array]:
        """Return plain arrays from which `restore` makes exactly this state."""

    def restore(self, saved: dict[str, Array]) -> Observation:
        """Go on from a saved state; returns the observation of the last step."""


class Judge(Protocol):
    """Runs whole episodes with networks in the place of the open decision, and returns only what they earned."""

    asked: int  # how often networks were asked in all

    def __len__(self) -> int:
        """Return how many episodes there are to choose from."""

    def returns(self, networks: Sequence[Network], episodes: Sequence[int]) -> Array:
        """Return (networks, episodes): what each network earns in each episode."""


class CheckedEnvs:
    """Wrap a batch of environments: rewards must be finite numbers, and `seconds` adds up the time its steps take."""

    def __init__(self, inner: Envs) -> None:
        self.inner = inner
        self.count, self.actions, self.schema = inner.count, inner.actions, inner.schema
        self.reset, self.save, self.restore = inner.reset, inner.save, inner.restore
        self.seconds = 0.0

    def step(self, actions: Array) -> Step:
        began = time.perf_counter()
        step = self.inner.step(actions)
        self.seconds += time.perf_counter() - began
        if not np.isfinite(step.reward).all():
            env = int(np.argmin(np.isfinite(step.reward)))
            raise SimulationError(f"environment {env} of {self.count}: the reward of a step is {step.reward[env]}, not a finite number")
        return step

    def __getattr__(self, name: str) -> Any:
        """Return what only some batches have."""
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


def no_episode() -> UsageError:
    """Return the error for a choice before the first reset."""
    return UsageError("environments in which no episode has begun", hint="call reset first")


def check_actions(actions: Array, count: int) -> None:
    """Refuse anything but one action for each of `count` environments."""
    if np.shape(actions) != (count,):
        raise UsageError(f"actions have the shape {np.shape(actions)}, not ({count},)")
