"""Generated sites of known pools, whose log is a simulation of their own policy: then the log is all that is known, as of a real site."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuyard.engine.simulation import simulate
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.workload import Machine, Workload
from gpuyard.policies import parse_scheduler
from gpuyard.traces import guess_cluster
from gpuyard.traces.guess import peak

PRESENT = "fcfs/fewest/easy"
POOLS = (512, 192, 64)  # processors
JOBS = 6_000
GLITCHES = 0.002  # of the jobs: their end was written down late


@dataclass(frozen=True)
class Site:
    """A generated site: its log, its true cluster, and whether the partitions are pools or queues of one."""

    log: Workload
    truth: Cluster
    apart: bool


def site(seed: int, *, apart: bool = True, stated: bool = True, jobs: int = JOBS, glitches: float = GLITCHES) -> Site:
    """Make a site. Its log has starts by the site's own policy, a few ends that were written down late, and no node names."""
    draws = np.random.default_rng([seed, apart])
    sizes = np.array(POOLS)
    load = draws.permutation([0.95, 0.8, 0.65]) if apart else np.full(3, 0.9)
    part = draws.choice(3, jobs, p=[0.5, 0.3, 0.2])
    gpus = np.minimum(2 ** draws.integers(0, 7, jobs), np.where(apart, sizes[part] // 4, 128)).astype(float)
    run = np.minimum(draws.lognormal(7.5, 1.3, jobs), 86_400.0).round() + 1
    work = np.bincount(part, weights=gpus * run, minlength=3)
    span = work.sum() / sizes.sum() / 0.85
    share = sizes * load / (sizes * load).sum() * work.sum() / work
    run = (run * (share if apart else np.ones(3))[part]).round() + 1
    limit = np.ceil(run * draws.uniform(1.2, 6.0, jobs) / 1800) * 1800
    columns = {
        "submit": np.sort(draws.uniform(0, span, jobs)).round(), "gpus": gpus, "walltime": limit, "partition": part,
        "user": draws.zipf(1.7, jobs) % 40,
    }  # fmt: skip
    names = tuple(str(k + 1) for k in range(3))
    users = tuple(f"u{k}" for k in range(40))
    truth = load_cluster("+".join(f"{size}@{name}" for size, name in zip(POOLS, names, strict=True)) if apart else str(sum(POOLS)))
    plain = Workload.build(columns, run, name=f"site-{seed}", users=users, partitions=names)
    policy = PRESENT if seed % 2 else "multifactor/fewest/easy"
    start = simulate(plain, truth, parse_scheduler(policy), seed=seed).table["start"]
    late = draws.random(jobs) < glitches
    machines = [Machine("site", int(sizes.sum()) if stated else 0, gpu_type="cpu")]
    log = Workload.build(
        columns, np.where(late, 1.5 * run, run), name=f"site-{seed}", users=users, partitions=names, logged_start=start, machines=machines,
    )  # fmt: skip
    return Site(log, truth, apart)


def mean_wait(workload: Workload, cluster: Cluster) -> float:
    """Return the mean wait, s, of the simulated present."""
    result = simulate(workload, cluster, parse_scheduler(PRESENT))
    return float(np.nanmean(result.table["start"] - workload.jobs.submit))


def logged_wait(workload: Workload) -> float:
    """Return the mean wait, s, that the log says."""
    return float(np.nanmean(workload.known_start - workload.jobs.submit))


def one_pool(workload: Workload) -> Cluster:
    """Return the cluster that was guessed before: one pool, as large as stated, or else as the bare peak."""
    stated = workload.machines[0].gpus if workload.machines else 0
    start = workload.known_start
    return load_cluster(str(stated or int(peak(start, start + workload.runtime, workload.jobs.gpus))))


def errors(made: Site) -> tuple[float, float, float]:
    """Return the log's mean wait, and the errors of the simulated one with one pool and with inferred pools, s."""
    was = logged_wait(made.log)
    return was, abs(mean_wait(made.log, one_pool(made.log)) - was), abs(mean_wait(made.log, guess_cluster(made.log)[0]) - was)
