"""Where a training begins: with the weights of another one, or with a network that chooses as a heuristic does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Protocol, runtime_checkable

from gpuyard.arrays import Array
from gpuyard.envs.kinds.base import Demonstrator, EnvKind
from gpuyard.errors import CheckpointError, UsageError
from gpuyard.features.schema import Schema
from gpuyard.learn.base import Arrays, Learner
from gpuyard.learn.catalog import find_learner
from gpuyard.learn.run.plan import Plan
from gpuyard.learn.run.presets import NETWORKS, network_for
from gpuyard.networks.checkpoint import Checkpoint, check_schema, find_checkpoint, read_checkpoint
from gpuyard.networks.manifest import Use
from gpuyard.networks.spec import NetworkSpec
from gpuyard.traces.recipes import EpisodeSource
from gpuyard.traces.splits import common, describe

DEMONSTRATIONS = 16  # environments in which a heuristic is watched: few, so that episodes are seen to their ends


@runtime_checkable
class Startable(Protocol):
    """A learner that can go on with given weights."""

    def network(self) -> tuple[NetworkSpec, Arrays]:
        """As of every learner."""

    def start_from(self, arrays: Mapping[str, Array]) -> None:
        """Tensors of the learner's own network, by name."""


def begin(
    learner: Learner, plan: Plan, kind: EnvKind, source: EpisodeSource, held_out: Sequence[Use], *, begun: bool, say: Callable[[str], None]
) -> tuple[Use, ...]:
    """Let a learner begin as the plan says; returns the data that has had a part in it besides `source`.

    A heuristic is imitated in the episodes of `source`, unless the learner has `begun` already.
    """
    text = plan.training.start
    if not isinstance(learner, Startable):
        raise UsageError(f"{plan.learner} cannot start from a checkpoint or a heuristic", hint="ppo and evolution can")
    if text not in kind.teachers(plan.options):
        checkpoint = read_start(text, kind, plan, held_out)
        begin_from(learner, checkpoint, kind.schema)
        return seen_by(checkpoint)
    if not begun:
        by = kind.demonstrator(source, plan.options, text, DEMONSTRATIONS, plan.seed)
        same = _imitate(learner, by, plan.training.start_steps, plan.seed)
        say(f"begins as an imitation of {text}: chooses as it does in {100 * same:.1f} % of the choices kept back to see")
    return ()


def _imitate(learner: Startable, by: Demonstrator, steps: int, seed: int) -> float:
    """Let a learner begin with its network trained to choose as a heuristic does; returns how often it does, where it has not learned."""
    find_learner("ppo")  # refuses in one line where there is no JAX
    from gpuyard.learn.imitation import taught

    spec, arrays = learner.network()
    learned, same = taught(spec, arrays, by.envs, by.choose, steps, seed)
    learner.start_from(learned)
    return same


# ── a checkpoint ──


def read_start(text: str, kind: EnvKind, plan: Plan, held_out: Sequence[Use]) -> Checkpoint:
    """The checkpoint to begin with; refuses one of another schema, and one that has learned from what is to be validated on."""
    try:
        path = find_checkpoint(text)
    except CheckpointError as error:
        known = ", ".join(kind.teachers(plan.options)) or "none"
        what = f"start = {text[:200]!r} is no checkpoint, and no heuristic that can be imitated in {kind.name}"
        raise UsageError(what, hint=f"a file, learned:NAME, or one of: {known}") from error
    checkpoint = read_checkpoint(path)
    check_schema(checkpoint.manifest, kind.schema)
    shared = common(checkpoint.manifest.training.workloads, held_out)
    if shared is not None:
        raise UsageError(f"{describe(shared[1])} cannot be validated on: {text} was trained on {describe(shared[0])}")
    return checkpoint


def seen_by(checkpoint: Checkpoint) -> tuple[Use, ...]:
    """All the data that had a part in it: whoever goes on from there cannot be evaluated on any of it."""
    training = checkpoint.manifest.training
    return (*training.workloads, *training.validation)


def begin_from(learner: Startable, checkpoint: Checkpoint, schema: Schema) -> None:
    """Give a learner the weights of a checkpoint; refuses where the networks are not the same, and says by which settings they would be."""
    (spec, arrays), wanted = learner.network(), checkpoint.manifest.network
    if spec != wanted:
        differences = [f"{each.name} {getattr(wanted, each.name)}, not {getattr(spec, each.name)}" for each in fields(spec)]
        shown = "; ".join(text for text, each in zip(differences, fields(spec), strict=True) if not _same(wanted, spec, each.name))
        raise UsageError(f"{checkpoint.manifest.name} has another network than this training: {shown}", hint=_settings_for(wanted, schema))
    learner.start_from({each: checkpoint.arrays.get(each, drawn) for each, drawn in arrays.items()})  # not all have a value head


def _same(one: NetworkSpec, other: NetworkSpec, name: str) -> bool:
    return bool(getattr(one, name) == getattr(other, name))


def _settings_for(wanted: NetworkSpec, schema: Schema) -> str:
    """The settings that give such a network, where presets do."""
    widths = sorted({*wanted.head_layers, *wanted.row_layers, *wanted.context_layers, *wanted.memory_layers})
    for kind, (of_rows, _) in NETWORKS.items():
        for width in widths if of_rows == bool(schema.rows) and (kind != "memory" or wanted.history) else ():
            if network_for(schema, wanted.actions, kind, width, wanted.history) == wanted:
                return f"--network {kind} --set learner.width={width}" + (
                    f" --set learner.history={wanted.history}" if wanted.history else ""
                )
    return "no preset network has this form"
