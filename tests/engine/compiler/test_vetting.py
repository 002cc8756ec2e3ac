"""A user's policy can read what it is shown and do nothing else: each way around it is refused with file and line."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard.engine.compiler import vetting
from gpuyard.engine.compiler.compile import compile_keys, compile_scores, compile_switch
from gpuyard.engine.compiler.shown import JOBS, SYSTEM, Shown, job_parts
from gpuyard.engine.compiler.vetting import try_out
from gpuyard.engine.state import SYSTEM_ROW, VISIBLE_ROW
from gpuyard.errors import PolicyError

HEAD = """import ctypes
import math
import numba
import numpy as np
from numba import carray, njit, objmode, vectorize
from numba.extending import intrinsic
from numpy.lib.stride_tricks import as_strided
cosine = ctypes.CDLL(None).abs
TABLE = (carray,)
"""
HELPERS = """
def ping(x):
    return pong(x)


def pong(x):
    return ping(x) + 1.0


@njit
def zeroed(jobs, j):
    jobs.estimate[j] = 0.0
    return 1.0


def reaching(x):
    return carray(x, 3)[0]


@intrinsic
def raw(typing, x):
    return x(x), lambda context, builder, sig, args: args[0]


@vectorize
def twice(x):
    return 2 * x
"""
READ_ONLY = "cannot be changed"
REFUSED = {
    "a write": ("jobs.estimate[j] = 0.0\n    return 1.0", READ_ONLY),
    "a write through another name": ("x = jobs.estimate; x[j] = 0.0\n    return 1.0", READ_ONLY),
    "an addition in place": ("jobs.estimate[j] += 1.0\n    return 1.0", READ_ONLY),
    "a write to a slice": ("jobs.estimate[0:3] = 0.0\n    return 1.0", READ_ONLY),
    "a slice": ("return jobs.estimate[0:3][0]", READ_ONLY),
    "sorting in place": ("jobs.estimate.sort()\n    return 1.0", READ_ONLY),
    "an output argument": ("np.add(jobs.estimate, 1.0, jobs.estimate)\n    return 1.0", READ_ONLY),
    "a new column": ("jobs.estimate = jobs.submit\n    return 1.0", READ_ONLY),
    "a record": ("jobs[j].estimate = 0.0\n    return 1.0", READ_ONLY),
    "a write in a helper": ("return zeroed(jobs, j)", READ_ONLY),
    "a whole column": ("return np.max(jobs.estimate)", READ_ONLY),
    "a view of the table": ("return jobs.view(np.float64)[9]", ".view is not for policies"),
    "a view of a column": ("return jobs.estimate.view(np.int64)[j]", ".view is not for policies"),
    "the address": ("return jobs.estimate.ctypes.data * 1.0", ".ctypes is not for policies"),
    "the array behind a column": ("return jobs.estimate.base.runtime[j]", ".base is not for policies"),
    "a private attribute": ("return jobs._rows.runtime[j]", "._rows is not for policies"),
    "recursion": ("return rule(jobs, j, now) + 1.0", "rule calls itself"),
    "recursion through helpers": ("return ping(jobs.estimate[j])", "ping calls itself"),
    "Python inside": ("with objmode(x='float64'):\n        x = 1.0\n    return x", "of numba is not for policies"),
    "an array from a pointer": ("return carray(jobs.estimate, 3)[0]", "carray of numba is not for policies"),
    "an array from a pointer by its full name": ("return numba.carray(jobs.estimate, 3)[0]", "carray of numba is not for policies"),
    "an array from a pointer in a helper": ("return reaching(jobs.estimate)", "carray of numba is not for policies"),
    "an array from a pointer in a tuple": ("return TABLE[0](jobs.estimate, 3)[0]", "carray of numba is not for policies"),
    "an intrinsic": ("return raw(jobs.estimate[j])", "of numba is not for policies"),
    "a ufunc of numba": ("return twice(jobs.estimate[j])", "of numba is not for policies"),
    "a C function": ("return cosine(3)", "of ctypes is not for policies"),
    "strides": ("return as_strided(np.zeros(3), (10**9,), (8,))[j]", "as_strided is not for policies"),
    "strides by their full name": ("return np.lib.stride_tricks.as_strided(np.zeros(3), (9,), (8,))[j]", "as_strided is not for policies"),
}


def load(folder: Path, text: str) -> Any:
    path = folder / "mine.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("mine", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("body, told", REFUSED.values(), ids=REFUSED.keys())
def test_what_reaches_beyond_the_columns_is_refused_at_its_line(tmp_path: Path, body: str, told: str):
    text = f"{HEAD}{HELPERS}\n\ndef rule(jobs, j, now):\n    {body}\n"
    with pytest.raises(PolicyError) as refusal:
        compile_keys(load(tmp_path, text).rule, 0)
    message = str(refusal.value)
    assert told in message
    place, line = message.split()[0].rsplit(":", 1)
    assert place == str(tmp_path / "mine.py")
    assert text.splitlines()[int(line) - 1].startswith("    ")  # in a function, not at its head
    assert "\n" not in message


OTHERS = """
def place(nodes, n, jobs, j):
    nodes.free[n] = 8
    return 0.0


