"""Every policy that comes with the package decides as it did when it was published."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from gpuyard import load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.features.jobs import JOB, JOB_TYPES
from gpuyard.networks.checkpoint import find_checkpoint, read_checkpoint, shipped_names
from gpuyard.networks.manifest import Manifest

# Workloads and clusters like those that each policy was trained on, and a digest of when and where it starts the jobs.
STARTS = {
    "direct": ("family:shape=bursty,intensity=high,gpus=8,horizon=600", "8", "8a1180b6db521c88"),
    "direct-deeprm": ("family:shape=bursty,intensity=high,gpus=8,horizon=600", "8", "3f3375c65ac9cacc"),
    "direct-ppo": ("family:shape=bursty,intensity=high,gpus=8,horizon=600", "8", "9a5c790b0afd887a"),
    "gpu": ("demo:jobs=300", "8x8:a100", "1dfd1cc4be8ee7ce"),
    "hetero-d3qn": ("poisson:jobs=120,gpus=96,load=0.9,requests=exact", "hetero-demo", "fe05dfe8dee97b61"),
    "hetero-ppo": ("poisson:jobs=120,gpus=96,load=0.9,requests=exact", "hetero-demo", "6df86a9d6556967e"),
    "hetero-sac": ("poisson:jobs=120,gpus=96,load=0.9,requests=exact", "hetero-demo", "bea24971532988e0"),
    "hosts": ("eda:jobs=300,arrivals=0.6:1.6,requests=exact", "hosts:count=20,cores=16:32,memory=64:256,seed=1", "caa1ba905f6af5f8"),
    "hpc": ("lublin:jobs=300,nodes=256,load=0.9,requests=exact", "32x8:gpu", "2dadf6a5a0fd92fd"),
    "lublin": ("lublin:jobs=300,nodes=256,load=0.9,requests=exact", "32x8:gpu", "a324c6c12b0842b8"),
    "meta": ("family:shape=bursty,intensity=high,gpus=8,horizon=600", "8", "5b40d683d5feea31"),
    "meta-gangs": ("family:variant=gang,shape=bursty,intensity=high,gpus=8,horizon=1200", "1x8:a100", "1c63c24bc890300c"),
    "meta-ppo": ("family:shape=bursty,intensity=high,gpus=8,horizon=600", "8", "5068b2f2dd460598"),
    "meta-six": ("family:shape=bursty,intensity=high,gpus=8,horizon=600", "8", "51748892dae3b973"),
}  # fmt: skip


def digest(name: str, workload: str, cluster: str) -> str:
    made = simulate(load_workload(workload, seed=5), load_cluster(cluster), parse_scheduler(f"learned:{name}"), seed=5)
    assert (made.table["start"] > made.workload.jobs.submit).sum() > 10  # there was something to decide
    order = np.argsort(np.round(made.table["start"], 3), kind="stable")  # the last bits of drawn times depend on the processor
    return hashlib.sha256(order.astype(np.int64).tobytes() + made.table["node"].tobytes()).hexdigest()[:16]


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
