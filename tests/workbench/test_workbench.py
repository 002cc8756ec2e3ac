"""Jobs of the workbench learn something, and go on after an interruption as if there had been none."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard.errors import CheckpointError, UsageError
from gpuyard.networks.tensor_file import write_arrays
from gpuyard.workbench.__main__ import main, request_of
from gpuyard.workbench.task import KINDS, TaskRequest, installed, library_for, make_task
from gpuyard.workbench.work import STOPPING, work

TRAINING = [
    pytest.param(library, kind, marks=[pytest.mark.slow] * (kind != "lm")) for library in ("jax", "torch") for kind in ("lm", "cnn", "vit")
]


def _work(*words: str) -> dict[str, Any]:
    return work(request_of(words))


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "gpuyard.workbench", *words]


@pytest.mark.parametrize(("library", "kind"), TRAINING)
def test_training_learns_and_resumes_where_it_was(library: str, kind: str) -> None:
    if not installed(library):
        pytest.skip(f"{library} is not installed")
    asked = TaskRequest(kind, library, "cpu", seed=3)
    whole, first, second = (make_task(asked)[0] for _ in range(3))
    losses = []
    for number in range(40):
        whole.step(number)
        losses.append(whole.settle())
    assert np.mean(losses[-5:]) < 0.8 * losses[0]
    for number in range(20):
        first.step(number)
    second.restore(first.arrays())
    for number in range(20, 40):
        second.step(number)
    assert second.settle() == pytest.approx(losses[-1], rel=1e-3)
    assert {name: value.shape for name, value in second.arrays().items()} == {name: value.shape for name, value in whole.arrays().items()}


def test_fine_tuning_leaves_the_lower_half_alone() -> None:
    library = library_for("lm", "auto")
    task = make_task(TaskRequest("lm", library, "cpu"))[0]
    before = task.arrays()
    task.step(0)
    task.settle()
    after = task.arrays()
    assert not any("block0." in name or "tokens" in name for name in after) or library == "torch"
    lower = [name for name in before if "blocks.0." in name or "tokens" in name]
    upper = [name for name in before if "blocks.1.dense.0.weight" in name or name == "weights.block1.up.weight"]
    assert upper
    assert all(np.array_equal(before[name], after[name]) for name in lower)
    assert all(not np.array_equal(before[name], after[name]) for name in upper if name.startswith(("model", "weights")))


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_saves_the_state_and_ends_the_process_by_it(number: signal.Signals, tmp_path: Path) -> None:
    place, whole = tmp_path / "state", tmp_path / "whole"
    words = ("etl", "--library", "numpy", "--seed", "5")
    job = subprocess.Popen(
        _command(*words, "--seconds", "600", "--every", "0.01", "--checkpoint", str(place)), stdout=subprocess.PIPE, text=True
    )
    try:
        until = time.monotonic() + 60
        while not place.exists() and time.monotonic() < until:
            time.sleep(0.01)
        job.send_signal(number)
        said, _ = job.communicate(timeout=60)
    finally:
        job.kill()
    assert job.returncode == -number
    stopped = json.loads(said)
    assert not stopped["finished"]
    steps = str(stopped["steps"] + 30)
    resumed = _work(*words, "--steps", steps, "--checkpoint", str(place))
    assert resumed["resumed_at"] == stopped["steps"]
    assert resumed["last"] == _work(*words, "--steps", steps, "--checkpoint", str(whole))["last"]


def test_one_line_of_json_says_what_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["etl", "--library", "numpy", "--steps", "9"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["steps"] == 9
    assert facts["device"] == "cpu"
    assert facts["finished"]
    assert facts["seconds"] > 0


def test_work_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    words = ("etl", "--library", "numpy", "--steps", "5", "--checkpoint", str(tmp_path / "state"))
    first = _work(*words)
    assert _work(*words)["last"] == first["last"]
    assert _work(*words)["steps"] == 5


def test_a_checkpoint_of_version_1_is_opened(tmp_path: Path) -> None:
    """As that version wrote it; whoever makes version 2 keeps opening it."""
    request = request_of(["etl", "--library", "numpy", "--steps", "4", "--checkpoint", str(tmp_path / "state")])
    task = make_task(request.task)[0]
    for number in range(2):
        task.step(number)
    about = {"format": "gpuyard-workbench", "version": 1, "kind": "etl", "library": "numpy", "scale": request.task.scale, "seed": 0,
             "steps": 2, "seconds": 1.5, "first": "2.5", "last": repr(task.settle())}  # fmt: skip
    assert request.checkpoint is not None
    write_arrays(request.checkpoint, task.arrays(), {"gpuyard": json.dumps(about)})
    found = work(request)
    assert (found["resumed_at"], found["steps"], found["first"]) == (2, 4, 2.5)
    assert found["last"] == _work("etl", "--library", "numpy", "--steps", "4")["last"]


def test_a_checkpoint_of_other_work_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "state"
    _work("etl", "--library", "numpy", "--steps", "2", "--checkpoint", str(place))
    with pytest.raises(CheckpointError, match="seed is not 1"):
        _work("etl", "--library", "numpy", "--steps", "4", "--seed", "1", "--checkpoint", str(place))
    place.write_bytes(b"\x80\x04\x95 a pickle")
    assert main(["etl", "--library", "numpy", "--steps", "4", "--checkpoint", str(place)]) == 1
    assert "not a safetensors file" in capsys.readouterr().err
    write_arrays(place, {"x": np.zeros(3)}, {"gpuyard": '{"format": "gpuyard-workbench", "version": 99}'})
    with pytest.raises(CheckpointError, match="another version"):
        _work("etl", "--library", "numpy", "--steps", "4", "--checkpoint", str(place))


def test_wrong_requests_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["etl"]) == 2
    assert "--steps N or --seconds S" in capsys.readouterr().err
    with pytest.raises(UsageError, match="numpy has no lm"):
        library_for("lm", "numpy")
    with pytest.raises(UsageError, match="numpy does not use a GPU"):
        make_task(TaskRequest("etl", "numpy", "gpu"))
    with pytest.raises(UsageError, match="unknown library"):
        library_for("lm", "tensorflow")
    assert all(library_for(kind, "auto") for kind in KINDS)


def test_the_table_agrees_with_a_slow_sum() -> None:
    from gpuyard.workbench.data import BEST, CUSTOMERS, price_list, sales

    task = make_task(TaskRequest("etl", "numpy", "cpu", seed=2))[0]
    task.step(0)
    prices, totals = price_list(2), [0.0] * CUSTOMERS
    for customer, item, _, amount in zip(*(each.tolist() for each in sales(2, 0, 50_000)), strict=True):
        if amount > 1:
            totals[customer] += amount * prices[item]
    assert task.settle() == pytest.approx(sum(sorted(totals)[-BEST:]))
    assert task.arrays()["customers"].sum() == pytest.approx(sum(totals))
