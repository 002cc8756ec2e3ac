"""Explains what a policy looks at: its decisions are recorded and made again with one feature permuted at a time.

Importance by permutation (Breiman 2001; Fisher et al. 2019): a feature takes values that it had in other decisions. Two numbers say how
much that matters: the share of choices that become others, and by how much the objective of whole runs worsens.
"""

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
from gpuyard.experiments.studies.evaluation import Contender, check_logs_are_here
from gpuyard.metrics.system import entropy_of
from gpuyard.model.snapshot import Snapshot
from gpuyard.model.units import parse_assignments
from gpuyard.networks.network import Network
from gpuyard.policies import Decider, Scheduler, parse_scheduler
from gpuyard.traces.recipes import Episode, EpisodeSource, Workloads, parse_recipe

EPISODES = 12
SAMPLE = 1500  # recorded decisions that are made again
GRID = 9  # values of a feature at which its partial dependence is taken: its percentiles, evenly
CURVES = 6  # features with a partial dependence, the most important ones
RUNS = 4  # of which these are
_PARTS = 100  # of such a run, as progress is told
THIRDS = ("lowest", "middle", "highest")
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


@dataclass(frozen=True)
class Regime:
    """Choices in runs, or in situations, that have one thing in common."""

    name: str
    shares: tuple[float, ...]  # of each action
    entropy: float  # of the choices, 0..1: always the same … evenly spread
    decisions: int


@dataclass(frozen=True)
class Likeness:
    """How much a policy decides like a heuristic."""

    name: str
    same: float  # share of decisions with the same choice
    rank: float  # mean rank correlation (Spearman) of the orders; nan: there are none
    decisions: int


@dataclass(frozen=True)
class Explanation:
    """An explanation of a checkpoint, with the most important features first."""

    checkpoint: str
    decision: str
    workloads: str
    objective: str
    episodes: int  # with a choice
    decisions: int
    features: tuple[Feature, ...]
    actions: tuple[str, ...] = ()  # of a switch: its schedulers; of a device choice: the kinds of device
    regimes: tuple[Regime, ...] = ()
    likeness: tuple[Likeness, ...] = ()
    over_time: tuple[tuple[float, ...], ...] = ()  # scores of the actions at each decision of one run
    times: tuple[float, ...] = ()  # s
    run: str = ""  # which run
    empty: int = 0  # further episodes, without a choice


def steps(contender: Contender, episodes: int) -> int:
    """How much work an explanation is, as `progress` hears it: runs, curves, and what heuristics are asked."""
    explaining = contender.kind.explaining
    asked = RUNS * _PARTS + explaining.snapshots if explaining.heuristics else 0
    return _plays(contender, episodes) + CURVES + asked


def _plays(contender: Contender, episodes: int) -> int:
    """Count the runs: every episode once, and once more for each feature."""
    schema = contender.checkpoint.manifest.schema
    return episodes * (1 + len(schema.rows) + len(schema.context))


