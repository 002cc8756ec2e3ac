"""Intervals that cover what they say, and exact values on hand examples."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from gpuyard.errors import UsageError
from gpuyard.experiments.judging.statistics import (
    Difference,
    block_interval,
    block_ratio,
    caveat,
    holm,
    mean_interval,
    paired_difference,
    ratio_of_sums,
    student_quantile,
)

NAN = math.nan


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (7, 2.3646), (10, 2.2281), (30, 2.0423), (100, 1.9840), (10_000, 1.9602)]
)
def test_student_quantiles_of_the_tables(freedom, t):
    assert student_quantile(freedom) == pytest.approx(t, abs=6e-5)


LAWS = {  # draw n values, and their true mean
    "normal": (lambda g, n: g.normal(5.0, 2.0, n), 5.0),
    "exponential": (lambda g, n: g.exponential(1.0, n), 1.0),
    "lognormal": (lambda g, n: g.lognormal(0.0, 1.0, n), math.exp(0.5)),
    "Pareto": (lambda g, n: g.pareto(3.0, n), 0.5),
    "t": (lambda g, n: g.standard_t(3.0, n), 0.0),
}


@pytest.mark.parametrize("n", [8, 20])
@pytest.mark.parametrize("law", LAWS)
def test_95_percent_intervals_of_skewed_values_cover_93_percent_from_8_values_on(law, n):
    """Percentile bootstrap intervals covered 84 % of 8 lognormal values. The standard error is 0.6 %."""
    draw, truth = LAWS[law]
    generator = np.random.default_rng(7)
    intervals = [mean_interval(draw(generator, n)) for _ in range(2000)]
    assert np.mean([i.low <= truth <= i.high for i in intervals]) >= 0.925


@pytest.mark.parametrize("shift", [0.0, 0.2, -0.4])
@pytest.mark.parametrize("n", [2, 3, 5, 8, 30, 700])
def test_an_interval_excludes_0_exactly_where_p_is_below_5_percent(n, shift):
    generator = np.random.default_rng(n)
    for _ in range(60):
        b = generator.lognormal(0.0, 1.0, n)
        a = b * generator.lognormal(shift, 0.4, n)
        found, share = paired_difference(a, b), ratio_of_sums(a - b, b)
        assert (found.low > 0 or found.high < 0) == (found.p < 0.05)
        assert math.isnan(share.low) or (share.low > 0 or share.high < 0) == (found.p < 0.05)


def test_a_mean_by_hand():
    """Symmetric values have no skewness: t = 2.5 / (1.2910 / 2) with p = 0.0305, raised by 1 + 7/4."""
    values = np.array([1.0, 2.0, 3.0, 4.0])
    interval, half = mean_interval(values), student_quantile(3, 1 - 0.05 / 2.75) * values.std(ddof=1) / 2
    assert (interval.mean, interval.n) == (2.5, 4)
    assert (interval.low, interval.high) == pytest.approx((max(2.5 - half, 0.0), 2.5 + half))
    assert "too few to tell" in caveat(interval.n, "seed")
    assert paired_difference(values, np.zeros(4)).p == pytest.approx(2.75 * 0.030466, rel=1e-4)
    constant = mean_interval([7.0] * 8)
    assert (constant.mean, constant.low, constant.high, caveat(constant.n, "seed")) == (7.0, 7.0, 7.0, "")


def test_skewness_by_hand():
    """Hall's cubic of t, for the values 0, 0, 0, 4 and a supposed mean of 3: t = −2, skewness 2, a = 1."""
    t, a = -2.0, 1.0
    hall = t + a * t**2 / 3 + a**2 * t**3 / 27 + a / 6
    raw = 2 * pytest.importorskip("scipy.stats").t.sf(abs(hall), 3)
    assert paired_difference([0.0, 0.0, 0.0, 4.0], [3.0] * 4).p == pytest.approx(min(raw * 2.75, 1.0))


def test_many_values_have_the_interval_of_the_normal_law():
    values = np.random.default_rng(0).normal(size=5000)
    interval = mean_interval(values)
    half = 1.96 * values.std() / math.sqrt(len(values))
    assert interval.high - interval.low == pytest.approx(2 * half, rel=0.01)


def test_one_value_has_no_interval():
    interval, difference = mean_interval([3.0]), paired_difference([3.0], [1.0])
    assert interval.mean == 3.0 and difference.mean == 2.0
    assert all(math.isnan(x) for x in (interval.low, interval.high, difference.low, difference.high, difference.effect))
    assert caveat(interval.n, "seed").startswith("one seed only: there is no interval")
    assert math.isnan(difference.p) and not difference.clear


