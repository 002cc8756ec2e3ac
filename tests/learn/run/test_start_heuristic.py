"""A training that begins as an imitation of a heuristic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpuyard.cli.main import run
from gpuyard.envs.kinds.base import find_env
from gpuyard.errors import UsageError
from gpuyard.learn.evolution import best_actions
from gpuyard.learn.run.plan import TrainingPlan, TrainingRequest, plan_of
from gpuyard.learn.run.training import Parts, parts_of, train
from gpuyard.networks.checkpoint import read_checkpoint
from gpuyard.networks.network import Network
from gpuyard.traces.recipes import Workloads

WORKLOAD = "lublin:jobs=96,nodes=64,load=1.1 on 64"
SETS = ("env.pool=32", "training.envs=4", "training.validation_episodes=8", "training.update_limit=1")


def plan(learner: str, start: str, *sets: str, env: str = "PickJob", workload: str = WORKLOAD) -> TrainingPlan:
    window = ("env.window=16",) if env == "PickJob" else ()  # fewer rows: imitation computes more than it compiles
    return plan_of(
        TrainingRequest(env=env, learner=learner, workloads=(workload,), sets=(*SETS, *window, f"training.start={start}", *sets))
    )


def begun(made: TrainingPlan) -> tuple[Parts, str]:
    said: list[str] = []
    parts = parts_of(made, say=said.append)
    (line,) = said
    return parts, line


def agreement(made: TrainingPlan, network: Network, seed: int, steps: int = 150) -> float:
    """How often a network chooses as the heuristic does in episodes of another seed, on the heuristic's way."""
    kind = find_env(made.env)
    by = kind.demonstrator(Workloads(made.workloads).part("validation"), made.options, made.training.start, 8, seed)
    seen, same = by.envs.reset(seed), []
    for _ in range(steps):
        chosen = by.choose(seen)
        same.append(best_actions(network, seen) == chosen)
        seen = by.envs.step(chosen).observation
    return float(np.mean(same))


@pytest.mark.parametrize("learner", ["ppo", pytest.param("evolution", marks=pytest.mark.slow)])  # which imitates in the same way
def test_chooses_as_sjf_does_where_it_has_never_been(learner: str) -> None:
    made = plan(learner, "sjf")
    parts, line = begun(made)
    spec, arrays = parts.learner.network()
    drawn = Network.of(*parts_of(replace(made, training=replace(made.training, start=""))).learner.network())
    assert agreement(made, Network.of(spec, arrays), seed=7) > 0.9 > agreement(made, drawn, seed=7)
    sjf = parts.validator.baselines["sjf/fewest/none"]
    assert parts.validator(spec, arrays) == pytest.approx(sjf, rel=0.2)
    assert line.startswith("starts as an imitation of sjf: makes the same choice in 9")


def test_a_placement_can_be_imitated() -> None:
    workload = "family:shape=bursty,intensity=high,gpus=16 on 4x4:gpu"
    made = plan("ppo", "best", "training.start_steps=8192", env="PickHost", workload=workload)
    assert agreement(made, Network.of(*begun(made)[0].learner.network()), seed=7) > 0.8


def test_one_of_the_schedulers_can_be_imitated() -> None:
    parts, _ = begun(plan("evolution", "srpt", "training.start_steps=2048", env="Switch", workload="family on 4"))
    assert parts.validator(*parts.learner.network()) == pytest.approx(parts.validator.baselines["srpt"], rel=0.02)


def test_a_choice_of_devices_can_be_imitated() -> None:
    sets = ("training.start=greedy-device", "start_steps=2048", "training.envs=4", "validation_episodes=8")
    parts, _ = begun(plan_of(TrainingRequest("PickDevice", "ppo", ("tasks:jobs=60 on tasks",), sets=sets)))
    assert parts.validator(*parts.learner.network()) < parts.validator.baselines["random-device"]


def test_rules_that_run_whole_episodes_are_begun_for_too() -> None:
    parts, _ = begun(plan("evolution", "saf", "env.rules=none,easy", "training.start_steps=1024"))
    assert np.isfinite(parts.learner.update()["return"])


def test_the_same_seed_gives_the_same_start() -> None:
    one, other = (begun(plan("ppo", "sjf", "training.start_steps=1024"))[0].learner.network()[1] for _ in range(2))
    assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("learner", ["ppo", "evolution"])
def test_resumed_without_imitating_again(learner: str, tmp_path: Path) -> None:
    part = plan(learner, "sjf", "training.start_steps=1024")
    whole = replace(part, training=replace(part.training, update_limit=3))
    said: list[str] = []

    def go(made: TrainingPlan, folder: str, *, resume: bool) -> dict[str, np.ndarray]:
        train(made, tmp_path / folder, resume=resume, say=said.append, watch=lambda trainer: None)
        return dict(read_checkpoint(tmp_path / folder / "last.safetensors").arrays)

    unbroken = go(whole, "whole", resume=False)
    go(part, "part", resume=False)
    assert len([line for line in said if "imitation of sjf" in line]) == 2
    resumed = go(whole, "part", resume=True)
    assert len([line for line in said if "imitation of sjf" in line]) == 2
    assert all(np.array_equal(unbroken[name], resumed[name]) for name in unbroken)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "train",
        "PickJob",
        "--learner",
        "evolution",
        "--workload",
        WORKLOAD,
        "--start",
        "sjf",
        "--updates",
        "1",
        "--out",
        tmp_path / "run",
    ]
    sizes = ("env.pool=16", "env.window=16", "learner.pairs=2", "learner.episodes=2", "validation_episodes=2")
    for text in (*sizes, "training.start_steps=4096"):
        words += ["--set", text]
    assert run([str(word) for word in words]) == 0
    assert "starts as an imitation of sjf: makes the same choice in" in capsys.readouterr().err
    manifest = read_checkpoint(tmp_path / "run" / "best.safetensors").manifest
    assert "--start sjf" in manifest.command
    assert manifest.training.config["settings"]["training"]["start_steps"] == 4096
    assert run([str(word).replace("sjf", "sfj").replace("run", "other") for word in words]) != 0
    error = capsys.readouterr().err
    assert "start = 'sfj' is neither a checkpoint nor a heuristic that can be imitated in PickJob" in error
    assert "fcfs, lcfs, sjf" in error


def test_what_cannot_be_imitated_is_refused() -> None:
    with pytest.raises(UsageError, match="neither a checkpoint nor a heuristic that can be imitated in PickHost") as refused:
        parts_of(plan("ppo", "random", env="PickHost", workload="family on 2x4:gpu"))
    assert "first, best, worst" in str(refused.value.hint)
    with pytest.raises(UsageError, match="neither a checkpoint nor a heuristic that can be imitated in Switch"):
        parts_of(plan("ppo", "sjf", env="Switch", workload="family on 4"))
    with pytest.raises(UsageError, match="dqn cannot start from a checkpoint or a heuristic"):
        parts_of(plan("dqn", "sjf"))
    with pytest.raises(UsageError, match="start_steps"):
        plan("ppo", "sjf", "training.start_steps=10")
