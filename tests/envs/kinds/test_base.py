"""Environments by name."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gpuyard import load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.envs.kinds import base as kinds
from gpuyard.envs.kinds.base import Criterion, EnvKind, find_env
from gpuyard.errors import UnknownNameError, UsageError
from gpuyard.features.schema import Schema
from gpuyard.metrics import measure
from gpuyard.registry import Registry


@dataclass(frozen=True)
class Options:
    weight: float = 2.0


def unused(*_):
    raise AssertionError


KIND = EnvKind(
    "PickThing", "a thing", Schema("thing", 1, (), ("a",)), Options, unused, unused,
    lambda options: (f"las:threshold={options.weight:g}",),
    objectives={"mine": lambda options: Criterion("mine", "higher", lambda _: options.weight)},
    version=2, aliases=("thing",),
)  # fmt: skip


@pytest.fixture
def registered(monkeypatch):
    registry: Registry[EnvKind] = Registry("environment")
    registry.add("PickThing", KIND)
    monkeypatch.setattr(kinds, "ENVS", registry)


@pytest.mark.parametrize("text", ["PickThing", "gpuyard/PickThing-v2", "pickthing", "pick-thing", "pick_thing", "PickThing-v2", "Thing"])
def test_names_under_which_it_is_found(registered, text):
    assert find_env(text) is KIND


def test_a_name_without_a_version_is_the_first():
    assert [find_env(text).id for text in ("PickJob", "job", "pick-job-v0")] == ["gpuyard/PickJob-v0"] * 3
    assert [find_env(text).id for text in ("PickJob-v1", "gpuyard/PickJob-v1", "job-v1")] == ["gpuyard/PickJob-v1"] * 3
    assert [find_env(text).label for text in ("PickJob-v0", "PickJob-v1")] == ["PickJob", "PickJob-v1"]
    with pytest.raises(UsageError, match="no such version; hint: did you mean 'gpuyard/PickJob-v1'"):
        find_env("PickJob-v2")


def test_what_is_not_there(registered):
    with pytest.raises(UnknownNameError, match="unknown environment 'PikThing'; hint: did you mean 'PickThing'?"):
        find_env("PikThing")
    with pytest.raises(UsageError, match="did you mean 'gpuyard/PickThing-v2'"):
        find_env("gpuyard/PickThing-v0")


def test_baselines_may_follow_the_options():
    assert KIND.baselines_for(Options(3)) == ("las:threshold=3",)


def test_objectives_are_its_own_or_metrics():
    assert KIND.objective_for("mine", Options(7)).measure(None) == 7
    result = simulate(load_workload("demo:jobs=30"), load_cluster("4x8:a100"), parse_scheduler("sjf"))
    found = KIND.objective_for("wait.p95", Options())
    assert found.better == "lower"
    assert found.measure(result) == measure(result, ["wait.p95"])["wait.p95"]
    with pytest.raises(UnknownNameError, match="did you mean 'mine'"):
        KIND.objective_for("mein", Options())
    with pytest.raises(UsageError, match="neither lower nor higher"):
        KIND.objective_for("gpu_hours.sum", Options())
