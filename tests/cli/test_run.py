"""`gpuyard run` as it is typed."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.experiments.design.spec import load_experiment
from gpuyard.experiments.running.results import load_results
from support.complaints import complaints

TEXT = """
title = "A short one"

[values]
jobs = "20"

[axes]
workloads = ["demo:jobs=${jobs} on 1x8:a100"]
schedulers = ["fcfs", "sjf"]
seeds = "0-5"
objectives = ["wait", "utilization"]

[judge]
baseline = "fcfs"
challengers = ["sjf"]
oracle = ["fcfs", "sjf"]

[quick.axes]
seeds = "0"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "short.toml"
    path.write_text(TEXT)
    return path


def test_results_are_told_and_kept_beside_where_one_stands(cli: Callable, file: Path, tmp_path: Path) -> None:
    done = cli("run", "short.toml", "--workers", 1)
    assert done.code == 0
    assert "A short one: " in done.out
    assert "> sjf" in done.out
    assert "oracle of each run" in done.out
    assert "6 Runs each" in done.out
    assert "12 Runs in" in done.err
    assert "results in results/short" in done.err
    again = cli("run", "short.toml", "--workers", 1)
    assert again.out == done.out
    assert "complete already, 12 Runs" in again.err
    assert load_results(tmp_path / "results" / "short").about["command"] == "gpuyard run short.toml"


def test_the_short_form_has_a_folder_of_its_own_and_the_command_says_all_that_decides(cli: Callable, file: Path, tmp_path: Path) -> None:
    assert cli("run", file, "--quick", "--set", "jobs=30", "--workers", 1).code == 0
    results = load_results(tmp_path / "results" / "short-quick")
    assert results.about["command"] == f"gpuyard run {file} --quick --set jobs=30"
    assert set(results.columns["n_jobs"].tolist()) == {30}
    assert len(results) == 2


def test_data_for_programs(cli: Callable, file: Path, tmp_path: Path) -> None:
    done = cli("run", file, "--workers", 1, "--out", tmp_path / "x", "--format", "json")
    found = json.loads(done.out)
    lines = [row for row in found["tables"] if row["scheduler"] in ("fcfs", "sjf")]
    assert [(row["objective"], row["scheduler"]) for row in lines] == [
        ("wait", "fcfs"),
        ("wait", "sjf"),
        ("utilization", "fcfs"),
        ("utilization", "sjf"),
    ]
    results = load_results(tmp_path / "x")
    assert lines[0]["mean"] == pytest.approx(results.columns["wait"][results.where(scheduler="fcfs")].mean())
    table = list(csv.DictReader(io.StringIO(cli("run", file, "--workers", 1, "--out", tmp_path / "x", "--format", "csv").out)))
    assert float(table[0]["mean"]) == pytest.approx(lines[0]["mean"])


def test_a_dry_run_tells_what_would_be_done_and_does_nothing(cli: Callable, file: Path, tmp_path: Path) -> None:
    done = cli("run", file, "--dry-run", "--format", "json")
    found = json.loads(done.out)
    assert (found["runs"], found["units"], found["agents"]) == (12, 6, [])
    assert found["experiment"] == load_experiment(str(file)).record()
    assert not (tmp_path / "results").exists()
    shown = cli("run", "core", "--dry-run").out
    assert "3,072" in shown
    assert "agents to train" in cli("run", "ablation", "--dry-run").out
    varied = cli("run", "preemption", "--dry-run").out
    assert "varied: share" in varied and "places on what is varied" in varied


