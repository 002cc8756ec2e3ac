"""What is varied one at a time: places, holes in workloads and schedulers, logs that are not given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpuyard.errors import DataError, UnknownNameError, UsageError
from gpuyard.experiments.design.cells import cells_of
from gpuyard.experiments.design.kinds import Context, Prepared
from gpuyard.experiments.design.spec import Experiment, from_table, parse_experiment
from gpuyard.experiments.running.results import load_results
from gpuyard.experiments.running.runner import backend_of, run
from gpuyard.policies import parse_scheduler
from gpuyard.traces import load_workload, write_swf

TEXT = """
title = "Varied"
[values]
log = ""
[axes]
workloads = ["one", "two", "log"]
schedulers = ["saf", "ranked"]
seeds = "0-1"
objectives = ["delay", "bsld"]
[names]
one = "lublin:jobs=60,nodes=32,load={load}[each=preemptible:{share}] on 32"
two = "demo:jobs=60,load={load}[each=preemptible:{share}] on 16x8:gpu"
log = "${log}[jobs=40; apply=pool:8; each=load:target={load},gpus=8+preemptible:{share}] on 8"
saf = "saf/fewest/easy"
ranked = "saf/fewest/easy/gittins:table={table}"
[vary]
share = ["0.5", "0", "1"]
load = ["1.0", "0.8"]
[[also]]
share = "1"
load = "0.8"
[own.one]
table = "hpc"
[own.two]
table = "gpu"
[own.log]
table = "gpu"
[judge]
baseline = "saf"
challengers = ["ranked"]
metrics = ["preemptions"]
groups = ["share", "load"]
"""
PLACES = [("0.5", "1.0"), ("0", "1.0"), ("1", "1.0"), ("0.5", "0.8"), ("1", "0.8")]


def made(text: str = TEXT, **values: str) -> Experiment:
    return parse_experiment(text, "varied.toml", values=values)


def test_from_the_centre_one_thing_at_a_time_is_varied() -> None:
    cells = cells_of(made())
    assert [(cell.workload, cell.parameters["share"], cell.parameters["load"]) for cell in cells] == [
        (workload, *place) for workload in ("one", "two") for place in PLACES
    ]
    assert [cell.recipe.base for cell in cells[3:5]] == ["lublin:jobs=60,nodes=32,load=0.8"] * 2
    assert [cell.recipe.each for cell in cells[3:5]] == [("preemptible:0.5",), ("preemptible:1",)]


def test_what_varies_is_part_of_the_record() -> None:
    experiment = made()
    assert from_table(experiment.record(), "varied.toml") == experiment
    assert replace(experiment, also=()).digest != experiment.digest


def test_a_hole_in_a_scheduler_is_filled_by_the_workload() -> None:
    prepared = Prepared(Context(made().record()))
    ranked = prepared.entries[1]
    texts = {cell.workload: prepared.text_of(ranked, cell) for cell in prepared.cells}
    assert texts == {"one": "saf/fewest/easy/gittins:table=hpc", "two": "saf/fewest/easy/gittins:table=gpu"}
    assert [each.label for each in prepared.schedulers_of(ranked)] == [parse_scheduler(text).label for text in texts.values()]
    assert len(prepared.schedulers_of(prepared.entries[0])) == 1


def test_a_log_that_is_not_given_is_left_out_and_one_that_is_given_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.swf"
    write_swf(load_workload("lublin:jobs=200,nodes=8,load=0.5", 1), path)
    experiment = made(log=str(path))
    assert (made().axes.workloads, experiment.axes.workloads) == (("one", "two"), ("one", "two", "log"))
    prepared = Prepared(Context(experiment.record()))
    read: list[str] = []
    from gpuyard.traces.recipes.reading import Reading

    original = Reading.read
    monkeypatch.setattr(Reading, "read", lambda self, text, seed=0: read.append(text) or original(self, text, seed))
    episodes = {tuple(cell.parameters.values())[1:]: prepared.sources.episode(cell, 1) for cell in prepared.cells if cell.workload == "log"}
    assert read == [str(path)]
    assert len(episodes) == len(PLACES)
    for (share, load), episode in episodes.items():
        jobs = episode.workload.jobs
        offered = float(jobs.gpus @ episode.workload.runtime) / (8 * float(np.ptp(jobs.submit)))
        assert offered == pytest.approx(float(load))
        assert (jobs.stated["preemptible"].mean() == float(share)) == (share != "0.5")


def test_tables_are_those_of_the_centre_and_groups_vary_one_thing(tmp_path: Path) -> None:
    run(made(), tmp_path, backend_of("local", 1))
    results = load_results(tmp_path)
    assert len(results) == 2 * len(PLACES) * 2 * 2
    assert set(zip(results.columns["share"][results.along()], results.columns["load"][results.along()], strict=True)) == {("0.5", "1.0")}
    assert set(results.columns["share"][results.along("share")]) == {"0", "0.5", "1"}
    assert set(results.columns["load"][results.along("share")]) == {"1.0"}

    from gpuyard.experiments.judging.summary import summarise

    summary = summarise(results)
    centre = results.along() & results.where(scheduler="ranked")
    assert summary.table.line("ranked").values["delay"].mean == pytest.approx(results.columns["delay"][centre].mean())
    groups = {table.group: table.line("ranked").values["delay"].mean for table in summary.groups}
    assert list(groups) == ["share=0.5", "share=0", "share=1", "load=1.0", "load=0.8"]
    busy = results.along("load") & results.where(scheduler="ranked", load="0.8")
    assert groups["load=0.8"] == pytest.approx(results.columns["delay"][busy].mean())


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('share = ["0.5", "0", "1"]', 'Share = ["0.5"]', "is not a valid name"),
        ('share = ["0.5", "0", "1"]', 'share = ["0.5", "0.5"]', "different values"),
        ('share = ["0.5", "0", "1"]', "share = []", "different values"),
        ('[[also]]\nshare = "1"', '[[also]]\nshar = "1"', "did you mean 'share'"),
        ("[own.one]", "[own.oen]", "did you mean 'one'"),
        ('table = "hpc"', "table = 3", "is not a text"),
        ('share = ["0.5", "0", "1"]', 'share = "0.5"', "is not a list of texts"),
        ('"lublin:jobs=60,nodes=32,load={load}', '"lublin:jobs=60,nodes=32,load={laod}', "load"),
    ],
)
def test_a_slip_is_one_clear_line(old: str, new: str, words: str) -> None:
    assert TEXT.count(old) == 1
    with pytest.raises((DataError, UsageError, UnknownNameError), match=words):
        cells_of(made(TEXT.replace(old, new)))


def test_a_workload_of_which_something_is_varied_has_a_short_name() -> None:
    with pytest.raises(DataError, match="needs a short name"):
        cells_of(made(TEXT.replace('"one", "two"', '"lublin:jobs=60,load={load} on 64", "two"')))


def test_without_any_workload_there_is_nothing_to_run() -> None:
    with pytest.raises(DataError, match="workloads is empty"):
        made(TEXT.replace('["one", "two", "log"]', '["log"]'))


def test_a_table_that_is_none_is_refused() -> None:
    text = TEXT.replace('title = "Varied"', 'title = "Varied"\nown = 3')
    for name in ("one", "two", "log"):
        text = text.replace(f"[own.{name}]", f"[names.{name}x]")
    with pytest.raises((DataError, UsageError)):
        made(text)
