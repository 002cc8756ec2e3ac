"""The words of `submit`: numbers of jobs, arrays, times, the environment, and what is loaded to read them."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from dataclasses import fields
from datetime import datetime
from pathlib import Path

import pytest

from gpuyard.cli.node.asked import OPTIONS, array_numbers, id_numbers, instant, plain_words, submission
from gpuyard.errors import UsageError
from gpuyard.live.node.jobs import Submission
from gpuyard.model.site.notation import ranges_text
from support.complaints import complaints

HERE = {"PATH": "/bin", "HOME": "/root", "SECRET": "1", "GPUYARD_JOB": "3"}


def asked(*words: str) -> Submission:
    split = plain_words(words)
    assert split is not None
    return submission(*split, HERE)


@pytest.mark.parametrize(("texts", "numbers"), [(["12"], [12]), (["12-14", "20"], [12, 13, 14, 20]), (["3,1-2", "2"], [3, 1, 2]), ([], [])])
def test_numbers_of_jobs(texts, numbers):
    assert id_numbers(texts) == numbers
    assert id_numbers([ranges_text(numbers)] if numbers else []) == numbers


@pytest.mark.parametrize("text", ["", "x", "1-", "-3", "5-4", "1.5", "1--2", "1-9999999", "٣x", "1" * 40])
def test_what_is_no_number_of_a_job(text):
    with pytest.raises(UsageError):
        id_numbers([text])


@pytest.mark.parametrize(
    ("text", "found"),
    [("1-4", ((1, 2, 3, 4), 0)), ("0-9:3%2", ((0, 3, 6, 9), 2)), ("7", ((7,), 0)), ("1,5-6%1", ((1, 5, 6), 1))],
)
def test_arrays(text, found):
    assert array_numbers(text) == found


@pytest.mark.parametrize("text", ["", "%4", "1-4%0", "1-4%", "4-1", "1,1", "a", "1-3:0", "0-100000", "1-1000000000000000000"])
def test_what_is_no_array(text):
    with pytest.raises(UsageError, match="--array"):
        array_numbers(text)


def test_times_of_day_dates_and_spans():
    now = time.time()
    assert instant("2h") == pytest.approx(now + 7200, abs=30)
    assert instant("+90s") == pytest.approx(now + 90, abs=30)
    assert instant("2026-11-20T08:00") == datetime(2026, 11, 20, 8, 0).timestamp()
    assert now - 1 <= instant("16:30") <= now + 86_400 + 3_600
    for text in ("2026-13-01", "25:00", "soon", "2026-11-20T99:00"):
        with pytest.raises(UsageError):
            instant(text)


def test_every_field_of_a_submission_is_an_option():
    made_otherwise = {"command", "array_limit"}
    assert {each.name for each in fields(Submission)} - made_otherwise == {each.field for each in OPTIONS} - {"folder"}


def test_all_options(tmp_path: Path):
    words = (
        "--gpus 0.5 --gpu-memory 20GB --cpus 2 --memory 8GB --walltime 2h --estimate 1h --priority -2 --after 3-4 --after 9 --after-any 5"
        " --hold --array 1-3%2 --name run --class lm --retry 2 --requeue-lost --preemptible --checkpoint 10m --signal sigusr2 --grace 1m"
        f" --output-limit 1MB --template torch --cwd {tmp_path} -- python -c pass --gpus"
    )
    found = asked(*words.split())
    assert found == Submission(
        ("python", "-c", "pass", "--gpus"), cwd=str(tmp_path), env={"PATH": "/bin", "HOME": "/root", "SECRET": "1"}, name="run", gpus=0.5,
        gpu_memory=20.0, cpus=2.0, memory=8.0, walltime=7200.0, estimate=3600.0, priority=-2.0, after=(3, 4, 9), after_any=(5,),
        array=(1, 2, 3), array_limit=2, retry=2, requeue_lost=True, held=True, preemptible=True, checkpoint=600.0, signal="USR2",
        grace=60.0, output_limit=1_000_000, job_class="lm", template="torch",
    )  # fmt: skip


def test_few_words_and_the_usual():
    found = asked("sleep", "1")
    assert (found.command, found.gpus, found.walltime, found.cwd) == (("sleep", "1"), -1.0, math.inf, str(Path.cwd()))
    assert asked("--name=a=b", "--", "--odd").name == "a=b"


def test_the_environment_can_be_named():
    assert asked("--env", "SECRET", "x").env == {"PATH": "/bin", "HOME": "/root", "SECRET": "1"}
    assert asked("--env", "HOME", "x").env == {"PATH": "/bin", "HOME": "/root"}
    assert asked("--env", "A=b=c", "x").env == {"PATH": "/bin", "HOME": "/root", "SECRET": "1", "A": "b=c"}
    with pytest.raises(UsageError, match="there is no such variable"):
        asked("--env", "LACKING", "x")


@pytest.mark.parametrize(
    "words", [[], ["--help"], ["-v", "x"], ["--gpus"], ["--gpus", "1"], ["--nope", "1", "x"], ["--hold=1", "x"], ["--"]]
)
def test_words_that_are_left_to_the_parser(words):
    assert plain_words(words) is None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["submit"], "missing argument COMMAND; hint: e.g. gpuyard submit -- python train.py"),
        (["submit", "--gpu", "1", "--", "x"], "no such option: --gpu; hint: did you mean --gpus?"),
        (["submit", "--walltime", "ages", "x"], "--walltime: 'ages' is not a time; hint: write 90, 90s, 2h, 1d12h, 1:30:00 or 1-00:00:00"),
        (["submit", "--cpus", "two", "x"], "--cpus: 'two' is not a number"),
        (["cancel", "x"], "'x' is not the number of a job; hint: e.g. 12, 12-20 or 12,15"),
        (["retry"], "which jobs? Give their numbers, or --failed; hint: e.g. gpuyard retry 12-20, or gpuyard retry --failed"),
    ],
)  # fmt: skip
def test_wrong_words_are_told_with_a_hint(cli, place, arguments, told):
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert complaints(err) == [told]


def test_submit_loads_nothing_of_weight(node):
    """A shell loop that submits a thousand jobs should not take minutes."""
    code = """
import sys
from gpuyard.cli.main import run
code = run(["submit", "--cpus", "1", "--walltime", "1m", "--", "true"])
heavy = {"numpy", "numba", "rich", "typer", "click", "polars", "asyncio", "argparse", "hashlib", "http"} & set(sys.modules)
assert not heavy, heavy
mine = sorted(name for name in sys.modules if name.startswith("gpuyard."))
assert len(mine) <= 16, mine
sys.exit(code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip().isdecimal()
