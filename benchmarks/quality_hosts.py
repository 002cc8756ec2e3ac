"""The shipped host-picking policy beside every placement, on workloads and hosts that it was neither trained nor tuned on.

    python benchmarks/quality_hosts.py [--policy learned:hosts] [--seeds 42,43,44] [--hosts 50,200] [--windows 16]

A seed decides the hosts and one long stream of jobs, which is cut into `windows` stretches of 20 jobs for each host; every stretch is run
from an empty cluster, first come, first served, nobody passes the head. Arrivals grow with the number of hosts, so that the load is the
same. Intervals are 95 %, paired: over the stretches of all seeds (3 × 16 pairs), given the seeds' hosts. Three rules written here know
the ranges that jobs are drawn from or weigh memory too; they stand for what a good engineer would write.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from gpuyard import Cluster, Result, Workload, load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.experiments.statistics import paired_difference
from gpuyard.metrics import measure
from gpuyard.model.jobs import Array
from gpuyard.policies import PLACEMENTS, Scheduler, make_placement, parse_slots

JOBS_PER_HOST = 20
SEEDS, HOSTS, WINDOWS = (42, 43, 44), (50, 200), 16
MOST_CORES, MOST_MEMORY, JOB_CORES, JOB_MEMORY = 64.0, 512.0, 16.0, 128.0  # of the mixed hosts and their jobs, GB
RATES = 50  # hosts for which the arrivals below are meant


@dataclass(frozen=True)
class Situation:
    """Jobs and hosts, as generator and cluster take them."""

    title: str
    jobs: str
    arrivals: tuple[float, float]  # a second, for 50 hosts
    hosts: str

    def stretches(self, seed: int, hosts: int, windows: int) -> Iterator[tuple[Workload, Cluster]]:
        """The stretches of one seed."""
        size = JOBS_PER_HOST * hosts
        low, high = (rate * hosts / RATES for rate in self.arrivals)
        stream = load_workload(f"eda:jobs={size * windows},arrivals={low:g}:{high:g}{self.jobs}", seed=seed)
        cluster = load_cluster(f"hosts:count={hosts},{self.hosts},seed={seed}")
        for window in range(windows):
            yield _from_zero(stream.take(np.arange(window * size, (window + 1) * size))), cluster


MIXED = "cores=8:64,memory=32:512"
SHAPES = ",cores=1:16,memory=1:128"
SITUATIONS = (
    Situation("mixed hosts, just below saturation", SHAPES, (0.3, 1.0), MIXED),
    Situation("mixed hosts, overloaded", SHAPES, (0.4, 1.2), MIXED),
    Situation("similar hosts with memory to spare, overloaded", "", (0.6, 1.6), "cores=16:32,memory=64:256"),
)


def _from_zero(workload: Workload) -> Workload:
    """With the first job submitted at 0; the table is a copy that nobody else has."""
    table = workload.jobs.table
    table["submit"] -= float(table["submit"][0])
    return workload


# ── rules of our own ──


def best_fit(nodes: Any, n: Any, jobs: Any, j: Any) -> Any:
    """Least cores and memory left, each over those of the largest host."""
    return (nodes.free_cpus[n] - jobs.cpus[j]) / MOST_CORES + (nodes.free_memory[n] - jobs.memory[j]) / MOST_MEMORY


def worst_fit(nodes: Any, n: Any, jobs: Any, j: Any) -> Any:
    """Most cores and memory left."""
    return -((nodes.free_cpus[n] - jobs.cpus[j]) / MOST_CORES + (nodes.free_memory[n] - jobs.memory[j]) / MOST_MEMORY)


def least_room_lost(nodes: Any, n: Any, jobs: Any, j: Any) -> Any:
    """The smallest fall of the share of jobs, by their true ranges, that fit on the host."""
    before = min(nodes.free_cpus[n] / JOB_CORES, 1.0) * min(nodes.free_memory[n] / JOB_MEMORY, 1.0)
    cores, memory = nodes.free_cpus[n] - jobs.cpus[j], nodes.free_memory[n] - jobs.memory[j]
    return before - min(cores / JOB_CORES, 1.0) * min(memory / JOB_MEMORY, 1.0)


OWN: Mapping[str, Callable[..., Any]] = {
    "best fit of both*": best_fit,
    "worst fit of both*": worst_fit,
    "least room lost*": least_room_lost,
}


# ── what is measured ──


def cores_used(result: Result) -> float:
    """Core-seconds held over those there are until the last end."""
    return _used(result, result.workload.jobs.cpus, result.cluster.nodes.cpus)


def memory_used(result: Result) -> float:
    """The same of memory."""
    return _used(result, result.workload.jobs.memory, result.cluster.nodes.memory)


def _used(result: Result, asked: Array, there: Array) -> float:
    ran = np.nan_to_num(result.table["ran"])
    return float((asked * ran).sum() / (there.sum() * measure(result, ["makespan"])["makespan"]))


def imbalance(result: Result) -> float:
    """Standard deviation over mean, over hosts, of core-seconds held per core."""
    ran = result.table["node"] >= 0
    nodes = result.cluster.nodes
    held = np.bincount(result.table["node"][ran], (result.workload.jobs.cpus * result.table["ran"])[ran], minlength=len(nodes))
    load = held / nodes.cpus
    return float(load.std() / load.mean())


MEASURES: tuple[tuple[str, Literal["lower", "higher"], Callable[[Result], float]], ...] = (
    ("wait, s", "lower", lambda result: measure(result, ["wait"])["wait"]),
    ("makespan, s", "lower", lambda result: measure(result, ["makespan"])["makespan"]),
    ("completed", "higher", lambda result: measure(result, ["completed"])["completed"]),
    ("cores used", "higher", cores_used),
    ("memory used", "higher", memory_used),
    ("imbalance", "lower", imbalance),
)


def rules(policy: str) -> dict[str, Scheduler]:
    """Name → scheduler: the policy first, then every placement, then our own."""
    found = {policy: parse_scheduler(policy)}
    found |= {name: parse_slots(f"fcfs/{name}/none") for name in PLACEMENTS}
    plain = parse_slots("fcfs/first/none")
    found |= {name: replace(plain, placement=make_placement(function, function.__name__)) for name, function in OWN.items()}
    return {name: each for name, each in found.items() if isinstance(each, Scheduler)}


def merged(values: Mapping[str, Array]) -> dict[str, Array]:
    """Rules that did the same in every stretch become one, with all their names."""
    names: dict[bytes, list[str]] = {}
    for name, each in values.items():
        names.setdefault(each.tobytes(), []).append(name)
    return {", ".join(alike): values[alike[0]] for alike in names.values()}


def table(policy: str, values: Mapping[str, Array]) -> list[str]:
    """Markdown: means, and for wait and makespan the paired difference of the policy with its interval."""
    lines = ["| placement | " + " | ".join(name for name, _, _ in MEASURES) + " | policy: wait | policy: makespan |"]
    lines.append("|---" + "|--:" * (len(MEASURES) + 2) + "|")
    ours = values[policy]
    for name, each in merged(values).items():
        means = [f"{mean:.4g}" for mean in each.mean(0)]
        against = ["", ""] if name == policy else [change(ours[:, k], each[:, k], MEASURES[k][1]) for k in (0, 1)]
        lines.append(f"| {name} | " + " | ".join(means + against) + " |")
    return lines


def change(ours: Array, theirs: Array, better: Literal["lower", "higher"]) -> str:
    """The mean difference in percent of their mean, its interval, and in how many pairs ours is better."""
    found = paired_difference(ours, theirs, better=better)
    scale = 100 / theirs.mean()
    return f"{scale * found.mean:+.1f} % [{scale * found.low:+.1f}, {scale * found.high:+.1f}], {found.wins}/{found.n}"


def report(policy: str, situation: Situation, seeds: Sequence[int], hosts: int, windows: int) -> list[str]:
    """The table of one situation and number of hosts, and the policy's change in each seed."""
    schedulers = rules(policy)
    stretches = [(seed, *each) for seed in seeds for each in situation.stretches(seed, hosts, windows)]
    values = {
        name: np.array([
            [take(result) for _, _, take in MEASURES]
            for result in (simulate(workload, cluster, scheduler, seed=seed) for seed, workload, cluster in stretches)
        ])
        for name, scheduler in schedulers.items()
    }  # fmt: skip
    load = [_load(workload, cluster) for _, workload, cluster in stretches]
    lines = [f"## {situation.title}, {hosts} hosts", ""]
    lines.append(f"Load {np.mean(load, 0)[0]:.2f} of cores, {np.mean(load, 0)[1]:.2f} of memory; {len(seeds)} × {windows} stretches.")
    lines += ["", *table(policy, values), ""]
    for k, seed in enumerate(seeds):
        part = slice(k * windows, (k + 1) * windows)
        best = min((name for name in values if name in PLACEMENTS), key=lambda name: float(values[name][part, 0].mean()))
        text = ", ".join(f"{MEASURES[m][0]} {change(values[policy][part, m], values[best][part, m], MEASURES[m][1])}" for m in (0, 1))
        lines.append(f"- seed {seed}, against {best}, the best of the placements in wait: {text}")
    return [*lines, ""]


def _load(workload: Workload, cluster: Cluster) -> tuple[float, float]:
    """What is asked for over what there is while jobs arrive: cores, memory."""
    jobs, span = workload.jobs, float(workload.jobs.submit[-1])
    asked = (float((each * workload.runtime).sum()) for each in (jobs.cpus, jobs.memory))
    there = (float(each.sum()) * span for each in (cluster.nodes.cpus, cluster.nodes.memory))
    cores, memory = (a / t for a, t in zip(asked, there, strict=True))
    return cores, memory


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policy", default="learned:hosts")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--hosts", default=",".join(map(str, HOSTS)))
    parser.add_argument("--windows", type=int, default=WINDOWS)
    given = parser.parse_args()
    seeds, hosts = ([int(word) for word in text.split(",")] for text in (given.seeds, given.hosts))
    for situation in SITUATIONS:
        for count in hosts:
            print("\n".join(report(given.policy, situation, seeds, count, given.windows)), flush=True)
    print("`*`: rules of this script, with the ranges of jobs and hosts of the mixed situations written into them.")


if __name__ == "__main__":
    main()
