"""How long a joint placement by MILP takes, how far from the optimum it stops, and what it gains over the placement it starts from.

    python benchmarks/milp.py [--states N] [--seed S] [--k K …]

Every state is one decision on 50 nodes × 8 GPUs of three types: part of the GPUs are held by running jobs that were placed at
random, and `k` jobs have just been submitted. States are made from the seed; times are this machine's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass

import numpy as np

from gpuyard import Cluster, Simulation, Snapshot, Workload, parse_scheduler
from gpuyard.model.cluster import GpuType, Nodes
from gpuyard.policies import Decider

NODES, DEVICES = 50, 8
SIZES, CHANCES = (1, 2, 4, 8, 16), (0.35, 0.2, 0.2, 0.2, 0.05)
CLASSES = {  # class → speed on each type
    "vision": {"a100": 1.0, "v100": 0.55, "t4": 0.25},
    "language": {"a100": 1.0, "v100": 0.35, "t4": 0.12},
    "tabular": {"a100": 1.0, "v100": 0.9, "t4": 0.7},
}
LIMIT = 0.1  # s
TERMS = ("value", "throughput", "fragmentation", "imbalance", "room")


def cluster() -> Cluster:
    """50 nodes × 8 GPUs: 20 A100, 20 V100, 10 T4, in 5 racks; gangs run at 0.9 over nodes, 0.8 over racks."""
    kinds = np.repeat([0, 1, 2], [20, 20, 10]).astype(np.int32)
    nodes = Nodes(
        names=tuple(f"n{i}" for i in range(NODES)), gpus=np.full(NODES, DEVICES, np.int32), gpu_type=kinds,
        cpus=np.full(NODES, 96.0), memory=np.full(NODES, 768.0), rack=(np.arange(NODES) % 5).astype(np.int32),
        partition=np.zeros(NODES, np.int32),
    )  # fmt: skip
    types = (GpuType("a100", 1.0), GpuType("v100", 0.5), GpuType("t4", 0.2))
    return Cluster(nodes, types, speed=CLASSES, span_nodes=0.9, span_racks=0.8, name="bench")


def state(seed: int, k: int) -> Snapshot:
    """A decision: some of the cluster in use, `k` jobs waiting."""
    rng = np.random.default_rng([seed, k])
    filling = int(rng.integers(20, 90))
    n = filling + k
    gpus = rng.choice(SIZES, n, p=CHANCES).astype(float)
    columns = {
        "submit": np.repeat([0.0, 1.0], [filling, k]), "gpus": gpus, "estimate": rng.lognormal(8, 1.5, n),
        "cpus": gpus * rng.choice([4.0, 8.0, 14.0], n), "memory": gpus * rng.choice([16.0, 64.0, 100.0], n),
        "job_class": rng.integers(0, len(CLASSES), n),
    }  # fmt: skip
    workload = Workload.build(columns, np.full(n, 1e6), classes=tuple(CLASSES))
    simulation = Simulation(workload, cluster(), seed=seed)
    filler = parse_scheduler("fcfs/random/skip")
    while (snapshot := simulation.advance()) is not None and snapshot.now < 1.0:
        simulation.apply(filler.decide(snapshot))
    assert snapshot is not None
    return snapshot


@dataclass(frozen=True)
class Line:
    """What the decisions of one setting came to."""

    k: int
    inner: str
    states: int
    report: dict[str, float]  # of gpuyard's milp
    better: int  # states in which the joint placement was better
    cpu: float  # ms of this process per decision, median: what other work on the machine takes away is not in it


def measure(k: int, inner: str, states: int, seed: int) -> Line:
    """Decide in every state, with one decider; the first state is decided twice, so that loading is not counted."""
    made = parse_scheduler(f"milp:k={k},limit={LIMIT}({inner})")
    assert isinstance(made, Decider)
    snapshots = [state(seed + i, k) for i in range(states)]
    made.begin().decide(snapshots[0])
    decider = made.begin()
    plain = parse_scheduler(inner)
    better, cpu = 0, []
    for each in snapshots:
        began = time.process_time()
        decisions = decider.decide(each)
        cpu.append(1000 * (time.process_time() - began))
        better += decisions != plain.decide(each)
    return Line(k, inner, states, dict(decider.report()), better, statistics.median(cpu))  # type: ignore[attr-defined]


def table(lines: list[Line]) -> str:
    names = ("k", "inner", "median ms", "p95 ms", "CPU ms", "gap mean", "gap max", "limit struck", "better", "value")
    header = [*names, "throughput", "fragments", "imbalance", "room"]
    rows = ["| " + " | ".join(header) + " |", "|" + "---:|" * len(header)]
    for line in lines:
        r = line.report
        terms = [f"{r[name + '_inner']:.2f} → {r[name + '_milp']:.2f}" for name in TERMS]
        cells = [
            str(line.k), line.inner, f"{r['ms_median']:.1f}", f"{r['ms_p95']:.1f}", f"{line.cpu:.1f}", f"{100 * r['gap_mean']:.2f} %",
            f"{100 * r['gap_max']:.2f} %", f"{r['limit_struck']:.0f} of {r['solves']:.0f}", f"{line.better} of {line.states}",
            *terms,
        ]  # fmt: skip
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--states", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--k", type=int, nargs="*", default=[8, 16, 32])
    parser.add_argument("--inner", nargs="*", default=["fcfs/fewest/easy", "fcfs/fastest/easy"])
    arguments = parser.parse_args()
    print(table([measure(k, inner, arguments.states, arguments.seed) for k in arguments.k for inner in arguments.inner]))


if __name__ == "__main__":
    main()
