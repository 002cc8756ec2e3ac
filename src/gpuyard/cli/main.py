"""The `gpuyard` command: the verbs, and what happens to errors."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import traceback
from functools import cache
from typing import Annotated, Any

import typer
from typer.main import get_command

from gpuyard import __version__
from gpuyard.cli import bench, check, compare, evaluate, explain, listing, profile, report, show, simulate, trace, train
from gpuyard.cli import run as running
from gpuyard.cli.common.messages import say, say_error
from gpuyard.cli.common.options import Settings, Verbose
from gpuyard.cli.common.usage import usage_error
from gpuyard.cli.completion import verb as completing
from gpuyard.errors import GpuyardError
from gpuyard.extras import missing

INTERRUPTED = 130
COLLECTIONS = (20_000, 20, 20)  # of Python's garbage; with its own thresholds it goes through all that is imported again and again
app = typer.Typer(name="gpuyard", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
_VERBS = (
    simulate.simulate, compare.compare, listing.listing, show.show, check.check, bench.bench, train.train, evaluate.evaluate,
    explain.explain, running.run, report.report, profile.profile,
)  # fmt: skip
for _verb in _VERBS:
    app.command({"listing": "list"}.get(_verb.__name__, _verb.__name__))(_verb)
app.command("completion")(completing.completion)
app.add_typer(trace.app)


def _version(value: bool) -> None:
    if value:
        sys.stdout.write(f"gpuyard {__version__}\n")
        raise typer.Exit


@app.callback()
def gpuyard(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
    verbose: Verbose = False,
) -> None:
    """Simulate GPU-cluster scheduling and compare schedulers.

    Data goes to stdout, messages to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done but a check failed, 130 interrupted.
    """


@cache
def _command() -> Any:
    """Put the verbs and their options together, once in a process: it takes 14 ms, more than `show` does."""
    return get_command(app)


def run(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code. An error is a line on stderr, and one with a hint; `-v` adds the traceback."""
    gc.set_threshold(*COLLECTIONS)
    atexit.register(gc.freeze)  # else the interpreter looks for garbage in all that is imported before it ends, 0.1 s
    settings = Settings()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show ★ gets a question mark, not an error
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == [completing.CALL]:
        return completing.complete(words[1:], _command())
    try:
        code = _command()(args=arguments, prog_name="gpuyard", standalone_mode=False, obj=settings)
    except Exception as error:
        return _failed(error, settings)
    if code == INTERRUPTED:
        say("interrupted")
        sys.stdout.flush()
        os._exit(INTERRUPTED)  # threads inside a kernel do not notice it and would be waited for
    return code if isinstance(code, int) else 0


def _failed(error: Exception, settings: Settings) -> int:
    """Say what went wrong; return the exit code."""
    if settings.verbose:
        traceback.print_exc()
    known = error if isinstance(error, GpuyardError) else usage_error(error)
    if isinstance(error, ModuleNotFoundError):
        known = known or missing(error)
    if known is None:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        known = GpuyardError(f"{what}; this is a bug in gpuyard", hint="add -v for the traceback")
    say_error(known)
    return known.exit_code


if __name__ == "__main__":
    sys.exit(run())
