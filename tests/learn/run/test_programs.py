"""A training's folder may come from somebody else: a program that it names is not run unless the user names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuyard.cli.main import run
from gpuyard.errors import UsageError
from gpuyard.learn.run.folder import Folder
from gpuyard.learn.run.plan import TrainingRequest, plan_again, plan_of


def record(program: str) -> dict[str, Any]:
    """Return what a folder says that was trained with an own placement."""
    made = plan_of(TrainingRequest("PickJob", "evolution", ("demo:jobs=60",), sets=("env.placement=first",))).record()
    made["settings"]["env"]["placement"] = program
    return made


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "theirs.py"
    path.write_text(f"open({str(tmp_path / 'it-was-run')!r}, 'w').close()\n\n\ndef rule(nodes, n, jobs, j):\n    return nodes.free[n]\n")
    return f"{path}:rule"


def test_resuming_does_not_run_a_program_that_only_the_folder_names(tmp_path: Path, program: str, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "run"
    folder.mkdir()
    Folder(folder).write_config(record(program))
    assert run(["train", "--resume", "--out", str(folder)]) == 2
    assert "its configuration names a program" in capsys.readouterr().err
    assert not (tmp_path / "it-was-run").exists()


def test_a_program_that_the_user_names_too_is_taken(program: str):
    again = plan_again(record(program), TrainingRequest(sets=(f"env.placement={program}",)), "run")
    assert again.options.placement == program
    with pytest.raises(UsageError, match="names a program"):
        plan_again(record(program), TrainingRequest(sets=("env.placement=./another.py:rule",)), "run")
