"""The training loop: updates, validation, checkpoints, and a saved state from which it continues as if never stopped."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from gpuyard import __version__
from gpuyard.envs.base import CheckedEnvs
from gpuyard.envs.kinds.base import EnvKind, find_env
from gpuyard.errors import DataError, LearningError, UsageError
from gpuyard.files import to_plain, writing
from gpuyard.learn.base import Arrays, Learner, find_learner
from gpuyard.learn.parts.schedules import EarlyStopping
from gpuyard.learn.run.folder import Folder
from gpuyard.learn.run.plan import TrainingPlan
from gpuyard.learn.run.start import begin
from gpuyard.learn.run.validation import EngineValidation, Validator
from gpuyard.networks.checkpoint import Manifest, write_checkpoint
from gpuyard.networks.manifest import TrainingRecord, Use
from gpuyard.networks.spec import NetworkSpec
from gpuyard.traces.recipes import Workloads
from gpuyard.traces.splits import common, describe

VALIDATIONS, SAVES = 50, 10  # over a training, unless it says after how many updates
UNSAVED = 120.0  # s after which the state is saved in any case
TIMES = ("env", "act", "learn", "validate", "save")
FLUSH_SECONDS = 10.0  # until what was written to TensorBoard files can be seen
SIGNALS = (signal.SIGINT, signal.SIGTERM)  # batch systems send the second


@dataclass
class Progress:
    """How far a training has come: what is saved, and what is only shown."""

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
    steps_per_second: float = math.nan  # of collecting and learning: the last updates count most, the first one, which compiles, does not

    SAVED = ("update", "steps", "curve", "best", "best_update", "waited", "mark", "stopped_early")

    def record(self) -> dict[str, Any]:
        """Return what is saved: nothing that depends on a clock."""
        return {name: getattr(self, name) for name in self.SAVED}

    @classmethod
    def of(cls, record: Mapping[str, Any], where: str) -> Progress:
        """Read the saved part."""
        like = cls().record()
        if not isinstance(record, Mapping) or {name: type(each) for name, each in record.items()} != {n: type(e) for n, e in like.items()}:
            raise DataError(f"{where}: saved by another version")
        return cls(**record)

    @property
    def elapsed(self) -> float:
        """Seconds of this process, in all parts."""
        return sum(self.seconds.values())

    def timed(self, steps: int, seconds: float, *, first: bool) -> None:
        """Add the time that an update took."""
        speed = steps / seconds if seconds > 0 else math.nan
        old = self.steps_per_second
        self.steps_per_second = old if first else speed if math.isnan(old) else 0.9 * old + 0.1 * speed


@dataclass(frozen=True)
class TrainingOutcome:
    """The end of a training."""

    progress: Progress
    objective: str
    better: str
    baselines: Mapping[str, float]
    interrupted: bool
    folder: Path


Watch = Callable[["Trainer"], None]


class Trainer:
    """Trains a learner in a folder until the end or an interruption; calls `watch` after every update."""

    def __init__(self, plan: TrainingPlan, folder: Folder, parts: Parts, say: Callable[[str], None], watch: Watch) -> None:
        self.plan = plan
        self.folder = folder
        self.validator = parts.validator
        self.progress = Progress()
        self._parts = parts
        self._say = say
        self._watch = watch
        self._learner = parts.learner
        self._board: TensorBoardWriter | None = None
        self._saved = time.monotonic()

    @property
    def finished(self) -> bool:
        """True when nothing is left to do."""
        training, at = self.plan.training, self.progress
        limit = training.update_limit
        return at.stopped_early or at.steps >= training.steps or bool(limit and at.update >= limit)

    def resume(self) -> None:
        """Continue from the saved state, or from the beginning if none was saved yet."""
        if not self.folder.has_state():
            self._say(f"{self.folder.path}: no state was saved; starting from the beginning")
            self.folder.cut(0)
            return
        arrays, record = self.folder.read_state()
        self.progress = Progress.of(record, str(self.folder.path))
        try:
            self._learner.restore(arrays)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            hint = "start again in another --out"
            raise DataError(
                f"{self.folder.path}: the saved state does not fit this learner: {type(error).__name__} {error}", hint=hint
            ) from error
        self.folder.cut(self.progress.update)

    def run(self) -> TrainingOutcome:
        """Train. An interruption ends the training after the current update, and saves it."""
        self._board = TensorBoardWriter(self.folder.board, self.progress.update, self.progress.steps, self._say)
        try:
            with Interruption(self._say) as stop:
                if self.progress.update == 0 and not self.progress.curve:
                    self._say("validating the baselines and the initial policy …")
                    self._validate()
                while not self.finished and not stop.asked:
                    self._round()
                if self.finished and self.progress.update not in [row["update"] for row in self.progress.curve[-1:]]:
                    self._validate()
                self._save()
        finally:
            self._board.close()
        at, by = self.progress, self.validator
        return TrainingOutcome(at, by.objective, by.better, by.baselines, stop.asked and not self.finished, self.folder.path)

    # ── one round ──

    def _round(self) -> None:
        training, before = self.plan.training, self.progress.steps
        self._update()
        scores: dict[str, float] = {}
        if self._due(training.validate_every, VALIDATIONS, before) and not self.finished:
            scores[f"validation/{self.validator.objective}"] = self._validate()
        self._write_metrics(scores)
        if training.keep_every and self.progress.update % training.keep_every == 0:
            self._keep(self.folder.kept(self.progress.update))
        late = time.monotonic() - self._saved > UNSAVED
        if (late or self._due(training.save_every, SAVES, before)) and not self.finished:
            self._save()
        self._watch(self)

    def _due(self, every: int, times: int, before: int) -> bool:
        """Return whether this update is one of every so many or, if `every` is 0, ends another of `times` parts of all steps."""
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
        """Write the metrics of the last update; the scores are in the TensorBoard files already."""
        at = self.progress
        row = {**at.metrics, "steps_per_second": at.steps_per_second}
        self.folder.add_metrics({"update": at.update, "steps": at.steps, **row, **scores})
        assert self._board is not None
        self._board.add(row, at.steps)

    # ── validation and saving ──

    def _validate(self) -> float:
        """Return the score of the current policy; keep the best one so far."""
        at, began = self.progress, time.perf_counter()
        spec, arrays = self._network()
        score = self.validator(spec, arrays)
        value = score if self.validator.better == "higher" else -score
        mark = -math.inf if math.isnan(at.mark) else at.mark
        stopping = EarlyStopping(self.plan.training.patience, self.plan.training.threshold, mark, at.waited).after(value)
        at.mark, at.waited, at.stopped_early = stopping.best, stopping.waited, stopping.stop
        at.curve.append({"update": at.update, "steps": at.steps, "return": at.metrics.get("return", math.nan), "score": score})
        if at.best_update < 0 or value > (at.best if self.validator.better == "higher" else -at.best):
            at.best, at.best_update = score, at.update
            write_checkpoint(self.folder.best, self._manifest(spec), arrays)
        assert self._board is not None
        named = {f"validation/{self.validator.objective}": score}
        named |= {f"validation/{name}": value for name, value in self.validator.baselines.items()}
        named |= {f"env/{name}": value for name, value in self.validator.facts.items()}
        self._board.add({**named, **self._against_baselines(score)}, at.steps)
        at.seconds["validate"] += time.perf_counter() - began
        return score

    def _against_baselines(self, score: float) -> dict[str, float]:
        """Return by which share the policy is better than each baseline, and than the best of them; below 0 it is worse."""
        sign, baselines = (1.0 if self.validator.better == "higher" else -1.0), self.validator.baselines
        gains = {name: sign * (score - value) / abs(value) for name, value in baselines.items() if value}
        return {f"gain/{name}": gain for name, gain in gains.items()} | ({"gain/best_baseline": min(gains.values())} if gains else {})

    def _save(self) -> None:
        self._keep(self.folder.last)
        began = time.perf_counter()
        self.folder.write_state(self._learner.save(), self.progress.record())
        self._saved = time.monotonic()
        self.progress.seconds["save"] += time.perf_counter() - began

    def _keep(self, path: Path) -> None:
        """Write the current policy to a file."""
        began = time.perf_counter()
        spec, arrays = self._network()
        write_checkpoint(path, self._manifest(spec), arrays)
        self.progress.seconds["save"] += time.perf_counter() - began

    def _network(self) -> tuple[NetworkSpec, Arrays]:
        spec, arrays = self._learner.network()
        broken = [name for name, array in arrays.items() if not np.isfinite(array).all()]
        if broken:
            hint = "try a smaller learning_rate or max_grad_norm; the last checkpoints are unchanged"
            raise LearningError(f"update {self.progress.update}: {broken[0]} of the network is not finite", hint=hint)
        return spec, arrays

    def _manifest(self, spec: NetworkSpec) -> Manifest:
        """Describe the current policy, without clocks and paths: the same training gives the same bytes anywhere."""
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
    """Return the versions of gpuyard and of the libraries that the numbers depend on."""
    found = {"gpuyard": __version__}
    for name in ("numpy", "numba", "jax", "optax"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


# ── TensorBoard and Ctrl-C ──


class TensorBoardWriter:
    """Writes scalars as TensorBoard files, in this thread so that an error reaches the caller; does nothing without tensorboardX."""

    def __init__(self, folder: Path, update: int, steps: int, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._writer: Any = None
        self._flushed = time.monotonic()
        try:
            from tensorboardX.proto import event_pb2
            from tensorboardX.record_writer import RecordWriter
            from tensorboardX.summary import scalar
        except ImportError:
            say("no TensorBoard files: tensorboardX is not installed (pip install 'gpuyard[learn]'); metrics.jsonl has the same numbers")
            return
        self._event, self._scalar = event_pb2.Event, scalar
        with writing(folder):
            folder.mkdir(exist_ok=True)
            self._writer = RecordWriter(str(folder / f"events.out.tfevents.{update:010d}.gpuyard"))
            self._write(self._event(wall_time=time.time(), file_version="brain.Event:2"))
            begin = event_pb2.SessionLog(status=event_pb2.SessionLog.START)  # later steps of an earlier process no longer count
            self._write(self._event(wall_time=time.time(), step=steps + 1, session_log=begin))

    def add(self, values: Mapping[str, float], steps: int) -> None:
        """Add scalars at a number of steps; leave out what is not finite."""
        if self._writer is None:
            return
        with writing(self._folder):
            for name, value in values.items():
                if math.isfinite(value):
                    self._write(self._event(wall_time=time.time(), step=steps, summary=self._scalar(name, value, display_name=name)))
            if time.monotonic() - self._flushed > FLUSH_SECONDS:
                self._writer.flush()
                self._flushed = time.monotonic()

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())

    def close(self) -> None:
        """Write what is buffered."""
        if self._writer is not None:
            with writing(self._folder):
                self._writer.close()


class Interruption:
    """Lets Ctrl-C stop a loop: `with Interruption(say) as stop: while not stop.asked: …`.

    The first signal asks to stop, the second stops at once. In a thread other than the main one, signals are not handled.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.asked = False
        self._say = say
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        self._say("stopping after this update; press Ctrl-C once more to stop at once, without saving")


# ── from a plan ──


@dataclass(frozen=True)
class Parts:
    """The learner, environments and validator made from a plan."""

    kind: EnvKind
    envs: CheckedEnvs
    learner: Learner
    validator: Validator
    trained_on: tuple[Use, ...]
    validated_on: tuple[Use, ...]


def parts_of(plan: TrainingPlan, *, begun: bool = False, say: Callable[[str], None] = lambda text: None) -> Parts:
    """Read the workloads, make the environments, the learner and the validation; refuse data that is both trained and validated on.

    `begun`: a state will be restored, so no heuristic needs to be imitated.
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


def train(
    plan: TrainingPlan, path: Path, *, resume: bool, say: Callable[[str], None], watch: Watch, parts: Parts | None = None
) -> TrainingOutcome:
    """Train in a folder, from the beginning or from the saved state."""
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
    """Refuse other data than before; only mention other versions."""
    before = folder.read_config()
    if before.get("data") != record["data"]:
        raise DataError(f"{folder.path}: the workloads have changed since the training was started", hint="has a trace file changed?")
    if before.get("versions") != record["versions"]:
        say(f"note: {folder.path} was started with other versions of libraries; the outcome may differ from that of an uninterrupted run")
