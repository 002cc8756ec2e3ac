"""Packages that only a part of gpuyard needs, and what to install where one is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from types import MappingProxyType

from gpuyard.errors import UsageError

# package → what needs it, and the extra of pyproject.toml that brings it
EXTRAS: Mapping[str, tuple[str, str]] = MappingProxyType({
    "polars": ("to read tables of jobs and to keep the results of experiments", "tables"), "matplotlib": ("to draw figures", "plots"),
    "highspy": ("for schedulers that solve an integer programme", "milp"), "pooch": ("to fetch public traces", "data"),
    "jax": ("to train", "learn"), "optax": ("to train", "learn"), "gymnasium": ("for environments in Gymnasium", "learn"),
    "sklearn": ("for forests and boosted trees", "learn"), "scipy": ("for optimal assignment", "learn"),
    "ray": ("to run on a Ray cluster", "ray"), "psutil": ("to watch a node", "node"), "pynvml": ("to watch GPUs", "node"),
    "fastapi": ("for the dashboard", "web"), "uvicorn": ("for the dashboard", "web"),
})  # fmt: skip


class MissingPackageError(UsageError, ModuleNotFoundError):
    """A package is not installed that this needs."""

    def __init__(self, package: str) -> None:
        what, extra = EXTRAS[package]
        super().__init__(f"{package}, which is not installed, is needed {what}", hint=f"pip install 'gpuyard[{extra}]'")
        self.name = package


def is_installed(package: str) -> bool:
    """Return whether a package could be imported; it is not."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # None stands in its place in sys.modules
        return False


def require(package: str) -> None:
    """Raise the error that says how to install a package, unless it is there: before work begins whose results would be lost."""
    if not is_installed(package):
        raise MissingPackageError(package)


def missing(error: ModuleNotFoundError) -> MissingPackageError | None:
    """Return the error with a hint for a package of an extra; None for any other module."""
    package = (error.name or "").partition(".")[0]
    return MissingPackageError(package) if package in EXTRAS else None


@contextmanager
def needing_extras() -> Iterator[None]:
    """Say how to install a package that turns out to be missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        known = None if isinstance(error, MissingPackageError) else missing(error)
        if known is None:
            raise
        raise known from error
