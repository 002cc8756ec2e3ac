"""Axes become cells, units and Runs; logs become windows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpuyard.errors import DataError, UsageError
from gpuyard.experiments.design.cells import Entry, Sources, cells_of, column, entries_of
from gpuyard.experiments.design.kinds import Context, Prepared
from gpuyard.experiments.design.spec import AgentSpec, Axes, Experiment
from gpuyard.experiments.running.runner import checked
from gpuyard.traces.splits import SEEDS


def made(**axes: object) -> Experiment:
    given: dict[str, object] = {"schedulers": ("fcfs",), "seeds": (0,), "objectives": ("wait",)}
    return Experiment("it", "It", "", "simulations", Axes(**given | axes))  # type: ignore[arg-type]


def log(path: Path, jobs: int) -> str:
    """A log in the Standard Workload Format: job k is submitted at 100 k s and takes 60 s on one processor."""
    lines = [f"{k + 1} {100 * k} 0 60 1 -1 -1 1 60 -1 1 1 1 1 1 1 -1 -1" for k in range(jobs)]
    path.write_text("; MaxProcs: 8\n" + "\n".join(lines) + "\n")
    return str(path)


def test_cells_are_in_the_order_of_the_axes() -> None:
    cells = cells_of(
        made(
            workloads=("family:shape=base|bursty,gpus=2|4 on 1x{gpus}:a100", "demo:jobs=20 on 8"),
            changes=("", "burst:severity=1"),
            estimates=("exact", "noisy"),
        )
    )
    first = [(cell.parameters["shape"], cell.parameters["gpus"]) for cell in cells[:16:4]]
    assert first == [("base", "2"), ("base", "4"), ("bursty", "2"), ("bursty", "4")]
    assert [(cell.change, cell.estimate) for cell in cells[:4]] == [
        ("", "exact"),
        ("", "noisy"),
        ("burst:severity=1", "exact"),
        ("burst:severity=1", "noisy"),
    ]
    assert len(cells) == 20
    assert cells[-1].recipe.apply == ("burst:severity=1",)
    assert cells[-1].workload == "demo:jobs=20"


def test_units_and_runs_are_numbered_without_gaps() -> None:
    agent = AgentSpec("Switch", "d3qn", ("demo",), "1k", seeds=(3, 5))
    experiment = replace(made(workloads=("demo:jobs=20|30 on 8",), schedulers=("fcfs", "a", "sjf"), seeds=(7, 9, 11)), agents={"a": agent})
    prepared = Prepared(Context(experiment.record()))
    assert entries_of(experiment) == [Entry("fcfs"), Entry("a", 3), Entry("a", 5), Entry("sjf")]
    assert [entry.label for entry in prepared.entries] == ["fcfs", "a-3", "a-5", "sjf"]
    assert [(unit.number, unit.cell, unit.seed, unit.first) for unit in prepared.units] == [
        (0, 0, 7, 0), (1, 0, 9, 4), (2, 0, 11, 8), (3, 1, 7, 12), (4, 1, 9, 16), (5, 1, 11, 20)
    ]  # fmt: skip
    assert prepared.runs == 24


def test_the_axis_of_clusters_is_for_workloads_that_name_none() -> None:
    cells = cells_of(made(workloads=("demo:jobs=20", "demo:jobs=30 on 4"), clusters=("8", "16|32")))
    assert [(cell.workload, cell.recipe.cluster) for cell in cells] == [
        ("demo:jobs=20", "8"),
        ("demo:jobs=20", "16"),
        ("demo:jobs=20", "32"),
        ("demo:jobs=30", "4"),
    ]


def test_what_a_workload_brings_itself_stays_in_its_name_and_comes_before_a_change() -> None:
    cells = cells_of(
        made(workloads=("demo:jobs=20 on 8", "demo:jobs=20[apply=load:0.5; estimate=noisy] on 8"), changes=("burst:severity=1",))
    )
    assert [cell.workload for cell in cells] == ["demo:jobs=20", "demo:jobs=20[apply=load:0.5; estimate=noisy]"]
    assert cells[1].recipe.apply == ("load:0.5", "burst:severity=1")
    assert cells[1].recipe.estimate == "noisy"


def test_columns_of_parameters_do_not_hide_others() -> None:
    assert column("shape") == "shape"
    assert column("cluster") == "workload_cluster"


def test_an_episode_is_the_one_of_the_generator_at_the_seed() -> None:
    experiment = made(workloads=("demo:jobs=20 on 8",), seeds=(4, 2))
    (cell,) = cells_of(experiment)
    one = Sources((4, 2)).episode(cell, 2)
    assert one.seed == 2
    assert np.array_equal(one.workload.jobs.submit, Sources((2,)).episode(cell, 2).workload.jobs.submit)
    assert not np.array_equal(one.workload.jobs.submit, Sources((4, 2)).episode(cell, 4).workload.jobs.submit)


def test_windows_of_a_log_do_not_overlap_and_are_spread_over_it(tmp_path: Path) -> None:
    text = f"{log(tmp_path / 'log.swf', 107)}[jobs=10; from=0; until=1] on 8"
    for count in (1, 2, 3, 10):
        experiment = made(workloads=(text,), seeds=tuple(range(count)))
        (cell,) = cells_of(experiment)
        sources = Sources(experiment.axes.seeds)
        ids = [sources.episode(cell, seed).workload.jobs.id.tolist() for seed in experiment.axes.seeds]
        assert all(len(each) == 10 for each in ids)
        every = [each for window in ids for each in window]
        assert len(set(every)) == len(every)
        assert every == sorted(every)
        if 1 < count < 10:
            assert min(every) == 1
            assert max(every) == 100  # the last whole window
        assert sources.episode(cell, 0).workload.jobs.submit[0] == 0.0


def test_a_log_that_is_too_short_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    text = f"{log(tmp_path / 'log.swf', 40)}[jobs=10; from=0; until=1] on 8"
    checked(made(workloads=(text,), seeds=(0, 1, 2, 3)))
    with pytest.raises(DataError, match="log.swf.*4 windows of 10 jobs do not overlap, and 5 seeds"):
        checked(made(workloads=(text,), seeds=(0, 1, 2, 3, 4)))


def test_a_policy_is_not_judged_on_what_it_was_trained_on() -> None:
    workload = "family:shape=base,intensity=low,gpus=4 on 1x4:a100"
    checked(made(workloads=(workload,), schedulers=("learned:meta",), seeds=(0, 1)))
    with pytest.raises(UsageError, match="learned:meta"):
        checked(made(workloads=(workload,), schedulers=("fcfs", "learned:meta"), seeds=(0, SEEDS["train"][5])))
