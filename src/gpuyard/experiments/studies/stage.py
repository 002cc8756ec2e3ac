"""The stage of an explanation: episodes are run and recorded, and run again with one feature permuted at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.simulation import Simulation
from gpuyard.envs.base import Envs
from gpuyard.envs.vector import EngineEnvs
from gpuyard.errors import NoChoiceError, UsageError
from gpuyard.experiments.studies.evaluation import Contender
from gpuyard.model.snapshot import Snapshot
from gpuyard.networks.network import Network
from gpuyard.policies import Scheduler
from gpuyard.traces.recipes import Episode

SAMPLE = 1500  # recorded decisions that are made again
GRID = 9  # values of a feature at which its partial dependence is taken: its percentiles, evenly
CURVES = 6  # features with a partial dependence, the most important ones
RUNS = 4  # of which snapshots are taken
PARTS = 100  # of such a run, as progress is told
Disturb = Callable[[Array, Array], tuple[Array, Array]]  # rows and context of a decision → what is seen instead


@dataclass(frozen=True)
class RecordedChoice:
    """One recorded decision."""

    rows: Array  # (n, features) f4: those that could be chosen; n = 0 where there are no rows
    context: Array  # (features,) f4
    scores: Array  # (n or actions,)
    chosen: int  # into scores
    episode: int
    time: float  # s


@dataclass(frozen=True)
class Feature:
    """One feature and how much it matters."""

    name: str
    of_row: bool  # else of the situation
    changed: float  # share of choices that become others when it is permuted
    worse: float  # by which share of its value the objective of whole runs worsens then
    curve: tuple[float, ...] = ()  # partial dependence, at percentiles of the feature; empty: not taken
    of: str = ""  # what the curve is a share of


def plays(contender: Contender, episodes: int) -> int:
    """Count the runs: every episode once, and once more for each feature."""
    schema = contender.checkpoint.manifest.schema
    return episodes * (1 + len(schema.rows) + len(schema.context))


@dataclass(frozen=True)
class LabelledChoices:
    """Labels of choices, if there are any: the schedulers of a switch, kinds of devices."""

    labels: tuple[str, ...] = ()
    column: int = -1  # the feature of the chosen row that says which it is, 0 or 1; -1: the choice itself is the number

    @classmethod
    def of(cls, contender: Contender) -> LabelledChoices:
        explaining = contender.kind.explaining
        column = contender.kind.schema.rows.index(explaining.label_feature) if explaining.label_feature else -1
        return cls(explaining.labels(contender.scheduler), column)

    def taken(self, rows: Array, chosen: int) -> int:
        """Return the number of the label of a choice: of that row, or of that action."""
        return chosen if self.column < 0 else int(rows[chosen, self.column])


def _options_of_one(contender: Contender) -> Any:
    """Make the options of an environment of one episode, rewarded by the checkpoint's objective if that is a reward."""
    options = contender.options
    alone = {field.name: 1 for field in fields(options) if field.name in ("pool", "threads")}
    for objective in (contender.checkpoint.manifest.objective, contender.kind.objective):
        try:
            return replace(options, **alone, objective=objective)
        except UsageError:
            continue
    return replace(options, **alone)


