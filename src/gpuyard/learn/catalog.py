"""All learners, loaded when one is asked for: they need JAX or scikit-learn, which the rest of the package does not."""

from __future__ import annotations

from importlib import import_module

from gpuyard.errors import UsageError
from gpuyard.learn.base import LEARNERS, LearnerKind
from gpuyard.registry import Registry

MODULES = ("ppo", "dqn", "sac", "evolution", "bandits")  # each registers its learners when it is imported


def learners() -> Registry[LearnerKind]:
    """The registry, filled."""
    for name in MODULES:
        try:
            import_module(f"gpuyard.learn.{name}")
        except ModuleNotFoundError as error:
            if error.name and error.name.startswith("gpuyard."):
                continue  # a learner that this version does not have
            raise UsageError(f"learners need {error.name}, which is not installed", hint="pip install 'gpuyard[learn]'") from None
    return LEARNERS


def find_learner(name: str) -> LearnerKind:
    """A learner by name; one that is registered already needs no other module."""
    return LEARNERS[name] if name in LEARNERS else learners()[name]
