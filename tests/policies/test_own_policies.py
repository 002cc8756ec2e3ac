"""Policies from a user's own file: compiled, with parameters, and refused in one clear line where they are of no use."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from gpuyard import Workload, simulate
from gpuyard.errors import GpuyardError, PolicyError, UsageError
from gpuyard.model.cluster import Cluster
from gpuyard.policies import (
    Meta,
    parse_ordering,
    parse_placement,
    parse_preemption,
    parse_scheduler,
    parse_switch,
)
from gpuyard.testing.conformance import compare_with_reference
from gpuyard.testing.strategies import random_case

GOOD = '''
import math
import numpy as np

BASE = 2.0


def helper(x, y):
    return math.log(x + BASE) + y


def area(jobs, j, now, power=1.0, shift=0.0):
    """Work to a power."""
    return (jobs.estimate[j] * jobs.gpus[j]) ** power + shift


def plain(jobs, j, now):
    return helper(jobs.estimate[j], jobs.gpus[j])


def waited(jobs, j, now):
    return -(now - jobs.submit[j])


def told(jobs, j, now):
    return helper(now - jobs.submit[j], 1.0)


def nested(jobs, j, now):
    def age(k):
        return now - jobs.submit[k]

    return -age(j)


def named(jobs, j, t):
    return -(t - jobs.submit[j]) if jobs.gpus[j] > 1 else 0.0


def spread(nodes, n, jobs, j, tight=1.0):
    return tight * nodes.free[n] - nodes.speed[n]


def younger(jobs, j, now, slack=5.0):
    return -np.floor(jobs.submit[j] / slack)


def crowd(system, now, most=3.0):
    return 1 if system.waiting > most else 0
'''
_numbers = itertools.count()


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(GOOD)
    return str(path)


def write(folder: Path, text: str) -> str:
    path = folder / f"policy_{next(_numbers)}.py"
    path.write_text(text)
    return str(path)


def congested(n: int = 60) -> Workload:
    rng = np.random.default_rng(1)
    columns = {"submit": np.sort(rng.uniform(0, 100, n)), "gpus": rng.integers(1, 5, n), "estimate": rng.uniform(1, 50, n)}
    return Workload.build(columns, rng.uniform(1, 50, n))


CLUSTER = Cluster.uniform(3, 4)


# --- what works -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["area", "plain", "waited", "told", "nested", "named"])
def test_an_ordering_does_as_in_the_reference(mine: str, rule: str):
    scheduler = parse_scheduler(f"{mine}:{rule}/best/easy")
    for seed in range(8):
        assert compare_with_reference(random_case(seed), scheduler, simulate, seed=seed) == []


def test_the_other_slots_do_as_in_the_reference(mine: str):
    scheduler = parse_scheduler(f"{mine}:area:power=0.5/{mine}:spread:tight=-1/skip/{mine}:younger:slack=20")
    meta = Meta((scheduler, parse_scheduler("sjf/first/easy")), parse_switch(f"{mine}:crowd:most=2"))  # type: ignore[arg-type]
    for seed in range(8):
        for made in (scheduler, meta):
            assert compare_with_reference(random_case(seed), made, simulate, seed=seed) == []


def test_a_rule_equal_to_a_built_in_one_gives_the_same_bytes(mine: str):
    workload = congested()
    ours = simulate(workload, CLUSTER, parse_scheduler(f"{mine}:area/best/easy"), segments=True)
    assert ours.same_bytes(simulate(workload, CLUSTER, parse_scheduler("saf/best/easy"), segments=True))


def test_parameters_reach_the_compiled_rule(mine: str):
    workload = congested()
    largest = simulate(workload, CLUSTER, parse_scheduler(f"{mine}:area:power=-1"))
    smallest = simulate(workload, CLUSTER, parse_scheduler(f"{mine}:area:power=1"))
    shifted = simulate(workload, CLUSTER, parse_scheduler(f"{mine}:area:shift=1000,power=1"))
    assert not np.array_equal(largest.table["start"], smallest.table["start"])
    assert np.array_equal(shifted.table["start"], smallest.table["start"])
    assert dict(parse_ordering(f"{mine}:area:power=2").params) == {"power": 2.0, "shift": 0.0}


CLOCK = {"area": False, "plain": False, "waited": True, "told": True, "nested": True, "named": True}


@pytest.mark.parametrize("rule, reads", CLOCK.items())
def test_whether_an_ordering_reads_the_clock(mine: str, rule: str, reads: bool):
    assert parse_ordering(f"{mine}:{rule}").reads_clock is reads


def test_usage_read_by_a_helper_that_numba_has_compiled(tmp_path: Path):
    """The helper was not looked into: usage was not kept, and the rule read zeros."""
    text = (
        "from numba import njit\n@njit\ndef used(jobs, j):\n    return jobs.usage[j]\ndef rule(jobs, j, now):\n    return used(jobs, j)\n"
    )
    assert parse_ordering(f"{write(tmp_path, text)}:rule").reads_clock is True


def test_the_clock_behind_a_default_argument_is_not_the_clock(tmp_path: Path):
    path = write(tmp_path, "def rule(jobs, j, now, late=3.0):\n    return jobs.submit[j] * late\n")
    assert parse_ordering(f"{path}:rule").reads_clock is False
    path = write(tmp_path, "def rule(jobs, j, now, late=3.0):\n    late = late + now\n    return late\n")
    assert parse_ordering(f"{path}:rule").reads_clock is True


def test_a_rule_written_anew_under_the_same_name_in_another_file(tmp_path: Path):
    first = write(tmp_path, "def rule(jobs, j, now):\n    return jobs.submit[j]\n")
    second = write(tmp_path, "def rule(jobs, j, now):\n    return -jobs.submit[j]\n")
    results = [simulate(congested(), CLUSTER, parse_scheduler(f"{path}:rule")) for path in (first, second)]
    assert not results[0].same_bytes(results[1])


def test_a_rule_that_numba_has_compiled_already(tmp_path: Path):
    path = write(tmp_path, "from numba import njit\n@njit\ndef rule(jobs, j, now):\n    return -jobs.submit[j]\n")
    ours = simulate(congested(), CLUSTER, parse_scheduler(f"{path}:rule"), segments=True)
    assert ours.same_bytes(simulate(congested(), CLUSTER, parse_scheduler("lcfs"), segments=True))


def test_helpers_that_call_helpers(tmp_path: Path):
    text = """
