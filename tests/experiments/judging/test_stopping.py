"""Effects of stopping jobs, by hand from the columns; the words; the figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard.experiments.design.spec import Judging, parse_experiment
from gpuyard.experiments.judging.statistics import Interval, mean_interval
from gpuyard.experiments.judging.stopping import (
    effect,
    harms,
    in_words,
    is_about_stopping,
    places,
    rows_at,
    stopping,
    stopping_findings,
    stopping_lead,
)
from gpuyard.experiments.judging.summary import summarise
from gpuyard.experiments.judging.text import change_in_words
from gpuyard.experiments.judging.words import findings, lead
from gpuyard.experiments.running.results import Results, load_results
from gpuyard.experiments.running.runner import backend_of, run
from gpuyard.report.charts import Absent, Chart, Points
from gpuyard.report.studies import Study, charts_of, load_study

TEXT = """
title = "Stopping"
figures = ["stops_change", "who_pays", "longest_waits", "stops_by_workload"]
[axes]
workloads = ["one", "two"]
schedulers = ["saf", "fcfs", "gittins"]
seeds = "0-5"
objectives = ["delay", "bsld"]
[names]
one = "lublin:jobs=400,nodes=32,load={load}[each=preemptible:{share}] on 32"
two = "gangs:jobs=400,nodes=4,median=900,spread=2,load={load}[each=preemptible:{share}] on 4x8:gpu"
saf = "saf/fewest/easy"
fcfs = "fcfs/fewest/easy"
gittins = "saf/fewest/easy/gittins"
[vary]
share = ["0.5", "0", "1"]
load = ["1.1", "0.5"]
[rules]
checkpoint = "10m"
restart_cost = "1m"
[judge]
baseline = "saf"
challengers = ["gittins"]
metrics = ["delay.p99", "delay.max", "preemptions", "preemptions.max", "lost_share", "delay_preemptible", "delay_others", "delay_small"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("stopping")
    run(parse_experiment(TEXT, "stopping.toml"), made, backend_of("local", 1))
    return made


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return load_results(folder)


def values(results: Results, workload: str, scheduler: str, place: dict[str, str]) -> np.ndarray:
    rows = rows_at(results, place, workload) & results.where(scheduler=scheduler)
    return results.columns["delay"][rows].astype(float)


def test_an_effect_is_the_mean_of_the_relative_changes_of_the_workloads(results: Results) -> None:
    for place in ({}, {"share": "1"}, {"load": "0.5"}):
        per_seed = []
        for workload in ("one", "two"):
            base, mine = (values(results, workload, name, place) for name in ("saf", "gittins"))
            assert len(base) == 6
            per_seed.append((mine - base) / base.mean())
        found = effect(results, "delay", "gittins", rows_at(results, place))
        assert found is not None
        assert found.share.mean == pytest.approx(np.mean(per_seed))
        assert found.share.low < found.share.mean < found.share.high
        assert mean_interval(np.mean(per_seed, axis=0)).n == found.share.n == 6


def test_where_no_job_may_be_stopped_nothing_changes(results: Results) -> None:
    found = effect(results, "delay", "gittins", rows_at(results, {"share": "0"}))
    assert found is not None
    assert (found.share.mean, found.share.low, found.share.high) == (0, 0, 0)
    assert effect(results, "delay_preemptible", "gittins", rows_at(results, {"share": "0"})) is None
    assert effect(results, "delay_others", "gittins", rows_at(results, {"share": "1"})) is None
    assert effect(results, "turnaround.min", "gittins", rows_at(results, {})) is None


def test_places_and_who_stops(results: Results) -> None:
    assert places(results) == [{}, {"share": "0"}, {"share": "1"}, {"load": "0.5"}]
    assert stopping(results) == ["gittins"]
    assert is_about_stopping(results)


@pytest.mark.parametrize(
    "changed",
    [
        {"vary": {"load": ("1.1", "0.5")}},
        {"judge": Judging("saf")},
        {"judge": Judging("", ("gittins",))},
    ],
)
def test_other_experiments_are_not_about_stopping(results: Results, changed: dict[str, Any]) -> None:
    """They are judged as any other."""
    other = replace(results, experiment=replace(results.experiment, **changed))
    assert not is_about_stopping(other)
    assert all(isinstance(chart, Absent) for chart in charts_of(Study(other, summarise(other))))


def test_shares_that_are_not_numbers_are_somebody_elses(results: Results) -> None:
    assert not is_about_stopping(replace(results, experiment=replace(results.experiment, vary={"share": ("half", "0")})))


def test_an_operator_is_answered(results: Results) -> None:
    summary = summarise(results)
    said = stopping_lead(summary)
    assert said[0].startswith("If 50 % of the jobs may be stopped, the load is 1.1: with gittins instead of saf, mean wait ")
    assert (
        "; mean bounded slowdown " in said[0] and "; the longest wait " in said[0] and " times on average, the most stopped one " in said[0]
    )
    assert said[0] in lead(summary)
    found = findings(summary)
    assert found == stopping_findings(summary)
    assert found[0].startswith("Who pays with gittins: ") and "that of jobs that may be stopped" in found[0]
    assert found[1] == "Where no job may be stopped, with gittins mean wait stays as it is, mean bounded slowdown stays as it is."
    assert len(found) == 1 + 3 + 1


def test_an_answer_does_not_speak_of_what_was_not_measured(results: Results) -> None:
    kept = {name: column for name, column in results.columns.items() if not name.startswith(("preemptions", "lost_share", "delay.max"))}
    said = stopping_lead(summarise(replace(results, columns=kept)))[0]
    assert "stopped –" not in said and "longest" not in said and "not known" not in said
    assert said.endswith(".") and not said.endswith("..")


def test_harm_is_counted_over_all_comparisons(results: Results) -> None:
    """FCFS is worse than smallest area first, and the words say where."""
    worse, count = harms(results, "fcfs")
    assert count == 4 * 2 * 2  # places, workloads, wait and slowdown
    assert {each.metric for each in worse} <= {"delay", "bsld"} and worse
    assert all(each.share.low > 0 for each in worse)
    judged = replace(results.experiment, judge=replace(results.experiment.judge, challengers=("fcfs",)))
    said = stopping_findings(summarise(replace(results, experiment=judged)))[-1]
    assert said.startswith(
        f"Of 16 comparisons (each place, workload, wait and slowdown) fcfs is worse than saf in {len(worse)} by the interval"
    )


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        (Interval(-0.41, -0.52, -0.30, 8), "falls by 41 % (between 30 and 52 %)"),
        (Interval(0.05, 0.01, 0.09, 8), "rises by 5.0 % (between 1.0 and 9.0 %)"),
        (Interval(-0.05, -0.2, 0.1, 8), "does not clearly change (between −20 and +10 %)"),
        (Interval(-0.05, -0.2, -0.1, 2), "falls by 5.00 % (too few values to tell)"),
        (Interval(0.0, 0.0, 0.0, 8), "stays as it is"),
    ],
)
def test_a_change_in_words(interval: Interval, words: str) -> None:
    assert change_in_words(interval) == words


