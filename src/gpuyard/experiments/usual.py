"""The schedulers and metrics that are compared unless others are named: those that matter to most readers; and all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuyard.engine.site import takes_ranks
from gpuyard.experiments.design.cells import saw
from gpuyard.model.cluster import Cluster
from gpuyard.model.workload import Workload
from gpuyard.networks.checkpoint import PREFIX, shipped_names
from gpuyard.policies import AnyScheduler, parse_scheduler

TODAY = "fcfs/fewest/easy"  # as most sites schedule: first come, first served with EASY backfilling
LONG = 5_000  # jobs; for longer workloads conservative, 50 times slower than EASY on many nodes, is left out of all
RANKED = "saf/fewest/easy/gittins"
ALL = (
    "fcfs", TODAY, "fcfs/fewest/conservative:depth=100", "multifactor/fewest/easy", "sjf/fewest/easy", "ljf/fewest/easy",
    "saf/fewest/easy", "wfp3/fewest/easy", "unicep/fewest/easy", "f1/fewest/easy", "edf/fewest/easy", "priority/fewest/easy",
    "dynamic/fewest/easy", "srpt/fewest/easy/srpt", "las/fewest/easy/las", "tiresias/fewest/easy/tiresias",
    RANKED, "meta:backlog(fcfs/fewest/easy, sjf/fewest/easy)",
)  # fmt: skip
KINDS = ("hpc", "gpu")  # shipped networks by what they were trained for
WAIT, WAIT_WITH_STOPS = "waiting", "delay"
FURTHER = ("bsld.p95", "turnaround", "turnaround.p95", "fairness_users", "deadline_met")


def kind_of_site(workload: Workload) -> str:
    """Choose which of the shipped networks fits: `hpc` where most jobs requested a time, else `gpu`."""
    return "hpc" if np.isfinite(workload.jobs.walltime).mean() > 0.5 else "gpu"


def usual_schedulers(workloads: Sequence[Workload], logs: Sequence[Workload] = (), clusters: Sequence[Cluster] = ()) -> list[AnyScheduler]:
    """Return what sites run today, the best simple rules and a learned one; where jobs may be stopped, also a rule that stops them.

    `logs`: what the workloads are made of, unless they are the logs themselves. A network that was trained on one of them is not taken,
    and no rank rule where one of the clusters has what these do not know.
    """
    texts = [TODAY, "multifactor/fewest/easy", "sjf/fewest/easy", "saf/fewest/easy"]
    kinds = sorted(KINDS, key=lambda kind: kind != kind_of_site(workloads[0]))
    pairs = list(zip(logs or workloads, workloads, strict=True))
    texts += [text for text in (f"{PREFIX}{kind}" for kind in kinds) if not any(saw(parse_scheduler(text), *pair) for pair in pairs)][:1]
    if may_stop(workloads) and _all_take_ranks(workloads, clusters):
        texts.append(RANKED)
    return [parse_scheduler(text) for text in texts]


def all_schedulers(workloads: Sequence[Workload], clusters: Sequence[Cluster] = ()) -> list[AnyScheduler]:
    """Return the built-in and the shipped learned schedulers, but for those that read what no job has, and slow ones for long workloads.

    Rank rules are left out where one of the clusters has what these do not know.
    """
    idle, ranks = _idle_orderings(workloads), _all_take_ranks(workloads, clusters)
    long = any(len(workload) > LONG for workload in workloads)
    texts = [text for text in ALL if text.partition("/")[0] not in idle and not (long and "/conservative" in text)]
    texts = [text for text in texts if ranks or text != RANKED]
    return [parse_scheduler(text) for text in texts] + shipped()


def shipped() -> list[AnyScheduler]:
    """Return the learned schedulers that come with the package."""
    return [parse_scheduler(f"{PREFIX}{name}") for name in shipped_names()]


def usual_metrics(workloads: Sequence[Workload]) -> tuple[str, ...]:
    """Return mean wait, slowdown, longest wait and utilisation; where jobs may be stopped, work that is lost counts as waiting."""
    wait = WAIT_WITH_STOPS if may_stop(workloads) else WAIT
    return wait, "bsld", f"{wait}.max", "utilization"


def all_metrics(workloads: Sequence[Workload]) -> tuple[str, ...]:
    """Return the usual metrics and the further ones."""
    return (*usual_metrics(workloads), *FURTHER)


def may_stop(workloads: Sequence[Workload]) -> bool:
    """Whether some job says that it may be stopped; of most logs none does."""
    return any((workload.jobs.stated.get("preemptible", np.zeros(0)) > 0).any() for workload in workloads)


def _all_take_ranks(workloads: Sequence[Workload], clusters: Sequence[Cluster]) -> bool:
    return all(takes_ranks(workload.jobs, cluster) for workload in workloads for cluster in clusters)


def _idle_orderings(workloads: Sequence[Workload]) -> set[str]:
    """Return the orderings that read what no workload has."""
    deadlines = any(np.isfinite(workload.jobs.deadline).any() for workload in workloads)
    priorities = any(np.ptp(workload.jobs.priority) > 0 for workload in workloads if len(workload))
    return (set() if deadlines else {"edf", "dynamic"}) | (set() if priorities else {"priority"})