def test_nothing_and_nan():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nothing, all_nan = mean_interval([]), paired_difference([NAN, 1.0], [1.0, NAN])
    assert math.isnan(nothing.mean) and nothing.n == 0 and caveat(nothing.n, "seed").startswith("no seed: there is no interval")
    assert math.isnan(all_nan.mean) and math.isnan(all_nan.p) and (all_nan.n, all_nan.missing) == (0, 2)
    some = paired_difference([1.0, 2.0, NAN], [0.0, 0.0, 0.0])
    assert (some.mean, some.n, some.missing) == (1.5, 2, 1)


def test_paired_difference_by_hand():
    """Differences −1, −2, −3, 0, −4, 2."""
    a, b = np.array([1.0, 1, 1, 5, 1, 7]), np.array([2.0, 3, 4, 5, 5, 5])
    d = a - b
    found = paired_difference(a, b)
    assert found.mean == pytest.approx(-8 / 6)
    assert found.effect == pytest.approx(d.mean() / d.std(ddof=1))
    assert (found.wins, found.ties, found.losses, found.n) == (4, 1, 1, 6)
    assert found.low < found.mean < found.high
    assert found.p == pytest.approx(paired_difference(a - 2, b - 2).p)
    higher = paired_difference(a, b, better="higher")
    assert (higher.wins, higher.ties, higher.losses) == (1, 1, 4)


def test_swapping_the_two_mirrors_everything():
    generator = np.random.default_rng(5)
    a, b = generator.normal(1.0, 1.0, 8), generator.normal(0.0, 1.0, 8)
    there, back = paired_difference(a, b), paired_difference(b, a)
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low))
    assert (there.mean, there.effect, there.p) == pytest.approx((-back.mean, -back.effect, back.p))
    assert (there.wins, there.losses) == (back.losses, back.wins)


def test_pairing_removes_what_the_seeds_share():
    """The same noise in both: the difference is exact although each alone is not."""
    noise = np.random.default_rng(2).normal(0.0, 100.0, 8)
    found = paired_difference(noise + 1.0, noise)
    assert found.low == pytest.approx(1.0) and found.high == pytest.approx(1.0) and found.clear


def test_differences_without_spread():
    assert paired_difference([2.0] * 3, [2.0] * 3).effect == 0.0
    assert paired_difference([2.0] * 3, [2.0] * 3).p == 1.0
    assert paired_difference([1.0] * 3, [2.0] * 3).effect == -math.inf


def test_p_is_rarely_below_5_percent_when_nothing_differs():
    generator = np.random.default_rng(11)
    pairs = [(generator.lognormal(size=8), generator.lognormal(size=8)) for _ in range(1000)]
    assert np.mean([paired_difference(*pair).p < 0.05 for pair in pairs]) <= 0.06


def test_fewer_than_five_pairs_are_never_clear():
    pairs = np.array([10.0, 10.1, 9.9, 10.0])
    found = paired_difference(pairs, np.zeros(4))
    assert found.low > 0 and not found.clear
    assert paired_difference(np.append(pairs, 10.05), np.zeros(5)).clear


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]).tolist() == [1.0, 1.0]
    assert holm([]).tolist() == []
    with_nan = holm([0.02, NAN, 0.01])
    assert with_nan[[0, 2]].tolist() == pytest.approx([0.02, 0.02]) and math.isnan(with_nan[1])


def autocorrelated(n, repeats, keep=0.95):
    """(n, repeats) columns of a stationary AR(1) about 0."""
    values = np.random.default_rng(3).normal(0.0, 1.0, (n, repeats))
    values[0] /= math.sqrt(1 - keep**2)
    for i in range(1, n):
        values[i] += keep * values[i - 1]
    return values


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("keep", [0.9, 0.99])
def test_blocks_cover_where_independent_values_do_not(keep, skewed):
    """AR(1) over 2,000 jobs: with 0.99 busy periods last a hundred jobs, and 20 resampled blocks covered 80 %. Standard error 1 %."""
    times, repeats, blocks, plain = np.arange(2000.0), 500, 0, 0
    values = autocorrelated(2000, repeats, keep) * math.sqrt(1 - keep**2)
    truth = math.exp(0.5) if skewed else 0.0
    for each in (np.exp(values) if skewed else values).T:
        interval = block_interval(each, times)
        blocks += interval.low <= truth <= interval.high
        plain += abs(each.mean() - truth) <= 1.96 * each.std() / math.sqrt(2000)
    assert blocks / repeats >= 0.92
    assert plain / repeats <= 0.4