from math import sqrt
from numba import njit


def third(x):
    return sqrt(x) + OFFSET


@njit
def other(x):
    return 2.0 * x


def second(x):
    return third(x) + other(x) + (second_constant() if x > 1 else 0.0)


def second_constant():
    return 1.0


def rule(jobs, j, now):
    return second(jobs.estimate[j])


OFFSET = 4.0
"""
    ours = simulate(congested(), CLUSTER, parse_scheduler(f"{write(tmp_path, text)}:rule"), segments=True)
    assert ours.same_bytes(simulate(congested(), CLUSTER, parse_scheduler("sjf"), segments=True))


# --- what does not, each in one clear line ---------------------------------------------------------------------------------

BROKEN = {
    "no such file": ("", "def rule(jobs, j, now): return 0.0", "./not_there.py:rule", "not_there.py"),
    "a folder": ("", "", "..py:rule", ""),
    "syntax error": ("f", "def rule(jobs, j, now) return 0\n", "rule", "SyntaxError"),
    "fails when loaded": ("f", "1 / 0\n", "rule", "ZeroDivisionError"),
    "imports what is not there": ("f", "import nothing_of_that_name\n", "rule", "nothing_of_that_name"),
    "leaves when loaded": ("f", "import sys\nsys.exit(3)\n", "rule", "SystemExit"),
    "near name": ("f", "def shortest(jobs, j, now):\n    return 0.0\n", "shortes", "did you mean 'shortest'"),
    "no function at all": ("f", "x = 3\n", "rule", "rule"),
    "not a function": ("f", "rule = 3\n", "rule", "rule"),
    "a class": ("f", "class Rule:\n    def __init__(self, jobs, j, now):\n        pass\n", "Rule", "Rule"),
    "a function in C": ("f", "from operator import setitem\n", "setitem", "setitem"),
    "a ufunc": ("f", "from numpy import divmod\n", "divmod", "divmod"),
    "too few arguments": ("f", "def rule(jobs, j):\n    return 0.0\n", "rule", "3 are given"),
    "no arguments": ("f", "def rule():\n    return 0.0\n", "rule", "3 are given"),
    "a parameter without default": ("f", "def rule(jobs, j, now, x):\n    return 0.0\n", "rule", "'x'"),
    "a parameter that is no number": ("f", "def rule(jobs, j, now, x='a'):\n    return 0.0\n", "rule", "'x'"),
    "too many parameters": (
        "f",
        "def rule(jobs, j, now, a=1, b=1, c=1, d=1, e=1, f=1, g=1, h=1, i=1):\n    return 0.0\n",
        "rule",
        "9 parameters",
    ),
    "unknown parameter": ("f", "def rule(jobs, j, now, power=1.0):\n    return power\n", "rule:powr=2", "did you mean 'power'"),
    "parameter without a number": ("f", "def rule(jobs, j, now, power=1.0):\n    return power\n", "rule:power=much", "power=much"),
    "hidden column": ("f", "def rule(jobs, j, now):\n    return jobs.runtime[j]\n", "rule", "runtime"),
    "unknown column": ("f", "def rule(jobs, j, now):\n    return jobs.colour[j]\n", "rule", "colour"),
    "unknown name": ("f", "def rule(jobs, j, now):\n    return undefined_thing\n", "rule", "undefined_thing"),
    "text instead of a number": ("f", "def rule(jobs, j, now):\n    return 'first'\n", "rule", "does not return a number"),
    "nothing returned": ("f", "def rule(jobs, j, now):\n    pass\n", "rule", "does not"),
    "needs Python": ("f", "def rule(jobs, j, now):\n    return float(open('x').read())\n", "rule", "does not compile"),
    "a generator": ("f", "def rule(jobs, j, now):\n    yield 1.0\n", "rule", "does not compile"),
    "async": ("f", "async def rule(jobs, j, now):\n    return 1.0\n", "rule", "rule"),
    "returns NaN": ("f", "def rule(jobs, j, now):\n    return jobs.gpus[j] * float('nan')\n", "rule", "NaN"),
    "raises": ("f", "def rule(jobs, j, now):\n    raise ValueError('no')\n", "rule", "number"),
    "raises for some": (
        "f",
        "def rule(jobs, j, now):\n    if jobs.gpus[j] > 3:\n        raise ValueError('no')\n    return 0.0\n",
        "rule",
        "raised an error or returned NaN for job",
    ),
}


@pytest.mark.parametrize("kind, text, rule, words", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_ordering_gives_one_clear_error(tmp_path: Path, kind: str, text: str, rule: str, words: str):
    spec = f"{write(tmp_path, text)}:{rule}" if kind else rule
    with pytest.raises(GpuyardError) as refusal:
        simulate(congested(), CLUSTER, parse_scheduler(spec))
    assert isinstance(refusal.value, (PolicyError, UsageError))
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 700


OTHERS = {
    "placement NaN": ("placement", "def rule(nodes, n, jobs, j):\n    return nodes.free[n] * float('nan')\n", "placement"),
    "placement raises": ("placement", "def rule(nodes, n, jobs, j):\n    raise ValueError('no')\n", "number"),
    "placement of an ordering's shape": ("placement", "def rule(jobs, j, now):\n    return 0.0\n", "4 are given"),
    "placement column": ("placement", "def rule(nodes, n, jobs, j):\n    return nodes.colour[n]\n", "colour"),
    "preemption NaN": ("preemption", "def rule(jobs, j, now):\n    return float('nan')\n", "preemption"),
    "preemption NaN of running jobs": (
        "preemption",
        "def rule(jobs, j, now):\n    return float('nan') if jobs.start[j] >= 0 else 0.0\n",
        "preemption",
    ),
    "preemption raises": ("preemption", "def rule(jobs, j, now):\n    raise ValueError('no')\n", "number"),
    "preemption column": ("preemption", "def rule(jobs, j, now):\n    return jobs.end[j]\n", "end"),
}


@pytest.mark.parametrize("slot, text, words", OTHERS.values(), ids=OTHERS.keys())
def test_broken_policies_of_other_slots(tmp_path: Path, slot: str, text: str, words: str):
    path = write(tmp_path, text)
    spec = {"placement": f"fcfs/{path}:rule", "preemption": f"fcfs/best/none/{path}:rule"}[slot]
    with pytest.raises(PolicyError) as refusal:
        simulate(congested(), CLUSTER, parse_scheduler(spec))
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


SWITCHES_BROKEN = {
    "no such scheduler": "return 2",
    "negative": "return -1",
    "NaN": "return float('nan')",
    "raises": "raise ValueError('no')",
    "unknown field": "return system.colour",
    "text": "return 'first'",
}


@pytest.mark.parametrize("body", SWITCHES_BROKEN.values(), ids=SWITCHES_BROKEN.keys())
def test_broken_switch_rules(tmp_path: Path, body: str):
    rule = parse_switch(f"{write(tmp_path, f'def rule(system, now):{chr(10)}    {body}{chr(10)}')}:rule")
    with pytest.raises(PolicyError) as refusal:
        simulate(congested(), CLUSTER, Meta((parse_scheduler("fcfs"), parse_scheduler("sjf")), rule))  # type: ignore[arg-type]
    assert "switch rule" in str(refusal.value) or "does not compile" in str(refusal.value)


def test_an_error_at_run_time_names_the_job_and_the_time(tmp_path: Path):
    path = write(tmp_path, "def rule(jobs, j, now):\n    return float('nan') if jobs.submit[j] == 7 else 0.0\n")
    workload = Workload.build({"submit": [0, 7, 9], "id": [100, 200, 300]}, [5, 5, 5])
    with pytest.raises(PolicyError, match="job 200 at 7 s"):
        simulate(workload, CLUSTER, parse_scheduler(f"{path}:rule"))


@pytest.mark.parametrize("parse", [parse_ordering, parse_placement, parse_preemption, parse_switch])
def test_every_slot_refuses_what_is_not_there(parse: object, tmp_path: Path):
    with pytest.raises(PolicyError, match="no such policy file"):
        parse(f"{tmp_path}/none.py:rule")  # type: ignore[operator]
    with pytest.raises(UsageError):
        parse("no_policy_of_that_name")  # type: ignore[operator]


@pytest.mark.parametrize("slot", ["ordering", "placement", "preemption"])
def test_an_index_out_of_range_is_an_error_and_reads_no_other_memory(tmp_path: Path, slot: str):
    text = "def far(jobs, j, now): return jobs.estimate[j + 10**9]\ndef off(nodes, n, jobs, j): return nodes.free[-1 - n]\n"
    path = write(tmp_path, text)
    specs = {"ordering": f"{path}:far", "placement": f"fcfs/{path}:off", "preemption": f"fcfs/best/none/{path}:far"}
    with pytest.raises(PolicyError, match="raised an error"):
        simulate(congested(), CLUSTER, parse_scheduler(specs[slot]))
