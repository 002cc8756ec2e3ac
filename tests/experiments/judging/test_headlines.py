"""Titles of charts, from a small experiment: their names and numbers are those of the summary."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuyard.experiments.design.spec import parse_experiment
from gpuyard.experiments.judging.headlines import (
    against_baseline,
    best_in_groups,
    best_mean,
    between_ends,
    oracle_distance,
    under_change,
    worst_kind,
    worth_of_parts,
)
from gpuyard.experiments.judging.statistics import Interval
from gpuyard.experiments.judging.summary import Degradation, Summary, summarise
from gpuyard.experiments.judging.text import short
from gpuyard.experiments.running.results import load_results
from gpuyard.experiments.running.runner import backend_of, run

TEXT = """
title = "Titles"
[axes]
workloads = ["family:shape=base|bursty,intensity=medium,gpus=4 on 1x4:a100"]
changes = ["", "burst:severity=4", "slow-nodes:severity=1"]
schedulers = ["fcfs", "srpt", "edf", "again"]
seeds = "0-5"
objectives = ["slowdown", "balanced"]
[names]
again = "srpt/fewest/none"
[judge]
challengers = ["edf"]
oracle = ["fcfs", "srpt"]
groups = ["shape"]
"""


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    folder = tmp_path_factory.mktemp("titles")
    run(parse_experiment(TEXT, "titles.toml"), folder, backend_of("local", 1))
    return summarise(load_results(folder))


def test_the_best_mean(summary: Summary) -> None:
    table = summary.table
    value = short(table.line("srpt").values["slowdown"].mean)
    assert best_mean(table) == f"2 schedulers have the lowest mean slowdown, {value}"
    alone = replace(table, lines=tuple(line for line in table.lines if line.scheduler != "again"))
    assert best_mean(alone) == f"srpt has the lowest mean slowdown, {value}"
    assert best_mean(replace(table, lines=table.lines[:1])) == "Mean slowdown of each scheduler"
    assert "highest mean balanced objective, -" in best_mean(summary.tables[1])


def test_against_the_baseline(summary: Summary) -> None:
    assert summary.table.baseline == "srpt"
    assert against_baseline(summary.table) == "Slowdown: none of 3 is clearly better than srpt, 2 are clearly worse"


def test_the_distance_to_the_oracle_is_that_of_the_closest_challenger(summary: Summary) -> None:
    gap = summary.table.line("edf").gap
    assert gap is not None
    assert oracle_distance(summary.table) == f"edf is {short(100 * gap.mean)} % behind the best fixed choice of each run on slowdown"
    assert oracle_distance(replace(summary.table, lines=())) == "Gap to the oracle"


def test_parts_that_matter(summary: Summary) -> None:
    lines = [line for line in summary.table.lines if line.versus is not None]
    assert worth_of_parts(lines) == "2 of 3 parts make a clear difference: fcfs, edf"
    same = [line for line in lines if line.scheduler == "again"]
    assert worth_of_parts(same) == "None of 1 part makes a clear difference"


def test_changes(summary: Summary) -> None:
    found = [each for each in summary.degradations if each.objective == "slowdown"]
    assert worst_kind(found, "slowdown").startswith("burst hurts slowdown most: ")
    burst = [each for each in found if each.kind == "burst"]
    low, high = (short(100 * end(each.share.mean for each in burst)) for end in (min, max))
    assert under_change(burst, "burst", "slowdown") == f"burst: slowdown gets {low} to {high} % worse at its strongest"
    unclear = [Degradation("slowdown", "x:1", "x", name, Interval(0.02, -0.01, 0.05, 8)) for name in ("a", "b")]
    assert under_change(unclear, "x", "slowdown") == "x: slowdown does not get clearly worse for any scheduler"
    some = [*unclear, Degradation("slowdown", "x:2", "x", "a", Interval(0.04, 0.01, 0.07, 8))]
    assert under_change(some, "x", "slowdown") == "x: slowdown gets 4.00 % worse at its strongest, clearly for 1 of 2 schedulers"


def test_groups_and_ends(summary: Summary) -> None:
    tables = [table for table in summary.groups if table.group.startswith("shape=")]
    assert best_in_groups(tables, "shape") == "srpt has the best mean in 2 of 2 groups by shape"
    assert between_ends("Utilisation", {"2": 0.98, "8": 0.8, "16": 0.615}, " GPUs") == "Utilisation is 98.0 % on 2 GPUs and 61.5 % on 16"
