"""Shows jobs: `gpuyard queue`, `why`, `top`, `logs` and `history`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from gpuyard.cli.common import inputs, options
from gpuyard.cli.common.messages import say
from gpuyard.cli.common.output import Format, Output, Table, emit
from gpuyard.cli.node.asked import id_numbers
from gpuyard.cli.node.common import (
    Column,
    Folder,
    Ids,
    SomeIds,
    clock,
    command_text,
    devices_text,
    jobs_table,
    ran,
    record,
    span,
    waited,
)
from gpuyard.errors import UsageError
from gpuyard.live.node.api import Message
from gpuyard.live.node.client import NodeClient
from gpuyard.live.node.jobs import NodeJob, RunState, job_of
from gpuyard.model.site.eligibility import REASONS
from gpuyard.model.units import format_gigabytes

OneId = Annotated[int, typer.Argument(metavar="ID", help="The number of a job.", min=1, show_default=False)]
_ORDER = (RunState.running, RunState.starting, RunState.pending)
_ENDED = 20  # ended jobs that `queue --all` and `history` show
_LISTED = 100_000
MOST_EXPORTED = 20_000  # unless more are asked for: an answer has a limit
_PIECE = 1 << 16  # bytes of a log read at a time
_LOOK = 0.2  # s between looks of `logs -f`
_BEGUN = (RunState.starting, RunState.running)
_BEGINS = 10.0  # s that a job may take from RUNNING to its first process; usually some ms


def _note(job: NodeJob, now: float) -> str:
    """Say why a job waits, how long it may still run, or how it ended."""
    if job.state is RunState.pending:
        return REASONS.get(job.reason, job.reason)
    if job.state is RunState.running and job.stopping:
        return "was told to stop"
    if job.state is RunState.running and job.expected > ran(job, now):
        return f"about {span(job.expected - ran(job, now))} left"
    return job.reason


_ID: Column = ("job", lambda job, now: str(job.id), False)
_STATE: Column = ("state", lambda job, now: job.state.value, True)
_WHAT: Column = ("command", lambda job, now: command_text(job), True)
_ASKS: Column = ("asks for", lambda job, now: devices_text(job), True)
_WAITED: Column = ("waited", lambda job, now: span(waited(job, now)), False)
_RAN: Column = ("ran", lambda job, now: span(ran(job, now)) if ran(job, now) else "", False)
_NOTE: Column = ("", _note, True)
_ENDED_AT: Column = ("ended", lambda job, now: clock(job.end, now), True)
_ENERGY: Column = ("energy", lambda job, now: f"{job.energy / 3600:.3g} Wh" if job.energy else "", False)
_QUEUE = (_ID, _STATE, _WHAT, _ASKS, _WAITED, _RAN, _NOTE)


def queue(
    ids: SomeIds = None,
    everything: Annotated[bool, typer.Option("--all", help=f"Also the last {_ENDED} that have ended.")] = False,
    folder: Folder = None, how: options.FormatOption = Format.table, verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """List the jobs that run and wait, or those named."""
    with NodeClient(folder) as client:
        answer = client.call("jobs", ids=id_numbers(ids or ()), ended=_ENDED if everything else 0)["jobs"]
        status = client.call("status")
    jobs = [job_of(each) for each in answer]
    now = max((float(each["now"]) for each in answer), default=time.time())
    jobs.sort(key=lambda job: (_ORDER.index(job.state) if job.state in _ORDER else -1, job.end, job.id))
    records = [record(job, now) for job in jobs]
    emit(Output([jobs_table(jobs, _QUEUE, now)] if jobs else [], records, records, [] if jobs else ["no job runs or waits"]), how)
    if status["trouble"] and status["used"] != status["scheduler"]:
        say(f"warning: {status['used']} decides in the place of {status['scheduler']}: {status['trouble']}")


def why(ids: Ids, folder: Folder = None, how: options.FormatOption = Format.table, verbose: options.Verbose = False) -> None:
    """Say why jobs wait, where they stand in the queue, and when they may start; or how they ended."""
    with NodeClient(folder) as client:
        found = [{"id": number} | client.call("why", id=number) for number in id_numbers(ids)]
    for each in found:
        del each["ok"]
    records = [{name: value for name, value in each.items() if name != "history"} for each in found]
    emit(Output([], found if len(found) > 1 else found[0], records, [line for each in found for line in _why_lines(each)]), how)


def _why_lines(each: Mapping[str, Any]) -> list[str]:
    now = float(each["now"])
    lines = [f"Job {each['id']} is {each['state']}: {each['reason']}."]
    if each["position"]:
        lines.append(f"  It is number {each['position']} in the queue.")
        early, late = (clock(each[name], now) for name in ("earliest", "latest"))
        lines.append(f"  It should start at about {clock(each['start'], now)}; four of five such jobs start between {early} and {late}.")
    elif each["state"] == RunState.pending.value and each["start"]:
        lines.append(f"  It may start at {clock(each['start'], now)}.")
    elif each["start"]:
        lines.append(f"  It started at {clock(each['start'], now)}.")
    return lines + [f"  Attempt {event}." for event in each["history"]]


def top(job: OneId, folder: Folder = None, how: options.FormatOption = Format.table, verbose: options.Verbose = False) -> None:
    """Show the processes of a job that runs, and what its GPUs do."""
    until = time.monotonic() + _BEGINS
    with NodeClient(folder) as client:
        found = client.call("top", id=job)
        while not found["processes"] and job_of(found["job"]).state in _BEGUN and time.monotonic() < until:
            time.sleep(_LOOK / 10)
            found = client.call("top", id=job)
    seen = job_of(found["job"])
    rows = [
        (str(each["pid"]), span(each["cpu"]), format_gigabytes(each["memory"]), str(each["command"])[:100]) for each in found["processes"]
    ]
    gpus = [
        (str(each["index"]), each["name"], f"{each['utilisation']:.0%}", format_gigabytes(each["memory"]), f"{each['watts']:.0f} W")
        for each in found["gpus"]
    ]
    tables = [Table(("GPU", "name", "busy", "memory", "power"), gpus, left=frozenset({0, 1}))] if gpus else []
    tables += [Table(("process", "CPU time", "memory", "command"), rows, left=frozenset({3}))] if rows else []
    text = [] if rows else [f"job {job} is {seen.state.value}: it has no processes"]
    emit(Output(tables, {"job": record(seen, time.time()), "processes": found["processes"], "gpus": found["gpus"]},
                found["processes"], text), how)  # fmt: skip


# ── logs ──


def logs(
    job: OneId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended, or Ctrl-C.")] = False,
    tail: Annotated[int | None, typer.Option(metavar="N", help="Only the last N lines.", min=0)] = None,
    path: Annotated[bool, typer.Option("--path", help="Print where the file is.")] = False,
    folder: Folder = None, verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """Print what a job has written to stdout and stderr, of all its runs."""
    with NodeClient(folder) as client:
        found = client.call("logs", id=job)
        file = Path(found["path"])
        if path:
            sys.stdout.write(f"{file}\n")
            return
        if not (file.exists() or follow):
            say(f"job {job} is {found['state']} and has written nothing")
            return
        try:
            _print(file, tail, lambda: RunState(client.call("logs", id=job)["state"]).ended if follow else True)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            return


def _print(file: Path, tail: int | None, over: Callable[[], bool]) -> None:
    """Copy a file to stdout as it grows, until `over` says that nothing more will come."""
    out = sys.stdout.buffer
    at = _last_lines(file, tail) if tail is not None and file.exists() else 0
    while True:
        last = over()  # asked before the file is read, so that what the job wrote at its end is not missed
        if file.exists():
            with file.open("rb") as stream:
                stream.seek(at)
                while piece := stream.read(_PIECE):
                    out.write(piece)
                at = stream.tell()
            out.flush()
        if last:
            return
        time.sleep(_LOOK)


def _last_lines(file: Path, count: int) -> int:
    """Return where the last lines of a file begin."""
    with file.open("rb") as stream:
        end = at = stream.seek(0, os.SEEK_END)
        found = -1 if _last_byte(stream, end) == b"\n" else 0
        while at > 0:
            size = min(_PIECE, at)
            at -= size
            stream.seek(at)
            piece = stream.read(size)
            for place in range(len(piece) - 1, -1, -1):
                if piece[place] == 10:
                    found += 1
                    if found == count:
                        return at + place + 1
    return end if count == 0 else 0


def _last_byte(stream: BinaryIO, end: int) -> bytes:
    stream.seek(max(end - 1, 0))
    return stream.read(1)


# ── history ──


def history(
    limit: Annotated[int | None, typer.Option("--limit", "-n", metavar="N", help="How many.", min=1, max=_LISTED)] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only those that ended in the last so long, e.g. 7d.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR|FILE.csv", help="Write them for show, compare and trace instead.")] = None,
    show_names: options.ShowNames = False,
    folder: Folder = None, how: options.FormatOption = Format.table, verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """List the jobs that have ended, newest first; or write all of them as a measured result, or as a table of jobs.

    `--out DIR` is a result for `gpuyard show`; `--out FILE.csv` is a log: `gpuyard compare FILE.csv` says what another scheduler
    would have done with the same jobs, `gpuyard trace info FILE.csv` what is in it.
    """
    from gpuyard.model.units import parse_seconds

    count = limit or (MOST_EXPORTED if out is not None else _ENDED)
    with NodeClient(folder) as client:
        begin = client.call("status")["now"] - parse_seconds(since) if since is not None else 0.0
        found = client.call("history", since=max(begin, 0.0), limit=count, runs=out is not None)
    if out is not None:
        _export(found, out.expanduser(), show_names=show_names)
        return
    jobs, now = [job_of(each) for each in found["jobs"]], float(found["now"])
    columns = (_ID, _STATE, _WHAT, _ASKS, _WAITED, _RAN, *([_ENERGY] if any(job.energy for job in jobs) else []), _ENDED_AT, _NOTE)
    records = [record(job, now) for job in jobs]
    emit(Output([jobs_table(jobs, columns, now)] if jobs else [], records, records, [] if jobs else ["no job has ended yet"]), how)


def _export(found: Message, out: Path, *, show_names: bool) -> None:
    from gpuyard.live.node.measured import measured_result

    if out.suffix and not out.name.endswith((".csv", ".csv.gz")):
        raise UsageError(f"--out {out}: neither a folder nor a .csv file", hint="--out DIR for show, --out jobs.csv for compare and trace")
    result = measured_result(found)
    if not out.suffix:
        result.save(out)
        say(f"{len(result):,} jobs in {out}; try gpuyard show {out}")
        return
    from gpuyard.traces.writing import write_workload

    names = inputs.pseudonyms(result.workload, keep=show_names)
    for lost in write_workload(result.workload.with_users(names) if names else result.workload, out):
        say(f"note: not in {out}: {lost}")
    say(f"{len(result):,} jobs in {out}{inputs.RENAMED if names else ''}; try gpuyard compare {out}")
