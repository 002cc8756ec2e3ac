"""Intervals that cover what they say, and exact values on hand examples."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from gpuyard.errors import UsageError
from gpuyard.experiments.judging.statistics import (
    Difference,
    block_bootstrap,
    block_ratio,
    bootstrap_mean,
    caveat,
    holm,
    paired_difference,
    paired_p,
    paired_t_test,
    ratio_of_sums,
    student_quantile,
)

NAN = math.nan


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (7, 2.3646), (10, 2.2281), (30, 2.0423), (100, 1.9840), (10_000, 1.9600)]
)
def test_student_quantiles_of_the_tables(freedom, t):
    assert student_quantile(freedom) == pytest.approx(t, abs=6e-5)


def coverage(draw, truth, n, repeats=3000):  # standard error 0.004
    generator = np.random.default_rng(7)
    intervals = [bootstrap_mean(draw(generator, n), seed, resamples=1000) for seed in range(repeats)]
    return np.mean([i.low <= truth <= i.high for i in intervals])


@pytest.mark.parametrize("n", [8, 20])
def test_intervals_of_normal_values_cover_nearly_95_percent(n):
    assert 0.92 <= coverage(lambda g, size: g.normal(5.0, 2.0, size), 5.0, n) <= 0.98


def test_intervals_of_skewed_values_cover_some_92_percent():
    assert 0.90 <= coverage(lambda g, size: g.exponential(1.0, size), 1.0, 20) <= 0.98


def test_bootstrap_mean_by_hand():
    interval = bootstrap_mean([1.0, 2.0, 3.0, 4.0])
    assert (interval.mean, interval.low, interval.high, interval.n) == (2.5, 1.0, 4.0, 4)  # 4 values: their range
    assert "range" in caveat(interval.n, "seed")
    constant = bootstrap_mean([7.0] * 8)
    assert (constant.mean, constant.low, constant.high, caveat(constant.n, "seed")) == (7.0, 7.0, 7.0, "")


def test_the_seed_decides():
    values = np.random.default_rng(0).normal(size=12)
    assert bootstrap_mean(values, 3) == bootstrap_mean(values, 3)
    assert bootstrap_mean(values, 3) != bootstrap_mean(values, 4)


def test_many_values_are_drawn_in_pieces():
    """5,000 values would be 50 million draws at once; the interval is that of the normal approximation."""
    values = np.random.default_rng(0).normal(size=5000)
    interval = bootstrap_mean(values, resamples=2000)
    half = 1.96 * values.std() / math.sqrt(len(values))
    assert interval.high - interval.low == pytest.approx(2 * half, rel=0.1)


def test_one_value_has_no_interval():
    interval, difference = bootstrap_mean([3.0]), paired_difference([3.0], [1.0])
    assert interval.mean == 3.0 and difference.mean == 2.0
    assert all(math.isnan(x) for x in (interval.low, interval.high, difference.low, difference.high, difference.effect))
    assert caveat(interval.n, "seed").startswith("one seed only: there is no interval")
    assert math.isnan(difference.p) and not difference.clear


def test_nothing_and_nan():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nothing, all_nan = bootstrap_mean([]), paired_difference([NAN, 1.0], [1.0, NAN])
    assert math.isnan(nothing.mean) and nothing.n == 0 and caveat(nothing.n, "seed").startswith("no seed: there is no interval")
    assert math.isnan(all_nan.mean) and math.isnan(all_nan.p) and (all_nan.n, all_nan.missing) == (0, 2)
    some = paired_difference([1.0, 2.0, NAN], [0.0, 0.0, 0.0])
    assert (some.mean, some.n, some.missing) == (1.5, 2, 1)


def test_paired_difference_by_hand():
    """Differences −1, −2, −3, 0, −4, 2; all values are positive, so p is that of their ratios."""
    a, b = np.array([1.0, 1, 1, 5, 1, 7]), np.array([2.0, 3, 4, 5, 5, 5])
    d = a - b
    found = paired_difference(a, b)
    assert found.mean == pytest.approx(-8 / 6)
    assert found.effect == pytest.approx(d.mean() / d.std(ddof=1))
    assert (found.wins, found.ties, found.losses, found.n) == (4, 1, 1, 6)
    assert found.low < found.mean < found.high
    assert found.p == paired_t_test(np.log(a / b)) == pytest.approx(paired_p(b, a))
    assert paired_difference(a - 2, b - 2).p == pytest.approx(paired_t_test(d))
    higher = paired_difference(a, b, better="higher")
    assert (higher.wins, higher.ties, higher.losses) == (1, 1, 4)


def test_swapping_the_two_mirrors_everything():
    generator = np.random.default_rng(5)
    a, b = generator.normal(1.0, 1.0, 8), generator.normal(0.0, 1.0, 8)
    there, back = paired_difference(a, b, 1), paired_difference(b, a, 1)
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


def test_p_is_uniform_when_nothing_differs():
    generator = np.random.default_rng(11)
    rejected = np.mean([paired_p(generator.lognormal(size=8), generator.lognormal(size=8)) <= 0.05 for _ in range(1000)])
    assert 0.03 <= rejected <= 0.07


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


def test_blocks_cover_where_independent_values_do_not():
    """AR(1) with 0.95 over 2,000 jobs: 20 blocks cover 90 %, independent values would cover 23 %."""
    times, repeats, blocks, plain = np.arange(2000.0), 500, 0, 0
    for seed, values in enumerate(autocorrelated(2000, repeats).T):
        interval = block_bootstrap(values, times, seed, resamples=500)
        blocks += interval.low <= 0 <= interval.high
        plain += abs(values.mean()) <= 1.96 * values.std() / math.sqrt(2000)
    assert blocks / repeats >= 0.85
    assert plain / repeats <= 0.3


def test_blocks_by_hand():
    """Blocks [0, 10) with 1, 3 and [20, 30] with 8: means between 2 and 8; the empty stretch between is none."""
    interval = block_bootstrap([1.0, 3.0, 8.0], [0.0, 5.0, 30.0], block=10.0)
    assert (interval.mean, interval.low, interval.high, interval.n) == (4.0, 2.0, 8.0, 2)
    assert caveat(interval.n, "block").startswith("2 blocks are too few")


def test_blocks_of_odd_input():
    assert block_bootstrap([1.0, 2.0], [5.0, 5.0]).n == 1
    assert block_bootstrap([], []).n == 0
    assert block_bootstrap([NAN, 1.0, 2.0], [0.0, 1.0, 2.0], block=1e-300).missing == 1
    assert block_bootstrap(np.ones(100), np.arange(100.0)).n == 20


def test_shares_by_blocks_never_pass_a_hundred_percent():
    """Blocks [0, 10) and [20, 30]: 3 of 4 and 6 of 6 are cut; a job without one of the two values counts in neither sum."""
    found = block_ratio([-1.0, -2.0, -6.0, NAN], [2.0, 2.0, 6.0, 100.0], [0.0, 0.5, 30.0, 30.0])
    assert (found.mean, found.low, found.high) == pytest.approx((-0.9, -1.0, -0.75))
    assert math.isnan(block_ratio([], [], []).mean) and math.isnan(block_ratio([1.0], [0.0], [0.0]).mean)


def test_wrong_input_is_refused():
    with pytest.raises(UsageError, match="paired difference of 2 and 3 values"):
        paired_difference([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(UsageError, match="value 2 is infinite"):
        bootstrap_mean([1.0, math.inf])
    with pytest.raises(UsageError, match="2 dimensions"):
        bootstrap_mean([[1.0, 2.0]])
    with pytest.raises(UsageError, match="a block must be longer than 0 s"):
        block_bootstrap([1.0], [1.0], block=0.0)
    with pytest.raises(UsageError, match="as many finite times"):
        block_bootstrap([1.0], [1.0, 2.0])


def test_clear_means_the_interval_does_not_hold_zero():
    def difference(low, high):
        return Difference(0.0, low, high, 0.0, 0, 0, 0, 1.0, 8)

    assert difference(0.1, 1.0).clear and difference(-2.0, -1.0).clear
    assert not difference(-1.0, 1.0).clear and not difference(0.0, 0.0).clear


@pytest.mark.parametrize("n", [2, 3, 4, 8, 9, 50, 401])
@pytest.mark.parametrize("shift", [0.0, 0.1, 1.0, -3.0])
def test_the_paired_t_test_is_that_of_scipy(n, shift):
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(n)
    a, b = generator.normal(shift, 1.0, n), generator.exponential(0.5, n)
    assert paired_t_test(a - b) == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-6, abs=1e-13)


def test_the_paired_t_test_of_odd_input():
    assert math.isnan(paired_t_test([]))
    assert math.isnan(paired_t_test([1.0]))
    assert math.isnan(paired_t_test([1.0, NAN]))
    assert paired_t_test([0.0, 0.0, 0.0]) == 1.0
    assert paired_t_test([0.3, 0.3, 0.3]) == 0.0
    assert paired_t_test([1.0, -1.0]) == pytest.approx(1.0)
    assert paired_t_test([1.0, 2.0, NAN, 4.0]) == paired_t_test([1.0, 2.0, 4.0])


def test_ratios_with_nothing_below_the_line():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ratio_of_sums([1.0, 2.0, 3.0], [0.0, 0.0, 5.0])
        assert found.mean == pytest.approx(6 / 5)
        assert math.isnan(ratio_of_sums([1.0, 2.0], [0.0, 0.0]).mean)
        assert math.isnan(ratio_of_sums([], []).mean)
