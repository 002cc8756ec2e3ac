"""Options that several verbs share, each written once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from gpuyard.cli.output import Format

_INPUT, _SCHEDULER, _RULES, _OUTPUT = "Workload", "Scheduler", "Rules", "Output"


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
FormatOption = Annotated[Format, typer.Option("--format", "-f", help="Of what goes to stdout.", rich_help_panel=_OUTPUT)]
Metrics = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="NAME", help="A metric, e.g. wait, bsld.p95; repeatable (`gpuyard list metrics`).", rich_help_panel=_OUTPUT),
]

# ── the workload ──
Reader = Annotated[
    str | None, typer.Option(metavar="NAME", help="Format of a file whose name does not tell (`gpuyard list readers`).", rich_help_panel=_INPUT)
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", metavar="OURS=THEIRS", help="A column of a CSV file, e.g. submit=arrival_s; repeatable.", rich_help_panel=_INPUT),
]
With = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="NAME=VALUE", help="A parameter of the reader or generator, e.g. unit=ms; repeatable.", rich_help_panel=_INPUT),
]
Jobs = Annotated[str | None, typer.Option("--jobs", metavar="N", help="Only the first N jobs (10k is 10,000).", rich_help_panel=_INPUT)]

# ── the rules ──
Checkpoint = Annotated[
    str, typer.Option(metavar="TIME", help="Between checkpoints of running jobs; 0: no progress is ever lost, inf: all of it.", rich_help_panel=_RULES)
]
RestartCost = Annotated[str, typer.Option(metavar="TIME", help="On the devices, at every start after a stop.", rich_help_panel=_RULES)]
WalltimeKill = Annotated[bool, typer.Option("--walltime-kill", help="Kill jobs at the limit that they asked for.", rich_help_panel=_RULES)]
