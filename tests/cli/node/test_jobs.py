"""The verbs for jobs, against a daemon that runs real processes."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest

from gpuyard.live.node.client import NodeClient
from support.complaints import complaints
from support.nodes import until

SLEEP = ("sleep", "60")


@pytest.fixture
def submitted(cli, node):
    """Submit a command with options, and return its number."""

    def submit(*words: str) -> str:
        code, out, err = cli("submit", *words)
        assert (code, err) == (0, "")
        return out.strip()

    return submit


def state(cli, number: str) -> str:
    return str(json.loads(cli("queue", number, "-f", "json").out)[0]["state"])


def test_a_job_runs_and_its_output_is_shown(cli, submitted):
    number = submitted("--name", "greeting", "--", "sh", "-c", "echo one; echo two; echo three >&2")
    assert cli("logs", "-f", number).out == "one\ntwo\nthree\n"
    assert cli("wait", number) == (0, "", "")
    assert cli("logs", "--tail", "2", number).out == "two\nthree\n"
    assert cli("logs", "--tail", "0", number).out == ""
    assert cli("logs", "--tail", "9", number).out == "one\ntwo\nthree\n"
    path = cli("logs", "--path", number).out.strip()
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert "greeting" in cli("history").out
    found = json.loads(cli("why", number, "-f", "json").out)
    assert (found["id"], found["state"], found["reason"]) == (int(number), "DONE", "it ended with exit code 0")


def test_words_reach_the_command_as_they_are(cli, submitted):
    words = ["a b", "$HOME", "*", "'", "--gpus", "\x1b[31m", "ü"]
    number = submitted("--", "printf", "%s\\n", *words)
    cli("wait", number)
    assert cli("logs", number).out.splitlines() == words
    assert "\x1b" not in cli("queue", number).out + cli("history").out + cli("queue", "--all", "-f", "md").out


def test_names_stay_in_the_folder_of_the_job(cli, submitted, node):
    number = submitted("--name", "../../../evil", "--class", "../x", "--", "true")
    assert cli("wait", number).code == 0
    assert {each.name for each in (node / "jobs").iterdir()} >= {number}
    assert not list(node.parent.glob("**/evil*"))


def test_wait_says_who_is_not_done(cli, submitted):
    good, bad = submitted("--", "true"), submitted("--", "sh", "-c", "exit 3")
    assert cli("wait", good, bad) == (1, "", f"gpuyard: job {bad} is FAILED: exit code 3\n")
    long = submitted("--", *SLEEP)
    code, _, err = cli("wait", "--timeout", "0.1s", long)
    assert code == 1
    assert f"job {long} is" in err
    assert cli("cancel", long, good).err == f"gpuyard: note: job {good} had ended before\n"
    assert cli("wait", long) == (1, "", f"gpuyard: job {long} is KILLED: cancelled\n")


def test_what_failed_is_tried_again(cli, submitted, tmp_path):
    flag = tmp_path / "flag"
    number = submitted("--", "sh", "-c", f"test -e {flag}")
    assert cli("wait", number).code == 1
    flag.touch()
    assert cli("retry", number).out == f"{number}\n"
    assert cli("wait", number).code == 0
    assert cli("retry", number).code == 1  # it is DONE
    assert "Attempt 1: FAILED" in cli("why", number).out


def test_hold_release_and_why(cli, submitted):
    number = submitted("--hold", "--", "true")
    assert "PENDING: it is held." in cli("why", number).out
    assert "it is held" in until(lambda: (found := cli("queue", number).out) and "held" in found and found)
    assert cli("release", number).code == 0
    assert cli("wait", number).code == 0
    assert complaints(cli("hold", number).err) == [f"job {number} is DONE, not PENDING; hint: only jobs that wait can be held or released"]


def test_arrays_and_jobs_that_wait_for_them(cli, submitted):
    numbers = submitted("--array", "1-3%2", "--name", "part", "--", "sh", "-c", "echo $GPUYARD_ARRAY_INDEX; sleep 0.1")
    low, high = map(int, numbers.split("-"))
    assert high == low + 2
    after = submitted("--after", numbers, "--", "true")
    assert cli("wait", after).code == 0
    assert [cli("logs", number).out for number in range(low, high + 1)] == ["1\n", "2\n", "3\n"]
    assert "part [2]" in cli("queue", numbers).out


def test_where_a_job_stands_and_when_it_starts(cli, submitted):
    first = submitted("--cpus", "4", "--estimate", "1m", "--name", "wide", "--", *SLEEP)
    until(lambda: state(cli, first) == "RUNNING")
    second, third = (submitted("--cpus", "4", "--estimate", "1m", "--", *SLEEP) for _ in range(2))
    text = until(lambda: (said := cli("why", third).out) and "1 job is ahead" in said and said)
    assert "It is number 2 in the queue." in text
    assert "four of five such jobs start between" in text
    found = json.loads(cli("why", second, third, "-f", "json").out)
    assert found[0]["start"] < found[1]["start"]
    assert found[1]["earliest"] <= found[1]["start"] <= found[1]["latest"]
    assert cli("queue", "-f", "csv").out.splitlines()[1].startswith(f"{first},")  # what runs stands first
    cli("cancel", f"{first}-{third}")
    assert cli("wait", f"{first}-{third}").code == 1


def test_top_shows_the_command_of_a_job_that_has_just_begun(cli, submitted):
    for _ in range(5):
        number = submitted("--", *SLEEP)
        until(lambda: state(cli, number) != "PENDING")  # noqa: B023
        (process,) = json.loads(cli("top", number, "-f", "json").out)["processes"]
        assert process["command"] == "sleep 60"
        assert "sleep 60" in cli("top", number).out
        cli("cancel", number)
    cli("wait")
    assert cli("top", number).out == f"job {number} is KILLED: it has no processes\n"


def test_begin_and_walltime(cli, submitted):
    number = submitted("--begin", "1h", "--", "true")
    assert "it may start at" in until(lambda: (said := cli("why", number).out) and "begin time" in said and said).lower()
    cli("cancel", number)
    short = submitted("--walltime", "0.2s", "--grace", "1s", "--", *SLEEP)
    assert cli("wait", short) == (1, "", f"gpuyard: job {short} is KILLED: reached its walltime\n")


def test_a_job_knows_its_node_and_its_number(cli, submitted):
    """So it can submit others."""
    number = submitted("--", "sh", "-c", "echo $GPUYARD_NODE $GPUYARD_JOB")
    cli("wait", number)
    assert cli("logs", number).out.split() == [os.environ["GPUYARD_NODE"], number]


def test_requests_that_cannot_be_fulfilled(cli, node):
    told = {
        ("submit", "--gpus", "1", "--", "x"): "this node has no GPU",
        ("submit", "--cpus", "64", "--", "x"): "64 CPU slots: this node has 4",
        ("submit", "--after", "99999", "--", "x"): "there is no job 99999",
        ("submit", "--template", "torch", "--", "x"): "this node has no template 'torch'",
        ("why", "99999"): "there is no job 99999",
        ("cancel", "99999"): "there is no job 99999",
        ("logs", "99999"): "there is no job 99999",
        ("submit", "--signal", "KILL", "x"): "submission: signal = 'KILL' is not one of USR1, USR2, INT, TERM, HUP",
    }
    for arguments, message in told.items():
        code, out, err = cli(*arguments)
        assert code in (1, 2)
        assert out == ""
        assert complaints(err)[0].startswith(message), arguments


def test_formats(cli, submitted):
    number = submitted("--name", "a,b|c", "--", "true")
    cli("wait", number)
    record = json.loads(cli("queue", number, "-f", "json").out)[0]
    assert record["wait"] >= 0
    assert record["start"] <= record["end"] <= time.time() + 1
    assert cli("queue", number, "-f", "csv").out.splitlines()[0].startswith("id,name,state,")
    assert "a,b\\|c" in cli("history", "-n", "1", "-f", "md").out


def test_jobs_are_those_of_the_folder(cli, node, tmp_path):
    with NodeClient(node) as client:
        before = client.call("status")["jobs"]
    assert complaints(cli("queue", "--folder", tmp_path).err) == [f"no node runs in {tmp_path}; hint: gpuyard node start"]
    with NodeClient(node) as client:
        assert client.call("status")["jobs"] == before
