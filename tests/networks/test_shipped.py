"""Every policy that comes with the package decides as it did when it was published."""

from __future__ import annotations

import hashlib

import pytest

from gpuyard import load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.features.jobs import JOB, JOB_TYPES
from gpuyard.networks.checkpoint import find_checkpoint, read_checkpoint, shipped_names
from gpuyard.networks.manifest import Manifest

# Workloads and clusters like those that each policy was trained on, and a digest of when and where it starts the jobs.
STARTS = {
    "direct": ("family:shape=bursty,intensity=high,gpus=8,horizon=600", "8", "901b62202fc50db4"),
    "direct-deeprm": ("family:shape=bursty,intensity=high,gpus=8,horizon=600", "8", "da8716a93d6f2e36"),
    "direct-ppo": ("family:shape=bursty,intensity=high,gpus=8,horizon=600", "8", "746678f5099152ea"),
    "gpu": ("demo:jobs=300", "8x8:a100", "d45185638df51c9f"),
    "hetero-d3qn": ("poisson:jobs=120,gpus=96,load=0.9,requests=exact", "hetero-demo", "d26b92b5f22bb812"),
    "hetero-ppo": ("poisson:jobs=120,gpus=96,load=0.9,requests=exact", "hetero-demo", "55018d5949fb7e15"),
    "hetero-sac": ("poisson:jobs=120,gpus=96,load=0.9,requests=exact", "hetero-demo", "82c0f11f33a20b91"),
    "hosts": ("eda:jobs=300,arrivals=0.6:1.6,requests=exact", "hosts:count=20,cores=16:32,memory=64:256,seed=1", "ee750f84601a0f63"),
    "hpc": ("lublin:jobs=300,nodes=256,load=0.9,requests=exact", "32x8:gpu", "f7d23ad45257f47d"),
    "lublin": ("lublin:jobs=300,nodes=256,load=0.9,requests=exact", "32x8:gpu", "44d12e2dc8a7de92"),
    "meta": ("family:shape=bursty,intensity=high,gpus=8,horizon=600", "8", "bb6bf20c054609a3"),
    "meta-gangs": ("family:variant=gang,shape=bursty,intensity=high,gpus=8,horizon=1200", "1x8:a100", "fdfb5b9a683b4f57"),
    "meta-ppo": ("family:shape=bursty,intensity=high,gpus=8,horizon=600", "8", "45bc68e1a862993b"),
    "meta-six": ("family:shape=bursty,intensity=high,gpus=8,horizon=600", "8", "77075607a2e7b46d"),
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


# ── GPUs of different speeds: three learners on equal terms ──

HETERO = ("hetero-d3qn", "hetero-ppo", "hetero-sac")


def manifest_of(name: str) -> Manifest:
    return read_checkpoint(find_checkpoint(f"learned:{name}")).manifest


@pytest.mark.parametrize("name", HETERO)
def test_it_sees_gpu_types_and_was_trained_on_generated_jobs_and_on_two_traces(name: str) -> None:
    made = manifest_of(name)
    assert made.schema.hash == JOB_TYPES.hash
    for uses in (made.training.workloads, made.training.validation):
        assert [use.workload.partition(":")[0].partition(".")[0] for use in uses] == ["poisson", "google", "alibaba"]


def test_the_three_learners_had_equal_budgets() -> None:
    records = [dict(manifest_of(name).training.config) for name in HETERO]
    for key in ("env", "workloads", "cluster", "validation", "objective"):
        assert all(record[key] == records[0][key] for record in records), key
    settings = [record["settings"] for record in records]
    assert all(each["env"] == settings[0]["env"] for each in settings)
    own = {"name", "title", "keep_every"}  # updates are of different lengths
    training = [{name: value for name, value in each["training"].items() if name not in own} for each in settings]
    assert all(each == training[0] for each in training)  # choices, environments, validation episodes
    assert len({(each["learner"]["network"], each["learner"]["width"]) for each in settings}) == 1


def test_policies_of_the_first_version_are_still_shipped() -> None:
    """They are those of the table above that must go on to decide the same."""
    assert [name for name in STARTS if manifest_of(name).schema.hash == JOB.hash] == [
        "direct",
        "direct-deeprm",
        "direct-ppo",
        "gpu",
        "hpc",
        "lublin",
    ]
