"""A training that begins with the weights of another one."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpuyard.errors import CheckpointError, UsageError
from gpuyard.features.jobs import JOB_TYPES
from gpuyard.learn.run.folder import Folder
from gpuyard.learn.run.plan import TrainingPlan, TrainingRequest, plan_again, plan_of
from gpuyard.learn.run.training import Parts, parts_of, train
from gpuyard.networks.checkpoint import read_checkpoint, write_checkpoint
from gpuyard.traces.splits import overlap

SETS = ("learner.width=8", "env.pool=4", "training.envs=4", "training.validation_episodes=2")


def plan(learner: str, *sets: str, env: str = "PickJob", workload: str = "lublin:jobs=40,nodes=16 on 16") -> TrainingPlan:
    return plan_of(TrainingRequest(env=env, learner=learner, workloads=(workload,), sets=(*SETS, "training.update_limit=1", *sets)))


def trained(made: TrainingPlan, folder: Path) -> Path:
    train(made, folder, resume=False, say=lambda text: None, watch=lambda trainer: None)
    return folder / "last.safetensors"


def started(made: TrainingPlan, start: Path) -> Parts:
    return parts_of(replace(made, training=replace(made.training, start=str(start))))


@pytest.mark.parametrize("first", ["ppo", "evolution"])
@pytest.mark.parametrize("then", ["ppo", "evolution"])
def test_begins_with_the_weights_of_a_checkpoint(first: str, then: str, tmp_path: Path) -> None:
    start = trained(plan(first), tmp_path / "first")
    _, drawn = parts_of(plan(then)).learner.network()
    _, begun = started(plan(then), start).learner.network()
    given = read_checkpoint(start).arrays
    heads = [name for name in begun if name.startswith("head.")]
    assert heads
    assert all(np.array_equal(begun[name], given[name]) for name in heads)
    assert any(not np.array_equal(drawn[name], given[name]) for name in heads)


def test_what_the_start_has_seen_counts_as_seen(tmp_path: Path) -> None:
    start = trained(plan("evolution"), tmp_path / "first")
    other = plan("evolution", f"training.start={start}", workload="poisson:jobs=40 on 16")
    last = read_checkpoint(trained(other, tmp_path / "second"))
    uses = read_checkpoint(start).manifest.training
    assert set(uses.workloads) | set(uses.validation) < set(last.manifest.training.workloads)
    assert overlap(last.manifest.training, uses.validation) is not None


def test_resumed_as_if_never_stopped(tmp_path: Path) -> None:
    start = trained(plan("evolution"), tmp_path / "first")
    part = plan("evolution", f"training.start={start}")
    whole = replace(part, training=replace(part.training, update_limit=3))
    unbroken = trained(whole, tmp_path / "whole")
    trained(part, tmp_path / "part")
    train(whole, tmp_path / "part", resume=True, say=lambda text: None, watch=lambda trainer: None)
    one, other = (read_checkpoint(path).arrays for path in (unbroken, tmp_path / "part" / "last.safetensors"))
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_a_training_goes_on_in_the_version_of_its_environment(tmp_path: Path) -> None:
    made = plan("evolution", env="gpuyard/PickJob-v1", workload="poisson:jobs=40,gpus=96,load=0.8 on hetero-demo")
    assert (plan("evolution", env="gpuyard/PickJob-v0").env, made.env) == ("PickJob", "PickJob-v1")
    last = read_checkpoint(trained(made, tmp_path / "first")).manifest
    assert (last.name, last.schema) == ("pickjob-v1-evolution-0", JOB_TYPES)
    again = plan_again(Folder.found(tmp_path / "first").read_config(), TrainingRequest(), "first")
    assert again == made


def test_what_cannot_be_started_from_is_refused(tmp_path: Path) -> None:
    start = trained(plan("evolution"), tmp_path / "first")
    with pytest.raises(UsageError, match="dqn cannot start from a checkpoint"):
        started(plan("dqn"), start)
    with pytest.raises(UsageError, match="pickjob-evolution-0 has another network than this training: .*pool none, not attention"):
        parts_of(replace(wide := plan("evolution", "learner.network=attention"), training=replace(wide.training, start=str(start))))
    with pytest.raises(CheckpointError, match="decides on a 'job', not on a 'host'"):
        started(plan("ppo", env="PickHost", workload="family:shape=base,gpus=8 on 2x4:gpu"), start)
    with pytest.raises(CheckpointError, match="made for other features: row lacks 'usable'"):
        started(plan("evolution", env="PickJob-v1"), start)
    known = read_checkpoint(start)
    training = replace(known.manifest.training, workloads=known.manifest.training.validation, validation=())
    write_checkpoint(tmp_path / "knows.safetensors", replace(known.manifest, training=training), known.arrays)
    with pytest.raises(UsageError, match="cannot be validated on: .*knows.safetensors was trained on seeds 500000–999999 of lublin"):
        started(plan("evolution"), tmp_path / "knows.safetensors")


def test_settings_for_the_network_of_a_checkpoint_are_told(tmp_path: Path) -> None:
    start = trained(plan("evolution"), tmp_path / "first")
    other = plan_of(TrainingRequest(env="PickJob", learner="evolution", workloads=plan("evolution").workloads, sets=SETS[1:]))
    with pytest.raises(UsageError, match=r"head_layers \(8, 4\), not \(32, 16\)") as caught:
        started(other, start)
    assert caught.value.hint == "--network kernel --set learner.width=8"


def test_a_run_of_which_nothing_was_saved_begins_anew_and_says_so(tmp_path: Path) -> None:
    made, said = plan("evolution"), []
    whole = trained(made, tmp_path / "whole")
    trained(made, tmp_path / "killed")
    (tmp_path / "killed" / "state.safetensors").unlink()
    train(made, tmp_path / "killed", resume=True, say=said.append, watch=lambda trainer: None)
    assert any("starting from the beginning" in line for line in said)
    assert whole.read_bytes() == (tmp_path / "killed" / "last.safetensors").read_bytes()