def test_a_dry_run_runs_no_program(cli: Callable, file: Path, tmp_path: Path) -> None:
    program, mark = tmp_path / "mine.py", tmp_path / "it-was-run"
    program.write_text(f"open({str(mark)!r}, 'w').close()\n\n\ndef rule(jobs, j, now):\n    return jobs.estimate[j]\n")
    file.write_text(TEXT.replace('schedulers = ["fcfs", "sjf"]', f'schedulers = ["fcfs", "sjf", "{program}:rule"]'))
    done = cli("run", file, "--dry-run")
    assert done.code == 0
    assert f"{program}:rule" in done.out
    assert "programs, not checked" in done.out
    assert not mark.exists()


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["croe"], "unknown experiment 'croe'; hint: did you mean 'core'?", 2),
        (["absent.toml"], "absent.toml: no such file", 1),
        (["short.toml", "--set", "jobs"], "--set 'jobs' is not NAME=VALUE", 2),
        (["short.toml", "--set", "job=1"], "did you mean 'jobs'?", 2),
        (["short.toml", "--set", "jobs=-1"], "short: [axes] workloads", 2),
        (["short.toml", "--workers", "0"], "--workers 0", 2),
        (["short.toml", "--on", "lcoal"], "--on 'lcoal' is not a place to run at", 2),
        (["short.toml", "--out", "short.toml"], "short.toml", 1),
        (["short.toml", "--out", "."], "is not empty and holds no experiment", 2),
        ([], "missing argument EXPERIMENT; hint: e.g. gpuyard run core --quick", 2),
    ],
)
def test_wrong_usage(cli: Callable, file: Path, arguments: list[str], message: str, code: int) -> None:
    before = sorted(path.name for path in file.parent.iterdir())
    done = cli("run", *arguments)
    (complaint,) = complaints(done.err)
    assert message in complaint
    assert done.code == code
    assert sorted(path.name for path in file.parent.iterdir()) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('schedulers = ["fcfs", "sjf"]', 'schedulers = ["fcfs", "sfj"]'), "sfj"),
        (("[judge]", "[judgement]"), "short.toml: unknown key 'judgement'; hint: did you mean 'judge'?"),
        (('seeds = "0-5"', 'seeds = ""'), "the axis seeds is empty"),
        (('seeds = "0-5"', 'sedes = "0-5"'), "'sedes'"),
        (('schedulers = ["fcfs", "sjf"]', 'schedulers = ["fcfs", "sjf", "learned:nobody"]'), "scheduler 'learned:nobody'"),
    ],
)
def test_a_wrong_file_is_told_in_one_line_and_leaves_nothing(cli: Callable, file: Path, change: tuple[str, str], message: str) -> None:
    text = TEXT.replace(*change)
    assert text != TEXT
    file.write_text(text)
    for more in ([], ["--dry-run"]):
        done = cli("run", file, *more)
        assert done.code in (1, 2)
        (complaint,) = complaints(done.err)
        assert message in complaint
        assert [path.name for path in file.parent.iterdir()] == ["short.toml"]


def test_another_experiment_in_the_folder(cli: Callable, file: Path) -> None:
    assert cli("run", file, "--workers", 1, "--out", "x").code == 0
    done = cli("run", file, "--quick", "--workers", 1, "--out", "x")
    assert done.code == 2
    assert "holds another experiment (short): axes.seeds differs" in done.err


def test_a_damaged_file_is_named(cli: Callable, file: Path) -> None:
    assert cli("run", file, "--workers", 1, "--out", "x").code == 0
    path = file.parent / "x" / "runs.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    done = cli("run", file, "--workers", 1, "--out", "x")
    assert done.code == 1
    assert "x/runs.parquet: damaged" in done.err


def test_what_was_run_is_read_back_and_gives_the_same_bytes(cli: Callable, file: Path, tmp_path: Path) -> None:
    assert cli("run", "short.toml", "--quick", "--out", "first").code == 0
    assert cli("run", "first/experiment.json", "--out", "second").code == 0
    assert (tmp_path / "first" / "runs.parquet").read_bytes() == (tmp_path / "second" / "runs.parquet").read_bytes()
    refused = cli("run", "first/experiment.json", "--quick")
    assert (refused.code, complaints(refused.err)) == (
        2, ["first/experiment.json: what was run has no --quick and nothing to --set; hint: change a .toml file instead"],
    )  # fmt: skip


def test_a_program_that_what_was_run_names_is_not_run(cli: Callable, file: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def rule(jobs, j, now):\n    return 0.0\n")
    file.write_text(TEXT.replace('"sjf"]', '"./mine.py:rule"]').replace('["sjf"]', '["./mine.py:rule"]').replace("oracle", "# oracle"))
    assert cli("run", "short.toml", "--quick", "--out", "first").code == 0
    refused = cli("run", "first/experiment.json", "--out", "second")
    assert refused.code == 2
    assert "names a program, './mine.py:rule', which is not run" in refused.err


def test_what_is_for_simulations_is_refused_for_real_jobs(cli):
    code, _, err = cli("run", "real", "--workers", "2")
    assert code == 2
    assert "are for simulated experiments" in err