class Stage:
    """Episodes that are run again and again, each in an environment of its own; those without a choice are left out."""

    def __init__(
        self, contender: Contender, episodes: Sequence[Episode], rng: np.random.Generator, progress: Callable[[int], None]
    ) -> None:
        self.contender = contender
        self.network = Network.of(contender.checkpoint.manifest.network, contender.checkpoint.arrays)
        self.actions = self.network.spec.actions
        self.choices = LabelledChoices.of(contender)
        self._rng = rng
        self._progress = progress
        self._all = len(episodes)
        self.episodes: list[Episode] = []
        self._envs: list[Envs] = []
        self.seen: list[RecordedChoice] = []
        self.returns: list[float] = []
        self._record(episodes)
        picks = rng.permutation(len(self.seen))[:SAMPLE]
        self.sample = [self.seen[int(k)] for k in picks]

    def _record(self, episodes: Sequence[Episode]) -> None:
        options = _options_of_one(self.contender)
        for done, episode in enumerate(episodes):
            self._envs.append(self.contender.kind.make(OnlyEpisode(episode, episode.text), options, 1, 0))
            try:
                self.returns.append(self._play(len(self.episodes), None))
                self.episodes.append(episode)
            except NoChoiceError:
                self._envs.pop()
            self._progress(done + 1)
        if not self.episodes:
            which = "the one episode leaves" if len(episodes) == 1 else f"none of {len(episodes)} episodes leaves"
            hint = f"try more --episodes, or a workload with more load, e.g. --workload '{self.contender.kind.example}'"
            raise UsageError(f"{self.contender.text}: {which} it a choice", hint=hint)

    def _play(self, number: int, disturb: Disturb | None) -> float:
        """Play one episode and return its return; choices are recorded unless a feature is disturbed."""
        envs = self._envs[number]
        seen = envs.reset(0)
        gained, done = 0.0, False
        while not done:
            legal = np.flatnonzero(seen.mask[0])
            rows = seen.rows[0][legal] if not self.actions else seen.rows[0][:0]
            context = seen.context[0].copy()
            if disturb is None:
                scores = self.network.scores(rows, context)
                time = envs.now(0) if isinstance(envs, EngineEnvs) else 0.0
                self.seen.append(RecordedChoice(rows, context, scores, int(np.argmax(scores)), number, time))
            else:
                scores = self.network.scores(*disturb(rows, context))
            best = int(np.argmax(scores))
            step = envs.step(np.array([best if self.actions else legal[best]], np.int32))
            seen, gained, done = step.observation, gained + float(step.reward[0]), bool(step.done[0])
        return gained

    # ── importance ──

    def features(self) -> tuple[Feature, ...]:
        """Measure every feature, with its partial dependence; those with the largest effect on choices and objective come first."""
        schema = self.contender.checkpoint.manifest.schema
        named = [(name, k, True) for k, name in enumerate(schema.rows)] + [(name, k, False) for k, name in enumerate(schema.context)]
        found = []
        for done, (name, k, of_row) in enumerate(named):
            shown = f"{name} (situation)" if not of_row and name in schema.rows else name
            found.append((self._feature(shown, k, of_row, self._all * (done + 1)), k))
            self._progress(self._all * (done + 2))
        found.sort(key=lambda each: (-(each[0].changed + max(each[0].worse, 0.0)), each[0].name))
        curved = []
        for n, (feature, k) in enumerate(found[:CURVES]):
            curved.append(self._with_curve(feature, k))
            self._progress(plays(self.contender, self._all) + n + 1)
        return (*curved, *(feature for feature, _ in found[CURVES:]))

    def _values(self, k: int, of_row: bool) -> Array:
        """Return all recorded values of a feature."""
        if of_row:
            return np.concatenate([each.rows[:, k] for each in self.sample])
        return np.array([each.context[k] for each in self.sample])

    def _feature(self, name: str, k: int, of_row: bool, before: int) -> Feature:
        """Measure one feature; `before` steps were done before it."""
        values = self._values(k, of_row)
        if values.min() == values.max():
            return Feature(name, of_row, 0.0, 0.0)
        disturb = self._permuting(values, k, of_row)
        others = [int(np.argmax(self._scores(each, *disturb(each.rows, each.context)))) != each.chosen for each in self.sample]
        if not any(others):
            return Feature(name, of_row, 0.0, 0.0)  # runs would be as they were
        again = self._again(k, of_row, disturb)
        permuted = []
        for number in range(len(self.episodes)):
            permuted.append(again(number))
            self._progress(before + number + 1)
        base = math.fsum(self.returns)
        worse = (base - math.fsum(permuted)) / abs(base) if base else 0.0
        return Feature(name, of_row, float(np.mean(others)), worse)

    def _again(self, k: int, of_row: bool, disturb: Disturb) -> Callable[[int], float]:
        """Return what runs an episode without what feature k says, and returns its return."""
        return lambda number: self._play(number, disturb)

    def _scores(self, each: RecordedChoice, rows: Array, context: Array) -> Array:
        """Return the scores of a recorded decision where something else is seen; the highest is chosen."""
        return self.network.scores(rows, context)

    def _permuting(self, values: Array, k: int, of_row: bool) -> Disturb:
        rng = np.random.default_rng(self._rng.integers(2**63))

        def disturb(rows: Array, context: Array) -> tuple[Array, Array]:
            if of_row:
                rows = rows.copy()
                rows[:, k] = rng.choice(values, len(rows))
            else:
                context = context.copy()
                context[k] = rng.choice(values)
            return rows, context

        return disturb

    # ── partial dependence ──

    def _with_curve(self, feature: Feature, k: int) -> Feature:
        values = self._values(k, feature.of_row)
        if values.min() == values.max():
            return feature
        grid = np.quantile(values, np.linspace(0, 1, GRID)).astype(np.float32)
        sample = self.sample[: SAMPLE // 3]
        labels = self.choices.labels
        if labels and not feature.of_row:
            taken = [[self.choices.taken(each.rows, self._choice_with(each, k, value)) for each in sample] for value in grid]
            shares = np.array([(np.array(taken) == action).mean(axis=1) for action in range(len(labels))])
            most = int(np.argmax(np.ptp(shares, axis=1)))
            return replace(feature, curve=tuple(shares[most].tolist()), of=f"chooses {labels[most]}")
        if not feature.of_row:
            same = [float(np.mean([self._choice_with(each, k, value) == each.chosen for each in sample])) for value in grid]
            return replace(feature, curve=tuple(same), of="chooses as before")
        several = [each for each in sample if len(each.rows) > 1]
        picks = [int(self._rng.integers(len(each.rows))) for each in several]
        ahead = [float(np.mean([self._ahead(*pair, k, value) for pair in zip(several, picks, strict=True)])) for value in grid]
        return replace(feature, curve=tuple(ahead), of="is put before others")

    def _choice_with(self, each: RecordedChoice, k: int, value: float) -> int:
        context = each.context.copy()
        context[k] = value
        return int(np.argmax(self._scores(each, each.rows, context)))

    def _ahead(self, each: RecordedChoice, row: int, k: int, value: float) -> float:
        rows = each.rows.copy()
        rows[row, k] = value
        scores = self._scores(each, rows, each.context)
        return float((scores < scores[row]).sum()) / (len(scores) - 1)


@dataclass(frozen=True)
class OnlyEpisode:
    """A source that has one episode."""

    kept: Episode
    text: str
    size: int = 1
    uses: tuple[Any, ...] = ()

    def episode(self, number: int) -> Episode:
        return self.kept


def snapshots_of(
    contender: Contender, scheduler: Scheduler, episodes: Sequence[Episode], rng: np.random.Generator, progress: Callable[[int], None]
) -> list[Snapshot]:
    """Choose snapshots along its own runs at which enough jobs wait and one starts; as many from each run."""
    found: list[Snapshot] = []
    runs = episodes[:RUNS]
    for done, episode in enumerate(runs):
        simulation = Simulation(episode.workload, episode.cluster, seed=0)
        kept: list[Snapshot] = []
        decided = 0
        while (snapshot := simulation.advance()) is not None:
            decisions = scheduler.decide(snapshot)
            if decisions and len(snapshot.waiting) >= contender.kind.explaining.waiting:
                kept.append(snapshot)
            simulation.apply(decisions)
            decided += len(decisions)
            progress(PARTS * done + min(PARTS * decided // len(episode.workload), PARTS))
        picks = rng.permutation(len(kept))[: contender.kind.explaining.snapshots // len(runs)]
        found += [kept[int(k)] for k in sorted(picks)]
        progress(PARTS * (done + 1))
    return found
