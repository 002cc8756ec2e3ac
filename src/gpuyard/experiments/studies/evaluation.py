"""Evaluate checkpoints as schedulers, against every baseline, on workloads that no training has seen.

Every scheduler runs the same episodes, so that differences are paired. The baseline of each table is the best of those that are not
learned, found on the same episodes: that favours the baselines. A baseline that may stop running jobs is shown, but it is not the one
to beat unless the checkpoint's scheduler may stop jobs too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuyard.envs.kinds.base import EnvKind, kind_of
from gpuyard.envs.reward import OBJECTIVES
from gpuyard.errors import CheckpointError, UsageError
from gpuyard.experiments.compare import Plan, compare
from gpuyard.experiments.compare import Source as Compared
from gpuyard.experiments.design.cells import exists
from gpuyard.experiments.judging.summary import Summary
from gpuyard.metrics import is_metric
from gpuyard.model.cluster import Cluster
from gpuyard.model.workload import Workload
from gpuyard.networks.checkpoint import Checkpoint
from gpuyard.policies import AnyScheduler, parse_scheduler
from gpuyard.policies.learned import checkpoint_of, with_folder
from gpuyard.traces.recipes import Episode, EpisodeSource, GeneratorSource, Workloads, parse_recipe, with_jobs
from gpuyard.traces.splits import Split, overlap

BATCHES = 10  # episodes of a workload, unless more combinations of its parameters are to be gone through
MOST_EPISODES = 100_000
DATASET = "dataset:"  # a log that is fetched


@dataclass(frozen=True)
class Slots:
    """The other slots of a checkpoint's scheduler; an empty one is filled as in its training."""

    ordering: str = ""
    placement: str = ""
    backfill: str = ""

    def given(self) -> dict[str, str]:
        return {name: value for name, value in vars(self).items() if value}


@dataclass(frozen=True)
class Held:
    """The held-out episodes: of texts as `gpuyard train` takes them, or by default of the checkpoint's own training."""

    workloads: tuple[str, ...] = ()
    cluster: str = ""
    split: Split = "test"
    seeds: tuple[int, ...] = ()  # of generators; empty: those of the split, from the first on
    jobs: str = ""  # of a window, where a text does not say; a number or `all`
    batches: int = 0  # episodes of each workload; 0: BATCHES, or one for each combination of parameters and seed


@dataclass(frozen=True)
class Contender:
    """A checkpoint to evaluate, as a scheduler."""

    text: str
    checkpoint: Checkpoint
    scheduler: AnyScheduler
    kind: EnvKind
    options: Any  # of its environment, as far as its baselines depend on them


def contender(text: str, slots: Slots | None = None) -> Contender:
    """Load the checkpoint that a text names, in the slots it was trained with or in others."""
    found = checkpoint_of(text)
    manifest = found.manifest
    kind = kind_of(manifest.schema)
    given = (slots or Slots()).given()
    known = [name for name in manifest.choices if name in vars(Slots())]
    for name in given:
        if name not in known:
            fits = f"--{', --'.join(sorted(known))}" if known else "none of the slots"
            raise UsageError(f"--{name}: {text} decides about a {manifest.schema.decision}", hint=f"it leaves open: {fits}")
    try:
        options = kind.options(**kind.chosen({**manifest.choices, **given}))
    except TypeError:
        raise CheckpointError(f"{text}: manifest: choices {', '.join(manifest.choices)} are not those of {kind.label}") from None
    return Contender(text, found, parse_scheduler(kind.text(with_folder(text), options)), kind, options)


def held_out(contenders: Sequence[Contender], held: Held) -> list[tuple[EpisodeSource, tuple[int, ...]]]:
    """For each workload its source and the numbers of its episodes; refuses what one of the checkpoints was trained on."""
    texts, cluster = held.workloads, held.cluster
    if not texts:
        texts, own = _trained_on(contenders)
        cluster = cluster or own
        check_logs_are_here(contenders[0], texts)
    found = []
    for text in texts:
        recipe = parse_recipe(text, cluster)
        if held.jobs and recipe.jobs is None:
            recipe = with_jobs(recipe, held.jobs)
        source = Workloads([recipe.text]).part(held.split, held.seeds or None)
        for each in contenders:
            shared = overlap(each.checkpoint.manifest.training, source.uses)
            if shared is not None:
                raise UsageError(f"{each.text}: {shared}", hint="evaluate on other seeds, or on a later range of the trace")
        found.append((source, _numbers(source, held)))
    return found


def _trained_on(contenders: Sequence[Contender]) -> tuple[tuple[str, ...], str]:
    """Return the workloads of the first checkpoint's training, of which a part was held out."""
    first = contenders[0]
    config = first.checkpoint.manifest.training.config
    texts, cluster = config.get("workloads"), config.get("cluster", "")
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts) or not isinstance(cluster, str):
        raise UsageError(f"{first.text}: does not say which workloads it was trained on", hint="give --workload")
    return tuple(texts), cluster


