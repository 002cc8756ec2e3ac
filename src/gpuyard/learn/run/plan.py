"""The plan of a training: environment, learner, workloads and every setting, resolved; it is saved as a folder's config.json."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gpuyard.envs.kinds.base import EnvKind, find_env
from gpuyard.errors import DataError, UsageError
from gpuyard.files import merge_tables
from gpuyard.learn.base import LearnerKind, find_learner
from gpuyard.learn.run import settings
from gpuyard.learn.run.folder import read_config
from gpuyard.learn.run.settings import names_of
from gpuyard.model.fields import MOST, check_limits
from gpuyard.model.units import shorten
from gpuyard.networks.manifest import NAME
from gpuyard.policies.learned import programs_in

SECTIONS = ("training", "env", "learner")
SAVED = ".json"  # of a configuration that a training wrote, in place of a TOML file


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of a training's run. An update is a round of collecting and learning."""

    steps: int = 1_000_000  # choices in the environments; the update that reaches them is the last
    update_limit: int = 0  # updates after which the training ends in any case; 0: no limit
    envs: int = 64  # stepped together
    validate_every: int = 0  # updates; 0: 50 times over the training, by steps
    validation_episodes: int = 16
    save_every: int = 0  # updates; 0: 10 times over the training; in any case after two minutes
    keep_every: int = 0  # updates; the policy is then kept as update-000100.safetensors, which no later one replaces; 0: never
    patience: int = 0  # validations without improvement after which the training ends; 0: never
    threshold: float = 0.0  # least improvement that counts, in units of the objective
    start: str = ""  # a checkpoint (learned:NAME or a path) or a heuristic to imitate; empty: random weights
    start_steps: int = 16_384  # choices of the heuristic that are imitated
    name: str = ""  # of the policy in its checkpoints; empty: ENV-LEARNER-SEED
    title: str = ""  # one line about the policy; empty: that of the environment

    def __post_init__(self) -> None:
        counts = {"steps": 1, "validation_episodes": 1, "start_steps": 1024} | dict.fromkeys(
            ("update_limit", "validate_every", "save_every", "keep_every", "patience"), 0
        )
        check_limits("training", self, {name: (low, MOST) for name, low in counts.items()} | {"envs": (1, 65_536)})
        if self.name and not NAME.fullmatch(self.name):
            raise UsageError(f"training.name = {self.name!r} is not a valid name", hint="small letters, digits, . - and _, e.g. hosts")


@dataclass(frozen=True)
class TrainingPlan:
    """Everything that decides the outcome of a training."""

    env: str  # the label of an EnvKind
    learner: str
    training: TrainingSettings
    options: Any  # settings of the environment
    config: Any  # settings of the learner
    workloads: tuple[str, ...]
    cluster: str = ""
    validation: tuple[str, ...] = ()  # workloads; empty: the validation parts of `workloads`
    objective: str = "bsld"
    seed: int = 0
    command: str = ""  # that asked for the training

    def record(self) -> dict[str, Any]:
        """Return the plan in JSON's terms."""
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
class TrainingRequest:
    """A request for a training, in names and texts. None and empty mean: not given."""

    env: str | None = None
    learner: str | None = None
    workloads: tuple[str, ...] = ()
    cluster: str | None = None
    validation: tuple[str, ...] = ()
    objective: str | None = None
    seed: int | None = None
    file: Path | None = None
    sets: tuple[str, ...] = ()
    flags: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)  # section → name → value, from command line options
    command: str = ""


def plan_of(request: TrainingRequest) -> TrainingPlan:
    """Fill in every default; refuse unknown names and values of the wrong type."""
    saved: Mapping[str, Any] = {}
    if request.file is not None and request.file.suffix == SAVED:
        request, saved = _with_saved(request, request.file)
    if request.env is None:
        raise UsageError("no environment to train in", hint="e.g. gpuyard train PickJob --learner ppo")
    kind, learner = find_env(request.env), find_learner(request.learner or "ppo")
    kinds: dict[str, type[Any]] = {"training": TrainingSettings, "env": kind.options, "learner": learner.config}
    given = _given(request, kinds, kind, saved)
    training = settings.build("training", TrainingSettings, given["training"])
    config = _config(learner, training, given["learner"])
    options = _with_same_discount(settings.build("env", kind.options, given["env"]), config, given["env"])
    objective = request.objective or str(getattr(options, "objective", kind.objective))
    return TrainingPlan(
        kind.label, learner.name, training, options, config, request.workloads, request.cluster or "", request.validation, objective,
        request.seed or 0, request.command,
    )  # fmt: skip


def _with_saved(request: TrainingRequest, path: Path) -> tuple[TrainingRequest, Mapping[str, Any]]:
    """Fill a request from the config.json of an earlier training, and return the settings in it; the request's own words win.

    Lengths that followed from the number of steps are left out: they follow from the new one. A program that the file names is run only if
    the request names it too.
    """
    record = read_config(path)
    _refuse_programs(record, request, str(path))
    try:
        found = _from_record(record)
    except (KeyError, TypeError, AttributeError):
        raise DataError(f"{path}: not the configuration of a training") from None
    tables: dict[str, Any] = found.record()["settings"]
    lengths = {name for name, value in _lengths(found.config, found.training).items() if getattr(found.config, name) == value}
    tables["learner"] = {name: value for name, value in tables["learner"].items() if name not in lengths}
    return dataclasses.replace(
        request, env=request.env or found.env, learner=request.learner or found.learner, workloads=request.workloads or found.workloads,
        cluster=found.cluster if request.cluster is None else request.cluster, validation=request.validation or found.validation,
        objective=request.objective or found.objective, seed=found.seed if request.seed is None else request.seed, file=None,
    ), tables  # fmt: skip


