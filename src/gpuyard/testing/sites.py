"""Draws small sites from a seed: the cases of `strategies` with partitions that share nodes, and jobs that name several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpuyard.model.cluster import Cluster, Partition, where_several
from gpuyard.model.site.eligibility import Conditions
from gpuyard.model.site.limits import Limit
from gpuyard.testing.strategies import Case, random_case

_NAMES = ("red", "green", "blue", "grey")


def random_site(seed: int, scale: str = "small") -> Case:
    """Draw a case on a site; the same seed gives the same case."""
    case = random_case(seed, scale)
    rng = np.random.default_rng((seed, 2))
    if rng.random() < 0.6:
        case = _with_shared_nodes(rng, case)
    if rng.random() < 0.6:
        case = _with_conditions(rng, case)
    return _with_limits(rng, case) if rng.random() < 0.6 else case


def _with_conditions(rng: np.random.Generator, case: Case) -> Case:
    """Let some jobs be held, begin later, wait for others (some of which do not exist), or be tasks of arrays."""
    jobs, made = case.workload.jobs, []
    chance = rng.choice([0.2, 0.6])
    ids = [*jobs.id.tolist(), 999_999]
    for _ in range(len(jobs)):
        asked = Conditions(held=bool(rng.random() < 0.02))
        if rng.random() < chance:
            kind, some = int(rng.integers(0, 4)), tuple(rng.choice(ids, int(rng.integers(1, 3))).tolist())
            delay, array = float(rng.integers(0, 12) * 10), int(rng.integers(1, 3))
            asked = (replace(asked, begin=delay), replace(asked, after=some), replace(asked, after_any=some, begin=delay / 2),
                     replace(asked, array=array, array_limit=array))[kind]  # fmt: skip
        made.append(asked.text)
    return replace(case, workload=replace(case.workload, jobs=jobs.with_conditions(made)), features=case.features | {"conditions"})


def _with_limits(rng: np.random.Generator, case: Case) -> Case:
    """Limit what users, accounts, qualities of service and partitions may use."""
    names = {"user": "ann", "account": "shop", "qos": "high", "partition": case.cluster.partitions[0].name}
    limits = []
    for _ in range(int(rng.integers(1, 4))):
        each = tuple(name for name in names if rng.random() < 0.3)
        labels = {name: label for name, label in names.items() if name not in each and rng.random() < 0.2}
        amounts = {"jobs": float(rng.integers(0, 4)), "gpus": float(rng.choice([0.5, 1, 3, 8])), "submitted": float(rng.integers(1, 12)),
                   "gpu_minutes": float(rng.choice([1, 5, 20])), "running_gpu_minutes": float(rng.choice([1, 4, 10]))}  # fmt: skip
        chosen = rng.choice(list(amounts), int(rng.integers(1, 3)), replace=False)
        own: dict[str, Any] = {**labels, **{name: amounts[name] for name in chosen.tolist()}}
        limits.append(Limit(each, **own))
    return replace(case, cluster=replace(case.cluster, limits=tuple(limits)), features=case.features | {"limits"})


def _with_shared_nodes(rng: np.random.Generator, case: Case) -> Case:
    """Put some or all nodes into several partitions, and let jobs name one or several of them."""
    nodes, count = case.cluster.nodes, int(rng.integers(2, 5))
    first = rng.integers(0, count, len(nodes))
    more = rng.random((len(nodes), count)) < rng.choice([0.0, 0.2, 0.5, 0.9])
    sets = (more << np.arange(count)).sum(axis=1).astype(np.uint64) | np.uint64(1) << first.astype(np.uint64)
    ranks = rng.choice([0.0, 1.0, 5.0], count)
    partitions = tuple(Partition(_NAMES[k], priority=float(ranks[k]), tier=float(rng.choice([0, 0, 1, 2]))) for k in range(count))
    made = replace(nodes, partition=first.astype(np.int32), member_of=where_several(sets))
    cluster = replace(case.cluster, nodes=made, partitions=partitions)
    return replace(case, cluster=cluster, workload=_with_labels(rng, case, cluster), features=case.features | {"shared nodes"})


def _with_labels(rng: np.random.Generator, case: Case, cluster: Cluster):  # type: ignore[no-untyped-def]
    names = [partition.name for partition in cluster.partitions]
    drawn = [",".join(rng.permutation(names)[: int(rng.integers(2, len(names) + 1))].tolist()) for _ in range(3)]
    several = list(dict.fromkeys(drawn))
    labels = [*reversed(names), *several, "nowhere", f"nowhere,{names[0]}"]
    usual = len(names) + (len(several) if rng.random() < 0.7 else 0)
    known = rng.integers(0, usual, len(case.workload))
    column = np.where(rng.random(len(known)) < 0.05, rng.integers(0, len(labels), len(known)), known)
    table = case.workload.jobs.table.copy()
    table["partition"] = column
    jobs = replace(case.workload.jobs.with_table(table), partitions=tuple(labels))
    return replace(case.workload, jobs=jobs)
