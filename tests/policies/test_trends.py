"""Whether a key can only fall is proved from the ordering's code, and never where it is not so."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpuyard.engine.state import CLOCK_FALLS, CLOCK_YES, VISIBLE_NAMES
from gpuyard.policies import ORDERINGS, parse_ordering
from gpuyard.policies.slots import values_of
from gpuyard.policies.trends import alike, falls

Rule = Callable[..., Any]
WEIGHT = 2.0


def slowdown(jobs: Any, j: int, now: float) -> Any:
    return -(now - jobs.submit[j] + jobs.estimate[j]) / max(jobs.estimate[j], 10.0)


def to_a_power(jobs: Any, j: int, now: float, power: float = 3.0) -> Any:
    return -(((now - jobs.queued[j]) / (jobs.estimate[j] + 1.0)) ** power) * math.sqrt(jobs.gpus[j]) * WEIGHT


def by_usage(jobs: Any, j: int, now: float) -> Any:
    return -(2.0 ** (-jobs.usage[j] / jobs.fair_share[j])) if jobs.priority[j] >= 0 else 1.0 + jobs.usage[j]


def due_or_not(jobs: Any, j: int, now: float) -> Any:
    if math.isinf(jobs.deadline[j]) or jobs.priority[j] == 3:
        return jobs.submit[j]
    return min(jobs.deadline[j] - now, 0.0)


def rises(jobs: Any, j: int, now: float) -> Any:
    return now - jobs.submit[j]


def both_ways(jobs: Any, j: int, now: float) -> Any:
    return jobs.usage[j] - jobs.submit[j] / (now - jobs.submit[j] + 1.0) - now


def any_sign(jobs: Any, j: int, now: float) -> Any:
    return -now * jobs.priority[j]


def square_of_any_sign(jobs: Any, j: int, now: float) -> Any:
    return -(now - jobs.deadline[j]) * (now - jobs.deadline[j])


def by_zero(jobs: Any, j: int, now: float) -> Any:
    return -now / jobs.estimate[j]


def asks_the_time(jobs: Any, j: int, now: float) -> Any:
    return 0.0 if now - jobs.submit[j] > 100.0 else 1.0


def on_one_of_two_ways(jobs: Any, j: int, now: float) -> Any:
    return -now if jobs.gpus[j] > 4 else now


def another_job(jobs: Any, j: int, now: float) -> Any:
    return -now + jobs.estimate[0]


def endless(jobs: Any, j: int, now: float) -> Any:
    x = jobs.estimate[j]
    while x > 0:
        x = x - 1.0
    return -now + x


def many_ways(jobs: Any, j: int, now: float) -> Any:
    key = -now
    for name in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0):
        key = key + (1.0 if jobs.gpus[j] > name else 0.0)
    return key


def swallows_errors(jobs: Any, j: int, now: float) -> Any:
    try:
        return now * jobs.priority[j]
    except Exception:
        return 0.0


def helper(value: Any) -> Any:
    return value


def calls_another(jobs: Any, j: int, now: float) -> Any:
    return helper(-now)


PROVED: tuple[Rule, ...] = (slowdown, to_a_power, by_usage, due_or_not)
NOT_PROVED: tuple[Rule, ...] = (
    rises, both_ways, any_sign, square_of_any_sign, by_zero, asks_the_time, on_one_of_two_ways, another_job, endless, many_ways,
    swallows_errors, calls_another,
)  # fmt: skip


def test_which_built_in_keys_only_fall():
    clocks = {name: ORDERINGS[name].clock for name in ORDERINGS if ORDERINGS[name].reads_clock}
    assert {name for name, clock in clocks.items() if clock == CLOCK_FALLS} == {"wfp3", "unicep", "dynamic", "multifactor"}
    assert clocks["tiresias"] == CLOCK_YES  # it asks whether a time has come


@pytest.mark.parametrize("text, proved", {"age=-1": False, "fairshare=-1": False, "max_age=0": True, "small=1,size=-5": True}.items())
def test_parameters_count(text: str, proved: bool):
    assert (parse_ordering(f"multifactor:{text}").clock == CLOCK_FALLS) == proved


@pytest.mark.parametrize("rule", PROVED, ids=lambda rule: rule.__name__)
def test_rules_that_fall(rule: Rule):
    assert falls(rule, rule.__defaults__ or ())


@pytest.mark.parametrize("rule", NOT_PROVED, ids=lambda rule: rule.__name__)
def test_rules_of_which_nothing_is_assumed(rule: Rule):
    assert not falls(rule, ())


def test_an_exponent_that_turns_it_round():
    assert not falls(to_a_power, (-1.0,))


def rows(rng: np.random.Generator, count: int) -> Any:
    """Waiting jobs with all that may be in their columns."""
    columns = {name: np.round(rng.lognormal(3.0, 3.0, count), 3) * rng.integers(0, 2, count) for name in VISIBLE_NAMES}
    columns["priority"] -= 20.0
    columns["submit"] = columns["queued"] = np.sort(rng.uniform(0, 1e5, count))
    columns["fair_share"] = np.full(count, 0.125)
    columns["usage"] = rng.uniform(0, 1, count) * rng.integers(0, 2, count)
    columns["deadline"] = np.where(rng.random(count) < 0.3, np.inf, rng.uniform(0, 2e5, count))
    columns["run_start"][:] = columns["attained"][:] = columns["ran"][:] = 0.0
    return SimpleNamespace(**columns)


CLAIMS = [(rule, tuple(rule.__defaults__ or ())) for rule in PROVED] + [
    (each.function, values_of(each)) for _, each in ORDERINGS.items() if each.clock == CLOCK_FALLS
]


@pytest.mark.parametrize("rule, params", CLAIMS, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_proved_is_true(rule: Rule, params: tuple[float, ...]):
    rng = np.random.default_rng(5)
    jobs = rows(rng, 400)
    for step in (0.0, 1e-9, 1.0, 1e4):
        for j in range(400):
            now = jobs.submit[j] + rng.choice([0.0, 1e-3, 10.0, 1e5])
            key, usage = rule(jobs, j, now, *params), jobs.usage[j]
            jobs.usage[j] = usage * rng.choice([1.0, 0.5, 0.0])
            assert rule(jobs, j, now + step, *params) <= key
            jobs.usage[j] = usage


def test_in_what_jobs_must_be_alike_to_go_as_they_came():
    read = {name: ORDERINGS[name].alike for name in ("wfp3", "unicep", "dynamic", "multifactor", "sjf", "tiresias")}
    assert read["wfp3"] == read["unicep"] == {"gpus", "estimate"}
    assert read["dynamic"] == {"deadline", "remaining", "priority"}
    assert read["multifactor"] == {"size_factor", "partition_factor", "qos_factor", "usage", "fair_share"}
    assert read["sjf"] is read["tiresias"] is None  # the first is keyed once, the other at every pass


def test_who_came_last_may_go_first():
    def last_first(jobs: Any, j: int, now: float) -> Any:
        return -jobs.submit[j] - now

    assert falls(last_first, ())
    assert alike(last_first, ()) is None
