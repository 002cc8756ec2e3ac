"""Who gains and who pays, against sums made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard import load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.experiments.compare import Plan, Source, compare
from gpuyard.experiments.judging.answering.plain import plain_answer, verdict_of
from gpuyard.experiments.judging.answering.waits import LENGTH, SIZE, USER
from gpuyard.experiments.judging.summary import Summary
from gpuyard.metrics import METRICS
from gpuyard.metrics.base import values_of

SEEDS, TODAY, SHORTEST = tuple(range(8)), "fcfs/fewest/easy", "sjf/fewest/easy"


@pytest.fixture(scope="module")
def summary() -> Summary:
    source = Source("demo", lambda seed: load_workload("demo:jobs=800", seed), True, (load_cluster("16x8:a100"),))
    return compare(Plan((source,), (parse_scheduler(TODAY), parse_scheduler(SHORTEST)), ("waiting",), seeds=SEEDS))[0]


def test_means_of_groups_are_those_of_their_jobs(summary: Summary) -> None:
    waits, lengths, sizes, users = [], [], [], []
    for seed in SEEDS:
        workload = load_workload("demo:jobs=800", seed)
        pair = [simulate(workload, load_cluster("16x8:a100"), parse_scheduler(text), seed=seed) for text in (TODAY, SHORTEST)]
        waits.append([values_of(result, METRICS["waiting"]) for result in pair])
        lengths.append(workload.runtime)
        sizes.append(workload.jobs.gpus)
        users += [workload.jobs.users[k] for k in workload.jobs.user.tolist()]
    before, after = np.concatenate(waits, axis=1)
    found = summary.results.waits
    assert found is not None
    for grouping, values, low, high, group in ((LENGTH, lengths, 300.0, 3600.0, "5 min to 1 h"), (SIZE, sizes, 2.0, 8.5, "2 to 8")):
        each = np.concatenate(values)
        inside = (each >= low) & (each < high)
        change = next(change for change in found.changes(grouping, SHORTEST, TODAY) if change.group == group)
        assert change.jobs == inside.sum()
        assert (change.before, change.after) == pytest.approx((before[inside].mean(), after[inside].mean()))
        assert change.share.mean == pytest.approx((after[inside].sum() - before[inside].sum()) / before[inside].sum())
        assert change.share.n == len(SEEDS)
    by_user = {change.group: change for change in found.changes(USER, SHORTEST, TODAY)}
    assert set(by_user) == set(users)
    mine = np.array([user == users[0] for user in users])
    assert by_user[users[0]].after == pytest.approx(after[mine].mean())
    assert found.longest[TODAY] == pytest.approx(np.mean([pair[0].max() for pair in waits]))


def test_the_answer_has_no_codes_and_rests_on_the_numbers(summary: Summary) -> None:
    found, answer = verdict_of(summary), plain_answer(summary)
    assert found is not None and answer is not None
    assert found.best.scheduler == SHORTEST and found.better is True and answer.word == "Yes"
    said = " ".join(answer.lines)
    assert "/" not in said and "p =" not in said
    low, high = (round(100 * abs(end)) for end in (found.share.high, found.share.low))
    assert f"between {low} and {high} % shorter" in said
