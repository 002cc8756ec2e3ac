"""Curves of a real result against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard.engine.simulation import simulate
from gpuyard.errors import UnknownNameError, UsageError
from gpuyard.experiments.judging.curves import BINS, BOX, LEVELS, MOST_GROUPS, check_curve, curve_of
from gpuyard.model.result import Result
from gpuyard.policies import parse_scheduler
from gpuyard.traces.recipes import GeneratorSource, parse_recipe


@pytest.fixture(scope="module")
def result() -> Result:
    episode = GeneratorSource.of(parse_recipe("demo:jobs=400,load=1.5 on 1x8:a100"), (3,)).episode(0)
    return simulate(episode.workload, episode.cluster, parse_scheduler("sjf"), 3)


def waits(result: Result) -> np.ndarray:
    values: np.ndarray = result.table["start"] - result.workload.jobs.submit
    return values


def test_cdf(result: Result) -> None:
    curve = curve_of("cdf.wait", result)
    known = waits(result)[np.isfinite(waits(result))]
    assert len(known) > 0
    assert np.array_equal(curve.x, LEVELS)
    assert np.allclose(curve.y, np.quantile(known, LEVELS), rtol=1e-12)
    assert curve.y[0] == known.min()
    assert curve.y[-1] == known.max() > 0


def test_boxes_of_the_largest_groups(result: Result) -> None:
    curve = curve_of("box.user.wait", result)
    values, users = waits(result), result.workload.jobs.user
    known = np.isfinite(values)
    sizes = {user: int((known & (users == user)).sum()) for user in np.unique(users[known])}
    shown = len(curve.labels)
    assert shown == min(len(sizes), MOST_GROUPS)
    least = sorted(sizes.values(), reverse=True)[shown - 1]
    assert np.array_equal(curve.x, np.repeat(np.arange(shown), 5))
    boxes = {tuple(np.quantile(values[known & (users == user)], BOX)) for user, size in sizes.items() if size >= least}
    assert {tuple(row) for row in curve.y.reshape(shown, 5)} <= boxes
    assert len(set(curve.labels)) == shown


def test_boxes_of_priorities_are_in_their_order(result: Result) -> None:
    curve = curve_of("box.priority.wait", result)
    assert len(curve.labels) > 1
    assert list(curve.labels) == sorted(curve.labels, key=int, reverse=True)  # the most urgent first


def test_queue_holds_the_same_job_seconds_as_the_jobs_waited(result: Result) -> None:
    curve = curve_of("queue", result)
    assert 1 < len(curve.x) <= BINS
    assert (np.diff(curve.x) > 0).all()
    assert (curve.y >= 0).all()
    bins = result.timeline
    step = -(-len(bins) // BINS)
    k = len(curve.x) // 2
    piece = bins[k * step : (k + 1) * step]
    assert curve.y[k] == pytest.approx((piece["queue"] * piece["span"]).sum() / piece["span"].sum())
    spans = np.add.reduceat(bins["span"], np.arange(0, len(bins), step))
    assert (curve.y * spans).sum() == pytest.approx(np.nansum(waits(result)), rel=1e-6)


def test_names_that_are_none() -> None:
    for name in (
        "cdf",
        "cdf.",
        "cdf.nothing",
        "box.user",
        "box.user.nothing",
        "box.nobody.wait",
        "queue.x",
        "",
        "cdf.makespan",
        "cdf.wait.p95",
    ):
        with pytest.raises((UnknownNameError, UsageError)):
            check_curve(name)
    for name in ("cdf.wait", "box.user.slowdown", "box.priority.slowdown", "queue"):
        check_curve(name)
