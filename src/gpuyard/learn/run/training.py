"""The training loop: updates, validation, checkpoints, and a state from which it goes on as if never stopped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard import __version__
from gpuyard.envs.base import CheckedEnvs
from gpuyard.envs.kinds.base import EnvKind, find_env
from gpuyard.errors import DataError, LearningError, UsageError
from gpuyard.files import to_plain
from gpuyard.learn.base import Arrays, Learner
from gpuyard.learn.catalog import find_learner
from gpuyard.learn.parts.schedules import EarlyStopping
from gpuyard.learn.run.board import Board
from gpuyard.learn.run.folder import Folder
from gpuyard.learn.run.interruption import Interruption
from gpuyard.learn.run.plan import Plan
from gpuyard.learn.run.start import begin
from gpuyard.learn.run.validation import EngineValidation, Validator
from gpuyard.networks.checkpoint import Manifest, write_checkpoint
from gpuyard.networks.manifest import TrainingRecord, Use
from gpuyard.networks.spec import NetworkSpec
from gpuyard.traces.recipes import Workloads
from gpuyard.traces.splits import common, describe

VALIDATIONS, SAVES = 50, 10  # over a training, unless it says after how many updates
UNSAVED = 120.0  # s of work that may be lost at most, but for one update
TIMES = ("env", "act", "learn", "validate", "save")


@dataclass
class Progress:
    """Where a training stands; the part that is saved, and what is only shown."""

    update: int = 0
    steps: int = 0
    curve: list[dict[str, float]] = field(default_factory=list)  # one row per validation: update, steps, return, score
    best: float = math.nan  # score of the best checkpoint
    best_update: int = -1
    waited: int = 0  # validations since the last improvement that counts
    mark: float = math.nan  # what an improvement must beat by the threshold, higher is better
    stopped_early: bool = False
    metrics: dict[str, float] = field(default_factory=dict)  # of the last update
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TIMES, 0.0))  # since this process began
    steps_per_second: float = math.nan  # of collecting and learning: the last updates count most, that which compiles does not

    SAVED = ("update", "steps", "curve", "best", "best_update", "waited", "mark", "stopped_early")

    def record(self) -> dict[str, Any]:
        """What is saved: nothing that a clock has a part in."""
        return {name: getattr(self, name) for name in self.SAVED}

    @classmethod
    def of(cls, record: Mapping[str, Any], where: str) -> Progress:
        """The saved part."""
        like = cls().record()
        if not isinstance(record, Mapping) or {name: type(each) for name, each in record.items()} != {n: type(e) for n, e in like.items()}:
            raise DataError(f"{where}: saved by another version")
        return cls(**record)

    @property
    def elapsed(self) -> float:
        """s of this process, in all parts."""
        return sum(self.seconds.values())

    def timed(self, steps: int, seconds: float, *, first: bool) -> None:
        """Hear how long an update took."""
        speed = steps / seconds if seconds > 0 else math.nan
        old = self.steps_per_second
        self.steps_per_second = old if first else speed if math.isnan(old) else 0.9 * old + 0.1 * speed


@dataclass(frozen=True)
class Outcome:
    """How a training ended."""

    progress: Progress
    objective: str
    better: str
    baselines: Mapping[str, float]
    interrupted: bool
    folder: Path


Watch = Callable[["Trainer"], None]


class Trainer:
    """A learner at work in a folder. `run()` until the end or an interruption; `watch` hears of every update."""

    def __init__(self, plan: Plan, folder: Folder, parts: Parts, say: Callable[[str], None], watch: Watch) -> None:
        self.plan = plan
        self.folder = folder
        self.validator = parts.validator
        self.progress = Progress()
        self._parts = parts
        self._say = say
        self._watch = watch
        self._learner = parts.learner
        self._board: Board | None = None
        self._saved = time.monotonic()

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        training, at = self.plan.training, self.progress
        limit = training.update_limit
        return at.stopped_early or at.steps >= training.steps or bool(limit and at.update >= limit)

    def resume(self) -> None:
        """Go on from the saved state, or begin anew where none was saved yet."""
        if not self.folder.has_state():
            self._say(f"{self.folder.path}: nothing was saved to go on from: it begins anew")
            self.folder.cut_metrics(0)
            return
        arrays, record = self.folder.read_state()
        self.progress = Progress.of(record, str(self.folder.path))
        try:
            self._learner.restore(arrays)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            hint = "begin anew in another --out"
            raise DataError(
                f"{self.folder.path}: the state is not one of this learner: {type(error).__name__} {error}", hint=hint
            ) from error
        self.folder.cut_metrics(self.progress.update)

    def run(self) -> Outcome:
        """Train. An interruption ends it after the update at hand, saved."""
        self._board = Board(self.folder.board, self.progress.update, self.progress.steps, self._say)
        try:
            with Interruption(self._say) as stop:
                if self.progress.update == 0 and not self.progress.curve:
                    self._say("validating the baselines and the policy to begin with …")
                    self._validate()
                while not self.finished and not stop.asked:
                    self._round()
                if self.finished and self._validated_at() != self.progress.update:
                    self._validate()
                self._save()
        finally:
            self._board.close()
        at, by = self.progress, self.validator
        return Outcome(at, by.objective, by.better, by.baselines, stop.asked and not self.finished, self.folder.path)

    def _validated_at(self) -> float:
        return self.progress.curve[-1]["update"] if self.progress.curve else -1

    # ── one round ──

    def _round(self) -> None:
        training, before = self.plan.training, self.progress.steps
        self._update()
        scores: dict[str, float] = {}
        if self._due(training.validate_every, VALIDATIONS, before) and not self.finished:
            scores[f"validation/{self.validator.objective}"] = self._validate()
        self._write_metrics(scores)
        late = time.monotonic() - self._saved > UNSAVED
        if (late or self._due(training.save_every, SAVES, before)) and not self.finished:
            self._save()
        self._watch(self)

    def _due(self, every: int, times: int, before: int) -> bool:
        """Whether the update at hand is one of every so many or, where that is 0, ends another part of all steps."""
        at, total = self.progress, self.plan.training.steps
        return at.update % every == 0 if every else at.steps * times // total > before * times // total

    def _update(self) -> None:
        at, env_before = self.progress, self._parts.envs.seconds
        metrics = {name: float(value) for name, value in self._learner.update().items()}
        in_env = self._parts.envs.seconds - env_before
        at.seconds["env"] += in_env
        collecting, learning = metrics.get("time/collect", 0.0), metrics.get("time/learn", 0.0)
        at.seconds["act"] += max(collecting - in_env, 0.0)
        at.seconds["learn"] += learning
        at.timed(self._learner.steps - at.steps, collecting + learning, first=not at.metrics)
        at.update, at.steps, at.metrics = at.update + 1, self._learner.steps, metrics

    def _write_metrics(self, scores: Mapping[str, float]) -> None:
        """Of the last update; the board has heard of the scores."""
        at = self.progress
        row = {**at.metrics, "steps_per_second": at.steps_per_second}
        self.folder.add_metrics({"update": at.update, "steps": at.steps, **row, **scores})
        assert self._board is not None
        self._board.add(row, at.steps)

    # ── validation and saving ──

    def _validate(self) -> float:
        """The score of the policy as it is now; the best one so far is kept."""
        at, began = self.progress, time.perf_counter()
        spec, arrays = self._network()
        score = self.validator(spec, arrays)
        value = score if self.validator.better == "higher" else -score
        stopping = EarlyStopping(self.plan.training.patience, self.plan.training.threshold, _or(at.mark, -math.inf), at.waited).after(value)
        at.mark, at.waited, at.stopped_early = stopping.best, stopping.waited, stopping.stop
        at.curve.append({"update": at.update, "steps": at.steps, "return": at.metrics.get("return", math.nan), "score": score})
        if at.best_update < 0 or value > (at.best if self.validator.better == "higher" else -at.best):
            at.best, at.best_update = score, at.update
            self._write_checkpoint(self.folder.best, spec, arrays)
        assert self._board is not None
        named = {f"validation/{self.validator.objective}": score}
        named |= {f"validation/{name}": value for name, value in self.validator.baselines.items()}
        self._board.add(named, at.steps)
        at.seconds["validate"] += time.perf_counter() - began
        return score

    def _save(self) -> None:
        began = time.perf_counter()
        self._write_checkpoint(self.folder.last, *self._network())
        self.folder.write_state(self._learner.save(), self.progress.record())
        self._saved = time.monotonic()
        self.progress.seconds["save"] += time.perf_counter() - began

    def _network(self) -> tuple[NetworkSpec, Arrays]:
        spec, arrays = self._learner.network()
        broken = [name for name, array in arrays.items() if not np.isfinite(array).all()]
        if broken:
            hint = "a smaller learning_rate or max_gradient; the last checkpoints are as they were"
            raise LearningError(f"update {self.progress.update}: {broken[0]} of the network is no longer finite", hint=hint)
        return spec, arrays

    def _write_checkpoint(self, path: Path, spec: NetworkSpec, arrays: Arrays) -> None:
        write_checkpoint(path, self._manifest(spec), arrays)

    def _manifest(self, spec: NetworkSpec) -> Manifest:
        """Of the policy as it is now. No clock and no path has a part in it: the same training gives the same bytes anywhere."""
        plan, parts, at = self.plan, self._parts, self.progress
        config = {name: table for name, table in plan.record().items() if name != "command"}
        training = TrainingRecord(plan.learner, config, plan.seed, at.steps, parts.trained_on, parts.validated_on)
        baselines = {f"validation/{name}": value for name, value in self.validator.baselines.items()}
        return Manifest(
            plan.training.name or f"{plan.env}-{plan.learner}-{plan.seed}".lower(), plan.training.title or parts.kind.title,
            parts.envs.schema, spec, plan.objective,
            parts.kind.choices(plan.options), training, versions(), plan.command,
            tuple({**row, **baselines} if k == 0 else row for k, row in enumerate(at.curve)),
        )  # fmt: skip


def versions() -> dict[str, str]:
    """Of gpuyard and of what has a part in the numbers."""
    found = {"gpuyard": __version__}
    for name in ("numpy", "numba", "jax", "optax"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _or(value: float, other: float) -> float:
    return other if math.isnan(value) else value


# ── from a plan ──


@dataclass(frozen=True)
class Parts:
    """What a plan is made into."""

    kind: EnvKind
    envs: CheckedEnvs
    learner: Learner
    validator: Validator
    trained_on: tuple[Use, ...]
    validated_on: tuple[Use, ...]


def parts_of(plan: Plan, *, begun: bool = False, say: Callable[[str], None] = lambda text: None) -> Parts:
    """Read the workloads, make the environments, the learner and the validation; refuse data that is in two parts.

    `begun`: a state will be restored, so that no heuristic needs to be imitated.
    """
    kind, learner = find_env(plan.env), find_learner(plan.learner)
    if not plan.workloads:
        raise UsageError("no workload to learn from", hint=f"e.g. --workload {kind.example!r}")
    workloads, apart = Workloads(plan.workloads, plan.cluster), bool(plan.validation)
    source = workloads.part("train", whole=apart)
    held_out = (Workloads(plan.validation, plan.cluster) if apart else workloads).part("validation", whole=apart)
    shared = common(source.uses, held_out.uses)
    if shared is not None:
        raise UsageError(f"{describe(shared[1])} cannot be validated on: it is trained on {describe(shared[0])}")
    count = min(plan.training.validation_episodes, held_out.size)
    episodes = [held_out.episode(number) for number in range(count)]
    validator = EngineValidation(kind, plan.options, plan.objective, episodes)
    envs = CheckedEnvs(kind.make(source, plan.options, plan.training.envs, plan.seed))
    made, trained_on = learner.make(envs, plan.config, plan.seed), source.uses
    if plan.training.start:
        trained_on += begin(made, plan, kind, source, held_out.uses, begun=begun, say=say)
    return Parts(kind, envs, made, validator, trained_on, held_out.uses)


def train(plan: Plan, path: Path, *, resume: bool, say: Callable[[str], None], watch: Watch, parts: Parts | None = None) -> Outcome:
    """Train in a folder, from the beginning or from where it was left."""
    folder = Folder.found(path) if resume else Folder.created(path)
    with folder.locked():
        made = parts or parts_of(plan, begun=resume and folder.has_state(), say=say)
        data = [asdict(use) for use in (*made.trained_on, *made.validated_on)]
        record = plan.record() | {"data": to_plain(data, "data"), "versions": versions()}
        if resume:
            _check_same(folder, record, say)
        folder.write_config(record)
        trainer = Trainer(plan, folder, made, say, watch)
        if resume:
            trainer.resume()
        return trainer.run()


def _check_same(folder: Folder, record: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """The data must be what it was; another version is only told."""
    before = folder.read_config()
    if before.get("data") != record["data"]:
        raise DataError(f"{folder.path}: the workloads are not what they were when it was begun", hint="has a trace file changed?")
    if before.get("versions") != record["versions"]:
        say(f"note: {folder.path} was begun with other versions of libraries; the outcome may differ from that of an unbroken run")
