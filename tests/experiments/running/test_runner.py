"""Whole experiments: the same bytes with any number of workers, and after being killed at any moment."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gpuyard.cli.main import run as cli
from gpuyard.engine.compiler.entry import engine
from gpuyard.errors import UsageError
from gpuyard.experiments.design.spec import load_experiment
from gpuyard.experiments.judging.summary import summarise
from gpuyard.experiments.running.examples import load_examples
from gpuyard.experiments.running.results import load_results
from gpuyard.experiments.running.runner import run
from gpuyard.experiments.running.store import COMPLETE, EXPERIMENT, MANIFESTS, PARTS, Store
from gpuyard.experiments.running.workers import Here, Processes
from support.complaints import complaints

Write = Callable[..., Path]
CLOCK = {"wall_s", "finished", "decision_latency_us"}  # of a manifest


def bytes_of(folder: Path) -> dict[str, bytes]:
    """All that must be the same whenever, wherever and however often it is run: everything but clocks, and hashes of what holds them."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and name not in ("lock", COMPLETE, MANIFESTS) and not (name.startswith("examples") and path.suffix == ".json"):
            found[name] = path.read_bytes()
    lines = [json.loads(line) for line in (folder / MANIFESTS).read_text().splitlines()]
    found[MANIFESTS] = json.dumps([{key: value for key, value in line.items() if key not in CLOCK} for line in lines]).encode()
    return found


def assert_whole(folder: Path) -> None:
    """No file under its final name is anything but whole."""
    for path in folder.rglob("*"):
        if not path.is_file() or path.name == "lock" or path.suffix == ".part" or ".part" in str(path):
            continue
        if path.parent.name == PARTS:
            assert hashlib.sha256(path.read_bytes()).hexdigest()[:16] == path.stem.rpartition("-")[2], path
        if path.suffix == ".parquet":
            pl.read_parquet(path)
        if path.suffix == ".json":
            json.loads(path.read_text())
    if (folder / COMPLETE).exists():
        load_results(folder)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    engine()


# ── workers ──


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, small: str) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "small.toml").write_text(small)
    run(load_experiment(str(folder / "small.toml")), folder / "results", Here())
    return folder / "results"


def test_a_run_is_what_the_file_says(undisturbed: Path) -> None:
    results = load_results(undisturbed)
    assert len(results) == 3 * 3 * 3
    assert results.columns["run"].tolist() == list(range(27))
    assert results.columns["workload"].tolist()[-9:] == ["busy"] * 9
    assert results.columns["shape"].tolist() == ["base"] * 9 + ["bursty"] * 9 + [None] * 9
    assert results.columns["scheduler"].tolist() == ["fcfs", "shortest", "switch"] * 9
    assert results.columns["seed"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2] * 3
    assert np.isnan(results.columns["training_seed"]).all()
    for name in ("slowdown", "balanced", "wait", "utilization", "bound.slowdown"):
        assert np.isfinite(results.columns[name]).all(), name
    assert (results.columns["bound.slowdown"] <= results.columns["slowdown"] * (1 + 1e-9)).all()
    assert results.parameters == ("shape", "intensity", "gpus", "jobs")
    for name in ("cdf.wait", "box.user.slowdown", "queue"):
        assert sorted(results.curves(name)) == list(range(27))
    assert results.where(scheduler="fcfs", seed=1).sum() == 3


def test_every_run_has_a_manifest(undisturbed: Path) -> None:
    results = load_results(undisturbed)
    assert [line["run"] for line in results.manifests] == list(range(27))
    line = results.manifests[1]
    assert line["scheduler"] == "shortest"
    assert line["text"] == "sjf/first/easy"
    assert line["seed"] == 0
    assert {"gpuyard", "python", "platform", "machine", "wall_s", "finished", "workload", "cluster"} <= set(line)
    assert line["wall_s"] > 0


