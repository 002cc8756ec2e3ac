"""Settings and fixtures for every test: one thread per worker, repeatable hypothesis, the shared data."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# The workers of pytest-xdist use all cores already: the threads of numpy, scikit-learn and JAX would only wait for each other.
# The libraries read these when they are imported, which no test has done yet.
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")

# Without its newer way to fuse loops XLA compiles in two thirds of the time and what it compiles is as quick. Without optimisations
# a PPO and a DQN take 2.9 s instead of 8.5; a test that computes more than it compiles asks for the fixture `optimised`.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")

_COMMON = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", _COMMON, derandomize=True, max_examples=50)
settings.register_profile("thorough", _COMMON, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_collection_finish() -> None:
    """Leave out of garbage collections what lives to the end, seven thousand tests and all modules: a tenth of the time of the tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    if "jax" in sys.modules:
        _share_jax_programs(sys.modules["jax"].config)


def _share_jax_programs(options: Any) -> None:
    """Many tests build the same learner: the first compiles its programs, the others, in this worker or another, read them from the disk.

    Processes that tests start, and kill, have the user's folder: JAX does not write its files in one step.
    """
    options.update("jax_compilation_cache_dir", str(ROOT / ".pytest_cache" / "jax"))
    options.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    options.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture(autouse=True)
def _as_wide_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are not folded to the terminal in which the tests run."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def optimised() -> Iterator[None]:
    """Compile JAX programs with all optimisations."""
    jax = pytest.importorskip("jax")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def on_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """`gpuyard run` works in this process, as it does on one core; workers of its own would load and compile everything again."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with traces and samples beside the repository; tests that need it are skipped where it is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the traces in ../shared, which is absent")
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, driven by playwright."""
    tool = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("there is no Chromium here")
    with tool.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()
