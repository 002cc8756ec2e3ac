"""Paired statistics over seeds and over time: intervals, p values that agree with them, effect size, Holm's correction.

**One test.** Every interval and every p value asks whether the mean of residuals is 0: values minus a supposed mean, or parts minus a
supposed ratio times wholes (Fieller 1954). The statistic is the smaller of Student's t and of Hall's t, which a cubic polynomial corrects
for the skewness of the sample (Hall 1992). An interval holds the values that are not refused at 5 %, so that it excludes 0 exactly where
p < 0.05. Nothing is drawn at random.

**Few values.** Skewness is underestimated from few values, so p is raised by the factor 1 + 7/n. With it 95 % intervals cover at least
93 % from 5 values on, for normal, lognormal (σ = 1), exponential, Pareto (α = 3) and t₃ values; percentile bootstrap intervals cover 84 %
of 8 lognormal values. `benchmarks/interval_coverage.py` measures it and writes docs/reference/coverage.md. Fewer than `FEWEST` values are
too few to tell. What is too rare to be in the sample no calculation can see.

**One log.** Its jobs are not independent: they are summed over blocks of time, 16, 8 or 5, the most for which eighths of a block are not
correlated; what correlation is left between blocks widens the interval.

Values that are nan are left out and counted in `missing`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from gpuyard.arrays import Floats
from gpuyard.errors import UsageError

FEWEST = 5  # values below which nothing is claimed
LEVEL = 0.95
CAUTION = 7.0  # p × (1 + CAUTION / n): the least whole number with which 5 Pareto values are covered in 93 % of samples
BLOCKS, PIECES = (16, 8), 8  # blocks of a log, if so many pieces of each are not correlated; else FEWEST
MOST_CORRELATED = 0.8  # of neighbouring blocks, at most: beyond it a handful of blocks cannot tell
TIES = 1e-12  # relative; a sum in another order is the same sum
_DOUBLINGS, _HALVINGS = 60, 60  # of the search for the end of an interval


@dataclass(frozen=True)
class Interval:
    """A mean with its interval; nan where there is no interval."""

    mean: float
    low: float
    high: float
    n: int  # values (or blocks of time) it rests on
    missing: int = 0  # values that were nan
    of: str = "seed"


@dataclass(frozen=True)
class Difference:
    """a − b over pairs, e.g. two schedulers on the same seeds."""

    mean: float
    low: float
    high: float
    effect: float  # Cohen's d_z: mean / standard deviation of the differences
    wins: int  # pairs in which a is better
    ties: int
    losses: int
    p: float  # of "no difference", not corrected; below 0.05 exactly where the interval excludes 0; nan: no test
    n: int  # pairs
    missing: int = 0  # pairs with a nan on either side
    of: Literal["seed", "job"] = "seed"  # what is paired

    @property
    def clear(self) -> bool:
        """Whether there are enough pairs and the interval excludes 0."""
        return self.n >= FEWEST and (self.low > 0 or self.high < 0)


def caveat(n: int, what: str) -> str:
    """Say why an interval over `n` values is missing or claims nothing; empty where it is neither."""
    if n == 0:
        return f"no {what}: there is no interval"
    if n == 1:
        return f"one {what} only: there is no interval, and nothing can be said about another {what}"
    return f"{n} {what}s are too few to tell: nothing is claimed below {FEWEST}" if n < FEWEST else ""


# ── the test ──


@dataclass(frozen=True)
class _Residuals:
    """Moments of the residuals parts − x·wholes of n units, as polynomials in x − ratio, lowest power first."""

    n: int
    ratio: float  # Σ parts / Σ wholes
    whole: float  # mean of the wholes
    second: tuple[float, float, float]  # Σ (residual − mean)²
    third: tuple[float, float, float, float]  # Σ (residual − mean)³
    lagged: tuple[float, float, float] | tuple[()]  # Σ of products of neighbours; empty where units are independent
    smallest: float  # second moments up to it are rounding errors

    def statistic(self, x: float) -> float:
        """How far x is from the ratio: the smaller of Student's |t| and of Hall's, which allows for skewness."""
        n, away = self.n, x - self.ratio
        c0, c1, c2 = self.second
        square = (c2 * away + c1) * away + c0
        if square <= self.smallest:
            return math.inf if away else 0.0
        t = -away * self.whole / math.sqrt(square * self._correlation(away, square) / (n - 1) / n)
        if n == 2:
            return abs(t)
        c0, c1, c2, c3 = self.third
        cube = ((c3 * away + c2) * away + c1) * away + c0
        skewness = math.sqrt(n * (n - 1)) / (n - 2) * cube / n / math.sqrt(square / n) ** 3
        a = skewness / math.sqrt(n)
        return min(abs(t), abs(t + a * t**2 / 3 + a**2 * t**3 / 27 + a / 6))

    def _correlation(self, away: float, square: float) -> float:
        """The factor by which correlated neighbours raise the variance of the mean, as if by an autoregression."""
        if not self.lagged:
            return 1.0
        c0, c1, c2 = self.lagged
        r = min(max(((c2 * away + c1) * away + c0) / square + 1 / self.n, 0.0), MOST_CORRELATED)  # 1/n: the estimate is low by so much
        return (1 + r) / (1 - r)

    def p(self) -> float:
        """Two-sided p of "the ratio is 0"."""
        freedom = self.n - 1
        raw = 1.0 - _within(math.atan(self.statistic(0.0) / math.sqrt(freedom)), freedom)
        return min(max(raw, 0.0) * (1 + CAUTION / self.n), 1.0)

    def interval(self) -> tuple[float, float]:
        """Every x that the test does not refuse; they may have no end where the wholes are very uneven."""
        return (self.ratio, self.ratio) if self.second[0] <= self.smallest else (self._end(-1.0), self._end(1.0))

    def _end(self, side: float) -> float:
        """Search outwards from the ratio, over 0 first where it lies on this side, so that the interval and p agree about it."""
        most = student_quantile(self.n - 1, 1 - (1 - LEVEL) / (1 + CAUTION / self.n))
        step = math.sqrt(max(self.second[0], 0.0)) / self.n / self.whole
        inside, outside = 0.0, abs(self.ratio) if self.ratio * side < 0 else step
        for _ in range(_DOUBLINGS):
            if self.statistic(self.ratio + side * outside) > most:
                break
            inside, outside = outside, 2 * max(outside, step)
        else:
            return side * math.inf
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            if middle in (inside, outside):  # there is no number between them
                break
            refused = self.statistic(self.ratio + side * middle) > most
            inside, outside = (inside, middle) if refused else (middle, outside)
        return self.ratio + side * inside


def _residuals(parts: Floats, wholes: Floats, *, correlated: bool = False) -> _Residuals:
    """Prepare the test of Σ parts / Σ wholes (n ≥ 2,); `correlated`: units are in order of time, and neighbours may be alike."""
    ratio = float(parts.sum() / wholes.sum())
    r, w = parts - ratio * wholes, wholes - wholes.mean()
    r = r - r.mean()
    second = (float(r @ r), -2 * float(r @ w), float(w @ w))
    third = (float(r**3 @ np.ones(len(r))), -3 * float(r**2 @ w), 3 * float(r @ w**2), -float(w**2 @ w))
    lagged = (float(r[1:] @ r[:-1]), -float(r[1:] @ w[:-1] + r[:-1] @ w[1:]), float(w[1:] @ w[:-1])) if correlated else ()
    smallest = len(r) * (TIES * float(np.abs(parts).max())) ** 2
    return _Residuals(len(r), ratio, float(wholes.mean()), second, third, lagged, smallest)


def _ends(parts: Floats, wholes: Floats, *, correlated: bool = False) -> tuple[float, float]:
    """The interval of Σ parts / Σ wholes; nan for fewer than two units, or where nothing is divided by."""
    if len(parts) < 2 or not wholes.sum() > 0:
        return math.nan, math.nan
    return _residuals(parts, wholes, correlated=correlated).interval()


# ── independent values ──


def mean_interval(values: npt.ArrayLike) -> Interval:
    """The mean of independent values (n,), one per seed, with its 95 % interval. One value: nan interval.

    Where no value is negative, neither is an end of the interval.
    """
    given = _vector(values, "values")
    kept = given[~np.isnan(given)]
    low, high = _ends(kept, np.ones(len(kept)))
    low = max(low, 0.0) if len(kept) and kept.min() >= 0 else low
    return Interval(_mean(kept), low, high, len(kept), len(given) - len(kept))


def paired_difference(a: npt.ArrayLike, b: npt.ArrayLike, *, better: Literal["lower", "higher"] = "lower") -> Difference:
    """a − b pair by pair (n,): mean, 95 % interval, effect size, wins of a, p. One pair: nan interval, effect and p.

    The effect is ±inf where all differences are equal and not 0.
    """
    first, second = _vector(a, "a"), _vector(b, "b")
    if first.shape != second.shape:
        raise UsageError(f"paired difference of {len(first)} and {len(second)} values", hint="give one value per seed, in the same order")
    every = first - second
    d = every[~np.isnan(every)]
    test = _residuals(d, np.ones(len(d))) if len(d) > 1 else None
    low, high = test.interval() if test else (math.nan, math.nan)
    sign = -1.0 if better == "lower" else 1.0
    wins, losses = int((sign * d > 0).sum()), int((sign * d < 0).sum())
    ties = len(d) - wins - losses
    p = test.p() if test else math.nan
    return Difference(_mean(d), low, high, _effect(d), wins, ties, losses, p, len(d), len(every) - len(d))


def ratio_of_sums(parts: npt.ArrayLike, wholes: npt.ArrayLike) -> Interval:
    """Σ parts / Σ wholes (n,) with its 95 % interval, which excludes 0 exactly where that of the mean of the parts does.

    Where no part takes away more than its whole, the interval does not either: it ends at −100 %.
    """
    first, second = _vector(parts, "parts"), _vector(wholes, "wholes")
    known = ~np.isnan(first) & ~np.isnan(second)
    return replace(_ratio(first[known], second[known]), missing=int((~known).sum()))


def _ratio(parts: Floats, wholes: Floats, *, correlated: bool = False) -> Interval:
    total = float(wholes.sum())
    if total == 0 or (wholes < 0).any():
        return Interval(math.nan, math.nan, math.nan, len(parts))
    low, high = _ends(parts, wholes, correlated=correlated)
    if math.isinf(low) or math.isinf(high):  # of so uneven wholes: take their mean as known
        low, high = (end / float(wholes.mean()) for end in _ends(parts, np.ones(len(parts)), correlated=correlated))
    low = max(low, -1.0) if (parts + wholes >= 0).all() else low
    return Interval(float(parts.sum()) / total, low, high, len(parts))


# ── one log ──


def block_interval(values: npt.ArrayLike, times: npt.ArrayLike) -> Interval:
    """The mean of the values (jobs,) of one long run, with an interval by blocks of time (see `time_blocks`).

    For two schedulers on one trace give the differences job by job. `n` is the number of blocks that hold values; fewer than five give
    no interval. Where no value is negative, neither is an end of the interval.
    """
    given, when = _vector(values, "values"), _vector(times, "times")
    if given.shape != when.shape or not np.isfinite(when).all():
        raise UsageError(f"intervals by blocks: {len(given)} values need as many finite times, not {len(when)}")
    found, kept = block_ratio(given, np.ones(len(given)), when), given[~np.isnan(given)]
    return replace(found, mean=_mean(kept), low=max(found.low, 0.0) if len(kept) and kept.min() >= 0 else found.low)


def block_ratio(parts: npt.ArrayLike, wholes: npt.ArrayLike, times: npt.ArrayLike) -> Interval:
    """Σ parts / Σ wholes over the jobs (jobs,) that have both, with an interval by the blocks of time of the parts."""
    first, second, when = _vector(parts, "parts"), _vector(wholes, "wholes"), _vector(times, "times")
    known = ~np.isnan(first) & ~np.isnan(second)
    missing = int((~known).sum())
    if not known.any():
        return Interval(math.nan, math.nan, math.nan, 0, missing, "block")
    where = time_blocks(first, when)[known]
    held = np.bincount(where) > 0
    sums, sizes = (np.bincount(where, weights=each[known])[held].astype(np.float64) for each in (first, second))
    found = replace(_ratio(sums, sizes, correlated=True), missing=missing, of="block")
    return found if found.n >= FEWEST else replace(found, low=math.nan, high=math.nan)


def time_blocks(values: Floats, times: Floats, count: int | None = None) -> npt.NDArray[np.int64]:
    """(jobs,) the number of the block of time that each job is in, all with equally many values; −1 where the value is nan.

    Jobs close in time share a queue, so they are not independent; stretches of time much longer than a busy period nearly are. The jobs are
    cut into `count` blocks; by default into 16 or 8 if neighbouring eighths of them, each with at least four jobs, are not correlated,
    else into 5.
    """
    order = np.argsort(times, kind="stable")
    order = order[~np.isnan(values[order])]
    found = np.full(len(values), -1, np.int64)
    found[order] = _cut(len(order), count or _most_blocks(values[order]))
    return found


def _most_blocks(values: Floats) -> int:
    """Return as many blocks as leave pieces of them uncorrelated."""
    for blocks in BLOCKS:
        if len(values) >= 4 * PIECES * blocks:
            sums = np.bincount(_cut(len(values), PIECES * blocks), weights=values - values.mean())
            if float(sums[1:] @ sums[:-1]) <= 0:
                return blocks
    return FEWEST


def _cut(n: int, count: int) -> npt.NDArray[np.int64]:
    """(n,) the number of the piece, of `count` equally long ones, that each position is in."""
    return np.arange(n) * count // n


# ── many comparisons ──


def holm(p_values: npt.ArrayLike) -> Floats:
    """Correct p values (comparisons,) for their number (Holm 1979); valid however they depend on each other.

    nan stays nan and is not counted.
    """
    p = _vector(p_values, "p values")
    adjusted = np.full(len(p), np.nan)
    order = np.argsort(p, kind="stable")[: int((~np.isnan(p)).sum())]
    steps = p[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def _vector(values: npt.ArrayLike, what: str) -> Floats:
    vector = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if vector.ndim != 1:
        raise UsageError(f"{what}: {vector.ndim} dimensions; one value per seed is one")
    if np.isinf(vector).any():
        raise UsageError(f"{what}: value {int(np.argmax(np.isinf(vector))) + 1} is infinite")
    return vector


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else np.nan


def _effect(differences: Floats) -> float:
    if len(differences) < 2:
        return np.nan
    mean, spread = float(differences.mean()), float(differences.std(ddof=1))
    if spread <= TIES * abs(mean):
        return math.copysign(math.inf, mean) if mean else 0.0
    return mean / spread


@lru_cache(maxsize=256)
def student_quantile(freedom: int, level: float = LEVEL) -> float:
    """t with P(|T| ≤ t) = level for `freedom` degrees of freedom (Abramowitz & Stegun 26.7.3–4, by bisection)."""
    low, high = 0.0, math.pi / 2.0  # the angle atan(t / √freedom)
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _within(middle, freedom) < level else (low, middle)
    return math.tan(low) * math.sqrt(freedom)


def _within(angle: float, freedom: int) -> float:
    """P(|T| ≤ t) with angle = atan(t / √freedom)."""
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    series = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= (k - 1) / k * math.cos(angle) ** 2
        series += term
    product = math.sin(angle) * series
    return (angle + product) * 2.0 / math.pi if odd else product
