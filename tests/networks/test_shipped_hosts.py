"""The host-picking policy that comes with the package: small, with its command, and better than the placements on new hosts."""

from __future__ import annotations

import shlex

import numpy as np
import pytest

from gpuyard import load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.metrics import measure
from gpuyard.networks.checkpoint import SHIPPED, read_checkpoint
from gpuyard.traces.splits import overlap, uses_of_seeds

PATH = SHIPPED / "hosts.safetensors"
SEEDS = range(300_000, 300_004)  # of neither training, validation nor test


def test_it_is_small_and_says_how_it_was_made():
    manifest = read_checkpoint(PATH).manifest
    assert PATH.stat().st_size < 1_000_000
    assert manifest.name == "hosts"
    words = shlex.split(manifest.command)
    assert words[:3] == ["gpuyard", "train", "PickHost"]
    assert "training.name=hosts" in words
    assert not any(word.startswith("/") for word in words)


def test_the_test_seeds_were_not_trained_or_tuned_on():
    training = read_checkpoint(PATH).manifest.training
    assert overlap(training, uses_of_seeds("eda", (42, 43, 44))) is None
    assert overlap(training, uses_of_seeds("eda", (600_000,))) is not None


@pytest.mark.parametrize("hosts", [50, 120])
def test_better_than_every_fit_on_hosts_never_seen(hosts):
    rate = hosts / 50
    totals: dict[str, np.ndarray] = {}
    for seed in SEEDS:
        workload = load_workload(f"eda:jobs={16 * hosts},arrivals={0.4 * rate:g}:{1.2 * rate:g},cores=1:16,memory=1:128", seed=seed)
        cluster = load_cluster(f"hosts:count={hosts},cores=8:64,memory=32:512,seed={seed}")
        for text in ("learned:hosts", "fcfs/first", "fcfs/packing", "fcfs/balance", "fcfs/random"):
            found = measure(simulate(workload, cluster, parse_scheduler(text), seed=seed), ["wait", "makespan"])
            totals[text] = totals.get(text, np.zeros(2)) + np.array(list(found.values()))
    ours = totals.pop("learned:hosts")
    for theirs in totals.values():
        assert ours[0] < 0.95 * theirs[0]
        assert ours[1] < theirs[1]