def check_logs_are_here(contender: Contender, texts: Sequence[str]) -> None:
    """Refuse to evaluate on a training's logs that are not here; a user who has only the checkpoint names other workloads."""
    bases = [recipe.base for recipe in map(parse_recipe, texts) if not recipe.is_generator]
    missing = [base for base in dict.fromkeys(bases) if not base.startswith(DATASET) and not exists(base)]
    if missing:
        what = "the log that it was trained on is" if len(missing) == 1 else "logs that it was trained on are"
        hint = f"give workloads of your own, a log or a generator: --workload '{contender.kind.example}'"
        raise UsageError(f"{contender.text}: {what} not here: {', '.join(missing)}", hint=hint)


def _numbers(source: EpisodeSource, held: Held) -> tuple[int, ...]:
    """0, 1, 2 …: they go through every combination of parameters before the next seed."""
    wanted = held.batches
    if not wanted:
        combinations = len(source.combinations) if isinstance(source, GeneratorSource) else 1
        wanted = source.size if held.seeds else max(BATCHES, combinations)
    if wanted > MOST_EPISODES:
        raise UsageError(f"{source.text}: {wanted:,} episodes; at most {MOST_EPISODES:,}", hint="give --batches or fewer --seeds")
    return tuple(range(min(wanted, source.size)))


def evaluate(
    contenders: Sequence[Contender],
    held: Held,
    *,
    against: Sequence[str] = (),
    metrics: Sequence[str] = (),
    threads: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> list[Summary]:
    """Sum up each workload; the first metric, the objective unless given, decides. `progress` is called with (done, all)."""
    sources = held_out(contenders, held)
    plan = Plan(
        sources=tuple(_compared(*each) for each in sources),
        schedulers=_schedulers(contenders, against),
        metrics=tuple(dict.fromkeys(metrics)) or default_metrics(contenders),
        challengers=tuple(each.scheduler.label for each in contenders),
    )
    count = len(plan.schedulers) * sum(len(numbers) for _, numbers in sources)
    report: Callable[[int], None] = (lambda done: None) if progress is None else (lambda done: progress(done, count))
    found, done = [], 0
    for source, (_, numbers) in zip(plan.sources, sources, strict=True):
        before = done
        each = replace(plan, sources=(source,), seeds=numbers)
        found += compare(each, threads=threads, progress=lambda now, before=before: report(before + now))  # type: ignore[misc]
        done += len(numbers) * len(plan.schedulers)
    return found if metrics else [_with_values(summary) for summary in found]


def _with_values(summary: Summary) -> Summary:
    """Drop metrics that have no value here, such as the utilisation of GPUs where there are none; the primary one stays."""
    experiment = summary.results.experiment
    known = tuple(name for name in experiment.judge.metrics if not all(math.isnan(line.values[name].mean) for line in summary.lines))
    experiment = replace(experiment, judge=replace(experiment.judge, metrics=known))
    return replace(summary, results=replace(summary.results, experiment=experiment))


def _schedulers(contenders: Sequence[Contender], against: Sequence[str]) -> tuple[AnyScheduler, ...]:
    """List the checkpoints, then what they are compared with, each once."""
    made: dict[str, AnyScheduler] = {}
    for each in contenders:
        if each.scheduler.label in made:
            raise UsageError(f"checkpoint {each.text!r} is given twice")
        made[each.scheduler.label] = each.scheduler
    texts = [text for each in contenders for text in each.kind.opponents_for(each.options)]
    for text in (*texts, *against):
        scheduler = parse_scheduler(text)
        made.setdefault(scheduler.label, scheduler)
    return tuple(made.values())


def default_metrics(contenders: Sequence[Contender]) -> tuple[str, ...]:
    """List the objective that the first checkpoint was trained for, and other metrics of interest."""
    manifest = contenders[0].checkpoint.manifest
    name = OBJECTIVES[manifest.objective].metric if manifest.objective in OBJECTIVES else manifest.objective
    if not is_metric(name):
        raise UsageError(f"{contenders[0].text}: its objective {name!r} is no metric", hint="give --metric")
    return tuple(dict.fromkeys((name, *contenders[0].kind.metrics)))


def _compared(source: EpisodeSource, numbers: Sequence[int]) -> Compared:
    """The episodes of a source, by number in place of the seed; the users of a log lose their names, which nobody needs here."""
    generated = parse_recipe(source.text).is_generator
    made: dict[int, Episode] = {}

    def episode(number: int) -> Episode:
        if number not in made:
            made.clear()  # one is used at a time
            made[number] = source.episode(number)
        return made[number]

    def load(number: int) -> Workload:
        found = episode(number).workload
        return found if generated else found.with_users({})

    def cluster_of(_: Cluster, workload: Workload, number: int) -> Cluster:
        return episode(number).cluster

    clusters = [source.episode(number).cluster for number in numbers[:2]]
    shown = clusters[0] if len({cluster.name for cluster in clusters}) == 1 else replace(clusters[0], name="several clusters")
    text = source.text.partition(" on ")[0]
    return Compared(text, load, True, (shown,), cluster_of)