def swap(system, now):
    system.waiting = 0
    return 0
"""
ALLOWED = """
def rule(jobs, j, now):
    total = 0.0
    for k in numba.prange(len(jobs.estimate)):
        total += jobs.estimate[k]
    return total / len(jobs) + math.log(np.maximum(now, 1.0))
"""


def test_placements_and_switch_rules_cannot_write_either(tmp_path: Path):
    module = load(tmp_path, OTHERS)
    with pytest.raises(PolicyError, match=r"mine\.py:3 place: .*nodes\.free .*cannot be changed"):
        compile_scores(module.place, 0)
    with pytest.raises(PolicyError, match=r"mine\.py:8 swap: \.waiting = .*cannot be changed"):
        compile_switch(module.swap, 0)


def test_what_policies_need_is_allowed(tmp_path: Path):
    assert compile_keys(load(tmp_path, HEAD + ALLOWED).rule, 0) != 0


# ── trying it out ──


def test_a_policy_that_answers_at_random_is_refused_before_its_first_use(tmp_path: Path):
    module = load(tmp_path, "import numpy as np\n\n\ndef rule(jobs, j, now):\n    return np.random.random()\n")
    with pytest.raises(PolicyError, match=r"mine\.py:4 rule: asked twice about the same thing"):
        try_out(module.rule, 3)


@pytest.mark.parametrize("arguments, head", [(3, "jobs, j, now"), (4, "nodes, n, jobs, j"), (2, "system, now")])
def test_a_loop_without_an_end_is_refused_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: int, head: str):
    monkeypatch.setattr(vetting, "_LONGEST_CALL", 0.05)
    module = load(tmp_path, f"def rule({head}):\n    x = 1.0\n    while x > 0:\n        x += 1.0\n    return x\n")
    with pytest.raises(PolicyError, match=r"mine\.py:[34] rule: no answer within"):
        try_out(module.rule, arguments)


def test_an_error_in_the_trial_is_left_to_the_engine(tmp_path: Path):
    module = load(tmp_path, "import math\n\n\ndef rule(jobs, j, now):\n    return math.log(-1.0)\n")
    try_out(module.rule, 3)  # compiled code gives NaN there, and the engine names the job


# ── interpreted ──


def test_interpreted_columns_are_read_only_too():
    rows = np.zeros(3, VISIBLE_ROW)
    jobs, system = Shown(JOBS, *job_parts(rows)), Shown(SYSTEM, np.zeros(1, SYSTEM_ROW))
    assert jobs.estimate[2] == 0.0
    assert len(jobs) == len(jobs.estimate) == 3
    assert system.waiting == 0.0
    with pytest.raises(PolicyError, match=r"jobs\.estimate is read-only"):
        jobs.estimate[1] = 2.0
    with pytest.raises(PolicyError, match="read-only"):
        jobs.estimate = rows["submit"]
    with pytest.raises(PolicyError, match="read-only"):
        system.waiting = 1.0
    with pytest.raises(PolicyError, match="'runtime'"):
        _ = jobs.runtime
    with pytest.raises(PolicyError, match=r"jobs\.estimate\.sort is not for policies"):
        jobs.estimate.sort()


@pytest.mark.parametrize("row", [3, -1, 10**9])
def test_a_row_that_is_not_there_is_an_error(row: int):
    with pytest.raises(IndexError, match="there are 3 rows"):
        _ = Shown(JOBS, *job_parts(np.zeros(3, VISIBLE_ROW))).estimate[row]
