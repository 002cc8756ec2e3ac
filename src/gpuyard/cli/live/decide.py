"""`gpuyard decide`: what a scheduler would do now."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.output import Format, Output, Table, emit, say

if TYPE_CHECKING:
    from gpuyard.live.deciding import JobOutlook
    from gpuyard.live.state.file import SavedSnapshot

MOST = 20  # jobs in the table, unless all are asked for
DEFAULT = "sjf/fewest/easy"


def decide(
    snapshot: Annotated[Path, typer.Argument(metavar="SNAPSHOT", help="A file that `gpuyard snapshot` wrote.", show_default=False)],
    scheduler: options.SchedulerOption = DEFAULT,
    everything: Annotated[bool, typer.Option("--all", help=f"Show every job, not only the first {MOST}.")] = False,
    how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:
    """Say what a scheduler would do now with the jobs of a cluster, and why. Nothing is changed.

    The same file gives the same decisions here, in a simulation and on a live cluster.
    """
    from gpuyard.live.deciding import outlook
    from gpuyard.live.state.file import read_snapshot
    from gpuyard.policies import parse_scheduler

    made = parse_scheduler(scheduler or DEFAULT)
    saved = read_snapshot(snapshot)
    for note in saved.notes:
        say(f"note: {note}")
    emit(describe(saved, outlook(saved, made), made.label, None if everything else MOST), how)


def describe(saved: SavedSnapshot, found: list[JobOutlook], label: str, most: int | None = None) -> Output:
    """Describe what happens to each job: a table for people, everything as data."""
    records = [_record(saved, each) for each in found]
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


def _record(saved: SavedSnapshot, each: JobOutlook) -> dict[str, Any]:
    job = saved.snapshot.jobs.table[each.row]
    return {"job": each.name, "now": each.action, "gpus": float(job["gpus"]), "where": each.place, "why": each.reason}


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
