"""`gpuyard check`: what is wrong with a policy is found and named."""

from __future__ import annotations

import json

import pytest

from gpuyard.engine.compiler import vetting
from gpuyard.policies import ORDERINGS
from gpuyard.testing import check_file

GOOD = """
import math

def by_area(jobs, j, now, power=2.0):
    return jobs.estimate[j] ** power * jobs.gpus[j]

def waited(jobs, j, now):
    return -math.log1p(now - jobs.submit[j] + 1.0)

def spread(nodes, n, jobs, j, weight=1.5):
    return -nodes.free[n] * weight + nodes.rack[n]

def many(system, now, limit=3.0):
    return 1 if system.waiting > limit else 0

def helper(a, b):
    return a
"""
BAD = {
    "nan": ("return float('nan') if jobs.gpus[j] > 2 else 1.0", "answers", "returns NaN for job"),
    "raises": (
        "if jobs.gpus[j] > 1:\n        raise ValueError('too big')\n    return 1.0",
        "answers",
        "raises ValueError: too big, for job",
    ),
    "domain": ("return math.log(jobs.priority[j])", "answers", "math domain error, for job"),
    "drawn": ("return random.random()", "pure", "mine.py:{line} drawn: asked twice about the same thing"),
    "writes": ("jobs.estimate[j] = 0.0\n    return 1.0", "compiles", "mine.py:{after} writes: does not compile: jobs.estimate can be read"),
    "hidden": ("return jobs.runtime[j]", "compiles", "does not compile"),
    "text": ("return 'a'", "compiles", "does not compile"),
    "overflow": ("return int(jobs.estimate[j] * 1e18) * 1.0", "compiled = interpreted", "interpreted"),
}


@pytest.fixture
def in_this_process(monkeypatch):
    """Check here what the command checks in a process of its own, whose start takes longer than most checks."""
    monkeypatch.setattr(check_file, "_in_a_process", lambda path, wanted, limit: (list(check_file.said_about(path, wanted)), 0))


@pytest.fixture
def findings(cli, tmp_path):
    def check(text, function=""):
        (tmp_path / "mine.py").write_text(text)
        code, out, err = cli("check", f"{tmp_path}/mine.py{function and ':' + function}", "-f", "json")
        return code, json.loads(out) if out else [], err

    return check


def test_good_policies_of_every_kind(findings):
    code, found, err = findings(GOOD)
    assert code == 0
    assert {each["state"] for each in found} <= {"ok", "info"}
    assert {each["policy"] for each in found} == {"by_area", "waited", "spread", "many"}
    assert "helper(a, b): not a policy" in err
    told = {(each["policy"], each["check"]): each["text"] for each in found}
    assert told["by_area", "clock"].startswith("not read")
    assert told["waited", "clock"].startswith("read")
    assert "power=2" in told["by_area", "compiles"]
    assert "× the time of saf" in told["by_area", "speed"]
    assert "× the time of wfp3" in told["waited", "speed"]


@pytest.mark.usefixtures("in_this_process")
def test_one_function(findings):
    code, found, _ = findings(GOOD, "waited")
    assert code == 0
    assert {each["policy"] for each in found} == {"waited"}


@pytest.mark.usefixtures("in_this_process")
def test_bad_policies(findings):
    text = "import math\nimport random\n" + "".join(f"\ndef {name}(jobs, j, now):\n    {body}\n" for name, (body, _, _) in BAD.items())
    code, found, _ = findings(text)
    assert code == 3
    for name, (_, check, told) in BAD.items():
        line = text.splitlines().index(f"def {name}(jobs, j, now):") + 1
        failed = [each for each in found if each["policy"] == name and each["state"] == "failed"]
        assert [each["check"] for each in failed] == [check], name
        assert told.format(line=line, after=line + 1) in failed[0]["text"], name


@pytest.mark.usefixtures("in_this_process")
def test_infinite_keys_are_told_but_allowed(findings):
    code, found, _ = findings("def rule(jobs, j, now):\n    return jobs.walltime[j]\n")
    assert code == 0
    assert next(each for each in found if each["check"] == "finite")["state"] == "info"


@pytest.mark.usefixtures("in_this_process")
def test_a_placement_that_gives_nan(findings):
    code, found, _ = findings("def place(nodes, n, jobs, j):\n    return float('nan') if n == 3 else 0.0\n")
    assert code == 3
    assert "returns NaN for node 3 and job" in found[-1]["text"]