def test_as_many_blocks_as_the_jobs_allow():
    """White noise allows 16 blocks, a slow wave 5; few jobs are not looked at."""
    times = np.arange(2048.0)
    noise = np.where(np.arange(2048) // 16 % 2 == 0, 1.0, -1.0)  # neighbouring stretches are opposite
    assert block_interval(noise + np.arange(2048) % 3, times).n == 16
    assert block_interval(np.sin(times / 300), times).n == 5
    assert block_interval(noise[:100], times[:100]).n == 5


def test_blocks_by_hand():
    """Ten jobs in five blocks, whatever their order: means 1, 2, 3, 4, 5. Three jobs are too few for an interval."""
    times = np.array([5.0, 3, 1, 7, 9, 0, 2, 4, 6, 8])
    interval = block_interval(times // 2 + 1 + np.where(times % 2, 0.5, -0.5), times)
    assert (interval.mean, interval.n, interval.of) == (3.0, 5, "block")
    assert interval.low < mean_interval([1.0, 2.0, 3.0, 4.0, 5.0]).low  # neighbours are alike
    few = block_interval([1.0, 3.0, 8.0], [0.0, 5.0, 30.0])
    assert (few.mean, few.n) == (4.0, 3) and math.isnan(few.low)
    assert caveat(few.n, "block").startswith("3 blocks are too few to tell")


def test_blocks_of_odd_input():
    assert block_interval([1.0, 2.0], [5.0, 5.0]).n == 2
    assert block_interval([], []).n == 0
    assert block_interval([NAN, 1.0, 2.0], [0.0, 1.0, 2.0]).missing == 1
    assert block_interval(np.ones(100), np.arange(100.0)).low == 1.0


def test_the_share_and_the_difference_by_blocks_agree_about_0():
    generator = np.random.default_rng(4)
    for _ in range(60):
        base = generator.lognormal(0.0, 1.0, 400)
        other = base * generator.lognormal(generator.normal(0.0, 0.1), 0.5, 400)
        difference, share = block_interval(other - base, np.arange(400.0)), block_ratio(other - base, base, np.arange(400.0))
        assert (difference.low > 0 or difference.high < 0) == (share.low > 0 or share.high < 0)


def test_shares_by_blocks_never_pass_a_hundred_percent():
    """A job without one of the two values counts in neither sum."""
    parts, wholes = np.array([-5.0, -7.0, -6.0, -2.0, -9.0, NAN]), np.array([6.0, 7.0, 6.0, 8.0, 9.0, 100.0])
    found = block_ratio(parts, wholes, np.arange(6.0))
    assert (found.mean, found.low, found.n, found.missing) == (pytest.approx(-29 / 36), -1.0, 5, 1) and found.high < 0.1
    assert math.isnan(block_ratio([], [], []).mean) and math.isnan(block_ratio([1.0], [0.0], [0.0]).mean)


def test_wrong_input_is_refused():
    with pytest.raises(UsageError, match="paired difference of 2 and 3 values"):
        paired_difference([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(UsageError, match="value 2 is infinite"):
        mean_interval([1.0, math.inf])
    with pytest.raises(UsageError, match="2 dimensions"):
        mean_interval([[1.0, 2.0]])
    with pytest.raises(UsageError, match="as many finite times"):
        block_interval([1.0], [1.0, 2.0])


def test_clear_means_the_interval_does_not_hold_zero():
    def difference(low, high):
        return Difference(0.0, low, high, 0.0, 0, 0, 0, 1.0, 8)

    assert difference(0.1, 1.0).clear and difference(-2.0, -1.0).clear
    assert not difference(-1.0, 1.0).clear and not difference(0.0, 0.0).clear


@pytest.mark.parametrize("n", [2, 3, 4, 8, 9, 50, 401])
@pytest.mark.parametrize("shift", [0.0, 0.1, 1.0, -3.0])
def test_p_of_symmetric_values_is_that_of_scipy(n, shift):
    stats = pytest.importorskip("scipy.stats")
    half = np.random.default_rng(n).exponential(0.5, n // 2)
    d = np.concatenate([half, -half, [0.0] * (n % 2)]) + shift
    expected = stats.ttest_1samp(d, 0.0).pvalue * (1 + 7 / n)
    assert paired_difference(d, np.zeros(n)).p == pytest.approx(min(expected, 1.0), rel=1e-6, abs=1e-12)


def test_ratios_with_nothing_below_the_line():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ratio_of_sums([1.0, 2.0, 3.0], [0.0, 0.0, 5.0])
        assert found.mean == pytest.approx(6 / 5)
        assert math.isnan(ratio_of_sums([1.0, 2.0], [0.0, 0.0]).mean)
        assert math.isnan(ratio_of_sums([], []).mean)


def test_intervals_of_what_cannot_be_negative_are_not_negative():
    waits = np.zeros(100)
    waits[90:] = 50.0
    assert block_interval(waits, np.arange(100.0)).low == 0.0
    assert block_interval(waits - 5.0, np.arange(100.0)).low < -5.0
