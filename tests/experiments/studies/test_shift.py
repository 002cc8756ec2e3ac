"""The shift experiment: every figure from the results, and what it is to show."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard.experiments.judging.statistics import mean_interval, paired_difference
from gpuyard.experiments.studies.shift import FOREST, ONLINE, OPTIMAL, ROUND_ROBIN, ShiftConfig, ShiftReport, shift


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


def test_the_agent_adapts_and_the_forest_stays(report: ShiftReport):
    assert report.ratio(ONLINE) < report.ratio(FOREST)
    late = {name: np.diff(report.outcomes[name].regret[[49, 149]])[0] for name in (ONLINE, FOREST)}
    assert late[ONLINE] < late[FOREST]


@pytest.mark.slow
def test_within_a_fifth_of_the_optimum_and_clearly_better_than_the_forest():
    reports = [shift(seed) for seed in range(200, 205)]
    ratio = {name: [report.ratio(name) for report in reports] for name in (ONLINE, FOREST)}
    assert mean_interval(ratio[ONLINE]).high <= 1.2
    assert paired_difference(ratio[ONLINE], ratio[FOREST]).high < 0
    assert mean_interval([report.bound / report.outcomes[OPTIMAL].total_time for report in reports]).low > 0.9
