"""Makes a snapshot of what commands of a batch system have printed into files; what a file is shows in its content."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuyard.errors import DataError, UsageError
from gpuyard.files import read_bytes
from gpuyard.live.lsf.text import LsfTables, lsf_state
from gpuyard.live.slurm import documents, text
from gpuyard.live.slurm.records import unverified
from gpuyard.live.state.file import SavedSnapshot
from gpuyard.live.state.site import SiteJob, SiteNode, SitePartition, SiteState, site_snapshot

MAX_BYTES = 256_000_000  # of one file
_HINT = (
    "with their headers: squeue -r -o, scontrol -o -d show node|job|partition, sinfo -N -o, squeue --json, sinfo --json; "
    "bjobs -o, bhosts -o, lshosts, lsload -gpuload, bqueues, with -json or a delimiter"
)


def snapshot_of_files(paths: Sequence[Path], now: float | None = None) -> SavedSnapshot:
    """Make a snapshot of what several commands printed."""
    return site_snapshot(state_of_files(paths, now))


def state_of_files(paths: Sequence[Path], now: float | None = None) -> SiteState:
    """Read the output of several commands, taken at about the same time; `now` in s since 1970, or the latest time that jobs name."""
    slurm, lsf = _SlurmFiles(), LsfTables()
    ours = 0  # files of LSF
    for path in paths:
        content, where = read_bytes(path, MAX_BYTES, "what a command printed").decode("utf-8", "replace"), str(path)
        if slurm.add(content, where):
            continue
        if not lsf.add(content, where):
            raise DataError(f"{where}: is not what a command of Slurm or LSF prints", hint=_HINT)
        ours += 1
    if ours and ours < len(paths):
        raise UsageError("some files are of Slurm and others of LSF", hint="one snapshot is of one cluster")
    state = lsf_state(lsf, now, time.time()) if ours else slurm.state(now)
    if not state.nodes:
        raise UsageError("no file lists the nodes", hint="add what scontrol -o -d show node prints, or bhosts for LSF")
    return state


@dataclass
class _SlurmFiles:
    """Collects what files of Slurm say together."""

    jobs: list[SiteJob] = field(default_factory=list)
    nodes: list[SiteNode] = field(default_factory=list)
    partitions: list[SitePartition] = field(default_factory=list)
    version: str = ""

    def add(self, content: str, where: str) -> bool:
        """Add the output of a command; return False if it is none of Slurm's."""
        first = content.lstrip()[:400].partition("\n")[0]
        if first.startswith("{"):
            return '"RECORDS"' not in content and self._add_document(content, where)
        self.version = self.version or text.version_of(content)
        if first.startswith("JobId="):
            self.jobs += text.scontrol_jobs(content, where)
        elif first.startswith("NodeName="):
            self.nodes += text.scontrol_nodes(content, where)
        elif first.startswith("PartitionName="):
            self.partitions += text.scontrol_partitions(content, where)
        elif re.search(r"(^|\|)\s*JOBID\s*\|", first) and re.search(r"\|\s*STATE\s*(\||$)", first):
            self.jobs += text.squeue_jobs(content, where)
        elif re.search(r"(^|\|)\s*NODELIST\s*\|", first):
            self.nodes += text.sinfo_nodes(content, where)
        else:
            return False
        return True

    def _add_document(self, content: str, where: str) -> bool:
        found = documents.document(content, where)
        self.version = self.version or documents.json_version(found)
        self.jobs += documents.json_jobs(found, where) if "jobs" in found else []
        self.nodes += documents.json_nodes(found, where) if "nodes" in found else []
        if not {"jobs", "nodes"} & set(found):
            raise DataError(f"{where}: has neither jobs nor nodes", hint=_HINT)
        return True

    def state(self, now: float | None) -> SiteState:
        """Return all of it; of a job that several files have, the later knows more, such as which GPUs it holds."""
        jobs = list({job.name: job for job in self.jobs}.values())
        when = _latest(jobs) if now is None else now
        return SiteState(when, jobs, self.nodes, self.partitions, f"slurm {self.version}".strip(), unverified(self.version))


def _latest(jobs: Sequence[SiteJob]) -> float:
    """Return the last time at which something had happened: submissions, and starts of running jobs."""
    times = [job.submit for job in jobs] + [job.start for job in jobs if job.runs]
    return max((time for time in times if time == time), default=0.0)
