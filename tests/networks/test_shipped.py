"""Every policy that comes with the package decides as it did when it was published."""

from __future__ import annotations

import hashlib

import pytest

from gpuyard import load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.networks.checkpoint import shipped_names

# Workloads and clusters like those that each policy was trained on, and a digest of when and where it starts the jobs.
STARTS = {
    "direct": ("family:shape=bursty,intensity=high,gpus=8,horizon=600", "8", "901b62202fc50db4"),
    "gpu": ("demo:jobs=300", "8x8:a100", "d45185638df51c9f"),
    "hetero-d3qn": ("poisson:jobs=120,gpus=96,load=0.9,requests=exact", "hetero-demo", "1c05d1555683eb04"),
    "hetero-ppo": ("poisson:jobs=120,gpus=96,load=0.9,requests=exact", "hetero-demo", "85015850e32c38a8"),
    "hetero-sac": ("poisson:jobs=120,gpus=96,load=0.9,requests=exact", "hetero-demo", "30d513d094dc3ed7"),
    "hosts": ("eda:jobs=300,arrivals=0.6:1.6,requests=exact", "hosts:count=20,cores=16:32,memory=64:256,seed=1", "ee750f84601a0f63"),
    "hpc": ("lublin:jobs=300,nodes=256,load=0.9,requests=exact", "32x8:gpu", "f7d23ad45257f47d"),
    "lublin": ("lublin:jobs=300,nodes=256,load=0.9,requests=exact", "32x8:gpu", "44d12e2dc8a7de92"),
    "meta": ("family:shape=bursty,intensity=high,gpus=8,horizon=600", "8", "45bc68e1a862993b"),
}  # fmt: skip


def digest(name: str, workload: str, cluster: str) -> str:
    made = simulate(load_workload(workload, seed=5), load_cluster(cluster), parse_scheduler(f"learned:{name}"), seed=5)
    assert (made.table["start"] > made.workload.jobs.submit).sum() > 10  # there was something to decide
    return hashlib.sha256(made.table["start"].tobytes() + made.table["node"].tobytes()).hexdigest()[:16]


def test_no_policy_is_left_out() -> None:
    assert set(STARTS) == set(shipped_names())


@pytest.mark.parametrize("name", STARTS)
def test_it_starts_the_same_jobs_at_the_same_times(name: str) -> None:
    workload, cluster, expected = STARTS[name]
    assert digest(name, workload, cluster) == expected
