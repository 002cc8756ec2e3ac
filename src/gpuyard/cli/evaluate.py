"""`gpuyard evaluate`: checkpoints as schedulers, against every baseline, on workloads that were held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli import compare
from gpuyard.cli.common import inputs, options, tables
from gpuyard.cli.common.output import Format, Output, emit, progress_bar
from gpuyard.cli.common.tables import say_notes
from gpuyard.errors import UsageError

if TYPE_CHECKING:
    from gpuyard.experiments.judging.summary import Standing, Summary
    from gpuyard.experiments.studies.evaluation import Contender, Held

_HELD = "Held-out workloads"
MOST_OTHERS = 4  # schedulers in the table beside the checkpoints and the baseline


def evaluate(
    checkpoint: Annotated[list[str], typer.Argument(help="PATH.safetensors or learned:NAME; several are put side by side.")],
    workload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="W[OPTIONS][ on C]",
            help="Written as for `train`: family:shape=bursty on 8, log.swf[from=0.8; jobs=all]; default: its training's; repeatable.",
            rich_help_panel=_HELD,
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="C", help="The cluster for workloads that name none.", rich_help_panel=_HELD)
    ] = None,
    split: Annotated[str, typer.Option(metavar="NAME", help="test, validation or train.", rich_help_panel=_HELD)] = "test",
    seeds: Annotated[str | None, typer.Option(metavar="42,43,50-59", help="Seeds of generators.", rich_help_panel=_HELD)] = None,
    jobs: Annotated[
        str | None, typer.Option(metavar="N|all", help="Jobs in a window; 256 for a trace unless given.", rich_help_panel=_HELD)
    ] = None,
    batches: Annotated[
        int | None, typer.Option(metavar="N", help="Runs per workload (random windows, or seeds); 10 unless given.", rich_help_panel=_HELD)
    ] = None,
    against: Annotated[list[str] | None, typer.Option(metavar="S", help="A further scheduler to compare with; repeatable.")] = None,
    ordering: options.OrderingOption = None, placement: options.PlacementOption = None, backfill: options.BackfillOption = None,
    metric: options.Metrics = None,
    everything: Annotated[bool, typer.Option("--all", help="Every scheduler, with all intervals.")] = False,
    threads: Annotated[int | None, typer.Option(metavar="N", help="Simulations at a time; the numbers do not depend on it.")] = None,
    report: options.Report = None, how: options.FormatOption = Format.table, verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """Run checkpoints as schedulers on workloads they were not trained on, beside every baseline, and say which is better.

    All schedulers run the same workloads: differences are paired, with 95 % intervals, and taken to the best baseline.
    A workload that shares data with the training is refused.
    """
    from gpuyard.experiments.design.spec import parse_seeds
    from gpuyard.experiments.studies.evaluation import Held, Slots, contender
    from gpuyard.traces.splits import check_split

    metrics = inputs.check_names(metrics=metric or (), schedulers=against or (), clusters=[cluster] if cluster else ())
    count = compare.thread_count(threads)
    held = Held(
        tuple(workload or ()), cluster or "", check_split(split), parse_seeds(seeds or "", "--seeds"), jobs or "", _batches(batches),
    )  # fmt: skip
    slots = Slots(ordering or "", placement or "", backfill or "")
    contenders = [contender(text, slots) for text in checkpoint]
    summaries = _evaluated(contenders, held, against or (), metrics, count)
    say_notes(summaries)
    emit(describe(summaries, full=everything or how is Format.md), how)
    if report is not None:
        compare.write_report(summaries, report)


def _batches(count: int | None) -> int:
    if count is not None and count < 1:
        raise UsageError(f"--batches {count}: at least 1")
    return count or 0


def _evaluated(contenders: Sequence[Contender], held: Held, against: Sequence[str], metrics: Sequence[str], threads: int) -> list[Summary]:
    from gpuyard.experiments.studies.evaluation import evaluate as run
    from gpuyard.experiments.studies.evaluation import held_out

    sources = held_out(contenders, held)  # an error comes before anything is simulated
    names = {name for each in contenders for name in each.kind.opponents_for(each.options)}
    total = (len(contenders) + len(names | set(against))) * sum(len(numbers) for _, numbers in sources)
    with progress_bar("simulating", total) as progress:
        return run(contenders, held, against=against, metrics=metrics, threads=threads, progress=lambda done, _: progress(done))


def describe(summaries: Sequence[Summary], *, full: bool = False) -> Output:
    """Describe as `compare` does; the data have a verdict for each checkpoint and workload."""
    plain = tables.describe(summaries, full=full, most=MOST_OTHERS)
    verdicts = [_verdict(summary, line) for summary in summaries for line in summary.lines if line.challenger]
    return replace(plain, data={"verdicts": verdicts, "comparisons": plain.data})


def _verdict(summary: Summary, line: Standing) -> dict[str, Any]:
    """A verdict in plain values; shares are of the best baseline's mean."""
    from gpuyard.experiments.judging.words import against_best, gain_of

    assert line.versus is not None
    gain, gap = gain_of(summary, line), line.gap
    return {
        "checkpoint": line.scheduler, "workload": summary.workload, "metric": summary.metrics[0], "best_baseline": summary.table.baseline,
        "gain": gain.mean, "gain_low": gain.low, "gain_high": gain.high, "n": gain.n, "p": line.versus.p,
        "gap_per_run": None if gap is None else {"mean": gap.mean, "low": gap.low, "high": gap.high},
        "answer": against_best(summary, line)[0],
    }  # fmt: skip
