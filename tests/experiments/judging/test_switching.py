"""Gains of switches over the best scheduler that they could have used alone, by hand from the columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpuyard.errors import DataError, UnknownNameError
from gpuyard.experiments.design.spec import SwitchSet, load_experiment, parse_experiment
from gpuyard.experiments.judging.summary import summarise
from gpuyard.experiments.judging.switching import ORACLE, fixed_gaps, gains, switch_findings
from gpuyard.experiments.judging.words import lead
from gpuyard.experiments.running.results import Results, load_results
from gpuyard.experiments.running.runner import backend_of, run
from gpuyard.policies import Meta, parse_scheduler
from gpuyard.report.charts import Chart, Points
from gpuyard.report.studies import charts_of, load_study

TEXT = """
title = "Switching"
figures = ["switch_gain", "best_fixed"]
[axes]
workloads = ["one", "gangs"]
schedulers = ["fcfs", "srpt", "priority", "fcfs+easy", "srpt+easy", "coin", "same", "coin+easy"]
seeds = "0-4"
objectives = ["slowdown", "balanced", "weighted_slowdown:base=20"]
[names]
one = "family:shape=bursty,intensity=medium,gpus=8 on 1x8:a100"
gangs = "family:variant=gang,shape=base|bursty,intensity=medium,gpus=8 on 1x8:a100"
"fcfs+easy" = "fcfs/fewest/easy"
"srpt+easy" = "srpt/fewest/easy"
coin = "meta:random(fcfs, srpt)@60"
same = "meta:backlog(srpt, srpt)"
"coin+easy" = "meta:random(fcfs/fewest/easy, srpt/fewest/easy)@60"
[judge]
challengers = ["coin", "same", "coin+easy"]
[[sets]]
name = "three"
fixed = ["fcfs", "srpt", "priority"]
switches = ["coin", "same"]
[[sets]]
name = "EASY"
workloads = ["gangs"]
fixed = ["fcfs+easy", "srpt+easy"]
switches = ["coin+easy"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("switching")
    run(parse_experiment(TEXT, "switching.toml"), made, backend_of("local", 1))
    return made


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return load_results(folder)


def by_run(results: Results, objective: str, workload: str, scheduler: str) -> np.ndarray:
    return results.columns[objective][results.where(workload=workload, scheduler=scheduler)].astype(float)


def test_a_gain_is_the_difference_to_the_best_fixed_scheduler_of_the_set_on_that_workload(results: Results) -> None:
    found = {(each.objective, each.workload, each.among, each.switch): each for each in gains(results)}
    assert len(found) == 3 * (3 + 3 + 2)  # objectives × (switches and oracle of each set where it is compared)
    for (objective, workload, among, switch), each in found.items():
        fixed = ["fcfs", "srpt", "priority"] if among == "three" else ["fcfs+easy", "srpt+easy"]
        sign = 1.0 if objective == "balanced" else -1.0
        values = {name: sign * by_run(results, objective, workload, name) for name in fixed}
        best = max(fixed, key=lambda name: values[name].mean())
        mine = np.max(list(values.values()), axis=0) if switch == ORACLE else sign * by_run(results, objective, workload, switch)
        assert each.best == best
        assert each.share.mean == pytest.approx((mine.mean() - values[best].mean()) / abs(values[best].mean()))
        assert each.share.low <= each.share.mean <= each.share.high
        if switch == ORACLE:
            assert each.share.mean >= 0 and not each.clear


def test_a_switch_between_two_that_are_the_same_gains_nothing_and_a_coin_loses(results: Results) -> None:
    on_slowdown = {(each.workload, each.switch): each for each in gains(results) if each.objective == "slowdown"}
    assert on_slowdown["one", "same"].share.mean == 0 and on_slowdown["one", "same"].best == "srpt"
    assert on_slowdown["one", "coin"].share.high < 0
    assert not any(each.clear for each in on_slowdown.values())
    said = switch_findings(summarise(results))
    assert said[0] == "Slowdown: on no workload is a switch clearly better than the best heuristic of its set."
    assert all(sentence in lead(summarise(results)) for sentence in said)


def test_where_a_switch_is_clearly_better_the_sentence_says_so(results: Results) -> None:
    """FCFS as the only fixed scheduler of a set is beaten by a switch to the shortest."""
    experiment = replace(results.experiment, sets=(SwitchSet("one", ("fcfs",), ("same",), ("one",)),))
    found = gains(replace(results, experiment=experiment))
    assert [each.switch for each in found if each.clear and each.objective == "slowdown"] == ["same"]
    said = switch_findings(summarise(replace(results, experiment=experiment)))[0]
    assert said.startswith("Slowdown: switching pays on one (one), where same is ") and " better than fcfs; nowhere else" in said


def test_no_fixed_scheduler_is_best_everywhere(results: Results) -> None:
    firsts = {(each.workload, each.objective): each.scheduler for each in fixed_gaps(results) if each.share == 0}
    assert firsts["one", "slowdown"] == "srpt"
    assert firsts["one", "weighted_slowdown:base=20"] == "priority"
    assert all(each.share >= 0 for each in fixed_gaps(results))


def test_the_figures_of_switching(folder: Path) -> None:
    charts = charts_of(load_study(folder))
    assert all(isinstance(chart, Chart) for chart in charts)
    first, last = charts[0], charts[-1]
    assert isinstance(first, Chart) and isinstance(first.drawing, Points)
    assert first.title == "Slowdown: a switch clearly beats the best single heuristic in 0 of 3 cases"
    assert first.drawing.rows == ("one, three: srpt", "gangs, three: srpt", "gangs, EASY: srpt+easy")
    offsets = first.drawing.offsets()
    shown = np.isfinite(np.array([mark.mean for mark in first.drawing.marks]))
    assert shown.sum(axis=0).tolist() == [3, 3, 2] and first.drawing.most == 3
    for row in range(3):  # around the middle, equally far apart
        assert np.diff(offsets[shown[:, row], row]) == pytest.approx(0.82 / 3)
        assert offsets[shown[:, row], row].mean() == pytest.approx(0.0)
    assert isinstance(last, Chart) and last.title.startswith("No heuristic is best everywhere: ")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('switches = ["coin", "same"]', 'switches = ["coni"]', "did you mean 'coin'"),
        ('workloads = ["gangs"]\n', 'workloads = ["gang"]\n', "did you mean 'gangs'"),
        ('fixed = ["fcfs+easy", "srpt+easy"]', "fixed = []", "nothing to compare"),
    ],
)
def test_a_set_names_what_is_on_the_axes(old: str, new: str, words: str) -> None:
    assert TEXT.count(old) == 1
    with pytest.raises((DataError, UnknownNameError), match=words):
        parse_experiment(TEXT.replace(old, new), "switching.toml")


def test_in_the_study_every_switch_chooses_from_the_fixed_schedulers_of_its_set() -> None:
    experiment = load_experiment("switching")
    compared = 0
    for each in experiment.sets:
        fixed = {parse_scheduler(experiment.text_of(name)).label for name in each.fixed}
        for name in each.switches:
            switch = parse_scheduler(experiment.text_of(name))
            if isinstance(switch, Meta):
                assert {member.label for member in switch.schedulers} <= fixed, name
                compared += 1
    assert compared >= 4
