"""Jobs that a warm process forks end as those of fresh processes do, and outlive it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuyard.live.node.running import shim
from gpuyard.live.node.running.attempts import AttemptFiles, Fate, Seen, job_folder
from gpuyard.live.node.running.template import WarmTemplate

SAY = "import json, os, sys; print(json.dumps([sys.argv, os.getcwd(), os.environ['A'], 'colorsys' in sys.modules]))"


def _until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + 30
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.01)


@pytest.fixture
def template(tmp_path: Path) -> Iterator[WarmTemplate]:
    made = WarmTemplate(["colorsys"], tmp_path / "template.log")
    _until(lambda: made.warm)
    yield made
    made.close()


class Launched:
    """One attempt of a job."""

    def __init__(self, template: WarmTemplate, folder: Path, number: int, argv: list[str], attempt: int = 1) -> None:
        self.files = AttemptFiles(job_folder(folder / "jobs", number), attempt)
        values = {
            "argv": argv, "env": ["A=1", f"PATH={os.environ['PATH']}"], "cwd": [str(folder)], "output": ["output.log"],
            "output_limit": ["1000000"], "walltime": ["inf"], "grace": ["5.0"], "cgroup": [""], "umask": ["18"],
        }  # fmt: skip
        self.files.path("spec").write_bytes(shim.spec_bytes(values))
        self.gone = template.launch(self.files.folder, attempt)

    def end(self) -> Seen:
        _until(self.gone)
        return self.files.look()

    @property
    def output(self) -> str:
        return (self.files.folder / "output.log").read_text()


def test_a_program_runs_in_the_warm_process_with_the_environment_of_the_job(template: WarmTemplate, tmp_path: Path) -> None:
    script = tmp_path / "say.py"
    script.write_text(SAY)
    job = Launched(template, tmp_path, 1, [sys.executable, str(script), "x", "y z"])
    seen = job.end()
    assert (seen.fate, seen.record["exit"], seen.record["signal"]) == (Fate.ended, 0, 0)
    assert json.loads(job.output) == [[str(script), "x", "y z"], str(tmp_path), "1", True]


@pytest.mark.parametrize(
    ("code", "status", "number", "said"),
    [
        ("import sys; sys.exit(7)", 7, 0, ""),
        ("import sys; sys.exit('no')", 1, 0, "no\n"),
        ("raise ValueError('bad')", 1, 0, "ValueError: bad"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", None, 15, ""),
        ("print('fine')", 0, 0, "fine\n"),
    ],
)
def test_it_ends_as_a_fresh_process_would(
    template: WarmTemplate, tmp_path: Path, code: str, status: int | None, number: int, said: str
) -> None:
    script = tmp_path / "end.py"
    script.write_text(code)
    job = Launched(template, tmp_path, 1, [sys.executable, str(script)])
    seen = job.end()
    assert (seen.fate, seen.record["exit"], seen.record["signal"]) == (Fate.ended, status, number)
    assert said in job.output


def test_modules_and_other_commands_run_too(template: WarmTemplate, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SAY)
    module = Launched(template, tmp_path, 1, [sys.executable, "-m", "mine", "word"])
    other = Launched(template, tmp_path, 2, ["sh", "-c", "echo $A; exit 3"])
    assert module.end().record["exit"] == 0
    assert json.loads(module.output)[0][1:] == ["word"]
    assert other.end().record["exit"] == 3
    assert other.output == "1\n"


def test_a_job_outlives_the_template_and_later_ones_start_afresh(template: WarmTemplate, tmp_path: Path) -> None:
    script = tmp_path / "wait.py"
    script.write_text("import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\nprint('done')")
    job = Launched(template, tmp_path, 1, [sys.executable, str(script)])
    _until(lambda: bool(job.files.identity()))
    os.kill(template._process.pid, signal.SIGKILL)
    template._process.wait()
    assert job.files.look().fate is Fate.alive
    (tmp_path / "go").touch()
    later = Launched(template, tmp_path, 2, [sys.executable, "-c", "print('colorsys' in __import__('sys').modules)"])
    assert later.end().record["exit"] == 0
    assert later.output == "False\n"
    assert job.end().record["exit"] == 0
    assert job.output == "done\n"


def test_only_one_shim_runs_an_attempt(template: WarmTemplate, tmp_path: Path) -> None:
    script = tmp_path / "wait.py"
    script.write_text("import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\nprint('once')")
    job = Launched(template, tmp_path, 1, [sys.executable, str(script)])
    _until(lambda: bool(job.files.identity()))
    again = template.launch(job.files.folder, 1)
    _until(again)
    (tmp_path / "go").touch()
    assert job.end().record["exit"] == 0
    assert job.output == "once\n"
