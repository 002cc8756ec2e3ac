"""What is to be trained: environment, learner, workloads and every setting, resolved; the same in a folder's config.json."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard.envs.kinds.base import EnvKind, find_env
from gpuyard.errors import DataError, UsageError
from gpuyard.files import merge_tables
from gpuyard.learn.base import LearnerKind
from gpuyard.learn.catalog import find_learner
from gpuyard.learn.run import settings
from gpuyard.model.fields import MOST, check_limits
from gpuyard.networks.manifest import NAME

SECTIONS = ("training", "env", "learner")


@dataclass(frozen=True)
class Training:
    """How a training is run. Counts of updates are rounds of collecting and learning."""

    steps: int = 1_000_000  # choices in the environments; the update that reaches them is the last
    update_limit: int = 0  # updates after which it ends even so; 0: none
    envs: int = 64  # stepped together
    validate_every: int = 0  # updates; 0: 50 times over the training, by steps
    validation_episodes: int = 16
    save_every: int = 0  # updates; 0: 10 times over the training; in any case after two minutes
    patience: int = 0  # validations without improvement after which it ends; 0: never
    threshold: float = 0.0  # an improvement is larger, in units of the objective
    start: str = ""  # what is begun with: a checkpoint, learned:NAME or a path, or a heuristic to imitate; empty: weights are drawn
    start_steps: int = 16_384  # choices of the heuristic that are imitated
    name: str = ""  # of the policy in its checkpoints; empty: ENV-LEARNER-SEED
    title: str = ""  # one line about it; empty: that of the environment

    def __post_init__(self) -> None:
        counts = {
            "steps": 1,
            "update_limit": 0,
            "validate_every": 0,
            "validation_episodes": 1,
            "save_every": 0,
            "patience": 0,
            "start_steps": 1024,
        }
        check_limits("training", self, {name: (low, MOST) for name, low in counts.items()} | {"envs": (1, 65_536)})
        if self.name and not NAME.fullmatch(self.name):
            raise UsageError(f"training.name = {self.name!r} is no name of a policy", hint="small letters, digits, . - and _, e.g. hosts")


@dataclass(frozen=True)
class Plan:
    """All that decides the outcome of a training."""

    env: str  # the name of an EnvKind
    learner: str
    training: Training
    options: Any  # of the environment
    config: Any  # of the learner
    workloads: tuple[str, ...]
    cluster: str = ""
    validation: tuple[str, ...] = ()  # workloads; empty: the validation parts of `workloads`
    objective: str = "bsld"
    seed: int = 0
    command: str = ""  # that asked for it

    def record(self) -> dict[str, Any]:
        """In JSON's terms."""
        return {
            "env": self.env, "learner": self.learner, "workloads": list(self.workloads), "cluster": self.cluster,
            "validation": list(self.validation), "objective": self.objective, "seed": self.seed,
            "settings": {name: dataclasses.asdict(each) for name, each in zip(SECTIONS, self._parts, strict=True)},
            "command": self.command,
        }  # fmt: skip

    @property
    def _parts(self) -> tuple[Any, ...]:
        return self.training, self.options, self.config


@dataclass(frozen=True)
class Request:
    """What somebody asks for: names and texts. None and empty: not said."""

    env: str | None = None
    learner: str | None = None
    workloads: tuple[str, ...] = ()
    cluster: str | None = None
    validation: tuple[str, ...] = ()
    objective: str | None = None
    seed: int | None = None
    file: Path | None = None
    sets: tuple[str, ...] = ()
    flags: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)  # section → name → value, of options of their own
    command: str = ""


def plan_of(request: Request) -> Plan:
    """The request with every default filled in; refuses unknown names and values of the wrong type."""
    if request.env is None:
        raise UsageError("no environment to train in", hint="e.g. gpuyard train PickJob --learner ppo")
    kind, learner = find_env(request.env), find_learner(request.learner or "ppo")
    kinds: dict[str, type[Any]] = {"training": Training, "env": kind.options, "learner": learner.config}
    given = _given(request, kinds, kind)
    training = settings.build("training", Training, given["training"])
    config = _config(learner, training, given["learner"])
    options = _with_same_discount(settings.build("env", kind.options, given["env"]), config, given["env"])
    objective = request.objective or str(getattr(options, "objective", kind.objective))
    return Plan(
        kind.name, learner.name, training, options, config, request.workloads, request.cluster or "", request.validation, objective,
        request.seed or 0, request.command,
    )  # fmt: skip


