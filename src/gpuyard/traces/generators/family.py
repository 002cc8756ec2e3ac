"""The workload family of the meta-scheduling experiments: four arrival shapes, four intensities, four variants.

Arrivals are exact: candidates come from one Poisson process whose rate is above that of every shape and intensity, and each is kept
with probability rate(t) / ceiling (thinning; Lewis and Shedler, 1979). Run time, deadline and the rest are drawn for every candidate,
each from its own random stream. So with one seed the jobs of a low intensity are among those of a higher one, the gangs'
arrivals are among the plain ones, and a job that occurs in two workloads is the same job in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.jobs import MAX_GPUS
from gpuyard.model.presets import HETERO_SPEED
from gpuyard.model.workload import Workload
from gpuyard.traces.base import generator
from gpuyard.traces.generators.sampling import pick, require, require_jobs, stream, usual_walltime
from gpuyard.traces.parameters import Seconds

Shape = Literal["base", "bursty", "diurnal", "shifted_diurnal"]
Intensity = Literal["low", "medium", "high", "super_high"]
Variant = Literal["plain", "gang", "hetero", "estimate"]

BASE_RATE = 1 / 60  # jobs/s at low intensity
INTENSITY: Mapping[str, float] = MappingProxyType({"low": 1.0, "medium": 2.0, "high": 4.0, "super_high": 6.0})
PHASE = 300.0  # s of each phase of `bursty`
BURST, LULL = 3.0, 0.3  # its factors, in turn, the burst first
RUNTIME = (30.0, 900.0)  # s, uniform
SLACK = (1.2, 2.0)  # deadline − submit, in run times, uniform
PRIORITIES = 4  # 0..3, uniform
CEILING = BASE_RATE * max(INTENSITY.values()) * BURST  # jobs/s of the candidates; no rate is above it

GANG_SIZES = np.array([1.0, 2.0, 4.0, 8.0])
GANG_WEIGHTS = np.array([0.5, 0.2, 0.2, 0.1])  # mean 2.5 GPUs

HETERO_TYPES = ("", "p100|v100", "v100")  # what a job may ask for
HETERO_TYPE_WEIGHTS = np.array([0.7, 0.15, 0.15])
ESTIMATE_MEDIAN = 1.5  # asked / needed, before rounding up


def _diurnal(t: Array, horizon: float) -> Array:
    return 1.0 + 0.5 * np.sin(2 * np.pi * t / horizon)


SHAPES: Mapping[str, Callable[[Array, float], Array]] = MappingProxyType(
    {
        "base": lambda t, horizon: np.ones_like(t),
        "bursty": lambda t, horizon: np.where((t // PHASE) % 2 == 0, BURST, LULL),
        "diurnal": _diurnal,
        "shifted_diurnal": lambda t, horizon: _diurnal(t + horizon / 4, horizon),
    }
)  # (time in s, horizon in s) → factor of the base rate


@generator("family", title="Poisson, bursty and diurnal arrivals of short jobs with deadlines")
def family(
    seed: int, *, shape: Shape = "base", intensity: Intensity = "high", variant: Variant = "plain", gpus: int = 8,
    horizon: Seconds = 3600.0, error: float = 0.5,
) -> Workload:  # fmt: skip
    """Generate jobs that arrive for `horizon` seconds at rate 1/60 s⁻¹ × intensity (1, 2, 4, 6) × shape(t).

    `base` is constant; `bursty` alternates 300 s at ×3.0 and 300 s at ×0.3; `diurnal` is 1 + 0.5 sin(2πt/H), `shifted_diurnal`
    that at t + H/4. Run time U(30, 900) s, deadline = submit + run time × U(1.2, 2.0), priority U{0..3}, one GPU. Estimates are exact
    by definition: schedulers of this family know the run times, except in the variant `estimate`. Variants:

    - `gang`: 1, 2, 4 or 8 GPUs with probability 0.5, 0.2, 0.2, 0.1, at most `gpus` each (the size of the machine). Arrivals are thinned
      by the mean size, so that the offered load, in GPU-seconds per second, is that of `plain`.
    - `hetero`: five job classes (run times are those on a V100); 15 % of the jobs ask for a v100, 15 % for a p100 or v100. The cluster
      `family-hetero` has these types, 16 GPUs in all, with the speed that was measured for each class.
    - `estimate`: walltime = run time × 1.5·exp(N(0, `error`)), rounded up to what people ask for (1, 2, 5, 10, 15, 20 min …).
      Some are too short.
    """
    return of_rate("family", seed, lambda t: INTENSITY[intensity] * SHAPES[shape](t, horizon), variant, gpus, horizon, error)


def of_rate(name: str, seed: int, rate: Callable[[Array], Array], variant: Variant, gpus: int, horizon: float, error: float) -> Workload:
    """Generate jobs of the family that arrive at `rate`(t) × 1/60 s⁻¹ for `horizon` seconds; no rate may be above the ceiling."""
    what = f"generator {name}"
    require(0 < horizon <= 1e9, f"{what}: horizon = {horizon:g} s does not lie in (0, 1e9]")
    require_jobs(what, max(CEILING * horizon, 1.0))
    require(1 <= gpus <= MAX_GPUS, f"{what}: gpus = {gpus} does not lie in 1..{MAX_GPUS:,}")
    require(0 <= error <= 5, f"{what}: error = {error} does not lie in 0..5")
    submit = _candidates(seed, horizon)
    sizes = np.minimum(GANG_SIZES, gpus)
    thin = float(np.dot(sizes, GANG_WEIGHTS)) if variant == "gang" else 1.0
    keep = stream(seed, "family/thinning").random(len(submit)) * CEILING < BASE_RATE * rate(submit) / thin
    return replace(_jobs(seed, variant, submit, keep, sizes, error), name=name)


def _candidates(seed: int, horizon: float) -> Array:
    """Draw a Poisson process of rate CEILING on [0, horizon): first the number, then sorted uniform times."""
    generator = stream(seed, "family/arrivals")
    return np.sort(generator.random(generator.poisson(CEILING * horizon)) * horizon)


def _jobs(seed: int, variant: str, submit: Array, keep: Array, sizes: Array, error: float) -> Workload:
    n = len(submit)
    runtime = stream(seed, "family/runtime").uniform(*RUNTIME, n)
    deadline = submit + runtime * stream(seed, "family/slack").uniform(*SLACK, n)
    priority = stream(seed, "family/priority").integers(0, PRIORITIES, n).astype(float)
    columns = {"submit": submit, "deadline": deadline, "priority": priority}
    notes: list[str] = []
    classes: tuple[str, ...] = ("",)
    gpu_types: tuple[str, ...] = ("",)
    if variant == "gang":
        columns["gpus"] = sizes[pick(stream(seed, "family/gpus"), GANG_WEIGHTS, n)]
        notes.append(f"gangs of {np.dot(sizes, GANG_WEIGHTS):g} GPUs on average, arrivals thinned as much: the load of the plain variant")
    if variant == "hetero":
        classes, gpu_types = tuple(HETERO_SPEED), HETERO_TYPES
        columns["job_class"] = stream(seed, "family/class").integers(0, len(classes), n)
        columns["gpu_type"] = pick(stream(seed, "family/type"), HETERO_TYPE_WEIGHTS, n)
        notes.append("some jobs ask for a v100 or p100: use a cluster with these types")
    if variant == "estimate":
        factor = ESTIMATE_MEDIAN * np.exp(error * stream(seed, "family/estimate").standard_normal(n))
        columns["walltime"] = usual_walltime(runtime * factor)
        short = int((columns["walltime"] < runtime)[keep].sum())
        notes = [f"requested times are off by a factor; {short} of {int(keep.sum())} are shorter than the run time"]
    kept = {name: column[keep] for name, column in columns.items()}
    return Workload.build(kept, runtime[keep], name="family", classes=classes, gpu_types=gpu_types, notes=notes)
