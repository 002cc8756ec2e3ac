"""The verbs of `gpuyard`, and the parser of all of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any

import typer
from typer.main import get_command

from gpuyard import __version__
from gpuyard.cli import bench, check, compare, evaluate, explain, listing, report, show, simulate, trace, train
from gpuyard.cli import run as running
from gpuyard.cli.asking import size, whatif
from gpuyard.cli.common.options import Verbose
from gpuyard.cli.completion import verb as completing
from gpuyard.cli.live import decide, deploy, deploy_lsf, serve, snapshot
from gpuyard.cli.node import daemon, jobs, looking, profile, submit

app = typer.Typer(name="gpuyard", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
VERBS: Mapping[str, Callable[..., None]] = {
    "simulate": simulate.simulate,
    "compare": compare.compare,
    "whatif": whatif.whatif,
    "size": size.size,
    "list": listing.listing,
    "show": show.show,
    "check": check.check,
    "bench": bench.bench,
    "train": train.train,
    "evaluate": evaluate.evaluate,
    "explain": explain.explain,
    "snapshot": snapshot.snapshot,
    "decide": decide.decide,
    "run": running.run,
    "report": report.report,
    "serve": serve.serve,
    "profile": profile.profile,
    "queue": looking.queue,
    "why": looking.why,
    "cancel": jobs.cancel,
    "hold": jobs.hold,
    "release": jobs.release,
    "top": looking.top,
    "logs": looking.logs,
    "wait": jobs.wait,
    "retry": jobs.retry,
    "history": looking.history,
}
for _name, _verb in VERBS.items():
    app.command(_name)(_verb)
app.command("submit", context_settings=submit.SETTINGS)(submit.submit)
app.command("completion")(completing.completion)
app.add_typer(trace.app)
app.add_typer(daemon.app)
deploy.app.command("lsf")(deploy_lsf.lsf)
deploy.app.command("esub")(deploy_lsf.esub)
app.add_typer(deploy.app)


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
def command() -> Any:
    """Put the verbs and their options together, once in a process: it takes 14 ms, more than `show` does."""
    return get_command(app)
