"""`gpuyard simulate`: one workload, one cluster, one scheduler."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.common import inputs, options
from gpuyard.cli.common.messages import say_report, time_so_far
from gpuyard.cli.common.output import Format, Output, Table, emit, say, short
from gpuyard.errors import UsageError
from gpuyard.extras import require

if TYPE_CHECKING:
    from gpuyard.experiments.judging.answering.provenance import Provenance
    from gpuyard.model.result import Result

DEFAULT_METRICS = (
    "wait", "wait.p95", "turnaround", "bsld", "bsld.p95", "slowdown.p50", "makespan", "throughput", "utilization", "fairness",
    "fairness_users", "deadline_met", "queue_mean", "queue_max", "queue_explosions", "fragmentation", "preemptions.sum", "energy",
)  # fmt: skip
GROUP_METRICS = ("wait", "turnaround", "bsld", "bsld.p95", "deadline_met")


@options.grouped()
def simulate(
    workload: Annotated[
        str, typer.Argument(help="A file (log.swf.gz, jobs.csv) or a generator (demo, family:shape=bursty).", show_default=False)
    ],
    *,
    cluster: Annotated[
        str | None, typer.Option(metavar="C", help="16x8:a100, 256, a preset, a .toml file; guessed from a log unless given.")
    ] = None,
    scheduler: options.SchedulerOption = None, ordering: options.OrderingOption = None, placement: options.PlacementOption = None,
    backfill: options.BackfillOption = None, preemption: options.PreemptionOption = None, meta: options.MetaOption = None,
    of: options.OfOption = None, every: options.EveryOption = None,
    seed: Annotated[int, typer.Option(help="Seed of generated workloads, noise and random placement.")] = 0,
    estimate: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="Source of run-time estimates: requested, exact, noisy:0.3, rolling, boosting.")
    ] = None,
    rules: inputs.Rules, speeds: options.SpeedsOption = None, slurm_conf: options.SlurmConf = None, reading: inputs.Reading,
    metric: options.Metrics = None,
    by: options.By = None,
    out: options.Out = None, jobs_out: options.JobsOut = None, show_names: options.ShowNames = False, plot: options.Plot = None,
    report: options.Page = None, how: options.FormatOption = Format.table, verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """Run a workload on a cluster under one scheduler and print metrics."""
    from gpuyard.cli.common.schedulers import one_scheduler
    from gpuyard.engine.simulation import simulate as run
    from gpuyard.metrics import resolve
    from gpuyard.traces import with_estimate

    metrics = inputs.check_names(
        workloads=[workload], clusters=[cluster] if cluster is not None else (), schedulers=[scheduler] if scheduler is not None else (),
        estimates=[estimate] if estimate is not None else (), metrics=metric or (), groups=by or (), reading=reading,
    )  # fmt: skip
    _check_plot(plot)
    if jobs_out is not None:
        from gpuyard.notebook.frames import check_jobs_file

        check_jobs_file(jobs_out)
    measured, slots = inputs.Measured.of(speeds, slurm_conf), (ordering, placement, backfill, preemption)
    made = one_scheduler(scheduler, slots, meta, of, every, site=measured.site)
    clean = reading.read(workload, inputs.check_seed(seed))
    loaded = reading.changed(clean, seed)
    if estimate is not None:
        loaded = with_estimate(loaded, estimate, seed)
    found, why = inputs.clusters_for(clean, [cluster] if cluster is not None else None, generated=reading.is_generator(workload))
    (machine,) = measured.clusters(found, loaded)
    machine = reading.changed_cluster(machine, loaded, seed)
    loaded = measured.workload(loaded, (machine,))
    inputs.check_partitions(loaded, (machine,) if cluster is not None else ())
    shown = metrics or DEFAULT_METRICS
    segments = plot is not None or out is not None or any(resolve(name)[0].segments for name in shown)
    with time_so_far("simulating"):
        result = run(loaded, machine, made, seed, rules=rules, segments=segments)
    names = inputs.pseudonyms(clean, keep=show_names or reading.is_generator(workload))
    renamed = replace(result, workload=result.workload.with_users(names)) if names else result
    if out is not None:
        result.save(out)
        say(f"result saved in {out}")
    _write_files(renamed, jobs_out, plot, inputs.RENAMED if names else "")
    if report is not None:
        from gpuyard.experiments.judging.answering.names import people_name
        from gpuyard.experiments.judging.answering.provenance import provenance_of

        generated = reading.is_generator(workload)
        origin = provenance_of(renamed.workload, machine, why, generated=generated, pseudonyms=bool(names))
        write_report(renamed, people_name(made), shown, origin, report)
    tell(result)
    emit(describe(result, shown, tuple(dict.fromkeys(by or ())), metrics or GROUP_METRICS), how)


def _write_files(result: Result, jobs_out: Path | None, plot: Path | None, note: str) -> None:
    """Write the log of jobs and draw the figure, where they are asked for; the note says how users are called."""
    if jobs_out is not None:
        from gpuyard.notebook.frames import write_jobs

        write_jobs(result, jobs_out)
        say(f"{len(result):,} jobs written to {jobs_out}{note}")
    if plot is not None:
        from gpuyard.report.gantt import save_figure

        save_figure(result, plot)
        say(f"figure drawn in {plot}")


def write_report(result: Result, name: str, metrics: Sequence[str], origin: Provenance, out: Path) -> None:
    """Write the page of a result, which the same command makes again."""
    from gpuyard.metrics import measure
    from gpuyard.report.page.simulated import simulation_page
    from gpuyard.report.writing import write_page

    page = simulation_page(result, name, measure(result, metrics), origin, shlex.join(["gpuyard", *sys.argv[1:]]))
    say_report(write_page(page, out))


def _check_plot(plot: Path | None) -> None:
    if plot is not None and plot.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise UsageError(f"--plot {plot}: unknown kind of figure", hint="end the name with .png, .pdf or .svg")
    if plot is not None and not plot.parent.is_dir():
        raise UsageError(f"--plot {plot}: no such folder: {plot.parent}")
    if plot is not None:
        require("matplotlib")


def tell(result: Result) -> None:
    """Print notes about the workload, dropped rows and rejected jobs to stderr."""
    from gpuyard.metrics import rejections
    from gpuyard.model.result import WAITS_FOR
    from gpuyard.model.site.eligibility import REASONS
    from gpuyard.model.units import format_seconds

    for note in result.workload.all_notes:
        say(f"note: {note}")
    for reason, count in result.workload.dropped.items():
        say(f"note: {count:,} rows dropped: {reason}")
    for reason, count in rejections(result).items():
        say(f"note: {count:,} jobs rejected: {reason}")
    concerned = result.ineligible["reason"]
    for reason, seconds in result.waits().items():
        jobs = int((concerned == WAITS_FOR.index(reason)).sum())
        say(f"note: {jobs:,} jobs waited {format_seconds(seconds / jobs)} each, on average, because of this: {REASONS[reason]}")


def describe(result: Result, metrics: Sequence[str], by: Sequence[str] = (), group_metrics: Sequence[str] = GROUP_METRICS) -> Output:
    """Show the metrics of a result as a table, one more for each grouping in `by`, and what was simulated."""
    from gpuyard.metrics import counts, measure, measure_by, rejections, resolve

    measured = measure(result, metrics)
    ended = counts(result)
    records = [
        {"metric": name, "value": value, "unit": resolve(name)[0].unit, "better": resolve(name)[0].better}
        for name, value in measured.items()
    ]
    caption = f"{ended['jobs']:,} jobs: " + ", ".join(f"{ended[key]:,} {key}" for key in ("done", "killed", "rejected", "unfinished"))
    caption += "".join(f"\n  rejected: {count:,}, {reason}" for reason, count in rejections(result).items())
    tables = [Table(("metric", "value", "unit", "", "is"), [_row(name, value) for name, value in measured.items()], _title(result),
                    frozenset({0, 2, 4}), caption=caption)]  # fmt: skip
    report = result.manifest.get("decider", {})
    if report:
        tables.append(Table((result.scheduler, ""), [(name, short(float(value))) for name, value in report.items()]))
    groups = {name: measure_by(result, group_metrics, name) for name in by}
    tables += [_group_table(name, group_metrics, rows) for name, rows in groups.items()]
    data: dict[str, Any] = {
        "workload": result.workload.name, "cluster": result.cluster.name, "scheduler": result.scheduler, "seed": result.seed,
        "estimate": result.workload.estimates, "counts": ended, "rejected": rejections(result),
        "dropped": dict(result.workload.dropped), "notes": list(result.workload.all_notes),
        "metrics": {str(r["metric"]): {key: r[key] for key in ("value", "unit", "better")} for r in records},
    }  # fmt: skip
    if report:
        data["decider"] = dict(report)
    if groups:
        data["groups"] = groups
    return Output(tables, data, _flat(groups) or records)


def _flat(groups: Mapping[str, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Put the rows of several groupings below each other: `by` says which grouping a row belongs to, `group` which group it is."""
    return [{"by": by, "group": row[by]} | {key: value for key, value in row.items() if key != by} for by in groups for row in groups[by]]


