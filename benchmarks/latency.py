"""How long one decision of a learned policy takes, from a snapshot, one at a time.

    python benchmarks/latency.py [--calls N] [--json]

A switch among five schedulers (32 jobs wait, 24 run on 32 nodes), the first of 128 waiting jobs, and a host among 1,000 (700 jobs run).
Then whole passes of a heuristic scheduler at scale: 5,000 jobs wait and 4,000 run on 1,000 nodes.
Networks of the usual sizes with random weights: what they say does not change how long they take. Beside it the forward pass of the same
network alone, in plain numpy, on the same features: what a policy would cost without compiled code, before a single feature is worked out.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from gpuyard.arrays import Array
from gpuyard.features import hosts, jobs, system
from gpuyard.model.cluster import Cluster
from gpuyard.model.jobs import Jobs
from gpuyard.model.rules import Rules
from gpuyard.model.snapshot import HELD, LIVE, NODE, Snapshot
from gpuyard.networks.network import Network
from gpuyard.networks.spec import NetworkSpec
from gpuyard.policies import Meta, parse_slots
from gpuyard.policies.learned import network_ordering, network_placement, network_switch
from gpuyard.testing.reference.network import random_arrays

GPUS = 8  # of a node
TARGETS = {"switch": 8.0, "job": 40.0, "host": 200.0}  # µs, p50
SPECS = {
    "switch": NetworkSpec(0, system.CONTEXT, actions=5, context_layers=(64,), memory_layers=(16,), history=32, head_layers=(64,)),
    "job": NetworkSpec(jobs.ROWS, jobs.CONTEXT, head_layers=(32, 16)),
    "host": NetworkSpec(hosts.ROWS, hosts.CONTEXT, row_layers=(16,), head_layers=(32,)),
}
NODES, WAITING, RUNNING = 1000, 5000, 4000
PASSES = ("fcfs/fewest/easy", "sjf/best/easy", "wfp3/fewest/skip")
MOST_MS = 15.0  # CPU, of one whole decision at scale
WHAT = {"switch": "a scheduler among 5", "job": "a job among 128", "host": "a host among 1,000"}


def snapshot(nodes: int, waiting: int, running: int, seed: int = 0) -> Snapshot:
    """Jobs of 1 or 2 GPUs; those that run hold theirs on random nodes, at most one more on any node than on another."""
    rng = np.random.default_rng(seed)
    count = waiting + running
    columns = {"submit": np.sort(rng.uniform(0, 100, count)), "gpus": rng.integers(1, 3, count), "estimate": rng.uniform(10, 1e4, count)}
    made, _ = Jobs.build(columns)
    live = np.zeros(count, LIVE)
    live["start"] = -1
    live["running"][:running] = True
    live["run_start"][:running] = 50.0
    live["est_end"][:running] = rng.uniform(200, 1200, running)
    held = np.zeros(running, HELD)
    held["row"], held["device"] = np.arange(running), -1
    turn, at = np.divmod(np.arange(running), nodes)
    held["node"] = rng.permutation(nodes)[at]
    held["gpus"] = made.gpus[:running]
    held["devices"] = ((1 << held["gpus"]) - 1) << 2 * turn
    states = np.zeros(nodes, NODE)
    states["mask"] = (1 << GPUS) - 1
    return Snapshot(110.0, made, live, held, states, Cluster.uniform(nodes, GPUS), Rules(), 0, submitted=count)


def choosers() -> dict[str, Callable[[], object]]:
    """By name a call that makes one decision."""
    networks = {name: Network.of(spec, random_arrays(spec, np.random.default_rng(0))) for name, spec in SPECS.items()}
    fcfs = parse_slots("fcfs")
    schedulers = tuple(map(parse_slots, ("fcfs", "priority", "edf", "sjf", "saf")))
    switch = Meta(schedulers, network_switch(networks["switch"], "switch")).begin()
    job = replace(fcfs, ordering=network_ordering(networks["job"], "job")).begin()
    host = replace(fcfs, placement=network_placement(networks["host"], "host")).begin()
    few, queue, many = snapshot(32, 32, 24), snapshot(64, 128, 48), snapshot(1000, 32, 700)
    return {
        "switch": lambda: switch.choose_scheduler(few),
        "job": lambda: job.choose_first(queue),
        "host": lambda: host.choose_first(many, row=720),
    }


def plain_networks() -> dict[str, Callable[[], object]]:
    """By name a call that evaluates the same network in numpy."""
    rng = np.random.default_rng(0)
    counts = {"switch": 0, "job": 128, "host": 1000}
    made: dict[str, Callable[[], object]] = {}
    for name, spec in SPECS.items():
        choose = in_numpy(spec, random_arrays(spec, np.random.default_rng(0)))
        made[name] = partial(choose, rng.random((counts[name], spec.rows), np.float32), rng.random(spec.context, np.float32))
    return made


def in_numpy(spec: NetworkSpec, arrays: Mapping[str, Array]) -> Callable[[Array, Array], int]:
    """(rows, context) → the row or the action that the network scores highest; networks of these benchmarks alone."""

    def layers(name: str, x: Array, *, linear_last: bool = False) -> Array:
        count = sum(key.startswith(f"{name}.") and key.endswith(".weight") for key in arrays)
        for k in range(count):
            x = x @ arrays[f"{name}.{k}.weight"].T + arrays[f"{name}.{k}.bias"]
            x = x if linear_last and k == count - 1 else np.maximum(x, 0)
        return x

    def of_actions(rows: Array, context: Array) -> int:
        z = (context - arrays["context.mean"]) * arrays["context.scale"]
        now = spec.context - spec.history
        e = layers("context", np.concatenate([z[:now], layers("memory", z[now:])]))
        return int(np.argmax(layers("head", e, linear_last=True)))

    def of_rows(rows: Array, context: Array) -> int:
        e = (context - arrays["context.mean"]) * arrays["context.scale"]
        h = layers("row", (rows - arrays["rows.mean"]) * arrays["rows.scale"])
        both = np.concatenate([h, np.broadcast_to(e, (len(h), len(e)))], axis=1)
        return int(np.argmax(layers("head", both, linear_last=True)))

    return of_rows if spec.rows else of_actions


def measure_passes(calls: int) -> dict[str, dict[str, float]]:
    """By scheduler: CPU milliseconds of one whole decision at scale, p50, and how many jobs it starts."""
    seen, found = snapshot(NODES, WAITING, RUNNING), {}
    for text in PASSES:
        scheduler = parse_slots(text)
        p50, _ = percentiles(partial(scheduler.decide, seen), calls, time.thread_time_ns)
        found[text] = {"cpu_p50_ms": p50 / 1000, "starts": float(len(scheduler.decide(seen)))}
    return found


def percentiles(call: Callable[[], object], calls: int, clock: Callable[[], int] = time.perf_counter_ns) -> tuple[float, float]:
    """p50 and p99 in µs; nothing is collected meanwhile."""
    for _ in range(max(calls // 20, 20)):
        call()
    taken = np.empty(calls, np.int64)
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for k in range(calls):
            began = clock()
            call()
            taken[k] = clock() - began
    finally:
        gc.enable()
        gc.unfreeze()
    p50, p99 = np.percentile(taken, [50, 99]) / 1000
    return float(p50), float(p99)


def measure(calls: int) -> dict[str, dict[str, float]]:
    """By decision the numbers of the table. CPU time, of the same calls made once more, leaves out what other work on the machine takes."""
    plain, found = plain_networks(), {}
    for name, call in choosers().items():
        p50, p99 = percentiles(call, calls)
        cpu50, cpu99 = percentiles(call, calls, time.thread_time_ns)
        alone, _ = percentiles(plain[name], max(calls // 10, 100))
        found[name] = {
            "p50": p50, "p99": p99, "target_p50": TARGETS[name], "p99_over_p50": p99 / p50, "cpu_p50": cpu50, "cpu_p99": cpu99,
            "numpy_network_p50": alone, "numpy_over_ours": alone / p50,
        }  # fmt: skip
    return found


def lines(calls: int = 20_000) -> list[tuple[str, str, str, str]]:
    """(what, measured, target, note), as `bench.py` takes them."""
    made = []
    for name, row in measure(calls).items():
        note = f"CPU: p50 {row['cpu_p50']:.1f}, p99 {row['cpu_p99']:.1f}; the network alone in numpy takes {row['numpy_over_ours']:.1f} ×"
        ratio = f"p50 {row['p50']:.1f} µs, p99 {row['p99_over_p50']:.1f} × that"
        made.append((f"from snapshot to decision: {WHAT[name]}", ratio, f"p50 < {row['target_p50']:.0f} µs, p99 ≤ 3 × that", note))
    for text, row in measure_passes(max(calls // 400, 20)).items():
        what = f"from snapshot to decision: {text}, {WAITING:,} jobs wait, {RUNNING:,} run, {NODES:,} nodes"
        made.append((what, f"{row['cpu_p50_ms']:.1f} ms CPU", f"≤ {MOST_MS:.0f} ms", f"{row['starts']:.0f} jobs start"))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found, passes = measure(given.calls), measure_passes(max(given.calls // 400, 20))
    if given.json:
        sys.stdout.write(json.dumps(found | passes, indent=2) + "\n")
        return
    titles = ("p50 (µs)", "p99 (µs)", "target p50 (µs)", "p99 / p50", "CPU p50", "CPU p99", "the network alone in numpy (µs)", "ratio")
    table = [f"| decision | {' | '.join(titles)} |", "|---|" + "---:|" * len(titles)]
    table += [f"| {WHAT[name]} | " + " | ".join(f"{cell:.3g}" for cell in row.values()) + " |" for name, row in found.items()]
    table += ["", "| whole pass at scale | CPU p50 (ms) | jobs that start |", "|---|---:|---:|"]
    table += [f"| {text} | {row['cpu_p50_ms']:.3g} | {row['starts']:.0f} |" for text, row in passes.items()]
    sys.stdout.write("\n".join(table) + "\n")


if __name__ == "__main__":
    main()
