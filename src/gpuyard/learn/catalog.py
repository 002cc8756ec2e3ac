"""All learners, loaded when one is asked for: they need JAX or scikit-learn, which the rest of the package does not."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from gpuyard.errors import UsageError
from gpuyard.learn.base import LEARNERS, LearnerKind
from gpuyard.registry import Registry

MODULES = ("ppo", "dqn", "sac", "bandits", "evolution")  # each registers its learners when it is imported


def learners() -> Registry[LearnerKind]:
    """The registry with all learners whose libraries are installed."""
    for _ in _missing():
        pass
    return LEARNERS


def find_learner(name: str) -> LearnerKind:
    """A learner by name. Only what is needed to find it is imported."""
    lacking = [library for library in _missing(until=name) if library]
    if name not in LEARNERS and lacking:
        raise UsageError(f"learners need {lacking[0]}, which is not installed", hint="pip install 'gpuyard[learn]'")
    return LEARNERS[name]


def _missing(until: str = "") -> Iterator[str]:
    """Import module after module until a learner is there; of each the library that it lacks, or nothing."""
    for module in MODULES:
        if until in LEARNERS:
            return
        try:
            import_module(f"gpuyard.learn.{module}")
        except ModuleNotFoundError as error:
            name = error.name or "a library"
            yield "" if name == f"gpuyard.learn.{module}" else name  # a learner that this version does not have
        else:
            yield ""