def _given(request: Request, kinds: Mapping[str, type[Any]], kind: EnvKind) -> dict[str, dict[str, Any]]:
    """Section → name → value: the file, then the options of their own, then the texts."""
    file = settings.read_file(request.file, SECTIONS) if request.file is not None else {}
    texts = settings.assign(kinds, request.sets)
    flags = {section: {k: v for k, v in request.flags.get(section, {}).items() if v is not None} for section in SECTIONS}
    for section, names in flags.items():
        for name in names:
            if name not in _names(kinds[section]):
                raise UsageError(f"--{name} is no setting of this {section}", hint=f"it has: {', '.join(_names(kinds[section]))}")
    lowest: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    if "objective" in _names(kind.options):
        lowest["env"] = {"objective": kind.objective}
        flags["env"] |= {"objective": request.objective} if request.objective else {}
    layers = (lowest, file, flags, texts)
    return {section: merge_tables(*(layer.get(section, {}) for layer in layers)) for section in SECTIONS}


def _names(kind: type[Any]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _config(learner: LearnerKind, training: Training, given: Mapping[str, Any]) -> Any:
    """The learner's settings. The length of its courses, `steps`, or `updates` of `rollout` steps, is that of the training."""
    config = settings.build("learner", learner.config, given)
    lengths = {name: value for name, value in _lengths(config, training).items() if name not in given}
    return dataclasses.replace(config, **lengths)


def _with_same_discount(options: Any, config: Any, given: Mapping[str, Any]) -> Any:
    """The environment's settings. Shaping leaves the best policy what it is only if it discounts as the learner does: so it does, unless
    another discount is asked for."""
    if not getattr(options, "shaping", 0.0) or "gamma" in given:
        return options
    return dataclasses.replace(options, gamma=getattr(config, "discounting", 1.0))


def _lengths(config: Any, training: Training) -> dict[str, int]:
    """Those fields of a learner's settings that say how long its courses are, as long as the training."""
    names, found = _names(type(config)), {}
    if "steps" in names:
        found["steps"] = training.steps
    if {"rollout", "updates"} <= set(names):
        length = math.ceil(training.steps / (config.rollout * training.envs))
        found["updates"] = min(length, training.update_limit or length)
    return found


# ── resuming ──


def plan_again(record: Mapping[str, Any], request: Request, where: str) -> Plan:
    """The plan in a folder's record; what the request says must not differ from it, but for the number of steps or updates.

    The courses of learning rate and entropy then go by the new length from here on.
    """
    try:
        found = _from_record(record)
    except (KeyError, TypeError, AttributeError):
        raise DataError(f"{where}: not the configuration of a training") from None
    asked = _filled(request, found)
    extended = dataclasses.replace(
        found, training=dataclasses.replace(found.training, steps=asked.training.steps, update_limit=asked.training.update_limit)
    )
    for name, old, new in _differences(extended.record(), asked.record()):
        raise UsageError(f"{where} was begun with {name} = {old}, not {new}", hint="leave it out to resume, or begin anew in another --out")
    return dataclasses.replace(extended, config=_with_longer_courses(found, extended.training))


def _with_longer_courses(found: Plan, longer: Training) -> Any:
    """The learner's settings; courses that were as long as the training are so again, or nothing would be learned beyond their ends."""
    before, after = _lengths(found.config, found.training), _lengths(found.config, longer)
    same = {name: after[name] for name, length in before.items() if getattr(found.config, name) == length}
    return dataclasses.replace(found.config, **same)


def _from_record(record: Mapping[str, Any]) -> Plan:
    kind, learner, tables = find_env(record["env"]), find_learner(record["learner"]), record["settings"]
    return Plan(
        kind.name, learner.name, settings.build("training", Training, tables["training"]),
        settings.build("env", kind.options, tables["env"]), settings.build("learner", learner.config, tables["learner"]),
        tuple(record["workloads"]), record["cluster"], tuple(record["validation"]), record["objective"], record["seed"], record["command"],
    )  # fmt: skip


def _filled(request: Request, found: Plan) -> Plan:
    """The request with what it leaves open taken from the plan."""
    kind = find_env(request.env or found.env)
    learner = find_learner(request.learner or found.learner)
    same = (kind.name, learner.name) == (found.env, found.learner)
    record = found.record()["settings"] if same else {}
    kinds: dict[str, type[Any]] = {"training": Training, "env": kind.options, "learner": learner.config}
    given = _given(dataclasses.replace(request, objective=request.objective or found.objective), kinds, kind)
    tables = {section: merge_tables(record.get(section, {}), given[section]) for section in kinds}
    built = {section: settings.build(section, kinds[section], tables[section]) for section in kinds}
    return Plan(
        kind.name, learner.name, built["training"], built["env"], built["learner"], request.workloads or found.workloads,
        found.cluster if request.cluster is None else request.cluster, request.validation or found.validation,
        request.objective or found.objective, found.seed if request.seed is None else request.seed, found.command,
    )  # fmt: skip


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Sequence[tuple[str, Any, Any]]:
    found: list[tuple[str, Any, Any]] = []
    for name in old:
        if isinstance(old[name], Mapping) and isinstance(new.get(name), Mapping):
            found += _differences(old[name], new[name], "" if name == "settings" else f"{prefix}{name}.")
        elif old[name] != new.get(name):
            found.append((prefix + name, old[name], new.get(name)))
    return found