def explain(
    contender: Contender,
    workloads: Sequence[str] = (),
    cluster: str = "",
    *,
    episodes: int = EPISODES,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Explanation:
    """Record, permute, and ask heuristics; on the validation workloads of the checkpoint unless others are given. `seed`: of the draws.

    Episodes without a choice are left out. `progress` is called with the number of `steps` that are done.
    """
    source = _source(contender, workloads, cluster)
    chosen = [source.episode(number) for number in range(min(episodes, source.size))]
    report = progress or (lambda _: None)
    stage = _Stage(contender, chosen, np.random.default_rng(seed), report)
    features = stage.features()
    manifest = contender.checkpoint.manifest
    common: dict[str, Any] = {
        "checkpoint": contender.text, "decision": manifest.schema.decision, "workloads": source.text, "objective": manifest.objective,
        "episodes": len(stage.episodes), "decisions": len(stage.seen), "features": features, "empty": len(chosen) - len(stage.episodes),
    }  # fmt: skip
    if stage.choices.labels:
        common |= {"actions": stage.choices.labels, "regimes": _by_regime(stage)}
    if stage.actions:
        common |= _over_time(stage)
    if contender.kind.explaining.heuristics and isinstance(contender.scheduler, Scheduler):
        before = _plays(contender, len(chosen)) + CURVES
        rng = np.random.default_rng(seed)
        common |= {"likeness": _likeness(contender, contender.scheduler, stage.episodes, rng, lambda done: report(before + done))}
    return Explanation(**common)


def _source(contender: Contender, workloads: Sequence[str], cluster: str) -> EpisodeSource:
    """The validation part of texts, of those that validated the training, or of those that it learned from."""
    config = contender.checkpoint.manifest.training.config
    own, apart = config.get("workloads") or [], config.get("validation") or []
    texts = list(workloads) or list(apart) or list(own)
    if not texts or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{contender.text}: does not say which workloads it was trained on", hint="give --workload")
    if not workloads:
        check_logs_are_here(contender, texts)
    return Workloads(texts, cluster or str(config.get("cluster", ""))).part("validation", whole=bool(apart) and not workloads)


@dataclass(frozen=True)
class _Choices:
    """Labels of choices, if there are any: the schedulers of a switch, kinds of devices."""

    labels: tuple[str, ...] = ()
    column: int = -1  # the feature of the chosen row that says which it is, 0 or 1; -1: the choice itself is the number

    @classmethod
    def of(cls, contender: Contender) -> _Choices:
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


class _Stage:
    """Episodes that are run again and again, each in an environment of its own; those without a choice are left out."""

    def __init__(
        self, contender: Contender, episodes: Sequence[Episode], rng: np.random.Generator, progress: Callable[[int], None]
    ) -> None:
        self.contender = contender
        self.network = Network.of(contender.checkpoint.manifest.network, contender.checkpoint.arrays)
        self.actions = self.network.spec.actions
        self.choices = _Choices.of(contender)
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
            self._envs.append(self.contender.kind.make(_Only(episode, episode.text), options, 1, 0))
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
            self._progress(_plays(self.contender, self._all) + n + 1)
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
        others = [int(np.argmax(self.network.scores(*disturb(each.rows, each.context)))) != each.chosen for each in self.sample]
        if not any(others):
            return Feature(name, of_row, 0.0, 0.0)  # runs would be as they were
        permuted = []
        for number in range(len(self.episodes)):
            permuted.append(self._play(number, disturb))
            self._progress(before + number + 1)
        base = math.fsum(self.returns)
        worse = (base - math.fsum(permuted)) / abs(base) if base else 0.0
        return Feature(name, of_row, float(np.mean(others)), worse)

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
        return int(np.argmax(self.network.scores(each.rows, context)))

    def _ahead(self, each: RecordedChoice, row: int, k: int, value: float) -> float:
        rows = each.rows.copy()
        rows[row, k] = value
        scores = self.network.scores(rows, each.context)
        return float((scores < scores[row]).sum()) / (len(scores) - 1)


@dataclass(frozen=True)
class _Only:
    """A source that has one episode."""

    kept: Episode
    text: str
    size: int = 1
    uses: tuple[Any, ...] = ()

    def episode(self, number: int) -> Episode:
        return self.kept


# ── groups of choices ──


def _by_regime(stage: _Stage) -> tuple[Regime, ...]:
    """All choices, those of runs that have a parameter in common, and those in like situations."""
    count = len(stage.choices.labels)
    taken = np.array([stage.choices.taken(each.rows, each.chosen) for each in stage.seen])
    of = np.array([each.episode for each in stage.seen])
    groups = {name: np.isin(of, numbers) for name, numbers in _regimes(stage.episodes).items()}
    context = np.array([each.context for each in stage.seen])
    kind = stage.contender.kind
    for name in kind.explaining.situations:
        groups |= _situations(name, context[:, kind.schema.context.index(name)])
    regimes = [_regime("all", taken, count)]
    regimes += [_regime(name, taken[group], count) for name, group in groups.items()]
    return tuple(regime for regime in regimes if regime.decisions)


def _situations(name: str, values: Array) -> dict[str, Array]:
    """Group decisions by the value of a feature: each value where there are few, else thirds; nothing where it never varied."""
    found = np.unique(values)
    if len(found) < 2:
        return {}
    if len(found) <= len(THIRDS):
        return {f"{name}={value:.2g}": values == value for value in found.tolist()}
    third = np.digitize(values, np.quantile(values, (1 / 3, 2 / 3)))
    return {f"{name}: {words} third": third == k for k, words in enumerate(THIRDS)}


def _over_time(stage: _Stage) -> dict[str, Any]:
    """Return the values of all choices along the run with most of them."""
    shown = int(np.argmax(np.bincount([each.episode for each in stage.seen])))
    run = [each for each in stage.seen if each.episode == shown]
    return {
        "over_time": tuple(tuple(each.scores.tolist()) for each in run),
        "times": tuple(each.time for each in run),
        "run": stage.episodes[shown].text,
    }


def choices_over_time(contender: Contender, episode: Episode) -> dict[str, list[Any]]:
    """Return what a learned switch chose in one run: the names of its schedulers, times in s, numbers of the chosen, and all scores."""
    stage = _Stage(contender, [episode], np.random.default_rng(0), lambda done: None)
    return {
        "labels": list(stage.choices.labels),
        "times": [each.time for each in stage.seen],
        "chosen": [each.chosen for each in stage.seen],
        "scores": [[float(score) for score in each.scores] for each in stage.seen],
    }


def _regime(name: str, chosen: Array, count: int) -> Regime:
    shares = np.bincount(chosen, minlength=count) / max(len(chosen), 1)
    return Regime(name, tuple(shares.tolist()), entropy_of(shares) if len(chosen) else 0.0, len(chosen))


def _regimes(episodes: Sequence[Episode]) -> dict[str, list[int]]:
    """Map the values of parameters that differ between runs (arrival shapes, intensities, GPUs) to the runs."""
    named: dict[str, dict[str, list[int]]] = {}
    for k, episode in enumerate(episodes):
        recipe = parse_recipe(episode.text)
        name, _, arguments = recipe.base.partition(":")
        values = parse_assignments(arguments, name) if recipe.is_generator else {}
        values = {**values, "workload": name, "cluster": episode.cluster.name}
        for parameter, value in values.items():
            named.setdefault(parameter, {}).setdefault(f"{parameter}={value}", []).append(k)
    telling = [groups for groups in named.values() if 1 < len(groups) <= len(episodes) / 2]
    found: dict[tuple[int, ...], str] = {}
    for groups in telling:
        for text, numbers in groups.items():
            found.setdefault(tuple(numbers), text)  # of two names for the same runs the first
    return {text: list(numbers) for numbers, text in found.items()}


# ── like which heuristic ──


def _likeness(
    contender: Contender, scheduler: Scheduler, episodes: Sequence[Episode], rng: np.random.Generator, progress: Callable[[int], None]
) -> tuple[Likeness, ...]:
    kind = contender.kind
    texts = {name: kind.text(name, contender.options) for name in kind.explaining.heuristics}
    others = {name: parse_scheduler(text) for name, text in texts.items()}
    deciders = {name: other.begin() for name, other in others.items() if not isinstance(other, Decider)}
    mine = scheduler.begin()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in deciders}
    for done, snapshot in enumerate(_snapshots(contender, scheduler, episodes, rng, progress)):
        progress(RUNS * _PARTS + done)
        asked = {name: decider.decide_in_order(snapshot) for name, decider in deciders.items()}
        pairs = kind.explaining.alike(mine.decide_in_order(snapshot), asked)
        for name, pair in pairs.items():
            found[name].append(pair)
    made = [_mean_likeness(name, pairs) for name, pairs in found.items()]
    return tuple(sorted(made, key=lambda each: -each.same))


def _mean_likeness(name: str, pairs: Sequence[tuple[float, float]]) -> Likeness:
    if not pairs:
        return Likeness(name, math.nan, math.nan, 0)
    same, rank = np.array(pairs).T
    return Likeness(name, float(same.mean()), float(np.mean(rank)), len(pairs))


def _snapshots(
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
            progress(_PARTS * done + min(_PARTS * decided // len(episode.workload), _PARTS))
        picks = rng.permutation(len(kept))[: contender.kind.explaining.snapshots // len(runs)]
        found += [kept[int(k)] for k in sorted(picks)]
        progress(_PARTS * (done + 1))
    return found
