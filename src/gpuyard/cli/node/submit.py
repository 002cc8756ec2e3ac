"""`gpuyard submit` for the parser: its help, its completion, and what is wrong with words that are not plain."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from gpuyard.cli.common import options
from gpuyard.cli.node.asked import OPTIONS, Given, SubmitOption, send

ABOUT = """Queue a command on the node of this machine, and print the number of the job.

The command is a list of words that no shell reads: `gpuyard submit -- python train.py --epochs 3`. For pipes and `*` write
`gpuyard submit -- sh -c '…'`. It runs in the present folder with the present environment. A job on GPUs sees only its own.
"""
SETTINGS = {"allow_interspersed_args": False}  # what follows the first word of the command belongs to it


def submit(**values: Any) -> None:
    """Submit what the parser has read."""
    command: Sequence[str] = values.pop("command")
    values.pop("verbose")
    given: Given = {
        option.field: [""] if value is True else [value] if isinstance(value, str) else value
        for option in OPTIONS
        if (value := values[option.field])
    }
    raise typer.Exit(send(given, command))


def _parameter(option: SubmitOption) -> inspect.Parameter:
    shown = typer.Option(option.flag, metavar=option.metavar or None, help=option.help, rich_help_panel=option.panel)
    kind: Any = (list[str] if option.repeated else str) | None if option.metavar else bool
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(option.field, keyword, default=None if option.metavar else False, annotation=Annotated[kind, shown])


_COMMAND = Annotated[list[str], typer.Argument(metavar="COMMAND", help="What to run, behind `--`.", show_default=False)]
_PARAMETERS = [
    inspect.Parameter("command", inspect.Parameter.KEYWORD_ONLY, annotation=_COMMAND),
    *map(_parameter, OPTIONS),
    inspect.Parameter("verbose", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=options.Verbose),
]
submit.__doc__ = ABOUT
submit.__annotations__ = {each.name: each.annotation for each in _PARAMETERS}
submit.__signature__ = inspect.Signature(_PARAMETERS)  # type: ignore[attr-defined]
