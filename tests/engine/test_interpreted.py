"""The kernels give the same bytes compiled and as plain Python (NUMBA_DISABLE_JIT=1)."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuyard import simulate
from gpuyard.model.result import Result
from gpuyard.testing.strategies import random_case
from support.schedulers import random_scheduler

CHILD = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/.."]  # the test itself, and tests/support
from test_interpreted import digest, scale_of
for seed in range(int(sys.argv[2]), int(sys.argv[3])):
    print(seed, digest(seed, scale_of(seed)))
"""


def scale_of(seed: int) -> str:
    return "rack" if seed % 20 == 0 else "small"


def digest(seed: int, scale: str) -> str:
    """Everything that a simulation of a case computes, in few characters."""
    case, scheduler = random_case(seed, scale), random_scheduler(seed)
    return digest_of(simulate(case.workload, case.cluster, scheduler, seed=seed, rules=case.rules, segments=True))


def digest_of(result: Result) -> str:
    arrays = result.table.tobytes() + result.timeline.tobytes() + result.segments.tobytes()
    return hashlib.sha256(arrays + repr(sorted(result.totals.items())).encode()).hexdigest()


def interpreted(first: int, last: int) -> list[str]:
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(first), str(last)]
    done = subprocess.run(command, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_compiled_equals_interpreted():
    assert interpreted(500_000, 500_060) == [f"{seed} {digest(seed, scale_of(seed))}" for seed in range(500_000, 500_060)]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_compiled_equals_interpreted_on_more_cases(part: int):
    first = 510_000 + 100 * part
    assert interpreted(first, first + 100) == [f"{seed} {digest(seed, scale_of(seed))}" for seed in range(first, first + 100)]
