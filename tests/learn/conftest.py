"""JAX programs compiled once, and the toy environment."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

# Many tests build the same learner: the first compiles its programs, the others, in this worker or another, read them from the disk.
# Processes that tests start, and kill, have the user's folder: JAX does not write its files in one step.
_COMPILED = Path(__file__).resolve().parents[2] / ".pytest_cache" / "jax"
jax.config.update("jax_compilation_cache_dir", str(_COMPILED))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

TOY = Path(__file__).with_name("toy.py")


@pytest.fixture(scope="module", autouse=True)
def _quickly_compiled() -> Iterator[None]:
    """Compile without optimisations: a PPO and a DQN take 2.9 s instead of 8.5. Longer trainings, as those of the docs, want them."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def optimised() -> Iterator[None]:
    """Compile with all optimisations: for a test that computes more than it compiles."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="session")
def toy_program() -> Path:
    """A program that is the command line with the environment `Toy`."""
    spec = importlib.util.spec_from_file_location("toy_environment", TOY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    module.register()
    return TOY


@pytest.fixture
def toy(toy_program: Path) -> str:
    return "Toy"
