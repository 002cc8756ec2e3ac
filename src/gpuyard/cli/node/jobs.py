"""Changes jobs: `gpuyard cancel`, `hold`, `release`, `retry` and `wait`."""

from __future__ import annotations

import math
import sys
from typing import Annotated

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.messages import say
from gpuyard.cli.node.asked import id_numbers
from gpuyard.cli.node.common import Folder, Ids, SomeIds
from gpuyard.errors import UsageError
from gpuyard.live.node.client import NodeClient
from gpuyard.live.node.jobs import RunState
from gpuyard.model.site.notation import ranges_text
from gpuyard.model.units import parse_seconds

NOT_DONE = 1  # exit code of `wait`


def cancel(ids: Ids, folder: Folder = None, verbose: options.Verbose = False) -> None:
    """End jobs: those that wait at once, those that run by TERM and, after their grace, KILL of everything they have started."""
    numbers = id_numbers(ids)
    with NodeClient(folder) as client:
        over = [job.id for job in client.jobs(numbers) if job.state.ended]
        client.call("cancel", ids=numbers)
    if over:
        say(f"note: {_jobs(over)} had ended before")


def hold(ids: Ids, folder: Folder = None, verbose: options.Verbose = False) -> None:
    """Keep waiting jobs from starting, until `gpuyard release`."""
    with NodeClient(folder) as client:
        client.call("hold", ids=id_numbers(ids))


def release(ids: Ids, folder: Folder = None, verbose: options.Verbose = False) -> None:
    """Let held jobs start."""
    with NodeClient(folder) as client:
        client.call("release", ids=id_numbers(ids))


def retry(
    ids: SomeIds = None,
    failed: Annotated[bool, typer.Option("--failed", help="All that have FAILED or are LOST.")] = False,
    folder: Folder = None,
    verbose: options.Verbose = False,
) -> None:
    """Queue jobs again that have FAILED, were KILLED or are LOST, and print their numbers, which they keep."""
    if bool(ids) == failed:
        raise UsageError("which jobs? Give their numbers, or --failed", hint="e.g. gpuyard retry 12-20, or gpuyard retry --failed")
    with NodeClient(folder) as client:
        again = client.call("retry", ids=id_numbers(ids or ()))["ids"]
    if not again:
        say("no job has FAILED or is LOST")
    else:
        sys.stdout.write(f"{ranges_text(again)}\n")


def wait(
    ids: SomeIds = None,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="Give up after so long, with exit code 1.")] = None,
    folder: Folder = None,
    verbose: options.Verbose = False,
) -> None:
    """Wait until jobs have ended: those named, or all that there are now. The exit code is 0 if all of them are DONE, else 1."""
    limit = math.inf if timeout is None else parse_seconds(timeout)
    with NodeClient(folder) as client:
        found = client.wait(id_numbers(ids) if ids else [job.id for job in client.jobs()], limit)
    for job in found:
        if job.state is not RunState.done:
            say(f"job {job.id} is {job.state.value}{f': {job.reason}' if job.reason else ''}")
    if any(job.state is not RunState.done for job in found):
        raise typer.Exit(NOT_DONE)


def _jobs(numbers: list[int]) -> str:
    return f"job{'s' if len(numbers) > 1 else ''} {ranges_text(numbers)}"
