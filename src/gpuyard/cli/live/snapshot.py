"""`gpuyard snapshot`: writes down what a batch system does now."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.output import say
from gpuyard.errors import UsageError

LIVE = "slurm"


def snapshot(
    source: Annotated[
        list[str],
        typer.Argument(metavar="slurm|FILE…", help="The Slurm of this machine, or what its commands printed.", show_default=False),
    ],
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it there; stdout unless given.")] = None,
    now: Annotated[
        float | None, typer.Option(metavar="S", help="When files were taken, in s since 1970; the latest time in them unless given.")
    ] = None,
    verbose: options.Verbose = False,
) -> None:
    """Write all that a scheduler sees of a cluster now into one file, for `gpuyard decide`.

    `slurm` calls squeue and scontrol, once each, as the user that you are. Files hold what such commands printed elsewhere.
    """
    from gpuyard.live.reading import snapshot_of_files
    from gpuyard.live.slurm.commands import read_slurm
    from gpuyard.live.state.file import snapshot_bytes, write_snapshot
    from gpuyard.live.state.site import site_snapshot

    if LIVE in source and len(source) > 1:
        raise UsageError(f"{LIVE} and files cannot be mixed", hint=f"gpuyard snapshot {LIVE}, or the files alone")
    saved = site_snapshot(read_slurm()) if source == [LIVE] else snapshot_of_files([Path(each) for each in source], now)
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
