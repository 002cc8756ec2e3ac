"""The manifest of a checkpoint: the network's features and shape, and how it was trained."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from gpuyard.errors import CheckpointError
from gpuyard.features.schema import Schema
from gpuyard.files import from_plain, to_plain
from gpuyard.model.fields import Fields
from gpuyard.networks.shapes import check_spec
from gpuyard.networks.spec import NetworkSpec

FORMAT = 1
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_LONG = 100_000  # characters of a command or of a workload's text
_LAYERS = ("row_layers", "context_layers", "memory_layers", "head_layers", "value_layers")
_SIZES = ("rows", "context", "actions", "history", "heads", "atoms")


@dataclass(frozen=True)
class Use:
    """A workload that a training used, and which part of it."""

    workload: str
    seeds: tuple[int, int] | None = None  # the first and the last
    times: tuple[float, float] | None = None  # seconds since the beginning of the trace

    def __post_init__(self) -> None:
        for name, pair in (("seeds", self.seeds), ("times", self.times)):
            if pair is not None and not pair[0] <= pair[1]:
                raise CheckpointError(f"workload {self.workload[:100]!r}: {name} from {pair[0]} to {pair[1]}")


@dataclass(frozen=True)
class TrainingRecord:
    """How a network was trained."""

    learner: str
    config: Mapping[str, Any]  # hyper-parameters, as JSON values
    seed: int
    steps: int  # choices made in the environments
    workloads: tuple[Use, ...]
    validation: tuple[Use, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", _frozen(self.config, "config"))


@dataclass(frozen=True)
class Manifest:
    """Everything about a checkpoint except its weights."""

    name: str  # letters, digits, dots and dashes
    title: str  # one line for people
    schema: Schema
    network: NetworkSpec
    objective: str
    choices: Mapping[str, Any]  # a switch: {"schedulers": [texts], "period": seconds}; a job policy: {"placement": …, "backfill": …}
    training: TrainingRecord
    versions: Mapping[str, str]  # of gpuyard and its libraries
    command: str  # the command that trained it
    curve: tuple[Mapping[str, float], ...] = ()  # a table of numbers per evaluation
    format: int = FORMAT

    def __post_init__(self) -> None:
        for name in ("choices", "versions"):
            object.__setattr__(self, name, _frozen(getattr(self, name), name))
        object.__setattr__(self, "curve", tuple(_frozen(point, f"curve[{i}]") for i, point in enumerate(self.curve)))
        _check(self)


def _frozen(table: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return a read-only copy of JSON values, with lists for tuples."""
    plain = to_plain(dict(table), path)
    return MappingProxyType({key: from_plain(value) for key, value in plain.items()})


def _check(manifest: Manifest) -> None:
    """Refuse a manifest that contradicts itself, whether it was read or is about to be written."""
    if not isinstance(manifest.name, str) or not NAME.fullmatch(manifest.name):
        raise CheckpointError(f"manifest: name {str(manifest.name)[:100]!r} is not made of letters, digits, dots and dashes")
    check_spec(manifest.network)
    schema, network = manifest.schema, manifest.network
    if (len(schema.rows), len(schema.context)) != (network.rows, network.context):
        raise CheckpointError(
            f"manifest: the network sees {network.rows} features of a row and {network.context} of the context, "
            f"the schema names {len(schema.rows)} and {len(schema.context)}"
        )
    for key, text in manifest.versions.items():
        if not isinstance(text, str):
            raise CheckpointError(f"manifest: version of {key[:100]!r} is not a text")
    for point in manifest.curve:
        for key, value in point.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or (isinstance(value, int) and abs(value) > 2**64):
                raise CheckpointError(f"manifest: {key[:100]!r} of the curve is not a number")


# ── to JSON ──
def manifest_to_dict(manifest: Manifest) -> dict[str, Any]:
    """Return the manifest as JSON values."""
    training = manifest.training
    made = {
        "format": manifest.format,
        **_values(manifest),
        "schema": {**_values(manifest.schema), "hash": manifest.schema.hash},
        "network": _values(manifest.network),
        "training": _values(training) | {key: [_use_to_dict(use) for use in getattr(training, key)] for key in ("workloads", "validation")},
        "curve": list(manifest.curve),
    }
    return {key: to_plain(value, key) for key, value in made.items()}


def _values(record: Any) -> dict[str, Any]:
    """Return the fields of a data class by name, in their order."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _use_to_dict(use: Use) -> dict[str, Any]:
    return {key: value for key, value in _values(use).items() if value is not None}


# ── from JSON ──
def manifest_from_dict(data: object, where: str) -> Manifest:
    """Make the manifest from a table from outside; every value is typed and bounded, and unknown keys are refused."""
    root = Fields(data, where)
    version = root.whole("format")
    if version != FORMAT:
        raise CheckpointError(f"{where}: format {version}; this gpuyard reads format {FORMAT}", hint="use the version that made it")
    made = Manifest(
        name=root.text("name"),
        title=root.text("title"),
        schema=_schema(root.table("schema"), where),
        network=_network(root.table("network"), where),
        objective=root.text("objective"),
        choices=_table(root.table("choices")),
        training=_training(root.table("training")),
        versions=_table(root.table("versions")),
        command=root.text("command", limit=_LONG),
        curve=tuple(_table(point) for point in root.rows("curve")),
        format=version,
    )
    root.done()
    return made


def _table(fields: Fields) -> dict[str, Any]:
    """Return a table with any keys as it stands."""
    return {name: from_plain(fields.peek(name)) for name in fields.names}


def _schema(fields: Fields, where: str) -> Schema:
    made = Schema(fields.text("decision"), fields.whole("version"), fields.texts("rows"), fields.texts("context"))
    kept = fields.text("hash")
    fields.done()
    if kept != made.hash:
        raise CheckpointError(f"{where}: the schema has hash {made.hash}, the file says {kept!r}", hint="the file was changed")
    return made


def _network(fields: Fields, where: str) -> NetworkSpec:
    values: dict[str, Any] = {name: fields.whole(name) for name in _SIZES}
    values |= {name: tuple(map(int, fields.numbers(name, whole=True))) for name in _LAYERS}
    values |= {name: fields.text(name) for name in ("pool", "act")}
    values |= {name: fields.number(name, low=-1e30, high=1e30) for name in ("low", "high")}
    fields.done()
    made = NetworkSpec(**values)
    check_spec(made, f"{where}: network")
    return made


def _training(fields: Fields) -> TrainingRecord:
    made = TrainingRecord(
        learner=fields.text("learner"),
        config=_table(fields.table("config")),
        seed=fields.whole("seed", low=-(2**63), high=2**64 - 1),
        steps=fields.whole("steps"),
        workloads=tuple(_use(row) for row in fields.rows("workloads")),
        validation=tuple(_use(row) for row in fields.rows("validation")),
    )
    fields.done()
    return made


def _use(fields: Fields) -> Use:
    workload = fields.text("workload", limit=_LONG)
    seeds = _pair(fields, "seeds", whole=True)
    times = _pair(fields, "times", whole=False)
    fields.done()
    return Use(workload, (int(seeds[0]), int(seeds[1])) if seeds else None, times)


def _pair(fields: Fields, key: str, *, whole: bool) -> tuple[float, float] | None:
    if key not in fields:
        return None
    values = fields.numbers(key, whole=whole)
    if len(values) != 2:
        raise fields.error(key, "is not a pair of first and last")
    return values[0], values[1]
