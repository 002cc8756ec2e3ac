"""Checkpoints as schedulers: `learned:NAME` for one that comes with the package, or the path of a `.safetensors` file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuyard.errors import CheckpointError, UsageError
from gpuyard.features.devices import DEVICE
from gpuyard.features.hosts import HOST
from gpuyard.features.jobs import JOB, JOB_TYPES
from gpuyard.features.ranks import RANK
from gpuyard.features.schema import Schema
from gpuyard.features.system import SWITCH, SWITCH_SIZES
from gpuyard.model.units import MAX_TIME
from gpuyard.networks.checkpoint import PREFIX, SUFFIX, Checkpoint, Manifest, check_schema, find_checkpoint, read_checkpoint
from gpuyard.networks.inside import judge_by_network, order_by_network, place_by_network, switch_by_network
from gpuyard.networks.network import Network
from gpuyard.policies.deciders.network_device import network_devices
from gpuyard.policies.ranks import NamedTable, gittins
from gpuyard.policies.schedulers import Decider, Meta, Scheduler, Switch
from gpuyard.policies.slots import DEFAULT_TABLE, Ordering, Placement, RankRule
from gpuyard.registry import Registry

BEST = "best"  # of a training's checkpoints, the one to use
FOLDERS = ("", ".", "..", "~")  # with which a path begins, as opposed to a name
PROGRAM = ".py:"  # in the text of a policy: a function of a file, which is run
ParseSlots = Callable[[str], Scheduler | Decider]


@dataclass(frozen=True)
class LearnedDecision:
    """A decision that a network can make: what the network sees, and the whole scheduler that a checkpoint becomes.

    `scheduler(text, choices, parse_slots)`: of the checkpoint's text and what its manifest says about the other slots.
    """

    schema: Schema
    scheduler: Callable[[str, Mapping[str, Any], ParseSlots], Scheduler | Meta | Decider]
    later: tuple[Schema, ...] = ()  # schemas of later versions, whose checkpoints are known beside those of the first

    def schema_of(self, manifest: Manifest) -> Schema:
        """Return the schema that a checkpoint was made for, or else the one that differs from it least."""
        seen = manifest.schema
        names = {*seen.rows, *seen.context}
        return min((self.schema, *self.later), key=lambda each: (each.hash != seen.hash, len(names ^ {*each.rows, *each.context})))


DECISIONS: Registry[LearnedDecision] = Registry("decision")  # by the name in the feature schema


def is_learned(text: str) -> bool:
    """Whether a text names a checkpoint."""
    return text.startswith(PREFIX) or text.endswith(SUFFIX)


def with_folder(text: str) -> str:
    """The text of a checkpoint as it can stand in a slot: a path below the present folder begins with `./`."""
    first, slash, _ = text.partition("/")
    inside = bool(slash) and text.endswith(SUFFIX) and not text.startswith(PREFIX) and first not in FOLDERS
    return f"./{text}" if inside else text


@lru_cache(maxsize=64)
def _read(path: Path, changed: int) -> Checkpoint:
    return read_checkpoint(path)


def checkpoint_of(text: str) -> Checkpoint:
    """Return the checkpoint that a text names; refuse features of another version, and programs in its other slots."""
    found = _with_known_features(text)
    for program in programs_in(found.manifest.choices):  # in the other slots: only the user may name one
        hint = "if you trust that program, name the slots yourself: ORDERING/PLACEMENT/BACKFILL"
        raise CheckpointError(f"{text}: its manifest names a program, {program[:100]!r}, which is not run", hint=hint)
    return found


def programs_in(value: Any) -> Iterator[str]:
    """Yield the texts that name a program (`FILE.py:NAME`) in values from outside, however nested. Using such a text runs the file."""
    if isinstance(value, str) and PROGRAM in value:
        yield value
    for each in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from programs_in(each)


def _with_known_features(text: str) -> Checkpoint:
    _refuse_folder(text)
    path = find_checkpoint(text)
    found = _read(path, path.stat().st_mtime_ns)
    decision = found.manifest.schema.decision
    if decision not in DECISIONS:
        raise CheckpointError(f"{text}: decides about a {decision}, which this version does not know")
    check_schema(found.manifest, DECISIONS[decision].schema_of(found.manifest))
    return found


def _refuse_folder(text: str) -> None:
    """Refuse a folder, such as that of a training, and name the checkpoint in it."""
    try:
        inside = sorted(Path(text).glob(f"*{SUFFIX}")) if text and Path(text).is_dir() else []
    except (OSError, ValueError):  # a name that no folder can have
        return
    if inside:
        best = next((path for path in inside if path.stem == BEST), inside[0])
        raise CheckpointError(f"{text[:200]!r} is a folder, not a checkpoint", hint=f"did you mean {best}?")


def job_network(text: str) -> Network:
    """Return the network of a checkpoint that chooses jobs."""
    return _network(text, JOB)[0]


def _network(text: str, schema: Schema) -> tuple[Network, str]:
    """Return the network of a checkpoint that makes this decision, and its title."""
    found = _with_known_features(text)
    if found.manifest.schema.decision != schema.decision:
        raise UsageError(f"{text}: decides about a {found.manifest.schema.decision}, not about a {schema.decision}")
    return Network.of(found.manifest.network, found.arrays), found.manifest.title


def _check_features(network: Network, schemas: Sequence[Schema], name: str) -> None:
    """Compiled code writes the features of one of the schemas: a network that sees others would read what is not there."""
    sizes = [f"{len(schema.rows)} + {len(schema.context)}" for schema in schemas]
    sees = f"{network.spec.rows} + {network.spec.context}"
    if sees not in sizes:
        raise UsageError(f"{name}: a network that sees {sees} features, and a {schemas[0].decision} decision has {' or '.join(sizes)}")


def learned_ordering(text: str) -> Ordering:
    """Return the ordering in a checkpoint."""
    network, title = _network(text, JOB)
    return network_ordering(network, with_folder(text), title)


def network_ordering(network: Network, name: str, title: str = "") -> Ordering:
    """Return an ordering by a network's scores, highest first."""
    _check_features(network, (JOB, JOB_TYPES), name)
    return Ordering(name, title, reads_clock=True, network=network, by_network=order_by_network)