def test_groups_leave_out_workloads_without_the_parameter(undisturbed: Path) -> None:
    assert [table.group for table in summarise(load_results(undisturbed)).groups] == ["shape=base", "shape=bursty"]


def test_examples_are_whole_results(undisturbed: Path) -> None:
    ((line, result),) = load_examples(undisturbed)
    assert line["scheduler"] == "shortest"
    assert line["seed"] == 0
    assert len(result.segments) > 0
    kept = load_results(undisturbed)
    chosen = kept.where(scheduler="shortest", seed=0, shape="bursty")
    waits = result.table["start"] - result.workload.jobs.submit
    assert np.nanmean(waits) == pytest.approx(kept.columns["wait"][chosen][0])


def test_two_workers_give_the_same_bytes_as_one(undisturbed: Path, tmp_path: Path, small_file: Write) -> None:
    heard: list[tuple[str, int, int]] = []
    outcome = run(load_experiment(str(small_file())), tmp_path / "results", Processes(2), progress=lambda *what: heard.append(what))
    assert (outcome.runs, outcome.done_before, outcome.trained) == (27, 0, 0)
    assert bytes_of(tmp_path / "results") == bytes_of(undisturbed)
    assert heard == [("runs", done, 27) for done in range(0, 28, 3)]


def test_what_is_done_is_not_done_again(undisturbed: Path, tmp_path: Path, small_file: Write) -> None:
    experiment, folder = load_experiment(str(small_file())), tmp_path / "results"

    def stop(what: str, done: int, total: int) -> None:
        if done == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, folder, Processes(2), progress=stop)
    assert len(Store(folder).done()) == 4
    outcome = run(experiment, folder, Here())
    assert (outcome.runs, outcome.done_before) == (27, 12)
    assert bytes_of(folder) == bytes_of(undisturbed)


def test_another_file_in_the_same_folder_is_refused_and_changes_nothing(undisturbed: Path, small_file: Write) -> None:
    before = bytes_of(undisturbed)
    other = load_experiment(str(small_file(('seeds = "0-2"', 'seeds = "0-3"'))))
    with pytest.raises(UsageError, match=r"holds another experiment \(small\): axes.seeds differs"):
        run(other, undisturbed, Here())
    assert bytes_of(undisturbed) == before


# ── killed ──


def started(file: Path, folder: Path, workers: int = 2) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gpuyard", "run", str(file), "--out", str(folder), "--workers", str(workers)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job, as these tests may be, ignores it
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    finally:
        signal.signal(signal.SIGINT, before)


