"""Where a training begins: with the weights of another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from gpuyard.envs.splits import common, describe
from gpuyard.errors import UsageError
from gpuyard.features.schema import Schema
from gpuyard.learn.base import Learner
from gpuyard.model.jobs import Array
from gpuyard.policies.checkpoint import Checkpoint, check_schema, find_checkpoint, read_checkpoint
from gpuyard.policies.manifest import Use


@runtime_checkable
class Startable(Protocol):
    """A learner that can go on with given weights."""

    def start_from(self, arrays: Mapping[str, Array]) -> None:
        """Tensors of the learner's own network, by name."""


def read_start(text: str, schema: Schema, held_out: Sequence[Use]) -> Checkpoint:
    """The checkpoint to begin with; refuses one of another schema, and one that has learned from what is to be validated on."""
    checkpoint = read_checkpoint(find_checkpoint(text))
    check_schema(checkpoint.manifest, schema)
    shared = common(checkpoint.manifest.training.workloads, held_out)
    if shared is not None:
        raise UsageError(f"{describe(shared[1])} cannot be validated on: {text} was trained on {describe(shared[0])}")
    return checkpoint


def seen_by(checkpoint: Checkpoint) -> tuple[Use, ...]:
    """All the data that had a part in it: whoever goes on from there cannot be evaluated on any of it."""
    training = checkpoint.manifest.training
    return (*training.workloads, *training.validation)


def begin_from(learner: Learner, name: str, checkpoint: Checkpoint) -> None:
    """Give a learner the weights of a checkpoint; refuses where the networks are not the same."""
    if not isinstance(learner, Startable):
        raise UsageError(f"{name} cannot start from a checkpoint", hint="ppo and evolution can")
    spec, arrays = learner.network()
    if spec != checkpoint.manifest.network:
        raise UsageError(
            f"the network of {checkpoint.manifest.name} is not that of this training: {checkpoint.manifest.network}, not {spec}",
            hint="set learner.network and learner.width as it has them",
        )
    learner.start_from({each: checkpoint.arrays.get(each, drawn) for each, drawn in arrays.items()})  # not all have a value head