def _title(result: Result) -> str:
    from gpuyard.traces.estimates.sources import described

    where = f"{result.workload.name} on {result.cluster.name} under {result.scheduler}"
    return f"{where}  (estimates: {described(result.workload.estimates)}, seed {result.seed})"


def _row(name: str, value: float) -> tuple[str, ...]:
    from gpuyard.metrics import resolve
    from gpuyard.model.units import format_seconds

    found, aggregation = resolve(name)
    readable = format_seconds(value) if found.unit == "s" and value == value else ""
    title = found.title + (f", {aggregation}" if aggregation else "")
    return name, short(value), "" if found.unit == "1" else found.unit, readable, f"{title} ({_ARROWS[found.better]})"


_ARROWS = {"lower": "lower is better", "higher": "higher is better", "neither": "neither is better"}


def _group_table(by: str, metrics: Sequence[str], groups: Sequence[dict[str, Any]]) -> Table:
    from gpuyard.metrics import resolve

    units = {name: resolve(name)[0].unit for name in metrics}
    header = (by, "jobs", "done", *(f"{name} ({unit})" if unit != "1" else name for name, unit in units.items()))
    rows = [(str(g[by]) or "(none)", f"{g['jobs']:,}", f"{g['done']:,}", *(short(float(g[name])) for name in metrics)) for g in groups]
    return Table(header, rows, f"by {by}")
