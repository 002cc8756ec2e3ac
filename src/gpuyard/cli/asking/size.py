"""`gpuyard size`: the smallest cluster that meets a target."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.asking.whatif import TODAY, ClusterAsked, EstimateAsked, SchedulerAsked, SeedAsked, site_of
from gpuyard.cli.common import inputs, options
from gpuyard.cli.common.output import Format, Output, Table, emit, progress_bar
from gpuyard.errors import UsageError

if TYPE_CHECKING:
    from gpuyard.experiments.questions.sizing import Sized, Target

TIMES = 14  # simulations that a search usually takes


def _goal(metavar: str, text: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel="Target (one of)")


@options.grouped()
def size(
    workload: Annotated[str, typer.Argument(help="A log (sacct.txt, log.swf.gz, jobs.csv) or a generator.", show_default=False)],
    *,
    wait: Annotated[str | None, _goal("TIME", "Mean wait of at most, e.g. 30m.")] = None,
    p95: Annotated[str | None, _goal("TIME", "95 % of the jobs wait less than.", "--p95")] = None,
    deadlines: Annotated[str | None, _goal("SHARE", "This share of the deadlines is met, e.g. 95%.")] = None,
    cost: Annotated[float | None, _goal("MONEY", "The largest cluster that costs no more for the log.")] = None,
    partition: Annotated[str, typer.Option(metavar="NAME", help="The partition whose nodes are varied; all unless given.")] = "",
    cluster: ClusterAsked = None, scheduler: SchedulerAsked = TODAY, estimate: EstimateAsked = None, seed: SeedAsked = 0,
    reading: inputs.Reading, rules: inputs.Rules, how: options.FormatOption = Format.table, verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """Find the smallest cluster on which these jobs meet a target, and say what the last node buys.

    Nodes of the usual shape are added or taken away, by bisection; each size is a simulation of the same jobs under the same scheduler.
    """
    from gpuyard.experiments.questions.sizing import size as asked

    target = _target(wait, p95, deadlines, cost)
    jobs, machine = site_of(workload, cluster, scheduler, estimate, seed, reading)
    with progress_bar("simulating sizes, about", TIMES) as progress:
        found = asked(
            jobs, machine, target, scheduler=scheduler, partition=partition, rules=rules, progress=lambda k: progress(min(k, TIMES))
        )
    emit(_described(found), how)


def _target(wait: str | None, p95: str | None, deadlines: str | None, cost: float | None) -> Target:
    from gpuyard.experiments.questions.sizing import Target
    from gpuyard.model.units import parse_seconds

    given = {"--wait": wait, "--p95": p95, "--deadlines": deadlines, "--cost": cost}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        wrong = f"{' and '.join(named)} are several targets" if named else "no target"
        raise UsageError(f"size: {wrong}", hint="give one: --wait 30m, --p95 2h, --deadlines 95% or --cost 5000")
    if wait is not None:
        return Target("wait", parse_seconds(wait))
    if p95 is not None:
        return Target("p95", parse_seconds(p95))
    if deadlines is not None:
        return Target("deadlines", inputs.share_of("--deadlines", deadlines))
    assert cost is not None
    if not math.isfinite(cost):
        raise UsageError(f"--cost {cost} is not an amount of money")
    return Target("cost", cost)


def _described(found: Sized) -> Output:
    from gpuyard.experiments.judging.answering.names import duration
    from gpuyard.experiments.questions.sizing import money

    rows, priced = [], found.priced and found.target.goal != "cost"
    for number in found.shown:
        service = found.tried[number]
        value = found.target.measured(service)
        ends = f"\n{found.target.shown(value.low)} to {found.target.shown(value.high)}" if math.isfinite(value.low) else ""
        cells = [found.target.shown(value.mean) + ends, *([] if found.target.goal == "wait" else [duration(service.mean)])]
        cells += [
            duration(service.percentile(99)),
            duration(service.longest),
            f"{100 * service.busy:.0f} %",
            *([money(service.cost)] if priced else []),
        ]
        mark = " (now)" if number == found.present else ""
        rows.append([f"{number:,}{mark}", *cells])
    goal = {"wait": "mean wait", "p95": "95 % wait\nless than", "deadlines": "deadlines\nmet", "cost": "cost"}[found.target.goal]
    mean = () if found.target.goal == "wait" else ("mean\nwait",)
    header = (found.unit, goal, *mean, "99 % wait\nless than", "longest\nwait", "busy", *(["cost"] if priced else []))
    best = frozenset((k, 0) for k, number in enumerate(found.shown) if number == found.smallest)
    table = Table(header, rows, f"{found.target.words}, under {found.name} ({found.scheduler})", marked=best,
                  caption=f"{len(found.tried)} sizes were simulated; second lines: 95 % interval by blocks of time")  # fmt: skip
    return Output([table], found.record, found.record["tried"], found.sentences)
