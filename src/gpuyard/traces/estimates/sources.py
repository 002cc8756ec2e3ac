"""Sources of run-time estimates by name: `noisy:0.3`, `rolling:last=2`. The source is an axis of experiments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.model.estimator import Predictor, unestimated
from gpuyard.model.workload import Workload
from gpuyard.registry import Registry
from gpuyard.traces.parameters import Registered, parameters_of

Estimates = Array | Predictor
Function = Callable[..., Estimates]


@dataclass(frozen=True)
class EstimateSource(Registered[Estimates]):
    """A source: `function(workload, seed, **parameters)` returns one estimate per job, in seconds on a reference GPU, or a predictor
    that makes them inside each simulation."""

    random: bool = False  # depends on the seed
    inside: bool = False  # made inside each simulation
    what: ClassVar[str] = "estimate source"


ESTIMATES: Registry[EstimateSource] = Registry("estimate source")


def estimate_source(name: str, *, title: str, random: bool = False, inside: bool = False) -> Callable[[Function], Function]:
    """Register `function(workload, seed, *, parameter=default …) -> (jobs,) s`, or `-> Predictor` with `inside`."""
    return ESTIMATES.register(name, lambda function: EstimateSource(name, title, function, parameters_of(function), random, inside))


def is_random(source: str) -> bool:
    """Whether the estimates of this source differ from seed to seed."""
    return ESTIMATES[source.partition(":")[0]].random


def described(source: str) -> str:
    """Return a workload's source of estimates as it is shown to a person; schedulers may see different ones if simulations make them."""
    name = source.partition(":")[0]
    return f"{source}, made inside each simulation" if name in ESTIMATES and ESTIMATES[name].inside else source


def with_estimate(workload: Workload, source: str, seed: int = 0) -> Workload:
    """Return the jobs with estimates from `source`, NAME or NAME:PARAMETER=VALUE,… (a lone VALUE is the first parameter)."""
    name, _, arguments = source.partition(":")
    made = ESTIMATES[name].call(arguments, workload, seed)
    if name == "given":
        return workload
    if isinstance(made, np.ndarray):
        return replace(workload, jobs=workload.jobs.replace(estimate=made), estimate_source=source, predictor=None)
    return replace(workload.with_made_estimates(unestimated(workload.jobs)), estimate_source=source, predictor=made)


@estimate_source("given", title="as the workload has them")
def given(workload: Workload, seed: int) -> Array:
    """Keep the estimates that the trace or generator gave."""
    return workload.jobs.estimate


@estimate_source("requested", title="the time asked for, or the run time where none was")
def requested(workload: Workload, seed: int) -> Array:
    """Take the time that the user asked for."""
    return workload.requested()


@estimate_source("exact", title="the run time itself: no real scheduler knows it")
def exact(workload: Workload, seed: int) -> Array:
    """Take the run time itself, as a bound on what estimates can do."""
    return workload.runtime


@estimate_source("noisy", title="the run time × exp(N(0, spread))", random=True)
def noisy(workload: Workload, seed: int, *, spread: float = 0.5) -> Array:
    """Multiply the run time by log-normal noise."""
    if not 0 <= spread <= 10:
        raise UsageError(f"estimate source noisy: spread = {spread:g} does not lie in 0..10")
    generator = np.random.default_rng([seed, 0x657374])  # a separate stream: workloads use other ones
    noise: Array = workload.runtime * np.exp(generator.normal(0.0, spread, len(workload)))
    return noise
