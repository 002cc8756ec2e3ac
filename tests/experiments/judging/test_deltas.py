"""Differences in the usual metrics and what changes cost, against the columns of the Runs."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from gpuyard.experiments.design.spec import USUAL, parse_experiment
from gpuyard.experiments.judging.deltas import deltas, hardships
from gpuyard.experiments.judging.summary import Summary, summarise
from gpuyard.experiments.running.results import load_results
from gpuyard.experiments.running.runner import backend_of, run
from gpuyard.report.charts import Chart
from gpuyard.report.studies import charts_of, load_study
from gpuyard.report.tables import csv_files

TEXT = """
title = "Changes"
figures = ["latency"]
[axes]
workloads = ["family:intensity=low|medium,gpus=4 on 1x4:a100"]
changes = ["", "burst:severity=4", "slow-nodes:severity=2"]
schedulers = ["fcfs", "srpt", "edf"]
seeds = "0-4"
objectives = ["wait"]
[judge]
baseline = "fcfs"
challengers = ["edf"]
metrics = ["queue_explosions", "recovery"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("deltas")
    run(parse_experiment(TEXT, "deltas.toml"), made, backend_of("local", 1))
    return made


@pytest.fixture(scope="module")
def summary(folder: Path) -> Summary:
    return summarise(load_results(folder))


def test_every_run_has_every_usual_column(summary: Summary) -> None:
    """They were empty where a study did not name them as metrics."""
    rows = list(csv.DictReader(io.StringIO(csv_files([summary])["runs.csv"])))
    assert len(rows) == 90
    for name in USUAL:
        assert all(np.isfinite(float(row[name])) for row in rows), name
    assert not set(USUAL.values()) & set(summary.results.parameters)
    assert summary.metrics == ("wait", "queue_explosions", "recovery")  # tables for people stay as narrow as they were


def test_differences_are_paired_and_in_the_units_of_the_metrics(summary: Summary) -> None:
    columns, found = summary.results.columns, deltas(summary)
    assert list(found) == ["srpt", "edf"]
    for scheduler, row in found.items():
        assert list(row) == list(USUAL)
        for usual, metric in USUAL.items():
            mine, base = (columns[metric][summary.results.where(scheduler=name)] for name in (scheduler, "fcfs"))
            assert row[usual].mean == pytest.approx((mine - base).mean(), rel=1e-9, abs=1e-12)
    (first, _) = csv.DictReader(io.StringIO(csv_files([summary])["differences.csv"]))
    assert (first["scheduler"], first["baseline"]) == ("srpt", "fcfs")
    assert float(first["delta_avg_jct"]) == pytest.approx(found["srpt"]["avg_jct"].mean)
    assert float(first["delta_queue_len_mean_high"]) == pytest.approx(found["srpt"]["queue_len_mean"].high)


def test_what_each_change_costs(summary: Summary) -> None:
    columns, results = summary.results.columns, summary.results
    found = {(each.change, each.scheduler): each for each in hardships(summary)}
    assert len(found) == 6
    for (change, scheduler), each in found.items():
        rough, clean = (columns["slowdown"][results.where(scheduler=scheduler, change=given)].reshape(2, 5) for given in (change, ""))
        assert each.slowdown == pytest.approx(rough.mean())
        assert each.delta.mean == pytest.approx((rough - clean).mean())
        assert each.variance == pytest.approx(rough.mean(axis=0).var(ddof=1))
        assert each.variance_unchanged == pytest.approx(clean.mean(axis=0).var(ddof=1))
        assert each.recovery == pytest.approx(columns["recovery"][results.where(scheduler=scheduler, change=change)].mean())
        assert each.delta.mean > 0
    rows = list(csv.DictReader(io.StringIO(csv_files([summary])["robustness.csv"])))
    assert {"delta_slowdown_low", "variance", "queue_explosions", "recovery"} <= set(rows[0])


def test_latency_is_drawn_over_the_queue(folder: Path) -> None:
    (chart,) = charts_of(load_study(folder))
    assert isinstance(chart, Chart)
    assert [line.name for line in chart.drawing.lines] == ["fcfs", "srpt", "edf"]
    assert (np.diff(chart.drawing.lines[0].x) > 0).all()
    assert chart.title.startswith("edf takes ") and chart.title.endswith("flat")
