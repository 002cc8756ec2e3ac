"""Helpers of the generators: random streams by name, sizes, users, and the limits that users ask for."""

from __future__ import annotations

import zlib

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.model.jobs import MAX_GPUS

MAX_JOBS = 20_000_000

# Limits that people type into job scripts: minutes, then hours, then days.
_USUAL = np.array([60, 120, 300, 600, 900, 1200, 1800, 2700, 3600, 5400, 7200, 10800, 14400, 21600, 28800, 43200, 86400], float)  # s


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the random stream of one quantity; each has its own, so that changing one leaves the others as they are."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def require(condition: bool, message: str) -> None:
    """Raise a UsageError unless the condition holds."""
    if not condition:
        raise UsageError(message)


def require_jobs(what: str, jobs: float) -> None:
    """Refuse a number of jobs that could fill the memory."""
    require(1 <= jobs <= MAX_JOBS, f"{what}: {jobs:,.0f} jobs; allowed are 1 to {MAX_JOBS:,}")


def require_size(what: str, nodes: int, gpus_per_node: int) -> None:
    """Refuse a machine on which a job could ask for more GPUs than a job may have."""
    require(nodes >= 1 and gpus_per_node >= 1, f"{what}: {nodes} nodes of {gpus_per_node} GPUs do not make a cluster")
    require(nodes * gpus_per_node <= 50 * MAX_GPUS, f"{what}: {nodes} nodes of {gpus_per_node} GPUs are more than {50 * MAX_GPUS:,} GPUs")


def require_load(what: str, load: float) -> None:
    """Refuse an absurd load."""
    require(0 < load <= 100, f"{what}: load = {load} does not lie in (0, 100]; 0.9 keeps 90 % of the GPUs busy")


def pick(generator: np.random.Generator, weights: Array, count: int) -> Array:
    """Draw `count` positions with probabilities proportional to `weights`, from one uniform number each."""
    edges = np.cumsum(weights)
    drawn = np.searchsorted(edges, generator.random(count) * edges[-1], side="right")
    return np.asarray(np.minimum(drawn, len(edges) - 1))


def zipf(users: int) -> Array:
    """Return weights 1, 1/2, 1/3 …: a few users submit most of the jobs."""
    return 1.0 / np.arange(1, users + 1)


def user_names(users: int) -> tuple[str, ...]:
    """Return the names `u1`, `u2` …"""
    return tuple(f"u{k}" for k in range(1, users + 1))


def usual_walltime(seconds: Array) -> Array:
    """Round each time up to one that people ask for: 1 min … 24 h, then whole days."""
    place = np.searchsorted(_USUAL, seconds, side="left")
    return np.where(place < len(_USUAL), _USUAL[np.minimum(place, len(_USUAL) - 1)], np.ceil(seconds / 86400) * 86400)
