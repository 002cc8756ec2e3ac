"""`gpuyard compare`: many schedulers, side by side, on the same seeds."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.common import inputs, options
from gpuyard.cli.common.messages import say_report, time_so_far
from gpuyard.cli.common.output import Format, emit, progress_bar
from gpuyard.cli.common.tables import describe, say_notes
from gpuyard.errors import UsageError

if TYPE_CHECKING:
    from gpuyard.experiments.compare import Source
    from gpuyard.experiments.judging.summary import Summary
    from gpuyard.experiments.questions.calibration import SiteFit
    from gpuyard.model.cluster import Cluster
    from gpuyard.model.site.slurm_conf import SlurmSite
    from gpuyard.model.workload import Workload

DEFAULT_SEEDS = 8
MAX_SEEDS = 10_000
MAX_THREADS = 64


@options.grouped()
def compare(
    workload: Annotated[list[str], typer.Argument(help="Files or generators, as for `simulate`.", show_default=False)],
    *,
    cluster: Annotated[list[str] | None, typer.Option(metavar="C", help="16x8:a100, 256, a preset, a .toml file; repeatable.")] = None,
    scheduler: options.SchedulerList = None, ordering: options.SlotList = None, placement: options.SlotList = None,
    backfill: options.SlotList = None, preemption: options.SlotList = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="S", help="The scheduler to compare with; unless given, the log itself, or else FCFS + EASY, or the first."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(metavar="N", help=f"Seeds 0 … N−1; {DEFAULT_SEEDS} unless given.")] = None,
    seed: Annotated[list[int] | None, typer.Option(metavar="K", help="A seed; repeatable, instead of --seeds.")] = None,
    estimate: Annotated[
        list[str] | None, typer.Option(metavar="SOURCE", help="requested, exact, noisy:0.3, rolling, boosting; repeatable.")
    ] = None,
    rules: inputs.Rules, speeds: options.SpeedsOption = None, slurm_conf: options.SlurmConf = None, reading: inputs.Reading,
    metric: options.Metrics = None,
    learned: Annotated[bool, typer.Option("--learned", help="Also compare the trained policies that come with the package.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Every built-in and trained scheduler, and every usual metric, with all intervals.")
    ] = False,
    threads: Annotated[int | None, typer.Option(metavar="N", help="Simulations at a time; the numbers do not depend on it.")] = None,
    report: options.Report = None, show_names: options.ShowNames = False, how: options.FormatOption = Format.table,
    calibrate: options.Calibrate = False, verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """Compare schedulers on the same workloads, best first, and say who wins, by how much, how sure that is and who pays for it.

    Every repeatable option is an axis, and all combinations are run. Differences are those of the first metric.
    For a log that says when its jobs started, one row shows what actually happened, and the others are compared with it.
    """
    from gpuyard.cli.common.schedulers import several_schedulers
    from gpuyard.experiments.compare import Plan, prepare
    from gpuyard.experiments.compare import compare as compared
    from gpuyard.experiments.usual import all_metrics, usual_metrics

    count, chosen, further = thread_count(threads), _seeds(seeds, seed), _scheduler_in(baseline)
    metrics = inputs.check_names(
        workloads=workload, clusters=cluster or (), schedulers=[*(scheduler or ()), *further],
        estimates=estimate or (), metrics=metric or (), reading=reading,
    )  # fmt: skip
    given = inputs.Measured.of(speeds, slurm_conf)
    firsts = {text: reading.read(text, chosen[0]) for text in workload}
    workloads = [reading.changed(first, chosen[0]) for first in firsts.values()]
    sources = tuple(_source(text, first, cluster, reading, given, keep=show_names, fit=calibrate) for text, first in firsts.items())
    named = several_schedulers(
        [*scheduler, *further] if scheduler else (), (ordering, placement, backfill, preemption), workloads, [*firsts.values()],
        clusters=[machine for each in sources for machine in each.clusters], learned=learned, everything=everything, site=given.site,
    )  # fmt: skip
    plan = Plan(
        sources=sources,
        schedulers=tuple(named),
        metrics=metrics or tuple(all_metrics(workloads) if everything else usual_metrics(workloads)),
        seeds=chosen,
        estimates=tuple(dict.fromkeys(estimate)) if estimate else (None,),
        baseline=_baseline(baseline, given.site, firsts.values()),
        rules=rules,
    )
    with time_so_far("compiling"):
        prepare(plan)
    with progress_bar("simulating", plan.cells()) as progress:
        summaries = compared(plan, threads=count, progress=progress)
    say_notes(summaries)
    emit(describe(summaries, full=everything or how is Format.md), how)
    if report is not None:
        write_report(summaries, report)


def _scheduler_in(baseline: str | None) -> Sequence[str]:
    """Return the scheduler that a baseline is, if it is one and not the log."""
    from gpuyard.experiments.judging.logged import LABEL

    return [baseline] if baseline and baseline != LABEL else []


def _baseline(named: str | None, site: SlurmSite | None, logs: Iterable[Workload]) -> str:
    """Return the label of the baseline that is named, or of what the site does today where no log says what happened; empty: the usual."""
    from gpuyard.experiments.judging.logged import LABEL, has_log
    from gpuyard.policies import parse_scheduler

    text = named or (site.scheduler if site is not None and not any(map(has_log, logs)) else "")
    return parse_scheduler(text).label if text and text != LABEL else text


def write_report(summaries: Sequence[Summary], place: Path) -> None:
    """Write the report of comparisons, which the same command makes again."""
    from gpuyard.report.writing import write_comparisons

    command = shlex.join(["gpuyard", *sys.argv[1:]])
    results = [replace(summary.results, about={**summary.results.about, "command": command}) for summary in summaries]
    say_report(write_comparisons([replace(summary, results=found) for found, summary in zip(results, summaries, strict=True)], place))


def _source(
    text: str, first: Workload, clusters: Sequence[str] | None, reading: inputs.Reading, measured: inputs.Measured, *, keep: bool, fit: bool
) -> Source:
    from gpuyard.experiments.compare import Source

    generated = reading.is_generator(text)
    found, why = inputs.clusters_for(first, clusters, generated=generated)
    machines = measured.clusters(found, first)
    fits = _calibrations(machines, first, guessed=bool(why)) if fit else ()
    machines = tuple(each.cluster for each in fits) if fit else machines
    names = inputs.pseudonyms(first, keep=keep or generated)
    machines = inputs.with_users(machines, names)

    def load(seed: int) -> Workload:
        """Load the workload at a seed; a log is read once and changes only if a random transform is applied."""
        made = reading.changed(reading.read(text, seed) if generated else first, seed)
        if clusters:
            inputs.check_partitions(made, machines)
        return measured.workload(made.with_users(names) if names else made, machines)

    change = reading.changed_cluster if reading.apply else None
    return Source(
        reading.named(text), load, generated or reading.is_random(), machines, change, why, bool(names), None if generated else first,
        calibrations=fits,
    )  # fmt: skip


def _calibrations(clusters: Sequence[Cluster], log: Workload, *, guessed: bool) -> tuple[SiteFit, ...]:
    """Fit each cluster on the first half of the log."""
    from gpuyard.experiments.questions.calibration import FEWEST_JOBS, calibrate
    from gpuyard.traces.guess import is_sure

    with time_so_far("calibrating"):
        found = [calibrate(log, cluster, size_known=not guessed or is_sure(log)) for cluster in clusters]
    if None in found:
        raise UsageError(f"--calibrate: {log.name} has too few jobs with a start", hint=f"each half of a log needs {FEWEST_JOBS}")
    return tuple(each for each in found if each is not None)


def _seeds(count: int | None, given: Sequence[int] | None) -> tuple[int, ...]:
    if given and count is not None:
        raise UsageError("--seeds and --seed are both given", hint="use one of them")
    if given:
        return tuple(dict.fromkeys(inputs.check_seed(seed) for seed in given))
    number = DEFAULT_SEEDS if count is None else count
    if not 1 <= number <= MAX_SEEDS:
        raise UsageError(f"--seeds {number} does not lie in 1..{MAX_SEEDS:,}")
    return tuple(range(number))


def thread_count(count: int | None) -> int:
    number = min(os.cpu_count() or 1, 8) if count is None else count
    if not 1 <= number <= MAX_THREADS:
        raise UsageError(f"--threads {number} does not lie in 1..{MAX_THREADS}")
    return number
