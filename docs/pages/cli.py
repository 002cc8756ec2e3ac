"""The reference page of the command line: `python docs/pages/cli.py > docs/reference/cli.md`."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import typer

from gpuyard.cli.verbs import app

INTRODUCTION = """\
# Command line

Made by `python docs/pages/cli.py`; do not edit.

Data goes to stdout, messages to stderr. Every table also comes as `-f json`, `-f csv` and `-f md`; json and csv have times in seconds.
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done but a check failed, 130 interrupted. `NO_COLOR` is honoured.
"""


def page() -> str:
    """Return the whole page as Markdown."""
    command: Any = typer.main.get_command(app)
    return "\n".join([INTRODUCTION, *_sections("gpuyard", command)])


def _sections(path: str, group: Any) -> list[str]:
    """Return a section for every verb; the verbs of a group come under its name."""
    found: list[str] = []
    for name, verb in group.commands.items():
        found += _sections(f"{path} {name}", verb) if hasattr(verb, "commands") else [_section(f"{path} {name}", verb)]
    return found


def _section(name: str, verb: Any) -> str:
    arguments = [p for p in verb.params if p.param_type_name == "argument"]
    given = [p for p in verb.params if p.param_type_name == "option" and not p.hidden]
    words = [_metavar(p) for p in arguments]
    first = verb.context_settings.get("allow_interspersed_args") is False  # options come before the command that follows
    usage = " ".join([name, "[OPTIONS]", "--", *words] if first else [name, *words, "[OPTIONS]"])
    lines = [f"## {name}", "", f"`{usage}`", "", inspect.cleandoc(verb.help or ""), "", "| option | is |", "|---|---|"]
    lines += [f"| `{_metavar(p)}` | {_cell(p.help or '')} |" for p in arguments]
    lines += [f"| {_names(p)} | {_cell(p.help or '')}{_default(p)} |" for p in given]
    return "\n".join(lines) + "\n"


def _metavar(p: Any) -> str:
    name = p.metavar or p.name.upper()
    name = name if p.required else f"[{name}]"
    return f"{name}…" if p.nargs == -1 else name


def _names(p: Any) -> str:
    value = "" if p.is_flag else " " + (p.metavar or "N").replace("|", "\\|")
    return ", ".join(f"`{name}{value}`" for name in p.opts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _default(p: Any) -> str:
    default = getattr(p.default, "value", p.default)
    return "" if default in (None, False, ()) or callable(default) or not p.show_default else f" Default: `{default}`."


if __name__ == "__main__":
    sys.stdout.write(page())
