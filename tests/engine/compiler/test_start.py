"""What a start does and does not do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpuyard.engine.compiler.jit import INTERPRETED

SIMULATE = """
import sys
from gpuyard import load_cluster, load_workload, parse_scheduler, simulate
simulate(load_workload("demo"), load_cluster("4x8:a100"), parse_scheduler("fcfs/best/easy"))
print(*sys.modules)
"""
BLAS = """
import numpy as np
import gpuyard.engine.compiler.jit
from numba import njit
print(njit(lambda a: np.dot(a, a))(np.arange(4.0)))
"""


def said(program: str) -> tuple[str, str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=600)
    return done.stdout, done.stderr


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")
def test_a_simulation_loads_no_linear_algebra_and_speaks_of_compiling_only_when_it_compiles() -> None:
    said(SIMULATE)  # compiles, if that was not done before
    loaded, talk = said(SIMULATE)
    assert not {"scipy.linalg", "numba.typed.typeddict"} & set(loaded.split())  # what only a compilation needs
    assert talk == ""


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")
def test_linear_algebra_still_works_in_other_code_of_the_process() -> None:
    pytest.importorskip("scipy")
    assert said(BLAS)[0] == "14.0\n"
