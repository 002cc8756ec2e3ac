"""What all learners have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gpuyard.arrays import Array
from gpuyard.envs.base import Envs
from gpuyard.networks.spec import NetworkSpec
from gpuyard.registry import Registry

Arrays = dict[str, Array]


class Learner(Protocol):
    """An algorithm at work on a batch of environments. Everything random comes from the seed it was made with."""

    @property
    def steps(self) -> int:
        """Choices made in the environments so far."""

    def update(self) -> Mapping[str, float]:
        """One round: collect and learn. What it returns goes to the progress display and to TensorBoard.

        Always among it: `return` (mean of the episodes that ended, NaN if none did), `time/collect` and `time/learn` in seconds.
        """

    def network(self) -> tuple[NetworkSpec, Arrays]:
        """The policy as it is now, in the form of gpuyard.networks.spec."""

    def save(self) -> Arrays:
        """All that is needed to go on exactly as if never stopped: weights, optimiser, random state, buffers, environments."""

    def restore(self, saved: Arrays) -> None:
        """Go on from there."""


@dataclass(frozen=True)
class LearnerKind:
    """A learner by name: `make(envs, config, seed)` with a frozen dataclass of hyper-parameters."""

    name: str
    title: str
    config: type[Any]
    make: Callable[[Envs, Any, int], Learner]


LEARNERS: Registry[LearnerKind] = Registry("learner")
L = TypeVar("L", bound=Callable[..., Any])


def learner(name: str, *, title: str, config: type[Any]) -> Callable[[L], L]:
    """Register a class `(envs, config, seed)` that is a Learner."""

    def register(make: L) -> L:
        LEARNERS.add(name, LearnerKind(name, title, config, make))
        return make

    return register
