"""Where the jobs and the cluster of a comparison come from, for whoever asks how its numbers were made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuyard.model.cluster import Cluster
from gpuyard.model.workload import Workload
from gpuyard.traces.origin import date_of


@dataclass(frozen=True)
class Provenance:
    """Facts about the workload of the first seed and its cluster."""

    jobs: int
    users: int  # who sent jobs; 0: nobody is named
    first: str  # date of the first submission; empty: the log does not say
    last: str
    span: float  # s from the first submission to the last
    dropped: Mapping[str, int]  # reason → rows
    devices: int
    device: str  # GPUs, or processors or nodes of a log that counts these
    nodes: int
    why: str  # this cluster; empty: it was asked for
    generated: bool  # not a log
    pseudonyms: bool  # the users have them instead of their names

    @property
    def rows(self) -> int:
        """Rows of the log, with those that were dropped."""
        return self.jobs + sum(self.dropped.values())


def provenance_of(workload: Workload, cluster: Cluster, why: str, *, generated: bool, pseudonyms: bool = False) -> Provenance:
    """Read the facts off a workload and the cluster it runs on."""
    submit = workload.jobs.submit
    ends = [date_of(workload, float(at)) for at in ((submit[0], submit[-1]) if len(workload) else ())]
    first, last = (f"{date.day} {date:%b %Y}" if date else "" for date in (*ends, None, None)[:2])
    users = len(np.unique(workload.jobs.user)) if len(workload.jobs.users) > 1 else 0
    return Provenance(
        len(workload), users, first, last, float(np.ptp(submit)) if len(workload) else 0.0, workload.dropped, cluster.gpus,
        device_of(cluster), len(cluster.nodes), why, generated, pseudonyms,
    )  # fmt: skip


def device_of(cluster: Cluster) -> str:
    """Name what a cluster counts: GPUs, processors, or nodes."""
    kinds = {kind.name for kind in cluster.types}
    return "processors" if cluster.name.isdigit() or kinds == {"cpu"} else "nodes" if kinds == {"node"} else "GPUs"
