"""The start of a training: from the weights of a checkpoint, or from a network that imitates a heuristic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Protocol, runtime_checkable

from gpuyard.arrays import Array
from gpuyard.envs.kinds.base import Demonstrator, EnvKind
from gpuyard.errors import CheckpointError, UsageError
from gpuyard.features.schema import Schema
from gpuyard.learn.base import Arrays, Learner, find_learner
from gpuyard.learn.parts.presets import NETWORKS, network_for
from gpuyard.learn.run.plan import TrainingPlan
from gpuyard.networks.checkpoint import Checkpoint, check_schema, find_checkpoint, read_checkpoint
from gpuyard.networks.manifest import Use
from gpuyard.networks.spec import NetworkSpec
from gpuyard.traces.recipes import EpisodeSource
from gpuyard.traces.splits import common, describe

DEMONSTRATIONS = 16  # environments in which a heuristic is observed: few, so that episodes reach their ends


@runtime_checkable
class Startable(Protocol):
    """A learner that can continue with given weights."""

    def network(self) -> tuple[NetworkSpec, Arrays]:
        """Return the policy, as every learner does."""

    def start_from(self, arrays: Mapping[str, Array]) -> None:
        """Take the tensors of the learner's own network, by name."""


def begin(
    learner: Learner, plan: TrainingPlan, kind: EnvKind, source: EpisodeSource, held_out: Sequence[Use],
    *, begun: bool, say: Callable[[str], None],
) -> tuple[Use, ...]:  # fmt: skip
    """Give a learner the start that the plan asks for; return the data behind it, besides `source`.

    A heuristic is imitated in the episodes of `source`, unless the training has `begun` already.
    """
    text = plan.training.start
    if not isinstance(learner, Startable):
        raise UsageError(f"{plan.learner} cannot start from a checkpoint or a heuristic", hint="ppo and evolution can")
    if text in kind.starts:
        learner.start_from(kind.starts[text](*learner.network()))
        return ()
    if text not in kind.teachers(plan.options):
        checkpoint = read_start(text, kind, plan, held_out)
        begin_from(learner, checkpoint, kind.schema)
        return seen_by(checkpoint)
    if not begun:
        by = kind.demonstrator(source, plan.options, text, DEMONSTRATIONS, plan.seed)
        same = _imitate(learner, by, plan.training.start_steps, plan.seed)
        say(f"starts as an imitation of {text}: makes the same choice in {100 * same:.1f} % of the situations held out")
    return ()


def _imitate(learner: Startable, by: Demonstrator, steps: int, seed: int) -> float:
    """Train a learner's network to choose as a heuristic does; return how often it does in demonstrations held out."""
    find_learner("ppo")  # gives a one-line error if JAX is missing
    from gpuyard.learn.imitation import taught

    spec, arrays = learner.network()
    learned, same = taught(spec, arrays, by.envs, by.choose, steps, seed)
    learner.start_from(learned)
    return same


# ── a checkpoint ──


def read_start(text: str, kind: EnvKind, plan: TrainingPlan, held_out: Sequence[Use]) -> Checkpoint:
    """Read the checkpoint to start from; refuse another schema, and one trained on data that is to be validated on."""
    try:
        path = find_checkpoint(text)
    except CheckpointError as error:
        known = ", ".join((*kind.starts, *kind.teachers(plan.options))) or "none"
        what = f"start = {text[:200]!r} is neither a checkpoint nor a heuristic that can be imitated in {kind.label}"
        raise UsageError(what, hint=f"a file, learned:NAME, or one of: {known}") from error
    checkpoint = read_checkpoint(path)
    check_schema(checkpoint.manifest, kind.schema)
    shared = common(checkpoint.manifest.training.workloads, held_out)
    if shared is not None:
        raise UsageError(f"{describe(shared[1])} cannot be validated on: {text} was trained on {describe(shared[0])}")
    return checkpoint


def seen_by(checkpoint: Checkpoint) -> tuple[Use, ...]:
    """Return all the data behind a checkpoint: what continues from there cannot be evaluated on any of it."""
    training = checkpoint.manifest.training
    return (*training.workloads, *training.validation)


def begin_from(learner: Startable, checkpoint: Checkpoint, schema: Schema) -> None:
    """Give a learner the weights of a checkpoint; refuse another network, and name the settings that would give it."""
    (spec, arrays), wanted = learner.network(), checkpoint.manifest.network
    if spec != wanted:
        pairs = {each.name: (getattr(wanted, each.name), getattr(spec, each.name)) for each in fields(spec)}
        shown = "; ".join(f"{name} {theirs}, not {ours}" for name, (theirs, ours) in pairs.items() if theirs != ours)
        raise UsageError(f"{checkpoint.manifest.name} has another network than this training: {shown}", hint=_settings_for(wanted, schema))
    learner.start_from({each: checkpoint.arrays.get(each, drawn) for each, drawn in arrays.items()})  # not all have a value head


def _settings_for(wanted: NetworkSpec, schema: Schema) -> str:
    """Return the settings that give such a network, if a preset does."""
    widths = sorted({*wanted.head_layers, *wanted.row_layers, *wanted.context_layers, *wanted.memory_layers})
    for kind, (of_rows, _) in NETWORKS.items():
        for width in widths if of_rows == bool(schema.rows) and (kind != "memory" or wanted.history) else ():
            if network_for(schema, wanted.actions, kind, width, wanted.history) == wanted:
                return f"--network {kind} --set learner.width={width}" + (
                    f" --set learner.history={wanted.history}" if wanted.history else ""
                )
    return "no preset network has this form"