DECIDERS = """
from gpuyard.model.decision import Action, Decision


class Fifo:
    def decide(self, snapshot):
        row = int(snapshot.waiting[0])
        fits = snapshot.jobs.gpus[row] <= snapshot.free_gpus().max() and len(snapshot.running) == 0
        return [Decision(int(snapshot.jobs.index[row]), Action.START)] if fits else []


class Broken:
    def decide(self, snapshot):
        return 1 / 0


class Nothing:
    def decide(self, snapshot):
        return None


class Writes:
    def decide(self, snapshot):
        snapshot.cluster.nodes.gpus[:] = 100
        return []


class Unmade:
    def __init__(self):
        raise ValueError("no")

    def decide(self, snapshot):
        return []
"""


@pytest.mark.usefixtures("in_this_process")
def test_deciders_are_known(findings):
    code, found, _ = findings(DECIDERS)
    assert code == 3
    told = {(each["policy"], each["check"]): (each["state"], each["text"]) for each in found}
    assert {check: state for (name, check), (state, _) in told.items() if name == "Fifo"} == {"simulates": "ok", "repeatable": "ok"}
    assert "mine.py:14 Broken: decide, at 0 s: ZeroDivisionError" in told["Broken", "simulates"][1]
    assert "Nothing: decide returns 'None', not a list of Decision" in told["Nothing", "simulates"][1]
    assert "mine.py:24 Writes: decide, at 0 s: ValueError: assignment destination is read-only" in told["Writes", "simulates"][1]
    assert "mine.py:30 Unmade: cannot be made: ValueError: no" in told["Unmade", "simulates"][1]


def test_an_error_in_a_decider_is_not_called_a_bug_in_gpuyard(cli, tmp_path):
    (tmp_path / "mine.py").write_text(DECIDERS)
    code, _, err = cli("simulate", "demo", "--jobs", 5, "--scheduler", f"{tmp_path}/mine.py:Broken")
    assert code == 1
    assert "mine.py:14 Broken" in err
    assert "bug in gpuyard" not in err


@pytest.mark.usefixtures("in_this_process")
def test_what_gives_no_answer_is_ended(findings, monkeypatch):
    monkeypatch.setattr(vetting, "_LONGEST_CALL", 0.2)
    code, found, _ = findings("def rule(jobs, j, now):\n    while now >= 0:\n        now += 1\n    return now\n")
    assert code == 3
    assert (found[-1]["check"], found[-1]["state"]) == ("answers", "failed")
    assert "no answer within 0.2 s" in found[-1]["text"]


ENDLESS = {
    "no end": ("import time\n\nwhile True:\n    time.sleep(0.1)\n", "3s", "time", "not done within 3 s"),
    "a crash": ("import os\n\nos._exit(7)\n", "5m", "runs", "ends the process: exit code 7"),
}


@pytest.mark.parametrize("text, limit, check, told", ENDLESS.values(), ids=ENDLESS.keys())
def test_what_ends_late_or_too_soon_when_it_is_loaded(cli, tmp_path, text, limit, check, told):
    (tmp_path / "mine.py").write_text(text)
    code, out, _ = cli("check", tmp_path / "mine.py", "--limit", limit, "-f", "json")
    assert code == 3
    last = json.loads(out)[-1]
    assert (last["check"], last["state"]) == (check, "failed")
    assert told in last["text"]


@pytest.mark.usefixtures("in_this_process")
def test_a_registered_policy_is_checked_too(findings, monkeypatch):
    monkeypatch.setattr(ORDERINGS, "_things", dict(ORDERINGS.items()))  # what it registers is forgotten after the test
    text = "from gpuyard import ordering\n\n@ordering('cli-check-test')\ndef mine(jobs, j, now):\n    return jobs.gpus[j]\n"
    assert findings(text)[0] == 0


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("text", "function", "code", "told"),
    [
        ("x = 1\n", "", 1, "no policy in the file"),
        ("def rule(:\n", "", 1, "cannot be loaded: SyntaxError"),
        ("raise SystemError('no')\n", "", 1, "cannot be loaded: SystemError"),
        (GOOD, "by_are", 2, "did you mean 'by_area'?"),
        ("def rule(jobs, j, now, size='a'):\n    return 1.0\n", "", 3, ""),
    ],
)
def test_files_that_cannot_be_checked(findings, text, function, code, told):
    found_code, _, err = findings(text, function)
    assert found_code == code
    assert told in err


def test_a_file_that_is_not_there(cli, tmp_path):
    code, out, err = cli("check", tmp_path / "absent.py")
    assert (code, out) == (1, "")
    assert "no such policy file" in err
