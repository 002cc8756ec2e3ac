"""Devices by name, and where compiled code goes."""

from pathlib import Path

import jax
import pytest

from gpuyard.errors import UsageError
from gpuyard.learn.parts import backend


def test_cpu_is_always_there() -> None:
    assert backend.setup("cpu").platform == "cpu"


@pytest.mark.skipif(any(each.platform != "cpu" for each in jax.devices()), reason="there is a GPU")
def test_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="no gpu that JAX can use; hint: train with --device cpu"):
        backend.setup("gpu")


def test_unknown_device_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown device 'tpu9'; hint: known: cpu, gpu"):
        backend.setup("tpu9")


def test_cache_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GPUYARD_JAX_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert backend.cache_folder() == tmp_path / "gpuyard" / "jax"
    monkeypatch.setenv("GPUYARD_JAX_CACHE", str(tmp_path / "mine"))
    assert backend.cache_folder() == tmp_path / "mine"
