"""Same seed, same bytes: again, in other threads, in other processes; the seed matters to random placement only."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gpuyard import Result, Workload, simulate
from gpuyard.model.cluster import Cluster
from gpuyard.policies import PLACEMENTS, parse_scheduler
from gpuyard.testing.strategies import random_case
from support.schedulers import random_scheduler

CHILD = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/.."]  # the test itself, and tests/support
from test_determinism import digest
print(" ".join(digest(seed) for seed in range(20)))
"""


def run(seed: int, *, own: bool = True) -> Result:
    case = random_case(seed)
    return simulate(case.workload, case.cluster, random_scheduler(seed, own=own), seed=seed, rules=case.rules, segments=True)


def digest(seed: int) -> str:
    result = run(seed, own=seed < 6)  # each process compiles the policies of a user again
    arrays = result.table.tobytes() + result.timeline.tobytes() + result.segments.tobytes()
    return hashlib.sha256(arrays + repr(sorted(result.totals.items())).encode()).hexdigest()


def test_again():
    assert all(run(seed).same_bytes(run(seed)) for seed in range(40))


def test_in_two_threads_at_once():
    seeds = list(range(60))
    alone = [digest(seed) for seed in seeds]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lambda: [digest(seed) for seed in seeds])
        second = pool.submit(lambda: [digest(seed) for seed in reversed(seeds)])
        assert first.result() == alone
        assert second.result()[::-1] == alone


def test_in_another_process_with_another_hash_seed():
    salt = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent)]
    done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": salt}, capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == [digest(seed) for seed in range(20)], done.stderr


def congested() -> tuple[Workload, Cluster]:
    rng = np.random.default_rng(1)
    columns = {"submit": np.sort(rng.uniform(0, 900, 200)), "gpus": rng.integers(1, 5, 200)}
    return Workload.build(columns, rng.exponential(50, 200)), Cluster.uniform(6, 4)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_seed_matters_to_random_placement_only(placement: str):
    workload, cluster = congested()
    scheduler = parse_scheduler(f"fcfs/{placement}/easy")
    first, second = (simulate(workload, cluster, scheduler, seed=seed, segments=True) for seed in (1, 2))
    assert np.array_equal(first.segments["node"], second.segments["node"]) == (placement != "random")
    assert first.same_bytes(second) == (placement != "random")


def test_large_seeds():
    workload, cluster = congested()
    scheduler = parse_scheduler("fcfs/random")
    results = [simulate(workload, cluster, scheduler, seed=seed) for seed in (0, 2**62, 2**63 - 1)]
    assert not results[0].same_bytes(results[1])
    assert not results[1].same_bytes(results[2])