def test_places_in_words() -> None:
    place = {"share": "0.2", "restart": "0", "interval": "1800", "cost": "0.05", "load": "0.7", "colour": "red", "drain": "1m"}
    assert in_words(place) == (
        "20 % of the jobs may be stopped, a restart takes no time, checkpoints are written every 30 min,"
        " checkpoints cost 5 % of the time, the load is 0.7, colour = red, drain = 1m"
    )
    assert in_words({"share": "1", "interval": "10m"}) == "all jobs may be stopped, interval = 10m"


def test_the_figures_of_stopping(folder: Path, results: Results) -> None:
    charts = {chart.name: chart for chart in charts_of(load_study(folder)) if isinstance(chart, Chart)}
    assert list(charts) == [
        "stops_change-delay", "stops_change-bsld", "who_pays", "longest_waits-delay.p99", "longest_waits-delay.max",
        "stops_by_workload-delay", "stops_by_workload-bsld",
    ]  # fmt: skip
    change, pays, by_workload = (charts[name].drawing for name in ("stops_change-delay", "who_pays", "stops_by_workload-delay"))
    assert isinstance(change, Points) and isinstance(pays, Points) and isinstance(by_workload, Points)
    assert change.rows[0] == "nothing is varied" and len(change.rows) == 4
    assert [mark.name for mark in change.marks] == ["gittins"]
    found = effect(results, "delay", "gittins", rows_at(results, {"load": "0.5"}))
    assert found is not None and change.marks[0].mean[3] == pytest.approx(found.share.mean)
    assert pays.rows == ("all jobs", "jobs that may be stopped", "the others", "small jobs")
    assert [mark.name for mark in pays.marks] == ["50 % stoppable", "100 % stoppable"]
    assert np.isnan(pays.marks[1].mean[2])  # no others where all may be stopped
    assert by_workload.rows == ("all, counting alike", "one", "two")
    assert [mark.name for mark in by_workload.marks] == ["fcfs", "gittins"]
    assert charts["who_pays"].title.startswith("Jobs that may be stopped wait ")
