"""The registry, names, aggregations, and that every metric has an answer for every run."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpuyard.errors import UnknownNameError, UsageError
from gpuyard.metrics import AGGREGATIONS, METRICS, aggregate, measure, metric, resolve
from gpuyard.metrics.base import Registry, values_of

NAN = math.nan
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
RUNS = {
    "no jobs": [],
    "all rejected": [(0.0, NAN, NAN, 10.0, "rejected"), (5.0, NAN, NAN, 10.0, "rejected")],
    "all waiting": [(0.0, NAN, NAN, 10.0, "waiting"), (5.0, NAN, NAN, 10.0, "waiting")],
    "not begun": [(0.0, NAN, NAN, 10.0, "pending")],
    "one job": [(3.0, 3.0, 13.0, 10.0, "done")],
    "zero runtime": [(0.0, 0.0, 0.0, 0.0, "done"), (0.0, 0.0, 0.0, 0.0, "done")],
    "killed at once": [(0.0, 0.0, 0.0, 10.0, "killed")],
    "huge": [(0.0, 1e12, 2e12, 1e12, "done"), (1e12, 3e12, 3e12, 1e-9, "done")],
}
SHARES = ("fairness", "fairness_users", "deadline_met", "completed", "killed", "rejected", "unfinished")


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", list(METRICS))
def test_every_metric_of_every_run_is_a_number_or_nan_without_a_warning(make, run, name):
    result = make(RUNS[run])
    names = [name] if METRICS[name].kind == "run" else [f"{name}.{each}" for each in AGGREGATIONS]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measured = measure(result, names)
    assert list(measured) == names
    assert not any(math.isinf(value) for value in measured.values())
    if not len(result):
        assert all(math.isnan(value) for value in measured.values())


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", SHARES)
def test_shares_lie_between_0_and_1(make, run, name):
    share = measure(make(RUNS[run]), [name])[name]
    assert math.isnan(share) or -1e-12 <= share <= 1 + 1e-12


@pytest.mark.parametrize("name", list(METRICS))
def test_every_metric_has_the_shape_of_its_kind(make, name):
    result = make(RUNS["one job"])
    assert values_of(result, METRICS[name]).shape == {"job": (1,), "node": (2,), "run": ()}[METRICS[name].kind]


@pytest.mark.parametrize("name", list(METRICS))
def test_every_metric_says_what_it_is(name):
    each = METRICS[name]
    assert each.title and each.unit and each.formula and each.covers and each.missing and each.description
    assert each.better in ("lower", "higher", "neither")


def test_aggregations():
    values = np.array([1.0, 2.0, 3.0, 4.0, NAN])
    expected = {"mean": 2.5, "p50": 2.5, "p95": 3.85, "p99": 3.97, "max": 4.0, "min": 1.0, "std": math.sqrt(1.25), "sum": 10.0}
    assert {name: aggregate(values, name) for name in AGGREGATIONS} == {name: pytest.approx(value) for name, value in expected.items()}
    assert math.isnan(aggregate(np.array([NAN]), "max"))


def test_each_metric_is_computed_once_in_a_call(make, monkeypatch):
    calls = []
    counted = replace(METRICS["wait"], function=lambda result: calls.append(1) or np.zeros(len(result)))
    registry: Registry = Registry("metric")
    registry.add("wait", counted)
    monkeypatch.setattr("gpuyard.metrics.base.METRICS", registry)
    assert measure(make(RUNS["one job"]), ["wait", "wait.p95", "wait.max"]) == {"wait": 0.0, "wait.p95": 0.0, "wait.max": 0.0}
    assert len(calls) == 1


def test_names():
    assert resolve("wait") == (METRICS["wait"], "mean")
    assert resolve("bsld.p99") == (METRICS["bsld"], "p99")
    assert resolve("makespan") == (METRICS["makespan"], "")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("turnarond", "'turnaround'"),
        ("utilisatoin", "'utilization'"),
        ("wait.p96", "'p9"),
        ("wait.average", "known: mean"),
        ("", "known: wait"),
    ],
)
def test_an_unknown_name_gets_the_nearest(name, hint):
    with pytest.raises(UnknownNameError, match="unknown") as refused:
        resolve(name)
    assert hint in str(refused.value)


def test_a_value_per_run_has_no_percentiles():
    with pytest.raises(UsageError, match="one value per run; hint: ask for 'makespan'"):
        resolve("makespan.p95")


def test_a_users_own_metric(make, monkeypatch):
    registry: Registry = Registry("metric")
    monkeypatch.setattr("gpuyard.metrics.base.METRICS", registry)

    @metric("stretch", unit="1", better="lower")
    def stretch(result):
        return (result.table["end"] - result.workload.jobs.submit) / result.workload.jobs.estimate

    @metric("wrong", unit="1", better="lower")
    def wrong(result):
        return np.zeros(7)

    result = make(RUNS["one job"])
    assert measure(result, ["stretch.max"]) == {"stretch.max": 1.0}
    with pytest.raises(UsageError, match="metric 'wrong' gave an array of shape"):
        measure(result, ["wrong"])
    with pytest.raises(UsageError, match="has a dot"):
        metric("a.b", unit="1", better="lower")
