"""Where estimates of run times come from: a source by name, `noisy:0.3` or `rolling:last=2`; what a scheduler believes is an axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.model.workload import Workload
from gpuyard.registry import Registry
from gpuyard.traces.parameters import Parameter, arguments_of, parameters_of

Function = Callable[..., Array]


@dataclass(frozen=True)
class EstimateSource:
    """`function(workload, seed, **parameters)` gives one estimate per job, in seconds on a reference GPU."""

    name: str
    title: str
    function: Function
    parameters: tuple[Parameter, ...]
    random: bool = False  # depends on the seed


ESTIMATES: Registry[EstimateSource] = Registry("estimate source")


def estimate_source(name: str, *, title: str, random: bool = False) -> Callable[[Function], Function]:
    """Register `function(workload, seed, *, parameter=default …) -> (jobs,) s`."""

    def register(function: Function) -> Function:
        ESTIMATES.add(name, EstimateSource(name, title, function, parameters_of(function), random))
        return function

    return register


def is_random(source: str) -> bool:
    """Whether the estimates of this source differ from seed to seed."""
    return ESTIMATES[source.partition(":")[0]].random


def with_estimate(workload: Workload, source: str, seed: int = 0) -> Workload:
    """The same jobs with estimates from `source`, NAME or NAME:PARAMETER=VALUE,… (a lone VALUE is the first parameter)."""
    name, _, arguments = source.partition(":")
    found = ESTIMATES[name]
    estimate = found.function(workload, seed, **arguments_of(arguments, f"estimate source {name}", found.parameters))
    label = workload.estimate_source if name == "given" else source
    return replace(workload, jobs=workload.jobs.replace(estimate=estimate), estimate_source=label)


@estimate_source("given", title="as the workload has them")
def given(workload: Workload, seed: int) -> Array:
    """The estimates that the trace or generator gave."""
    return workload.jobs.estimate


@estimate_source("requested", title="the time asked for, or the run time where none was")
def requested(workload: Workload, seed: int) -> Array:
    """What the user asked for."""
    return workload.requested()


@estimate_source("exact", title="the run time itself: no real scheduler knows it")
def exact(workload: Workload, seed: int) -> Array:
    """Clairvoyance, as a bound."""
    return workload.runtime


@estimate_source("noisy", title="the run time × exp(N(0, spread))", random=True)
def noisy(workload: Workload, seed: int, *, spread: float = 0.5) -> Array:
    """The run time with log-normal noise."""
    if not 0 <= spread <= 10:
        raise UsageError(f"estimate source noisy: spread = {spread:g} does not lie in 0..10")
    generator = np.random.default_rng([seed, 0x657374])  # a stream of its own: workloads use other ones
    noise: Array = workload.runtime * np.exp(generator.normal(0.0, spread, len(workload)))
    return noise
