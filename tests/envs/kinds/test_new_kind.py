"""A kind that is defined here alone is trained, judged and explained; and no module outside its folder names a kind."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import gpuyard
from gpuyard.envs.kinds.base import ENVS, EnvKind, Explaining, environments, find_env
from gpuyard.envs.kinds.engine import make_envs, scheduler_of
from gpuyard.envs.kinds.job.kind import OpenOrdering, PickJob
from gpuyard.experiments.studies.evaluation import Held, contender, evaluate
from gpuyard.experiments.studies.explaining import explain
from gpuyard.features.jobs import JOB
from gpuyard.features.schema import Schema
from gpuyard.networks.network import Network
from gpuyard.policies.learned import DECISIONS, LearnedDecision, checkpoint_of, network_ordering
from support.checkpoints import write_linear

RUSH = Schema("rush", 1, JOB.rows, JOB.context)  # the features of jobs, under a decision of its own
PACKAGE = Path(gpuyard.__file__).parent


class OpenRush(OpenOrdering):
    schema = RUSH


@dataclass(frozen=True)
class PickRush(PickJob):
    """Choose among the first four waiting jobs."""

    window: int = 4
    pool: int = 8

    def left_open(self):
        return replace(super().left_open(), decision=OpenRush())


def whole(text, choices, parse_slots):
    found = checkpoint_of(text)
    network = Network.of(found.manifest.network, found.arrays)
    return replace(parse_slots("fcfs/fewest/none"), ordering=network_ordering(network, text))


KIND = EnvKind(
    "PickRush", "which of four goes next", RUSH, PickRush, make_envs, scheduler_of, ("fcfs", "sjf"), metrics=("wait",),
    explaining=Explaining(labels=lambda _: ("waits", "fits"), label_feature="fits"), example="gangs:jobs=60 on 16",
)  # fmt: skip


@pytest.fixture
def registered(monkeypatch):
    kinds, decisions = dict(environments().items()), dict(DECISIONS.items())
    monkeypatch.setattr(ENVS, "_things", {**kinds, KIND.name: KIND})
    monkeypatch.setattr(DECISIONS, "_things", {**decisions, RUSH.decision: LearnedDecision(RUSH, whole)})


@pytest.mark.usefixtures("registered")
def test_it_is_trained_judged_and_explained(tmp_path):
    from gpuyard.learn.run.plan import TrainingRequest, plan_of
    from gpuyard.learn.run.training import parts_of

    assert find_env("gpuyard/PickRush-v0") is KIND
    request = TrainingRequest(env="PickRush", learner="evolution", workloads=(KIND.example,),
                      sets=("training.envs=2", "training.validation_episodes=2", "training.steps=200"))  # fmt: skip
    parts = parts_of(plan_of(request))
    parts.learner.update()
    assert parts.validator(*parts.learner.network()) > 0
    assert set(parts.validator.baselines) == {"fcfs", "sjf"}

    path = write_linear(tmp_path / "rush.safetensors", "rush", {"estimate": -1.0}, {}, workloads=[KIND.example])
    made = contender(str(path))
    assert made.kind is KIND
    [found] = evaluate([made], Held(batches=2))
    assert {line.scheduler for line in found.lines} >= {"fcfs", "sjf"}
    explanation = explain(made, episodes=2)
    assert explanation.decision == "rush"
    assert explanation.actions == ("waits", "fits")
    assert explanation.features[0].name == "estimate"


def test_no_module_outside_names_a_kind():
    """Neither by the name of its environment nor by that of its decision."""
    kinds = [kind for _, kind in environments().items()]
    names = {kind.name for kind in kinds} | {kind.options.__name__ for kind in kinds}
    decisions = {kind.schema.decision for kind in kinds}
    found = []
    for path in PACKAGE.rglob("*.py"):
        inside = path.relative_to(PACKAGE)
        if inside.parts[:2] == ("envs", "kinds") or inside.parts[0] not in ("envs", "learn", "experiments", "cli", "report"):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and node.value in names:
                found.append(f"{inside}:{node.lineno}: {node.value}")
            if isinstance(node, ast.alias) and node.name in names:
                found.append(f"{inside}: imports {node.name}")
            if isinstance(node, ast.Compare) and "decision" in ast.unparse(node.left):
                constants = [each.value for each in node.comparators if isinstance(each, ast.Constant)]
                found += [f"{inside}:{node.lineno}: {ast.unparse(node)}" for value in constants if value in decisions]
    assert found == []
