"""`gpuyard decide`: what a scheduler would do now."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.output import Format, Output, Table, emit, say
from gpuyard.errors import UsageError

if TYPE_CHECKING:
    from gpuyard.live.deciding import JobOutlook
    from gpuyard.live.state.file import SavedSnapshot

MOST = 20  # jobs in the table, unless all are asked for
DEFAULT = "sjf/fewest/easy"


def _service(name: str, metavar: str, text: str) -> Any:
    return typer.Option(name, metavar=metavar, help=text, rich_help_panel="Service")


def decide(
    snapshot: Annotated[
        Path | None, typer.Argument(metavar="SNAPSHOT", help="A file that `gpuyard snapshot` wrote.", show_default=False)
    ] = None,
    scheduler: options.SchedulerOption = DEFAULT,
    everything: Annotated[bool, typer.Option("--all", help=f"Show every job, not only the first {MOST}.")] = False,
    how: options.FormatOption = Format.table,
    serve: Annotated[str | None, _service("--serve", "PATH|PORT", "Answer other programs: on a Unix socket, or HTTP on loopback.")] = None,
    token: Annotated[Path | None, _service("--token", "FILE", "The token that HTTP asks for; made where there is none.")] = None,
    patience: Annotated[str, _service("--patience", "TIME", "How long one decision of the service may take.")] = "10s",
    verbose: options.Verbose = False,
) -> None:
    """Say what a scheduler would do now with the jobs of a cluster, and why. Nothing is changed.

    The same file gives the same decisions here, in a simulation, from the service and on a live cluster.
    """
    if serve is not None:
        _serve(serve, scheduler or DEFAULT, snapshot, token, patience)
        return
    if snapshot is None:
        raise UsageError("which snapshot?", hint="gpuyard decide FILE, or --serve PATH for a service")
    from gpuyard.live.deciding import outlook
    from gpuyard.live.state.file import read_snapshot
    from gpuyard.policies import parse_scheduler

    made = parse_scheduler(scheduler or DEFAULT)
    saved = read_snapshot(snapshot)
    for note in saved.notes:
        say(f"note: {note}")
    emit(describe(saved, outlook(saved, made), made.label, None if everything else MOST), how)


def _serve(where: str, scheduler: str, snapshot: Path | None, token: Path | None, patience: str) -> None:
    """Answer until Ctrl-C or SIGTERM."""
    from gpuyard.live.service.http import listen_on, read_token
    from gpuyard.live.service.server import DecisionService, listen_at_path
    from gpuyard.live.service.verbs import Desk
    from gpuyard.model.units import parse_seconds
    from gpuyard.policies import parse_scheduler

    host, _, port = where.rpartition(":")
    desk, limit = Desk(parse_scheduler(scheduler)), parse_seconds(patience)
    if not 0 < limit <= 3600:
        raise UsageError(f"--patience {patience}: not a time that makes sense", hint="e.g. --patience 10s")
    if port.isascii() and port.isdigit() and "/" not in where:
        if token is None:
            raise UsageError("HTTP needs a token", hint="--token FILE; it is made where there is none")
        secret, listener = read_token(token), listen_on(host.strip("[]") or "127.0.0.1", int(port))
        at = "http://{}:{}".format(*listener.getsockname()[:2])
    else:
        secret, listener, at = "", listen_at_path(Path(where).absolute()), where
    say(f"{desk.scheduler.label} at {at}; Ctrl-C ends it")
    try:
        DecisionService(listener, desk, token=secret, patience=limit).run()
    finally:
        if not secret:
            Path(where).unlink(missing_ok=True)


def describe(saved: SavedSnapshot, found: list[JobOutlook], label: str, most: int | None = None) -> Output:
    """Describe what happens to each job: a table for people, everything as data."""
    from gpuyard.live.deciding import outlook_records

    records = outlook_records(saved, found)
    shown = found if most is None else found[:most]
    rows = [(each.name, _asks(saved, each.row), _what(each), each.reason) for each in shown]
    left = len(found) - len(shown)
    table = Table(
        ("job", "asks for", "now", "why"), rows, f"{label} on {saved.source or saved.snapshot.cluster.name}",
        frozenset({0, 1, 2, 3}), caption=f"{left} more jobs: --all" if left else "",
    )  # fmt: skip
    counts = Counter(each.action for each in found)
    running = len(saved.snapshot.running)
    sentence = f"{counts['start']} of {len(saved.snapshot.waiting)} waiting jobs would start now beside {running} running"
    stopped = counts["preempt"] + counts["migrate"]
    lines = [sentence + (f"; {stopped} would be stopped." if stopped else ".")]
    if saved.ineligible:
        reasons = ", ".join(f"{count} × {reason}" for reason, count in Counter(saved.ineligible.values()).most_common())
        lines.append(f"{len(saved.ineligible)} more wait and may not start yet: {reasons}.")
    data = {
        "scheduler": label, "source": saved.source, "now": saved.snapshot.now, "jobs": records, "ineligible": dict(saved.ineligible),
        "notes": list(saved.notes),
    }  # fmt: skip
    return Output([table] if rows else [], data, records, lines)


def _what(each: JobOutlook) -> str:
    """Return what happens to a job: `start on a1`, `wait`."""
    return f"{each.action} on {each.place}" if each.place else each.action


def _asks(saved: SavedSnapshot, row: int) -> str:
    from gpuyard.live.deciding import plain_types

    jobs = saved.snapshot.jobs
    job = jobs.table[row]
    kind = plain_types(jobs.gpu_types[job["gpu_type"]])
    gpus = float(job["gpus"])
    text = f"{gpus:g} × {kind}" if kind else f"{gpus:g} GPU{'' if gpus == 1 else 's'}"
    return text if gpus else f"{float(job['cpus']):g} cores"
