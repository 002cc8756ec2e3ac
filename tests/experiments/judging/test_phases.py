"""Regret, gaps and recovery over phases, by hand on two phases and against the whole runs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from gpuyard.engine.simulation import simulate
from gpuyard.experiments.design.spec import parse_experiment
from gpuyard.experiments.judging.curves import PARTS, curve_of
from gpuyard.experiments.judging.phases import adaptations, gaps_by_part, phase_sums, regrets
from gpuyard.experiments.judging.summary import summarise
from gpuyard.experiments.running.results import Results, load_results
from gpuyard.experiments.running.runner import backend_of, run
from gpuyard.metrics import measure
from gpuyard.metrics.queue import backlog_level, phase_recoveries
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.result import Result
from gpuyard.policies import parse_scheduler
from gpuyard.report.charts import Chart
from gpuyard.report.studies import charts_of, load_study
from gpuyard.traces import load_workload

TEXT = """
title = "Drift"
curves = ["phases.slowdown", "recovery"]
figures = ["drift_regret", "drift_adaptation", "drift_recovery"]
[axes]
workloads = ["drift:course=medium-high-medium|walk,gpus=8 on 1x8:a100"]
schedulers = ["fcfs", "srpt", "switch"]
seeds = "0-4"
objectives = ["slowdown", "phase_recovery"]
[names]
switch = "meta:random(fcfs, srpt)@60"
[judge]
challengers = ["switch"]
oracle = ["fcfs", "srpt"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("drift")
    run(parse_experiment(TEXT, "drift.toml"), made, backend_of("local", 1))
    return made


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return load_results(folder)


@pytest.fixture(scope="module")
def result() -> Result:
    return simulate(load_workload("drift:course=medium-high-medium", 0), load_cluster("1x16:a100"), parse_scheduler("srpt"), 0)


def test_the_sums_over_phases_are_those_of_the_jobs(result: Result) -> None:
    curve = curve_of("phases.wait", result)
    submit, wait = result.workload.jobs.submit, result.table["start"] - result.workload.jobs.submit
    assert curve.labels == ("base medium", "bursty high", "base medium")
    assert curve.x[: 2 * PARTS].tolist() == pytest.approx([*np.arange(6) * 200, *(1200 + np.arange(6) * 100)])
    edges = [*curve.x, np.inf]
    assert curve.y.tolist() == pytest.approx([wait[(submit >= a) & (submit < b)].sum() for a, b in pairwise(edges)])


def test_recovery_after_a_change_ends_with_the_last_backlog_of_the_phase(result: Result) -> None:
    bins, level = result.timeline, backlog_level(result)
    assert level == 16
    found = phase_recoveries(result)
    for (start, end), recovery in zip([(1200.0, 1800.0), (1800.0, np.inf)], found, strict=True):
        behind = [b for b in bins if b["span"] > 0 and b["queue"] > level and start < b["time"] + b["span"] and b["time"] < end]
        last = max((b["time"] + b["span"] for b in behind), default=start)
        assert recovery == pytest.approx(min(last, end) - start)
    assert found[1] > 0
    assert measure(result, ["phase_recovery"])["phase_recovery"] == pytest.approx(found.mean())
    assert curve_of("recovery", result).y.tolist() == found.tolist()


def test_a_workload_without_phases_has_no_recovery_after_them() -> None:
    plain = simulate(load_workload("family", 0), load_cluster("1x16:a100"), parse_scheduler("srpt"), 0)
    assert np.isnan(measure(plain, ["phase_recovery"])["phase_recovery"])
    assert len(curve_of("phases.wait", plain).x) == len(curve_of("recovery", plain).x) == 0


def test_phases_are_saved_with_the_result(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "r")
    assert Result.load(tmp_path / "r").workload.phases == result.workload.phases


def test_regret_ends_with_what_the_whole_run_lost(results: Results) -> None:
    lost = regrets(results, np.array([0.0, 3600.0]))
    totals = results.columns["slowdown"] * (results.columns["n_jobs"] - results.columns["n_rejected"])
    for name in results.schedulers:
        mine = totals[results.where(scheduler=name)].reshape(2, 5)
        best = np.minimum(*(totals[results.where(scheduler=each)].reshape(2, 5) for each in ("fcfs", "srpt")))
        assert (lost[name][:, 0] == 0).all()
        np.testing.assert_allclose(lost[name][:, 1], (mine - best).mean(axis=0), rtol=1e-6, atol=1e-6)


def test_gaps_are_against_the_best_of_each_phase_and_leave_out_the_first(results: Results) -> None:
    gaps = gaps_by_part(results)
    units = [unit for unit in phase_sums(results) if unit.seed == 3]
    assert len(units) == 2
    own, best = np.zeros(PARTS), np.zeros(PARTS)
    for unit in units:
        sums = {unit.names[each]: values.reshape(-1, PARTS) for each, values in unit.sums.items()}
        for phase in range(1, len(sums["fcfs"])):
            own += sums["switch"][phase]
            best += min((sums["fcfs"][phase], sums["srpt"][phase]), key=np.sum)
    np.testing.assert_allclose(gaps["switch"][3], own / best - 1)
    (line,) = adaptations(results)
    assert line.startswith("switch: ") and "behind the best fixed scheduler of a phase" in line
    assert line in summarise(results).notes


def test_the_figures_of_drift(folder: Path) -> None:
    regret, adaptation, recovery = charts_of(load_study(folder))
    assert all(isinstance(each, Chart) for each in (regret, adaptation, recovery))
    assert [line.name for line in regret.drawing.lines] == ["fcfs", "srpt", "switch"]
    assert len(adaptation.drawing.categories) == PARTS
    assert recovery.drawing.rows == ("medium-high-medium: to bursty high", "medium-high-medium: to base medium", "walk: each change")
