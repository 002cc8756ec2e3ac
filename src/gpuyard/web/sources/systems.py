"""The batch systems whose commands this machine may have: how each is read, and what it is told to do with a job."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gpuyard.errors import UsageError
from gpuyard.live.lsf.commands import ask, read_lsf
from gpuyard.live.slurm.commands import call, read_slurm
from gpuyard.live.state.file import SavedSnapshot
from gpuyard.live.state.site import SiteJob, SiteState, site_snapshot


@dataclass(frozen=True)
class SiteLook:
    """A snapshot, and the jobs as the system reports them, by name: what they are called, and those that have ended."""

    saved: SavedSnapshot
    jobs: Mapping[str, SiteJob] = field(default_factory=dict)

    @classmethod
    def at(cls, state: SiteState) -> SiteLook:
        """Look at all that a system reports."""
        return cls(site_snapshot(state), {job.name: job for job in state.jobs})


@dataclass(frozen=True)
class BatchSystem:
    """A system's commands, and the form in which it names jobs."""

    read: Callable[[], SiteState]
    run: Callable[[Sequence[str]], object]
    actions: Mapping[str, Sequence[str]]  # what a viewer asks for → the command before the job
    job: re.Pattern[str]

    def look(self) -> SiteLook:
        """Call its commands."""
        return SiteLook.at(self.read())

    def act(self, action: str, job: str) -> None:
        """Let it cancel, hold or release a job, or put it before the others of its user."""
        if not self.job.fullmatch(job):
            raise UsageError(f"job {job[:40]}: only single jobs are acted on here")
        self.run([*self.actions[action], job])


SYSTEMS: Mapping[str, BatchSystem] = {
    "slurm": BatchSystem(
        partial(read_slurm, ended=True), call,
        {"cancel": ("scancel",), "hold": ("scontrol", "hold"), "release": ("scontrol", "release"), "top": ("scontrol", "top")},
        re.compile(r"[0-9]{1,12}(_[0-9]{1,9})?"),
    ),
    "lsf": BatchSystem(
        lambda: read_lsf()[0], ask, {"cancel": ("bkill",), "hold": ("bstop",), "release": ("bresume",), "top": ("btop",)},
        re.compile(r"[0-9]{1,12}(\[[0-9]{1,9}\])?"),
    ),
}  # fmt: skip


def look_of_files(paths: Sequence[Path]) -> Callable[[], SiteLook]:
    """Return what reads files again at each look: a snapshot, or what commands of a batch system printed."""
    from gpuyard.live.reading import state_of_files
    from gpuyard.live.state.file import FORMAT, read_snapshot

    def look() -> SiteLook:
        if len(paths) == 1 and FORMAT.encode() in paths[0].read_bytes()[:200]:
            return SiteLook(read_snapshot(paths[0]))
        return SiteLook.at(state_of_files(paths))

    return look
