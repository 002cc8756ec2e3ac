"""Draws small adversarial cases from a seed: every feature of the model, alone and in combination."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.cluster import MAX_DEVICES, Cluster, GpuType, Nodes, Outage, Partition
from gpuyard.model.rules import Rules
from gpuyard.model.workload import Workload

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

# Name → how often a feature is on in an ordinary case. About one case in six has none: plain jobs on plain nodes.
FEATURES: dict[str, float] = {
    "coarse times": 0.6,  # few distinct whole seconds, so that events coincide
    "burst": 0.2,  # all jobs submitted at once
    "zero runtime": 0.15,
    "wrong estimates": 0.5,  # too low, too high, zero
    "gangs": 0.7,
    "chunks": 0.35,
    "shares": 0.35,
    "decimal shares": 0.3,  # shares that binary numbers cannot hold
    "cpu jobs": 0.25,
    "cpus": 0.35,
    "memory": 0.3,
    "partitions": 0.3,
    "quotas": 0.3,
    "types": 0.4,
    "classes": 0.3,
    "wanted types": 0.3,
    "racks": 0.4,
    "locality": 0.4,
    "whole outages": 0.3,
    "partial outages": 0.3,
    "walltimes": 0.4,
    "kills": 0.5,  # only with walltimes
    "checkpoints": 0.4,
    "restart cost": 0.3,
    "transfer": 0.3,
    "deadlines": 0.3,
    "priorities": 0.5,
    "impossible jobs": 0.2,
    "pools": 0.12,
    "nodes without devices": 0.1,
    "ranks": 0.4,  # priorities of partitions and of qualities of service
    "terms": 0.6,  # jobs say whether they may be stopped, and what that costs
}
_DRAWN_APART = ("terms",)  # by a generator of their own, so that cases with and without them are otherwise the same
_NEEDS = {"kills": "walltimes", "decimal shares": "shares", "chunks": "gangs", "wanted types": "types"}
# Name → (least, most) nodes and jobs. From 16 nodes on simulators may index them; sets of 64 × 64 end after 4096. In a deep queue
# over a hundred jobs wait for two or three nodes, so that simulators may skip those that cannot start in blocks.
SCALES: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "small": ((1, 6), (1, 40)),
    "deep": ((2, 3), (110, 150)),
    "rack": ((16, 24), (10, 40)),
    "hall": ((70, 90), (15, 30)),
    "yard": ((4097, 4200), (15, 25)),
}
_TYPE_NAMES = ("a100", "v100", "t4")
_CLASS_NAMES = ("", "train", "infer")
_PARTITION_NAMES = ("red", "green", "blue")
_QOS_NAMES = ("low", "high")


@dataclass(frozen=True)
class Case:
    """One thing to simulate, and the names of its features."""

    workload: Workload
    cluster: Cluster
    rules: Rules
    features: frozenset[str]


def random_case(seed: int, scale: str = "small") -> Case:
    """Draw a case of 1–40 jobs on 1–6 nodes, or of another of SCALES; the same seed gives the same case.

    Beyond the small scale there are always gangs: without them nothing would ever wait.
    """
    rng = np.random.default_rng(seed)
    nodes, jobs = SCALES[scale]
    features = _choose_features(rng) | (frozenset() if scale == "small" else {"gangs"})
    cluster = _random_cluster(rng, features, nodes)
    workload = _random_workload(rng, features, cluster, f"case {seed}", jobs)
    rules = _random_rules(rng, features)
    own = np.random.default_rng((seed, 1))
    if own.random() < FEATURES["terms"]:
        workload, rules, features = _with_terms(own, workload), _with_costs(own, rules), features | {"terms"}
    return Case(workload, cluster, rules, features)


def cases() -> SearchStrategy[Case]:
    """Return a hypothesis strategy over `random_case`; a failing case shrinks towards a small seed."""
    from hypothesis import strategies as st  # a development dependency: only tests draw cases

    return st.integers(0, 2**32 - 1).map(random_case)


def _choose_features(rng: np.random.Generator) -> frozenset[str]:
    boldness = rng.choice([0.0, 0.5, 1.0, 1.0, 1.0, 1.6])
    usual = {name: chance for name, chance in FEATURES.items() if name not in _DRAWN_APART}
    drawn = {name for name, chance in usual.items() if rng.random() < chance * boldness}
    return frozenset(name for name in drawn if _NEEDS.get(name, name) in drawn)


def _time(rng: np.random.Generator, features: frozenset[str], limit: int) -> float:
    """Draw a time in 0..limit; where times are coarse, whole and often a multiple of ten."""
    if "coarse times" in features:
        return float(rng.integers(0, limit // 10 + 1) * 10 if rng.random() < 0.6 else rng.integers(0, limit + 1))
    return float(rng.random() * limit)


def _random_cluster(rng: np.random.Generator, features: frozenset[str], size: tuple[int, int]) -> Cluster:
    n = int(rng.integers(size[0], size[1] + 1))
    kinds = int(rng.integers(2, 4)) if "types" in features else 1
    types = _random_types(rng, features, kinds)
    groups = int(rng.integers(2, 4)) if "partitions" in features else 1
    gpus = rng.choice([1, 2, 3, 4, 8], n)
    if "pools" in features:
        gpus[rng.integers(0, n)] = MAX_DEVICES + int(rng.integers(1, 9))
    if "nodes without devices" in features:
        gpus[rng.integers(0, n)] = 0
    nodes = Nodes(
        names=tuple(f"n{i}" for i in range(n)),
        gpus=gpus.astype(np.int32),
        gpu_type=rng.integers(0, kinds, n).astype(np.int32),
        cpus=rng.choice([4.0, 8.0, 10.0, 16.0, np.inf], n) if "cpus" in features else np.full(n, np.inf),
        memory=rng.choice([16.0, 32.0, 50.0, np.inf], n) if "memory" in features else np.full(n, np.inf),
        rack=(rng.integers(0, 3, n) if "racks" in features else np.zeros(n)).astype(np.int32),
        partition=rng.integers(0, groups, n).astype(np.int32),
    )
    quotas = rng.choice([1.0, 2.0, 3.5, 6.0, np.inf], groups) if "quotas" in features else np.full(groups, np.inf)
    ranks = rng.choice([0.0, 1.0, 5.0, 10.0], groups + len(_QOS_NAMES)) if "ranks" in features else np.zeros(groups + len(_QOS_NAMES))
    partitions = tuple(Partition(_PARTITION_NAMES[i], float(quotas[i]), float(ranks[i])) for i in range(groups))
    qos = {name: float(rank) for name, rank in zip(_QOS_NAMES, ranks[groups:], strict=True) if rank > 0}
    factors = rng.choice([0.5, 0.8, 0.9, 1.0, 1.25], 2) if "locality" in features else (1.0, 1.0)
    return Cluster(
        nodes, types, partitions, _random_speeds(rng, features, types), float(factors[0]), float(factors[1]),
        _random_outages(rng, features, gpus), "case", MappingProxyType(qos),
    )  # fmt: skip


def _random_types(rng: np.random.Generator, features: frozenset[str], count: int) -> tuple[GpuType, ...]:
    speeds = [float(rng.choice((0.25, 0.5, 0.7, 1.0, 1.3, 2.0, 3.0))) if count > 1 else 1.0 for _ in range(count)]
    transfers = rng.choice([0.0, 0.3, 1.0, 1.0, 2.5], count) if "transfer" in features else np.ones(count)
    return tuple(GpuType(name, speed, transfer=float(t)) for name, speed, t in zip(_TYPE_NAMES, speeds, transfers, strict=False))


def _random_speeds(rng: np.random.Generator, features: frozenset[str], types: tuple[GpuType, ...]) -> MappingProxyType[str, Any]:
    if "classes" not in features:
        return MappingProxyType({})
    table = {name: {kind.name: float(rng.choice([0.3, 0.5, 1.0, 1.7, 2.0])) for kind in types} for name in _CLASS_NAMES[1:]}
    if rng.random() < 0.5:
        table["train"].pop(types[0].name)  # this one falls back to the type's own speed
    return MappingProxyType(table)


def _random_outages(rng: np.random.Generator, features: frozenset[str], gpus: Array) -> tuple[Outage, ...]:
    outages = []
    for name in ("whole outages", "partial outages"):
        for _ in range(int(rng.integers(1, 5)) if name in features else 0):
            node = int(rng.integers(0, len(gpus)))
            start = _time(rng, features, 200)
            end = start + 1.0 + _time(rng, features, 120)
            if "coarse times" in features and rng.random() < 0.5:
                end = start + 10.0 * int(rng.integers(1, 10))
            if rng.random() < 0.05:
                end = np.inf
            lost = int(rng.integers(1, max(int(gpus[node]), 1) + 2)) if name == "partial outages" else None
            outages.append(Outage(node, start, end, lost))
    rng.shuffle(outages)
    return tuple(outages)


def _random_rules(rng: np.random.Generator, features: frozenset[str]) -> Rules:
    return Rules(
        walltime_kill="kills" in features,
        checkpoint=float(rng.choice([5.0, 7.3, 30.0, np.inf])) if "checkpoints" in features else 0.0,
        restart_cost=float(rng.choice([1.0, 2.5, 10.0])) if "restart cost" in features else 0.0,
    )


def _with_costs(rng: np.random.Generator, rules: Rules) -> Rules:
    return replace(rules, checkpoint_cost=float(rng.choice([0.0, 0.7, 3.0])), drain=float(rng.choice([0.0, 2.0])))


def _with_terms(rng: np.random.Generator, workload: Workload) -> Workload:
    """Let jobs say whether they may be stopped: some or all of them, a few once only; and some of them at what cost."""
    n = len(workload)
    share = rng.choice([0.3, 0.7, 1.0])
    flags = np.where(rng.random(n) < share, 1.0, rng.choice([0.0, np.nan], n))
    columns: dict[str, Array] = {"preemptible": np.where((flags == 1.0) & (rng.spawn(1)[0].random(n) < 0.15), 2.0, flags)}
    amounts = {"checkpoint": [np.nan, 0.0, 4.0, 25.0, np.inf], "checkpoint_cost": [np.nan, 0.0, 1.5], "drain": [np.nan, 0.0, 3.0],
               "restart_cost": [np.nan, 0.0, 6.0]}  # fmt: skip
    for name, values in amounts.items():
        if rng.random() < 0.3:
            columns[name] = rng.choice(values, n)
    return replace(workload, jobs=workload.jobs.with_stated(**columns))


def _random_workload(rng: np.random.Generator, features: frozenset[str], cluster: Cluster, name: str, size: tuple[int, int]) -> Workload:
    n = int(rng.integers(size[0], size[1] + 1))
    submit = np.array([_time(rng, features, 150) for _ in range(n)])
    if "burst" in features:
        submit[:] = submit[0]
    runtime = np.array([_time(rng, features, 100) for _ in range(n)])
    if "zero runtime" in features:
        runtime[rng.random(n) < 0.2] = 0.0
    columns: dict[str, Array] = {"submit": submit, "estimate": _random_estimates(rng, features, runtime)}
    columns |= _random_sizes(rng, features, cluster, n)
    columns |= _random_hosts(rng, features, columns["gpus"])
    if "walltimes" in features:
        columns["walltime"] = np.array([np.inf if rng.random() < 0.2 else _time(rng, features, 120) for _ in range(n)])
    if "transfer" in features:
        columns["transfer"] = np.array([_time(rng, features, 20) if rng.random() < 0.6 else 0.0 for _ in range(n)])
    if "deadlines" in features:
        columns["deadline"] = np.array([np.inf if rng.random() < 0.3 else s + _time(rng, features, 300) for s in submit])
    if "priorities" in features:
        columns["priority"] = rng.choice([-0.5, 0.0, 1.0, 2.0, 3.0], n)
    columns["user"] = rng.integers(0, 3, n)
    columns["account"] = columns["user"] % 2
    qoses: tuple[str, ...] = ("",)
    if "ranks" in features:
        qoses = ("", *reversed(_QOS_NAMES), "unheard of")
        columns["qos"] = rng.integers(0, len(qoses), n)
    labels: dict[str, tuple[str, ...]] = {"partitions": ("",), "classes": ("",), "gpu_types": ("",)}
    columns |= _random_labels(rng, features, cluster, n, labels)
    partitions, classes, gpu_types = labels["partitions"], labels["classes"], labels["gpu_types"]
    return Workload.build(
        columns, runtime, name=name, users=("ann", "bob", "cy"), accounts=("lab", "shop"), qoses=qoses,
        partitions=partitions, classes=classes, gpu_types=gpu_types,
    )  # fmt: skip


def _random_estimates(rng: np.random.Generator, features: frozenset[str], runtime: Array) -> Array:
    estimate = runtime.copy()
    if "wrong estimates" in features:
        kind = rng.integers(0, 5, len(runtime))
        estimate = np.where(kind == 1, np.floor(runtime / 2), estimate)
        estimate = np.where(kind == 2, runtime * 3, estimate)
        estimate = np.where(kind == 3, np.ceil(runtime / 50) * 50, estimate)
        estimate = np.where((kind == 4) & (rng.random(len(runtime)) < 0.4), 0.0, estimate)
    return estimate


def _random_sizes(rng: np.random.Generator, features: frozenset[str], cluster: Cluster, n: int) -> dict[str, Array]:
    nodes = cluster.nodes
    largest = max(int(nodes.gpus[nodes.partition == p].sum()) for p in range(len(cluster.partitions)))
    sizes = [size for size in (1, 2, 3, 4, 5, 6, 8, 12, 16, largest // 3, largest // 2, largest) if 1 <= size <= largest] or [1]
    wide = rng.choice(sizes, n).astype(np.float64)
    gpus = np.where(rng.random(n) < 0.6, wide, 1.0) if "gangs" in features else np.ones(n)
    if "impossible jobs" in features:
        gpus[rng.random(n) < 0.1] = float(largest + 1)
    chunk = np.ones(n)
    if "chunks" in features:
        divisors = [[d for d in range(1, int(g) + 1) if g % d == 0] for g in gpus]
        chunk = np.array([rng.choice(d) if rng.random() < 0.6 else 1.0 for d in divisors])
    if "shares" in features:
        shares = [0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9] if "decimal shares" in features else [0.125, 0.25, 0.5, 0.75]
        shared = rng.random(n) < rng.choice([0.3, 0.9])
        gpus = np.where(shared, rng.choice(shares, n), gpus)
        chunk[shared] = 1.0
    if "cpu jobs" in features:
        cpu_only = rng.random(n) < 0.25
        gpus[cpu_only] = 0.0
        chunk[cpu_only] = 1.0
    return {"gpus": gpus, "chunk": chunk}


def _random_hosts(rng: np.random.Generator, features: frozenset[str], gpus: Array) -> dict[str, Array]:
    n = len(gpus)
    cpus = rng.choice([0.0, 1.0, 2.0, 3.0, 4.0, 6.5], n) * np.maximum(gpus, 1.0) if "cpus" in features else np.zeros(n)
    memory = rng.choice([0.0, 2.0, 5.0, 12.8, 16.0], n) * np.maximum(gpus, 1.0) if "memory" in features else np.zeros(n)
    if "impossible jobs" in features and "memory" in features:
        memory[rng.random(n) < 0.1] = 4096.0
    cpus[(gpus == 0) & (cpus == 0)] = 1.0  # a job must ask for something
    return {"cpus": cpus, "memory": memory}


def _random_labels(
    rng: np.random.Generator, features: frozenset[str], cluster: Cluster, n: int, labels: dict[str, tuple[str, ...]]
) -> dict[str, Array]:
    """Draw columns of label numbers and put the names into `labels`."""
    columns: dict[str, Array] = {}
    impossible = "impossible jobs" in features
    if "partitions" in features:
        names = [partition.name for partition in cluster.partitions] + (["nowhere"] if impossible else [])
        labels["partitions"] = tuple(reversed(names))  # numbered differently from the cluster, on purpose
        columns["partition"] = rng.integers(0, len(names), n)
    if "classes" in features:
        labels["classes"] = (*_CLASS_NAMES, "unheard of")
        columns["job_class"] = rng.integers(0, 4, n)
    if "wanted types" in features:
        names = [kind.name for kind in cluster.types]
        labels["gpu_types"] = ("", names[-1], f"{names[0]}|{names[-1]}", f"h100|{names[0]}", *(["h100"] if impossible else []))
        columns["gpu_type"] = np.where(rng.random(n) < 0.5, rng.integers(0, len(labels["gpu_types"]), n), 0)
    return columns
