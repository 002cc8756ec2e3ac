"""The slow, obvious twin of the engine: plain Python, written from `docs/concepts/semantics.md` alone."""

from gpuyard.testing.reference.result import ReferenceResult
from gpuyard.testing.reference.simulator import reference

__all__ = ["ReferenceResult", "reference"]