def learned_placement(text: str) -> Placement:
    """Return the placement in a checkpoint."""
    network, title = _network(text, HOST)
    return network_placement(network, with_folder(text), title)


def network_placement(network: Network, name: str, title: str = "") -> Placement:
    """Return a placement by a network's scores, highest first."""
    _check_features(network, (HOST,), name)
    return Placement(name, title, score="network", network=network, by_network=place_by_network)


def learned_rank(text: str) -> RankRule:
    """Return the rank rule in a checkpoint."""
    network, title = _network(text, RANK)
    table = _text(checkpoint_of(text).manifest.choices, "table", DEFAULT_TABLE)
    return network_rank(network, with_folder(text), NamedTable(table), title)


def network_rank(network: Network, name: str, table: NamedTable, title: str = "") -> RankRule:
    """Return a rank rule that multiplies the times of a table by about 2 ** score of a network, so that a score of 0 is the table."""
    _check_features(network, (RANK,), name)
    if network.spec.pool != "none":
        raise UsageError(f"{name}: a rank is judged job by job, and this network pools over jobs", hint="--network kernel")
    table.table  # noqa: B018 - refuses a table that is not there
    return replace(gittins(table), name=name, title=title, network=network, by_network=judge_by_network)


def learned_switch(text: str) -> Switch:
    """Return the switch rule in a checkpoint."""
    network, title = _network(text, SWITCH)
    return network_switch(network, text, title)


def network_switch(network: Network, name: str, title: str = "") -> Switch:
    """Return a switch rule by a network's scores; the highest wins."""
    _check_features(network, (SWITCH, SWITCH_SIZES), name)
    return Switch(name, title, network=network, by_network=switch_by_network)


def learned_scheduler(text: str, parse_slots: ParseSlots) -> Scheduler | Meta | Decider:
    """The whole scheduler that a checkpoint was trained as."""
    manifest = checkpoint_of(text).manifest
    return DECISIONS[manifest.schema.decision].scheduler(with_folder(text), manifest.choices, parse_slots)


def _text(choices: Mapping[str, Any], name: str, otherwise: str) -> str:
    value = choices.get(name, otherwise)
    if not isinstance(value, str):
        raise CheckpointError(f"manifest: choices.{name} is {value!r}, not the name of a policy")
    return value


def _with_ordering(text: str, choices: Mapping[str, Any], parse_slots: ParseSlots) -> Scheduler | Decider:
    return parse_slots("/".join([text, _text(choices, "placement", "fewest"), _text(choices, "backfill", "none")]))


def _with_placement(text: str, choices: Mapping[str, Any], parse_slots: ParseSlots) -> Scheduler | Decider:
    return parse_slots("/".join([_text(choices, "ordering", "fcfs"), text, _text(choices, "backfill", "none")]))


def _with_rank(text: str, choices: Mapping[str, Any], parse_slots: ParseSlots) -> Scheduler | Decider:
    return parse_slots("/".join(["saf", _text(choices, "placement", "fewest"), "easy", text]))


def _with_switch(text: str, choices: Mapping[str, Any], parse_slots: ParseSlots) -> Meta:
    texts, period = choices.get("schedulers"), choices.get("period", 0.0)
    if not isinstance(texts, (list, tuple)) or not all(isinstance(each, str) for each in texts):
        raise CheckpointError(f"{text}: manifest: choices.schedulers is not a list of schedulers")
    if not isinstance(period, (int, float)) or not abs(period) <= MAX_TIME:
        raise CheckpointError(f"{text}: manifest: choices.period is {str(period)[:100]}, not a number of seconds")
    schedulers = [each for each in map(parse_slots, texts) if isinstance(each, Scheduler)]
    if len(schedulers) < len(texts):
        raise CheckpointError(f"{text}: manifest: choices.schedulers has a decider, which no switch can choose")
    return Meta(tuple(schedulers), learned_switch(text), float(period))


def _as_decider(text: str, choices: Mapping[str, Any], parse_slots: ParseSlots) -> Decider:
    found = checkpoint_of(text)
    return network_devices(Network.of(found.manifest.network, found.arrays), text, found.manifest.title)


for _known in (
    LearnedDecision(JOB, _with_ordering, (JOB_TYPES,)), LearnedDecision(HOST, _with_placement),
    LearnedDecision(SWITCH, _with_switch, (SWITCH_SIZES,)), LearnedDecision(DEVICE, _as_decider),
    LearnedDecision(RANK, _with_rank),
):  # fmt: skip
    DECISIONS.add(_known.schema.decision, _known)
