"""Options that several verbs share, each written once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuyard.cli.common.output import Format

_INPUT, _SCHEDULER, _RULES, _OUTPUT = "Workload", "Scheduler", "Rules", "Output"


def _slot(text: str) -> Any:
    return typer.Option(metavar="NAME", help=text, rich_help_panel=_SCHEDULER)


def _file(kind: str, text: str) -> Any:
    return typer.Option(metavar=kind, help=text, rich_help_panel=_OUTPUT)


@dataclass
class Settings:
    """What holds for the whole call; lives in the context."""

    verbose: bool = False


def _set_verbose(context: typer.Context, value: bool) -> None:
    settings = context.find_object(Settings)
    if value and settings is not None:
        settings.verbose = True


Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show the traceback of an error.", callback=_set_verbose, expose_value=True, is_eager=True)
]
FormatOption = Annotated[
    Format, typer.Option("--format", "-f", metavar="table|json|csv|md", help="Of what goes to stdout.", rich_help_panel=_OUTPUT)
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric", metavar="NAME", help="A metric, e.g. wait, bsld.p95; repeatable (`gpuyard list metrics`).", rich_help_panel=_OUTPUT
    ),
]

# ── the workload ──
Reader = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Format of a file, where neither content nor name tells (`gpuyard list readers`).", rich_help_panel=_INPUT
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column", metavar="OURS=THEIRS", help="A column of a CSV file, e.g. submit=arrival_s; repeatable.", rich_help_panel=_INPUT
    ),
]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with", metavar="NAME=VALUE", help="A parameter of the reader or generator, e.g. unit=ms; repeatable.", rich_help_panel=_INPUT
    ),
]
SpeedsOption = Annotated[
    str | None,
    typer.Option(
        "--speeds",
        metavar="FILE[:reference=TYPE]",
        help="Measured speeds of job classes by GPU type (Gavel, Sia, …).",
        rich_help_panel=_INPUT,
    ),
]
Jobs = Annotated[str | None, typer.Option("--jobs", metavar="N", help="Only the first N jobs (10k is 10,000).", rich_help_panel=_INPUT)]
Apply = Annotated[
    list[str] | None,
    typer.Option(
        "--apply",
        metavar="NAME:PARAMETER=VALUE",
        help="Change the workload (or the cluster), e.g. burst:severity=3; repeatable (`gpuyard list transforms`).",
        rich_help_panel=_INPUT,
    ),
]

# ── the rules ──
Checkpoint = Annotated[
    str,
    typer.Option(
        metavar="TIME", help="Between checkpoints of running jobs; 0: no progress is ever lost, inf: all of it.", rich_help_panel=_RULES
    ),
]
RestartCost = Annotated[str, typer.Option(metavar="TIME", help="On the devices, at every start after a stop.", rich_help_panel=_RULES)]
WalltimeKill = Annotated[bool, typer.Option("--walltime-kill", help="Kill jobs at the limit that they asked for.", rich_help_panel=_RULES)]

# ── one scheduler ──
SchedulerOption = Annotated[
    str | None, typer.Option(metavar="S", help="ordering/placement/backfill/preemption, e.g. sjf/best/easy, or a decider, e.g. milp.")
]
OrderingOption = Annotated[str | None, _slot("Which job goes next; fcfs unless given.")]
PlacementOption = Annotated[str | None, _slot("On which GPUs; fewest unless given.")]
BackfillOption = Annotated[str | None, _slot("Who may pass the head of the queue; none unless given.")]
PreemptionOption = Annotated[str | None, _slot("Who is stopped for the head; none unless given.")]
MetaOption = Annotated[str | None, typer.Option(metavar="RULE", help="Switches between schedulers over time.", rich_help_panel=_SCHEDULER)]
OfOption = Annotated[list[str] | None, typer.Option(metavar="S", help="A scheduler of --meta; repeatable.", rich_help_panel=_SCHEDULER)]
EveryOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="How often --meta is asked; at every pass unless given.", rich_help_panel=_SCHEDULER)
]

# ── many schedulers ──
SchedulerList = Annotated[
    list[str] | None,
    typer.Option(
        metavar="S", help="sjf/best/easy, a decider such as milp, or meta:RULE(S, S)[@PERIOD]; repeatable; usual ones unless given."
    ),
]
SlotList = Annotated[list[str] | None, _slot("Repeatable: every combination of the four slots is compared.")]

# ── what is written ──
By = Annotated[
    str | None, typer.Option(metavar="GROUP", help="Also by priority, user, partition, job_class, qos or account.", rich_help_panel=_OUTPUT)
]
Save = Annotated[Path | None, _file("DIR", "Keep the whole result (`gpuyard show DIR`).")]
Plot = Annotated[Path | None, _file("FILE", "Draw Gantt, queue and utilisation: .png, .pdf, .svg.")]
Report = Annotated[Path | None, _file("DIR", "Also write a report with figures and tables there.")]
