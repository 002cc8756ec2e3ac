"""Explains what a policy looks at: its decisions are recorded and made again with one feature permuted at a time.

Importance by permutation (Breiman 2001; Fisher et al. 2019): a feature takes values that it had in other decisions. Two numbers say how
much that matters: the share of choices that become others, and by how much the objective of whole runs worsens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.experiments.studies.evaluation import Contender, check_logs_are_here
from gpuyard.experiments.studies.judged import JudgedStage
from gpuyard.experiments.studies.stage import CURVES, PARTS, RUNS, Feature, Stage, plays, snapshots_of
from gpuyard.metrics.system import entropy_of
from gpuyard.model.units import parse_assignments
from gpuyard.policies import Decider, Scheduler, parse_scheduler
from gpuyard.traces.recipes import Episode, EpisodeSource, Workloads, parse_recipe

EPISODES = 12
THIRDS = ("lowest", "middle", "highest")


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
    asked = RUNS * PARTS + explaining.snapshots if explaining.heuristics else 0
    return plays(contender, episodes) + CURVES + asked


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
    stage = (Stage if contender.kind.explaining.judged is None else JudgedStage)(contender, chosen, np.random.default_rng(seed), report)
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
        before = plays(contender, len(chosen)) + CURVES
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


# ── groups of choices ──


def _by_regime(stage: Stage) -> tuple[Regime, ...]:
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


def _over_time(stage: Stage) -> dict[str, Any]:
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
    stage = Stage(contender, [episode], np.random.default_rng(0), lambda done: None)
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
    for done, snapshot in enumerate(snapshots_of(contender, scheduler, episodes, rng, progress)):
        progress(RUNS * PARTS + done)
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
