"""Networks inside the engine give the same bytes compiled and as plain Python (NUMBA_DISABLE_JIT=1)."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from gpuyard import simulate
from gpuyard.features.hosts import HOST
from gpuyard.features.jobs import JOB
from gpuyard.features.system import SWITCH
from gpuyard.networks.network import Network
from gpuyard.networks.spec import NetworkSpec
from gpuyard.policies import Meta, parse_slots
from gpuyard.policies.learned import network_ordering, network_placement, network_switch
from gpuyard.testing.reference.network import random_arrays
from gpuyard.testing.strategies import random_case

CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from test_interpreted import digests
print(*digests(), sep="\\n")
"""
ROWS = NetworkSpec(
    rows=len(JOB.rows), context=len(JOB.context), row_layers=(4,), context_layers=(3,), pool="attention", heads=2, head_layers=(4,)
)
PLAIN = replace(ROWS, pool="none", heads=1)
HOSTS = replace(ROWS, rows=len(HOST.rows), context=len(HOST.context))
ACTIONS = NetworkSpec(rows=0, context=len(SWITCH.context), actions=2, context_layers=(4,), history=32, memory_layers=(3,), head_layers=(4,))


def digests() -> list[str]:
    """What simulations with networks in each of the slots compute, in few characters each."""
    found = []
    for seed in range(3):
        rng = np.random.default_rng(seed)

        def net(spec: NetworkSpec, rng: np.random.Generator = rng) -> Network:
            return Network.of(spec, random_arrays(spec, rng))

        base, easy = parse_slots("fcfs/best/skip"), parse_slots("sjf/fewest/easy")
        schedulers = (
            replace(easy, ordering=network_ordering(net(PLAIN), "net")),
            replace(base, ordering=network_ordering(net(ROWS), "net")),
            replace(base, placement=network_placement(net(HOSTS), "net")),
            Meta((base, easy), network_switch(net(ACTIONS), "net"), 20.0),
        )
        case = random_case(600 + seed)
        for scheduler in schedulers:
            result = simulate(case.workload, case.cluster, scheduler, rules=case.rules, segments=True)
            found.append(hashlib.sha256(result.table.tobytes() + result.segments.tobytes()).hexdigest())
    return found


def test_compiled_equals_interpreted():
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent)]
    ended = subprocess.run(command, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    compiled = digests()
    assert ended.stdout.splitlines() == compiled
    assert len(set(compiled)) > 3
