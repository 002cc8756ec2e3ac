"""The workload family with a regime of arrivals that changes while the workload runs.

At every instant the rate is that of the regime in force, on the family's own clock and with its random streams. So with one seed the jobs
of a phase are those that the family has at the same time in that regime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.workload import Workload
from gpuyard.traces.base import generator
from gpuyard.traces.generators.family import INTENSITY, SHAPES, Variant, of_rate
from gpuyard.traces.generators.sampling import require, require_jobs, stream
from gpuyard.traces.parameters import Seconds

Course = Literal["base-bursty-diurnal", "diurnal-shifted-bursty", "medium-high-medium", "walk"]
LEVELS = ("low", "medium", "high")  # the intensities that a walk visits


class ArrivalRegime(NamedTuple):
    """A shape and an intensity of arrivals from an instant on."""

    start: float  # s
    shape: str
    intensity: str

    @property
    def name(self) -> str:
        return f"{self.shape} {self.intensity}"


COURSES: Mapping[str, tuple[tuple[float, str, str], ...]] = MappingProxyType(
    {
        "base-bursty-diurnal": ((0, "base", "medium"), (1 / 3, "bursty", "medium"), (2 / 3, "diurnal", "medium")),
        "diurnal-shifted-bursty": ((0, "diurnal", "medium"), (1 / 3, "shifted_diurnal", "medium"), (2 / 3, "bursty", "medium")),
        "medium-high-medium": ((0, "base", "medium"), (1 / 3, "bursty", "high"), (1 / 2, "base", "medium")),
    }
)  # begin as a share of the horizon, shape, intensity


@generator("drift", title="Arrivals of the family whose shape and intensity change while the workload runs")
def drift(
    seed: int, *, course: Course = "base-bursty-diurnal", variant: Variant = "plain", gpus: int = 8, horizon: Seconds = 3600.0,
    phase: Seconds = 600.0, error: float = 0.5,
) -> Workload:  # fmt: skip
    """Generate jobs as `family` does, with a rate that follows one regime after the other for `horizon` seconds.

    - `base-bursty-diurnal` and `diurnal-shifted-bursty`: three phases of a third of the horizon (1,200 s), at medium intensity.
    - `medium-high-medium`: 1,200 s `base` at medium intensity, 600 s `bursty` at high, 1,800 s as at first, or such shares of the horizon.
    - `walk`: every `phase` seconds, either another shape or the next higher or lower intensity, drawn by the seed; it begins with
      `base` at medium intensity.

    The phases are part of the workload: `phase_recovery` is measured after each change. Jobs, `variant` and `error` are those of `family`.
    """
    require(0 < phase <= 1e9, f"generator drift: phase = {phase:g} s does not lie in (0, 1e9]")
    fixed = [ArrivalRegime(begin * horizon, shape, intensity) for begin, shape, intensity in COURSES.get(course, ())]
    regimes = fixed or _walk(seed, horizon, phase)
    made = of_rate("drift", seed, lambda t: _rate(regimes, t, horizon), variant, gpus, horizon, error)
    return replace(made, phases=tuple((each.start, each.name) for each in regimes))


def _rate(regimes: Sequence[ArrivalRegime], t: Array, horizon: float) -> Array:
    """(times,) the rate of the regime in force, as a multiple of the base rate."""
    number = np.searchsorted([each.start for each in regimes], t, side="right") - 1
    rate = np.zeros(len(t))
    for k, each in enumerate(regimes):
        now = number == k
        rate[now] = INTENSITY[each.intensity] * SHAPES[each.shape](t[now], horizon)
    return rate


def _walk(seed: int, horizon: float, phase: float) -> list[ArrivalRegime]:
    """Draw a random walk between regimes; each differs from the one before in its shape or by one level of intensity."""
    require_jobs("generator drift: phases are as many as", horizon / phase + 1)
    draws = stream(seed, "drift/walk")
    found = [ArrivalRegime(0.0, "base", "medium")]
    while (start := len(found) * phase) < horizon:
        last = found[-1]
        level = LEVELS.index(last.intensity)
        shapes = [ArrivalRegime(start, shape, last.intensity) for shape in SHAPES if shape != last.shape]
        levels = [ArrivalRegime(start, last.shape, LEVELS[k]) for k in (level - 1, level + 1) if 0 <= k < len(LEVELS)]
        options = shapes if draws.random() < 0.5 else levels
        found.append(options[int(draws.integers(len(options)))])
    return found
