"""The shift experiment: every figure from the results, and what it is to show."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard.errors import GpuyardError
from gpuyard.experiments.design.spec import load_experiment
from gpuyard.experiments.judging.statistics import mean_interval, paired_difference
from gpuyard.experiments.studies.shift import (
    FOREST,
    ONLINE,
    OPTIMAL,
    REGRESSOR,
    ROUND_ROBIN,
    STRATEGIES,
    ShiftConfig,
    ShiftReport,
    shift,
    shift_config,
    workload_curves,
)
from gpuyard.model.units import Range


@pytest.fixture(scope="module")
def report() -> ShiftReport:
    return shift(110, ShiftConfig(jobs=150, training_jobs=400, kicks=300))


def test_figures_are_those_of_the_results(report: ShiftReport):
    spent = {}
    for name, outcome in report.outcomes.items():
        jobs, table = outcome.result.workload.jobs, outcome.result.table
        spent[name] = [float(end - submit) for end, submit in zip(table["end"], jobs.submit, strict=True)]
        assert outcome.makespan == max(table["end"].tolist()) - jobs.submit[0]
        assert outcome.total_time == pytest.approx(sum(spent[name]))
        assert outcome.mean_time == pytest.approx(sum(spent[name]) / 150)
        assert np.isfinite(spent[name]).all()
    for name, outcome in report.outcomes.items():
        assert outcome.speedup == pytest.approx(sum(spent[ROUND_ROBIN]) / sum(spent[name]))
        assert outcome.regret[9] == pytest.approx(sum(spent[name][:10]) - sum(spent[OPTIMAL][:10]))
        assert outcome.regret[-1] == pytest.approx(outcome.total_time - report.outcomes[OPTIMAL].total_time)
        assert report.bound <= outcome.total_time
        assert report.outcomes[OPTIMAL].total_time <= outcome.total_time


def test_all_strategies_had_the_same_tasks_and_those_are_of_the_other_kind(report: ShiftReport):
    workloads = [outcome.result.workload for outcome in report.outcomes.values()]
    assert all(workload == workloads[0] for workload in workloads)
    jobs = workloads[0].jobs
    assert {float(jobs.classes[k][1:]) for k in jobs.job_class} <= {0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3}
    assert 4 <= jobs.memory.min() <= jobs.memory.max() <= 12


def test_the_same_seed_gives_the_same_report():
    config = ShiftConfig(jobs=40, training_jobs=100, kicks=20)
    first, again = shift(3, config), shift(3, config)
    for name, outcome in first.outcomes.items():
        assert outcome.result.same_bytes(again.outcomes[name].result)


@pytest.mark.parametrize("name", [ONLINE, REGRESSOR])
def test_the_agent_adapts_and_the_forest_stays(name: str, report: ShiftReport):
    assert report.ratio(name) < report.ratio(FOREST)
    late = {each: np.diff(report.outcomes[each].regret[[49, 149]])[0] for each in (name, FOREST)}
    assert late[name] < late[FOREST]


def test_only_what_is_asked_for_is_run_with_the_two_that_others_are_measured_by():
    found = shift(3, ShiftConfig(jobs=20, training_jobs=50, kicks=5), ["greedy-device"])
    assert set(found.outcomes) == {OPTIMAL, ROUND_ROBIN, "greedy-device"}


def test_every_strategy_says_what_it_did(report: ShiftReport):
    learned = [name for name in STRATEGIES if name in (FOREST, ONLINE, REGRESSOR, "linucb-device")]
    said = {name: report.outcomes[name].result.manifest["decider"] for name in learned}
    assert all(each["assigned"] == 150 for each in said.values())
    assert [name for name in learned if said[name]["learned from"] == 0] == [FOREST]
    assert 5 <= said[ONLINE]["explored"] <= 30  # 0.1 of 150, to the end


def test_the_two_workloads_are_described_by_their_quantiles(report: ShiftReport):
    curves = workload_curves(report)
    jobs, middle = report.outcomes[OPTIMAL].result.workload.jobs, 50
    assert curves["tested.memory"].y[middle] == pytest.approx(np.median(jobs.memory))
    assert curves["trained.intensity"].y[0] >= 0.7 > 0.3 >= curves["tested.intensity"].y[-1]
    assert curves["trained.gain"].y[middle] > 3 > 1.6 > curves["tested.gain"].y[middle]


def test_ranges_and_counts_are_settings():
    given = {"jobs": 30.0, "size": "1000:2000", "intensity": "0.5", "memory": "1GB:2GB", "training_intensity": "0.9:1", "epsilon": 0.3}
    config = shift_config(given, "mine")
    assert (config.jobs, config.size, config.memory, config.epsilon) == (30, Range(1000, 2000), Range(1, 2), 0.3)
    workload, trained_on = config.tested(1), config.trained(1)
    assert len(workload) == 30
    assert 1 <= workload.jobs.memory.min() <= workload.jobs.memory.max() <= 2
    assert {workload.jobs.classes[k] for k in workload.jobs.job_class} == {"c0.50"}
    assert {float(trained_on.jobs.classes[k][1:]) for k in trained_on.jobs.job_class} <= {0.9, 0.95, 1.0}


def test_the_command_line_sets_them_in_the_shipped_study_and_in_its_quick_form():
    for quick in (False, True):
        found = load_experiment("shift", quick=quick, values={"intensity": "0.3:0.6", "jobs": "33"})
        config = shift_config(found.settings, found.name)
        assert (config.jobs, config.intensity) == (33, Range(0.3, 0.6))
    assert shift_config(load_experiment("shift").settings, "shift") == ShiftConfig()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("intensity", "0.31:0.34", "contains none of"), ("memory", "9:1", "is not a range"), ("jobs", 0.0, "jobs = 0"), ("jobs", 2.5, "jobs"),
     ("epsilon", 2.0, "epsilon = 2"), ("sizes", "1:2", "unknown setting"), ("size", "1:nan", "size"), ("replan", 1.0, "unknown setting"),
     ("training_memory", "1:99999999", "not sensible"), ("gap", "-1", "gap")],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused_by_name(name: str, value: float | str, words: str):
    with pytest.raises(GpuyardError, match=words) as caught:
        shift_config({name: value}, "mine")
    part, _, fact = name.rpartition("_")
    assert all(word in str(caught.value) for word in ("mine", part, fact))


@pytest.mark.slow
def test_within_a_fifth_of_the_optimum_and_clearly_better_than_the_forest():
    """The regressor is within a fifth; the DQN, which never stops exploring, within half, and clearly better than the forest too."""
    reports = [shift(seed) for seed in range(200, 205)]
    ratio = {name: [report.ratio(name) for report in reports] for name in (ONLINE, REGRESSOR, FOREST)}
    assert mean_interval(ratio[REGRESSOR]).high <= 1.2
    assert mean_interval(ratio[ONLINE]).high <= 1.5
    for name in (REGRESSOR, ONLINE):
        assert paired_difference(ratio[name], ratio[FOREST]).high < 0
    assert mean_interval([report.bound / report.outcomes[OPTIMAL].total_time for report in reports]).low > 0.9
