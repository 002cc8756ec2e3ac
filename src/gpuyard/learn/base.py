"""The interface of a learner, and the registry that finds learners by name.

A learner's module is imported when somebody asks for it: most need JAX, which the rest of the package does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeVar

from gpuyard.arrays import Array
from gpuyard.envs.base import Envs
from gpuyard.errors import UsageError
from gpuyard.networks.spec import NetworkSpec
from gpuyard.registry import Registry

Arrays = dict[str, Array]
MODULES = ("ppo", "dqn", "sac", "bandits", "evolution")  # each registers its learners when it is imported


class Learner(Protocol):
    """An algorithm at work on a batch of environments. Everything random comes from the seed it was made with."""

    @property
    def steps(self) -> int:
        """Choices made in the environments so far."""

    def update(self) -> Mapping[str, float]:
        """Run one round: collect, then learn. The result goes to the progress display and to TensorBoard.

        It always has `return` (mean over the episodes that ended, NaN if none did), `time/collect` and `time/learn` in seconds.
        """

    def network(self) -> tuple[NetworkSpec, Arrays]:
        """Return the current policy in the form of gpuyard.networks.spec."""

    def save(self) -> Arrays:
        """Return everything needed to continue exactly: weights, optimiser, random state, buffers, environments."""

    def restore(self, saved: Arrays) -> None:
        """Continue from a saved state."""


@dataclass(frozen=True)
class LearnerKind:
    """A learner by name: `make(envs, config, seed)` with a frozen dataclass of settings."""

    name: str
    title: str
    config: type[Any]
    make: Callable[[Envs, Any, int], Learner]


LEARNERS: Registry[LearnerKind] = Registry("learner")
L = TypeVar("L", bound=Callable[..., Any])


def learner(name: str, *, title: str, config: type[Any]) -> Callable[[L], L]:
    """Register a class or function `(envs, config, seed)` that makes a Learner."""
    return LEARNERS.register(name, lambda make: LearnerKind(name, title, config, make))


def learners() -> Registry[LearnerKind]:
    """Return the registry with every learner whose libraries are installed."""
    for _ in _missing():
        pass
    return LEARNERS


def find_learner(name: str) -> LearnerKind:
    """Find a learner by name, importing no more modules than needed."""
    lacking = [library for library in _missing(until=name) if library]
    if name not in LEARNERS and lacking:
        raise UsageError(f"learners need {lacking[0]}, which is not installed", hint="pip install 'gpuyard[learn]'")
    return LEARNERS[name]


def _missing(until: str = "") -> Iterator[str]:
    """Import module after module until `until` is registered; yield the library that each one lacks, or an empty text."""
    for module in MODULES:
        if until in LEARNERS:
            return
        try:
            import_module(f"gpuyard.learn.{module}")
        except ModuleNotFoundError as error:
            yield error.name or "a library"
        else:
            yield ""