def _given(
    request: TrainingRequest, kinds: Mapping[str, type[Any]], kind: EnvKind, saved: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, dict[str, Any]]:
    """Return section → name → value: from the file, then command line options, then `--set`. Old names become the present ones."""
    read = settings.read_file(request.file, SECTIONS) if request.file is not None else saved
    file = {section: settings.present_names(section, kinds[section], table) for section, table in read.items()}
    texts = settings.assign(kinds, request.sets)
    flags = {section: {k: v for k, v in request.flags.get(section, {}).items() if v is not None} for section in SECTIONS}
    for section, names in flags.items():
        for name in names:
            if name not in names_of(kinds[section]):
                raise UsageError(f"--{name} is not a setting of this {section}", hint=f"it has: {', '.join(names_of(kinds[section]))}")
    lowest: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    if "objective" in names_of(kind.options):
        lowest["env"] = {"objective": kind.objective}
        flags["env"] |= {"objective": request.objective} if request.objective else {}
    layers = (lowest, file, flags, texts)
    return {section: merge_tables(*(layer.get(section, {}) for layer in layers)) for section in SECTIONS}


def _config(learner: LearnerKind, training: TrainingSettings, given: Mapping[str, Any]) -> Any:
    """Build the learner's settings. `steps`, or `updates` of `rollout` steps, are as long as the training unless given."""
    config = settings.build("learner", learner.config, given)
    lengths = {name: value for name, value in _lengths(config, training).items() if name not in given}
    return dataclasses.replace(config, **lengths)


def _with_same_discount(options: Any, config: Any, given: Mapping[str, Any]) -> Any:
    """Give the environment the learner's discount, unless one is given: only then does shaping leave the best policy what it is."""
    if not getattr(options, "shaping", 0.0) or "gamma" in given:
        return options
    return dataclasses.replace(options, gamma=getattr(config, "discount", 1.0))


def _lengths(config: Any, training: TrainingSettings) -> dict[str, int]:
    """Return the fields of a learner's settings that give the length of the training."""
    names, found = names_of(type(config)), {}
    if "steps" in names:
        found["steps"] = training.steps
    if {"rollout", "updates"} <= set(names):
        length = math.ceil(training.steps / (config.rollout * training.envs))
        found["updates"] = min(length, training.update_limit or length)
    return found


# ── resuming ──


def plan_again(record: Mapping[str, Any], request: TrainingRequest, where: str) -> TrainingPlan:
    """Return the plan in a folder's record. The request must agree with it, except for the number of steps or updates.

    Learning rate and entropy weight then follow the new length from here on. A program that the record names is run only if the
    request names it too: the folder may come from somebody else.
    """
    _refuse_programs(record, request, where)
    try:
        found = _from_record(record)
    except (KeyError, TypeError, AttributeError):
        raise DataError(f"{where}: not the configuration of a training") from None
    asked = _filled(request, found)
    extended = dataclasses.replace(
        found, training=dataclasses.replace(found.training, steps=asked.training.steps, update_limit=asked.training.update_limit)
    )
    for name, old, new in _differences(extended.record(), asked.record()):
        raise UsageError(
            f"{where} was started with {name} = {old}, not {new}", hint="leave it out to resume, or start again in another --out"
        )
    return dataclasses.replace(extended, config=_lengthened(found, extended.training))


def _refuse_programs(record: Mapping[str, Any], request: TrainingRequest, where: str) -> None:
    flags = [value for table in request.flags.values() for value in table.values() if isinstance(value, str)]
    named = [*request.workloads, *request.validation, *request.sets, *flags]
    for text in programs_in({name: value for name, value in record.items() if name != "command"}):
        if not any(text in each for each in named):
            hint = f"if you trust that program, name it again with its setting: --set SETTING={shorten(text)}"
            raise UsageError(f"{where}: its configuration names a program, {shorten(text)}, which is not run", hint=hint)


def _lengthened(found: TrainingPlan, longer: TrainingSettings) -> Any:
    """Lengthen what was as long as the training, or nothing would be learned beyond its old end."""
    before, after = _lengths(found.config, found.training), _lengths(found.config, longer)
    same = {name: after[name] for name, length in before.items() if getattr(found.config, name) == length}
    return dataclasses.replace(found.config, **same)


def _from_record(record: Mapping[str, Any]) -> TrainingPlan:
    kind, learner, tables = find_env(record["env"]), find_learner(record["learner"]), record["settings"]
    return TrainingPlan(
        kind.label, learner.name, settings.build("training", TrainingSettings, tables["training"]),
        settings.build("env", kind.options, tables["env"]), settings.build("learner", learner.config, tables["learner"]),
        tuple(record["workloads"]), record["cluster"], tuple(record["validation"]), record["objective"], record["seed"], record["command"],
    )  # fmt: skip


def _filled(request: TrainingRequest, found: TrainingPlan) -> TrainingPlan:
    """Take what the request leaves open from the plan."""
    kind = find_env(request.env or found.env)
    learner = find_learner(request.learner or found.learner)
    same = (kind.label, learner.name) == (found.env, found.learner)
    record = found.record()["settings"] if same else {}
    kinds: dict[str, type[Any]] = {"training": TrainingSettings, "env": kind.options, "learner": learner.config}
    given = _given(dataclasses.replace(request, objective=request.objective or found.objective), kinds, kind)
    tables = {section: merge_tables(record.get(section, {}), given[section]) for section in kinds}
    built = {section: settings.build(section, kinds[section], tables[section]) for section in kinds}
    return TrainingPlan(
        kind.label, learner.name, built["training"], built["env"], built["learner"], request.workloads or found.workloads,
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
