"""Makes a snapshot of what commands of a batch system have printed into files; what a file is shows in its content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gpuyard.errors import DataError, UsageError
from gpuyard.files import read_bytes
from gpuyard.live.slurm import documents, text
from gpuyard.live.slurm.records import SlurmJob, SlurmNode, SlurmPartition
from gpuyard.live.slurm.site import SlurmState, slurm_snapshot
from gpuyard.live.state.file import SavedSnapshot

MAX_BYTES = 256_000_000  # of one file
_HINT = "squeue -r -o …, scontrol -o -d show node|job|partition, sinfo -N -O …, squeue --json or sinfo --json, with their headers"


def snapshot_of_files(paths: Sequence[Path], now: float | None = None) -> SavedSnapshot:
    """Read the output of several commands, taken at about the same time; `now` in s since 1970, or the latest time that jobs name."""
    jobs: list[SlurmJob] = []
    nodes: list[SlurmNode] = []
    partitions: list[SlurmPartition] = []
    version = ""
    for path in paths:
        content, where = read_bytes(path, MAX_BYTES, "what a command printed").decode("utf-8", "replace"), str(path)
        found = documents.document(content, where) if content.lstrip().startswith("{") else None
        if found is not None:
            version = version or documents.json_version(found)
            jobs += documents.json_jobs(found, where) if "jobs" in found else []
            nodes += documents.json_nodes(found, where) if "nodes" in found else []
            if not {"jobs", "nodes"} & set(found):
                raise DataError(f"{where}: has neither jobs nor nodes", hint=_HINT)
            continue
        version = version or text.version_of(content)
        first = content.lstrip()[:400].partition("\n")[0]
        if first.startswith("JobId="):
            jobs += text.scontrol_jobs(content, where)
        elif first.startswith("NodeName="):
            nodes += text.scontrol_nodes(content, where)
        elif first.startswith("PartitionName="):
            partitions += text.scontrol_partitions(content, where)
        elif re.search(r"(^|\|)\s*JOBID\s*\|", first):
            jobs += text.squeue_jobs(content, where)
        elif re.search(r"(^|\|)\s*NODELIST\s*\|", first):
            nodes += text.sinfo_nodes(content, where)
        else:
            raise DataError(f"{where}: is not what a command of Slurm prints", hint=_HINT)
    if not nodes:
        raise UsageError("no file lists the nodes", hint="add what scontrol -o -d show node prints")
    state = SlurmState(_latest(jobs) if now is None else now, _merged(jobs), nodes, partitions, version)
    return slurm_snapshot(state)


def _latest(jobs: Sequence[SlurmJob]) -> float:
    """Return the last time at which something had happened: submissions, and starts of running jobs."""
    times = [job.submit for job in jobs] + [job.start for job in jobs if job.runs]
    return max((time for time in times if time == time), default=0.0)


def _merged(jobs: Sequence[SlurmJob]) -> list[SlurmJob]:
    """Keep one of each job; the later knows more, such as which GPUs it holds."""
    return list({job.name: job for job in jobs}.values())
