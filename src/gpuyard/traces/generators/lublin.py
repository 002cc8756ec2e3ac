"""Lublin and Feitelson's model of rigid parallel jobs, with its published parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.jobs import MAX_GPUS
from gpuyard.model.workload import Workload
from gpuyard.traces.base import generator
from gpuyard.traces.generators.requests import Requests, typical_requests
from gpuyard.traces.generators.sampling import require, require_jobs, require_load, stream

LONGEST_RUN = 12.0  # ln s, about 45 h: longer run times are drawn again
LONGEST_REQUEST = 64_800.0  # s: 18 h, the limit of CTC-SP2 and SDSC-SP2; one run in 600 is longer
LONGEST_GAP = 13.0  # ln s, about 5 days: longer gaps between jobs are drawn again
SLOTS = 48  # of half an hour in a day
SLOT = 1800.0  # s
FIRST_SLOT = 11  # the daily cycle starts here, in the early morning


@dataclass(frozen=True)
class LublinModel:
    """Parameters of one kind of jobs. Gammas are (shape, scale); run times and gaps are of ln s."""

    serial: float  # share of jobs with one processor
    power_of_two: float  # share of jobs whose size is rounded to a power of two
    low: float  # log2 of the least parallel size
    middle: float  # log2 of the size at which the two uniform stages meet, less log2 of the machine
    high: float  # log2 of the largest size, less log2 of the machine
    first_stage: float  # share of the lower stage
    short: tuple[float, float]  # gamma of short jobs
    long: tuple[float, float]  # gamma of long jobs
    slope: float  # P(short) = slope · size + base
    base: float
    gap: tuple[float, float]  # gamma of the gap to the next job, at the average time of the day
    cycle: tuple[float, float]  # gamma whose density over the slots of the day is the arrivals' share


# Published for a machine of 2^7; the gap's shape is the rush hours' one × the published rush-to-all ratio.
MODELS: Mapping[str, LublinModel] = MappingProxyType(
    {
        "all": LublinModel(
            serial=0.244, power_of_two=0.576, low=0.8, middle=-2.5, high=0.0, first_stage=0.86,
            short=(4.2, 0.94), long=(312.0, 0.03), slope=-0.0054, base=0.78,
            gap=(10.2303 * 1.0225, 0.4871), cycle=(8.1737, 3.9631),
        ),
        "batch": LublinModel(
            serial=0.2927, power_of_two=0.6686, low=1.2, middle=-2.0, high=0.0, first_stage=0.875,
            short=(6.57, 0.823), long=(639.1, 0.0156), slope=-0.003, base=0.6986,
            gap=(6.0415 * 1.0519, 0.8531), cycle=(6.1271, 5.2740),
        ),
        "interactive": LublinModel(
            serial=0.1541, power_of_two=0.625, low=1.0, middle=-4.0, high=-1.5, first_stage=0.705,
            short=(3.8351, 0.6605), long=(7.073, 0.6856), slope=-0.0118, base=0.9156,
            gap=(6.5510 * 0.9797, 0.6621), cycle=(8.9186, 3.6680),
        ),
    }
)  # fmt: skip


@generator("lublin", title="Lublin-Feitelson (2003) parallel jobs with a daily cycle")
def lublin(
    seed: int, *, jobs: int = 10_000, nodes: int = 256, load: float = 0.0, kind: Literal["all", "batch", "interactive"] = "all",
    requests: Requests = "typical",
) -> Workload:  # fmt: skip
    """Generate `jobs` rigid jobs for a machine of `nodes` processors (GPUs here), by a model fitted to four logs.

    Size: 1 with the serial share, else 2^x with x two-stage uniform up to log2(nodes), rounded for the power-of-two share.
    Run time: exp of a hyper-gamma whose share of short jobs falls with the size. Arrivals: exp of gamma gaps, stretched by a daily
    cycle of 48 half hours from midnight. `load` > 0 scales the gaps so that the jobs offer that share of the machine over the time of
    arrivals; 0 keeps the model's own rate. `all` has the parameters without types, of which traces such as lublin_256 are made.

    Source: U. Lublin, D. G. Feitelson, "The workload on parallel supercomputers: modeling the characteristics of rigid jobs",
    J. Parallel Distrib. Comput. 63 (2003). Simplified: one kind of jobs at a time (the model can also merge batch and interactive
    ones); the share of a half hour is the gamma density integrated by Simpson's rule; times are not rounded to seconds, except
    that a run takes at least 1 s. The model has no users and no requested times; `requests=typical` adds those that people type
    (Tsafrir, Etsion and Feitelson 2005), `exact` leaves them out, so that estimates are the run times.
    """
    require_jobs("generator lublin", jobs)
    require(2 <= nodes <= MAX_GPUS, f"generator lublin: nodes = {nodes} does not lie in 2..{MAX_GPUS:,}")
    if load:
        require_load("generator lublin", load)
    model = MODELS[kind]
    size = _sizes(seed, model, jobs, nodes)
    runtime = np.maximum(_runtimes(seed, model, size), 1.0)
    gap = _redrawn(stream(seed, "lublin/gaps"), np.full(jobs, model.gap[0]), np.full(jobs, model.gap[1]), LONGEST_GAP)
    clock = np.cumsum(gap)  # s at the average rate
    if load:
        clock *= float(size @ runtime) / (nodes * load) / clock[-1]
    submit = _through_the_day(clock, _daily_weights(model))
    columns = {"submit": submit, "gpus": size}
    if requests == "typical":
        columns["walltime"] = typical_requests(seed, "lublin", runtime, LONGEST_REQUEST)
    return Workload.build(columns, runtime, name="lublin", preset="lublin-256" if nodes == 256 else str(nodes))


def _sizes(seed: int, model: LublinModel, jobs: int, nodes: int) -> Array:
    machine = math.log2(nodes)
    low = min(model.low, machine)
    high = max(machine + model.high, low)
    middle = max(machine + model.middle, low)
    generator = stream(seed, "lublin/sizes")
    kind, stage, place = generator.random((3, jobs))
    exponent = np.where(stage < model.first_stage, low + place * (middle - low), middle + place * (high - middle))
    rounded = np.where(kind < model.serial + model.power_of_two, np.floor(exponent + 0.5), exponent)
    size = np.where(kind < model.serial, 1.0, np.floor(2.0**rounded + 0.5))
    return np.minimum(size, nodes)


def _runtimes(seed: int, model: LublinModel, size: Array) -> Array:
    is_short = stream(seed, "lublin/mixture").random(len(size)) < np.clip(model.slope * size + model.base, 0.0, 1.0)
    shape = np.where(is_short, model.short[0], model.long[0])
    scale = np.where(is_short, model.short[1], model.long[1])
    return _redrawn(stream(seed, "lublin/runtimes"), shape, scale, LONGEST_RUN)


def _redrawn(generator: np.random.Generator, shape: Array, scale: Array, longest: float) -> Array:
    """Draw exp of gamma values; draw those above `longest` again."""
    value = generator.gamma(shape, scale)
    while (over := np.flatnonzero(value > longest)).size:
        value[over] = generator.gamma(shape[over], scale[over])
    return np.exp(value)


def _daily_weights(model: LublinModel) -> Array:
    """Return (48,) relative arrivals in each half hour of the day, mean 1."""
    shape, scale = model.cycle
    slot = np.arange(FIRST_SLOT, FIRST_SLOT + SLOTS)

    def density(x: Array) -> Array:
        return x ** (shape - 1) * np.exp(-x / scale)

    share = density(slot - 0.5) + 4 * density(slot.astype(float)) + density(slot + 0.5)
    weights = np.empty(SLOTS)
    weights[(slot - 1) % SLOTS] = share / share.mean()
    return weights


def _through_the_day(clock: Array, weights: Array) -> Array:
    """Return when a clock shows `clock` if it runs `weights` times as fast in each half hour."""
    reading = np.concatenate(([0.0], np.cumsum(weights))) * SLOT
    day = SLOTS * SLOT
    whole = np.floor(clock / day)
    within: Array = np.interp(clock - whole * day, reading, np.arange(SLOTS + 1) * SLOT)
    return whole * day + within
