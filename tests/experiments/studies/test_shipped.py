"""Every study that comes with the package, in its short form, from the command line to the tables."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest

from gpuyard.cli.main import run as gpuyard
from gpuyard.experiments.design.spec import load_experiment, shipped
from gpuyard.experiments.judging.summary import summarise
from gpuyard.experiments.running.examples import load_examples
from gpuyard.experiments.running.results import Results, load_results
from gpuyard.metrics import measure
from gpuyard.metrics.system import entropy_of
from gpuyard.report.tables import run_rows

STUDIES = sorted(shipped())


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Study → where its results are, once they are."""
    base = tmp_path_factory.mktemp("studies")
    return {name: base / name for name in STUDIES}


def results_of(name: str, folders: dict[str, Path]) -> Results:
    if not folders[name].exists():
        assert gpuyard(["run", name, "--quick", "--workers", "1", "--out", str(folders[name]), "--format", "json"]) == 0
    return load_results(folders[name])


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_runs_from_end_to_end_and_says_something_of_everyone(
    name: str, folders: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "ablation":
        pytest.importorskip("jax", reason="JAX is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        results = results_of(name, folders)
    said = json.loads(capsys.readouterr().out)
    experiment = load_experiment(name, quick=True)
    assert results.experiment == experiment
    assert {(row["objective"], row["scheduler"]) for row in said["tables"] if not row["scheduler"].startswith("(")} == {
        (objective, scheduler) for objective in experiment.axes.objectives for scheduler in experiment.axes.schedulers
    }
    summary = summarise(results)
    for table in summary.tables:
        for line in table.lines:
            assert math.isfinite(line.values[table.objective].mean), (table.objective, line.scheduler)
        assert any(table.objective in line.best for line in table.lines)
    for metric in experiment.metrics:
        if metric in results.columns:
            for scheduler in experiment.axes.schedulers:
                assert np.isfinite(results.columns[metric][results.where(scheduler=scheduler)].astype(float)).any(), (metric, scheduler)
    for curve in experiment.curves:
        assert len(results.curves(curve)) == len(results)
    assert said["answer"]


def test_in_core_no_metric_is_equal_for_all_schedulers(folders: dict[str, Path]) -> None:
    """Except use until the last submit: with jobs of one GPU, every GPU works while any job waits, whichever goes first."""
    results = results_of("core", folders)
    for metric in set(results.experiment.metrics) - {"utilization"}:
        means = {name: float(np.nanmean(results.columns[metric][results.where(scheduler=name)])) for name in results.schedulers}
        assert len(set(means.values())) > 1, metric
    same = [note for note in summarise(results).notes if "is the same for every scheduler" in note]
    assert all("utilization" in note or "utilisation" in note for note in same)


def test_in_core_slowdown_counts_waiting(folders: dict[str, Path]) -> None:
    """A scheduler whose jobs wait longer has a larger slowdown: it is not the run time over itself."""
    results = results_of("core", folders)
    assert (results.columns["slowdown"] >= 1).all()
    assert np.corrcoef(np.log(results.columns["slowdown"]), np.log1p(results.columns["wait"]))[0, 1] > 0.5


def test_in_core_the_meta_policy_has_a_gap_to_the_oracle_and_to_the_bound(folders: dict[str, Path]) -> None:
    table = summarise(results_of("core", folders)).table
    for line in table.lines:
        assert line.gap is not None
        assert line.above_bound is not None
        assert math.isfinite(line.gap.mean)
        assert line.above_bound.mean >= -1e-9  # two seeds are too few for an interval
    members = [line for line in table.lines if line.scheduler in load_experiment("core").judge.oracle]
    assert all(line.gap is not None and line.gap.mean >= 0 for line in members)


def test_in_core_there_are_examples_with_the_choices_of_the_meta_policy(folders: dict[str, Path]) -> None:
    results_of("core", folders)
    examples = {line["scheduler"]: (line, result) for line, result in load_examples(folders["core"])}
    assert set(examples) == {"meta", "srpt"}
    assert examples["meta"][0]["choices"]
    assert len(examples["srpt"][1].segments) > 0


def test_in_core_the_switches_have_an_entropy_of_their_choices(folders: dict[str, Path]) -> None:
    results = results_of("core", folders)
    rows = run_rows(results)
    by_name = {name: [row["choice_entropy"] for row in rows if row["scheduler"] == name] for name in results.schedulers}
    assert all(math.isnan(value) for name in ("srpt", "direct") for value in by_name[name])
    assert min(by_name["random-switch"]) > 0.9  # five alike, drawn every minute
    assert 0 <= min(by_name["meta"]) <= max(by_name["meta"]) < 1
    line, example = next((line, result) for line, result in load_examples(folders["core"]) if line["scheduler"] == "meta")
    chosen = np.bincount(line["choices"]["chosen"], minlength=len(line["choices"]["labels"]))  # recorded from outside, decision by decision
    assert example.manifest["chosen"] == chosen.tolist()
    assert measure(example, ["choice_entropy"])["choice_entropy"] == entropy_of(chosen.astype(float))


def test_in_robustness_every_change_changes_the_numbers(folders: dict[str, Path]) -> None:
    results = results_of("robustness", folders)
    clean = results.columns["turnaround"][results.where(change="")]
    for change in results.experiment.axes.changes[1:]:
        assert not np.array_equal(results.columns["turnaround"][results.where(change=change)], clean), change
    summary = summarise(results)
    assert len({each.kind for each in summary.degradations}) == 6
    assert {each.objective for each in summary.degradations} == set(results.experiment.axes.objectives)


def test_in_shift_the_optimum_is_one(folders: dict[str, Path]) -> None:
    results = results_of("shift", folders)
    optimal = results.where(scheduler="offline-optimal")
    assert np.allclose(results.columns["ratio_to_optimum"][optimal], 1.0)
    assert (results.columns["ratio_to_optimum"] > 0.999).all()
    assert all(np.allclose(results.curves("regret")[run].y, 0.0) for run in results.columns["run"][optimal].tolist())
    lines = [note for note in summarise(results).notes if note.partition(": ")[0] in results.schedulers]
    assert [line.partition(": ")[0] for line in lines] == list(results.schedulers)  # a line of status for each
    assert any("stayed as it was trained" in line for line in lines) and any("went on learning, from" in line for line in lines)
    assert (results.columns["bound.turnaround"] <= results.columns["turnaround"] * (1 + 1e-9)).all()
