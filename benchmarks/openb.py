"""Our table beside the published one of FGD (Weng et al., USENIX ATC 2023), cluster openb; exit code 1 if a value is too far off.

    python benchmarks/openb.py [FOLDER] [--seeds N]

1,213 nodes with 6,212 GPUs. The pods of the default list arrive in random order, then pods drawn from the list with replacement,
until 130 % of the GPUs have been asked for; none leaves. A pod that does not fit when it arrives never will, so that the latest is
always tried first (`lcfs`).
FOLDER holds openb2023_pod_list_default.csv.gz; the nodes are those of the preset `openb`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gpuyard import Cluster, Result, Workload, load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.arrays import Array
from gpuyard.engine.mix import request_mix

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "traces" / "alibaba"
PODS = "openb2023_pod_list_default.csv.gz"
SEEDS = 10
ASKED = 1.3  # of the GPUs, when all pods have arrived
FOREVER = 1e8  # s: no pod leaves while others arrive
POINTS = ("at 100 %", "at 130 %", "80 %", "95 %", "130 %")
# policy → (our placement, allocated GPUs in % when 100 and 130 % were asked for, fragmented GPUs in % at 80, 95 and 130 %)
PUBLISHED = {
    "random": ("random", (86.30, 87.47, 15.92, 13.95, 12.43)),
    "best fit": ("packing", (92.86, 93.08, 8.29, 7.09, 6.85)),
    "FGD": ("fgd", (95.23, 95.39, 5.97, 4.65, 4.57)),
}
OTHERS = ("best", "worst", "first", "defrag", "balance")  # not in the paper's table, or not under this rule
CLOSE = 1.0  # percentage points


def pods_in(path: Path) -> Workload:
    """Every pod of the list, with what it asks for; the times are not used."""
    return load_workload(str(path), reader="openb", arrivals=1.0, runtime=FOREVER)


def arrivals(pods: Workload, capacity: int, seed: int) -> Workload:
    """The list once in random order, then pods drawn from it, up to ASKED times the capacity; one a second."""
    random = np.random.default_rng([seed, 0x6F70656E62])
    count, table = len(pods), pods.jobs.table
    drawn = random.integers(count, size=count)  # more than are needed: the list asks for 98 % of the GPUs
    order = np.concatenate((random.permutation(count), drawn))
    asked = np.cumsum(table["gpus"][order])
    order = order[: int(np.searchsorted(asked, ASKED * capacity + 1e-6, "right"))]
    columns = {name: table[name][order] for name in ("gpus", "chunk", "cpus", "memory", "gpu_type")}
    columns["submit"] = np.arange(len(order), dtype=float)
    return Workload.build(columns, np.full(len(order), FOREVER), name="openb", gpu_types=pods.jobs.gpu_types)


def fragmented(result: Result, until: int) -> float:
    """Expected fragment of all nodes, in GPUs, when `until` pods have arrived: what a pod drawn from the workload could not use."""
    nodes, jobs = result.cluster.nodes, result.workload.jobs
    share = (np.arange(nodes.gpus.max()) < nodes.gpus[:, None]).astype(float)  # (nodes, devices) free
    cpus, memory = nodes.cpus.copy(), nodes.memory.copy()
    for segment in result.segments[(result.segments["start"] < until) & (result.segments["job"] < until)]:
        n, job = segment["node"], segment["job"]
        devices = (int(segment["devices"]) >> np.arange(share.shape[1])) & 1 == 1
        share[n, devices] -= min(jobs.gpus[job], 1.0)
        cpus[n] -= jobs.cpus[job]
        memory[n] -= jobs.memory[job]
    total = share.sum(1)
    lost = np.zeros(len(total))
    requests = request_mix(jobs, result.cluster)
    for request in requests:
        need, devices = min(request["gpus"], 1.0), max(request["gpus"], 1.0)
        usable = np.where(share >= need - 1e-6, share, 0.0)
        can = (request["gpus"] > 0) & (np.count_nonzero(usable, axis=1) >= devices)
        can &= (request["cpus"] <= cpus + 1e-6) & (request["memory"] <= memory + 1e-6)
        lost += request["weight"] * (total - np.where(can, usable.sum(1), 0.0))
    return float(lost.sum() / requests["weight"].sum())


def measure(workload: Workload, cluster: Cluster, placement: str, seed: int) -> tuple[float, ...]:
    """The values of POINTS under a placement, in %."""
    result = simulate(workload, cluster, parse_scheduler(f"lcfs/{placement}"), seed=seed, segments=True)
    gpus = workload.jobs.gpus
    asked = np.cumsum(gpus) / cluster.gpus
    held = np.cumsum(np.where(result.table["start"] == workload.jobs.submit, gpus, 0.0)) / cluster.gpus
    at = {share: min(int(np.searchsorted(asked, share)), len(asked) - 1) for share in (0.8, 0.95, 1.0, ASKED)}
    fragments = [fragmented(result, at[share] + 1) / cluster.gpus for share in (0.8, 0.95, ASKED)]
    return tuple(100 * value for value in (held[at[1.0]], held[at[ASKED]], *fragments))


def line(label: str, values: Sequence[str]) -> str:
    return f"{label:<26}" + "".join(f"{value:>15}" for value in values)


def compare(workloads: Sequence[Workload], cluster: Cluster) -> bool:
    """Print the published rows and ours; whether they agree."""
    print(f"{'':<26}{'allocated GPUs, %':>30}{'fragmented GPUs, %':>45}\n" + line("GPUs asked for", POINTS))
    close, allocated = True, []
    for policy, (placement, published) in PUBLISHED.items():
        values = np.array([measure(workload, cluster, placement, seed) for seed, workload in enumerate(workloads)])
        off = np.abs(values.mean(0) - published)
        print(line(f"{policy}: paper", [f"{value:.2f}" for value in published]))
        print(line(f"{policy}: {placement}", shown(values)), "" if off.max() <= CLOSE else " TOO FAR OFF", flush=True)
        close &= bool(off.max() <= CLOSE)
        allocated.append(values[:, 1].mean())
    print()
    for placement in OTHERS:
        print(line(placement, shown(np.array([measure(w, cluster, placement, seed) for seed, w in enumerate(workloads)]))), flush=True)
    return close and allocated == sorted(allocated)


def shown(values: Array) -> list[str]:
    spread = values.std(0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    return [f"{mean:.2f} ± {sd:.2f}" for mean, sd in zip(values.mean(0), spread, strict=True)]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Compare random, best fit and FGD with the published table.")
    parser.add_argument("folder", nargs="?", type=Path, help="of the pod list")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="orders of arrival")
    options = parser.parse_args(arguments)
    folder = options.folder or FOLDER
    if not (folder / PODS).is_file():
        print(f"{folder if options.folder else '../shared/traces/alibaba'}: no {PODS}; nothing is compared", file=sys.stderr)
        return 2 if options.folder else 0
    cluster, pods = load_cluster("openb"), pods_in(folder / PODS)
    workloads = [arrivals(pods, cluster.gpus, seed) for seed in range(max(options.seeds, 1))]
    print(f"{len(cluster.nodes):,} nodes, {cluster.gpus:,} GPUs, {len(pods):,} pods, {len(workloads)} orders of arrival (mean ± sd)\n")
    agree = compare(workloads, cluster)
    print(f"\nwithin {CLOSE:g} point of the paper, in its order" if agree else "\nNOT as in the paper")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
