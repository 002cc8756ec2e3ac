"""What every batch of environments gives to a learner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.features.schema import Schema
from gpuyard.networks.network import Network


class Observation(NamedTuple):
    """What is seen before each choice, for a batch of environments. The arrays are written over by the next step: copy what you keep."""

    rows: Array  # (envs, n, features) f4; n = 0 where there are no rows
    context: Array  # (envs, features) f4
    mask: Array  # (envs, actions) bool: what may be chosen; at least one in every environment


class Step(NamedTuple):
    """What a choice led to. Where an episode is over, the observation is already the first of the next one."""

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
        """Plain arrays from which `restore` makes exactly this state."""

    def restore(self, saved: dict[str, Array]) -> Observation:
        """Go on from there; the observation is that of the last step."""


class Judge(Protocol):
    """Runs whole episodes with networks in the place of the open decision: what is wanted is the outcome."""

    asked: int  # how often networks were asked in all

    def __len__(self) -> int:
        """Episodes to choose from."""

    def returns(self, networks: Sequence[Network], episodes: Sequence[int]) -> Array:
        """(networks, episodes)."""


def no_episode() -> UsageError:
    """Where something is chosen before the first reset."""
    return UsageError("environments in which no episode has begun", hint="call reset first")


def check_actions(actions: Array, count: int) -> None:
    """Refuses what is not one action for each of `count` environments."""
    if np.shape(actions) != (count,):
        raise UsageError(f"actions have the shape {np.shape(actions)}, not ({count},)")