def group(leader: int) -> list[int]:
    """Processes of its session that are alive."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def until(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def kill_often(file: Path, base: Path, kills: int, seed: int) -> set[str]:
    """Kill it that often at random moments while it is at work; each time it has come to its end, compare and begin anew.

    What stood in the folders when it was killed.
    """
    generator, hits, number, stages = random.Random(seed), 0, 0, set()
    began = time.monotonic()
    finish(file, base / "undisturbed")
    span = time.monotonic() - began
    while hits < kills:
        folder = base / str(number)
        process = started(file, folder)
        time.sleep(span * generator.uniform(0.1, 0.9))
        hits += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert until(lambda leader=process.pid: not group(leader)), "a worker outlives its parent"  # type: ignore[misc]
        if folder.exists():
            assert_whole(folder)
            stages |= {path.name for path in folder.iterdir()}
        if (folder / COMPLETE).exists() or hits == kills:
            finish(file, folder)
            assert bytes_of(folder) == bytes_of(base / "undisturbed")
            assert not [path for path in folder.rglob("*") if ".part" in path.name]
            number += 1
    return stages


def finish(file: Path, folder: Path) -> None:
    with started(file, folder) as process:
        _, err = process.communicate()
    assert process.returncode == 0, err


LONGER = ('seeds = "0-2"', 'seeds = "0-29"')


def finish_here(file: Path, folder: Path) -> None:
    """Run the command in this process: a start costs more than these experiments."""
    assert cli(["run", str(file), "--out", str(folder), "--workers", "1"]) == 0


def has_begun(folder: Path) -> bool:
    """Tell whether some parts are done."""
    return (folder / PARTS).is_dir() and len(list((folder / PARTS).iterdir())) > 1


def test_killed_the_end_is_the_same(tmp_path: Path, small_file: Write) -> None:
    file, folder = small_file(LONGER), tmp_path / "killed"
    with started(file, folder) as process:
        assert until(lambda: has_begun(folder))
        process.kill()
    assert process.returncode == -signal.SIGKILL, "it was too quick"
    assert until(lambda: not group(process.pid)), "a worker outlives its parent"
    assert_whole(folder)
    assert (folder / EXPERIMENT).exists() and not (folder / COMPLETE).exists()
    for each in (folder, tmp_path / "undisturbed"):
        finish_here(file, each)
    assert bytes_of(folder) == bytes_of(tmp_path / "undisturbed")
    assert not [path for path in folder.rglob("*") if ".part" in path.name]


@pytest.mark.slow
def test_killed_at_twenty_random_moments_the_end_is_the_same(tmp_path: Path, small_file: Write) -> None:
    stages = kill_often(small_file(('seeds = "0-2"', 'seeds = "0-79"')), tmp_path, 20, 12)
    assert {PARTS, EXPERIMENT} <= stages


def test_a_second_one_is_refused_and_after_ctrl_c_the_same_command_goes_on(
    tmp_path: Path, small_file: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = small_file(LONGER), tmp_path / "results"
    with started(file, folder) as first:
        try:
            assert until(lambda: has_begun(folder))
            code, refused = cli(["run", str(file), "--out", str(folder), "--workers", "1"]), capsys.readouterr().err
            assert first.poll() is None, "the first one was too quick"
        finally:
            os.killpg(first.pid, signal.SIGINT)  # as a terminal does: the workers hear it too
            _, err = first.communicate()
    assert code == 2
    assert f"results: in use by another gpuyard process ({first.pid})" in refused
    assert "hint" in refused
    assert len(complaints(refused)) == 1
    assert first.returncode == 130
    assert "Traceback" not in err
    assert "finished Runs are kept; the same command resumes" in err
    assert until(lambda: not group(first.pid))
    assert_whole(folder)
    assert not (folder / COMPLETE).exists()
    finish_here(file, folder)
    assert "were there" in capsys.readouterr().err
    assert len(load_results(folder)) == 270


def test_a_program_or_log_that_changes_between_two_calls_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rule, log = tmp_path / "rule.py", tmp_path / "log.csv"
    rule.write_text("def short(jobs, j, now):\n    return jobs.estimate[j]\n")
    log.write_text("submit,runtime,gpus\n" + "".join(f"{10 * k},{50 + k},1\n" for k in range(40)))
    spec = tmp_path / "own.toml"
    spec.write_text(
        'title = "t"\n[axes]\nworkloads = ["log.csv[jobs=20] on 2"]\nschedulers = ["fcfs", "./rule.py:short/fewest/none"]\n'
        'seeds = "0"\nobjectives = ["wait"]\n'
    )
    folder = tmp_path / "out"
    first = run(load_experiment(str(spec)), folder, Here())
    assert (first.runs, run(load_experiment(str(spec)), folder, Here()).done_before) == (2, 2)
    kept = rule.read_text()
    rule.write_text(kept + "# other\n")
    with pytest.raises(UsageError, match="rule.py has changed since the first Run"):
        run(load_experiment(str(spec)), folder, Here())
    rule.write_text(kept)
    log.write_text(log.read_text().replace("50,1", "51,1", 1))
    with pytest.raises(UsageError, match="log.csv has changed since the first Run"):
        run(load_experiment(str(spec)), folder, Here())
