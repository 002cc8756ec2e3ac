"""The toy environment."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import jax  # noqa: F401 - loaded before the tests begin, it is told to keep on the disk what it compiles, see tests/conftest.py
import pytest

TOY = Path(__file__).with_name("toy.py")


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
