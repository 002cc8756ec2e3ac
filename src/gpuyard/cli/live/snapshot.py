"""`gpuyard snapshot`: writes down what a batch system does now."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.output import say
from gpuyard.errors import UsageError

if TYPE_CHECKING:
    from gpuyard.live.state.site import SiteState

LIVE = ("slurm", "lsf")


def snapshot(
    source: Annotated[
        list[str],
        typer.Argument(metavar="slurm|lsf|FILE…", help="The system of this machine, or what its commands printed.", show_default=False),
    ],
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it there; stdout unless given.")] = None,
    now: Annotated[
        float | None, typer.Option(metavar="S", help="When files were taken, in s since 1970; the latest time in them unless given.")
    ] = None,
    verbose: options.Verbose = False,
) -> None:
    """Write all that a scheduler sees of a cluster now into one file, for `gpuyard decide`.

    `slurm` calls squeue and scontrol, `lsf` bjobs, bhosts, bqueues and lshosts, as the user that you are. Files hold what such commands
    printed elsewhere.
    """
    from gpuyard.live.reading import snapshot_of_files
    from gpuyard.live.state.file import snapshot_bytes, write_snapshot
    from gpuyard.live.state.site import site_snapshot

    named = [each for each in source if each in LIVE]
    if named and len(source) > 1:
        raise UsageError(f"{named[0]} and files cannot be mixed", hint=f"gpuyard snapshot {named[0]}, or the files alone")
    saved = site_snapshot(_state_of(named[0])) if named else snapshot_of_files([Path(each) for each in source], now)
    s = saved.snapshot
    reasons = ", ".join(f"{count} × {reason}" for reason, count in Counter(saved.ineligible.values()).most_common())
    say(f"{saved.source}: {len(s.running)} jobs run, {len(s.waiting)} may start, {len(saved.ineligible)} may not yet"
        + (f" ({reasons})" if reasons else ""))  # fmt: skip
    for note in saved.notes:
        say(f"note: {note}")
    if out is not None:
        write_snapshot(saved, out)
        say(f"written to {out}")
    else:
        sys.stdout.write(snapshot_bytes(saved).decode())


def _state_of(system: str) -> SiteState:
    """Return what the batch system of this machine reports."""
    if system == "lsf":
        from gpuyard.live.lsf.commands import read_lsf

        return read_lsf()[0]
    from gpuyard.live.slurm.commands import read_slurm

    return read_slurm()
