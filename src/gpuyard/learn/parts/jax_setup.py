"""JAX made ready: the device by name, compiled code kept between starts, few threads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax

from gpuyard.errors import UsageError

MOST_THREADS = 8  # small networks do not gain from more
PLATFORMS = {"cpu": ("cpu",), "gpu": ("cuda", "rocm")}


def cache_folder() -> Path:
    """Where compiled code is kept: GPUYARD_JAX_CACHE, or `gpuyard/jax` in the user's cache folder."""
    named = os.environ.get("GPUYARD_JAX_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuyard" / "jax"


def setup(device: str = "cpu") -> jax.Device:
    """The first device of that name (cpu or gpu). Call it before any other use of JAX, else the limit on threads has no effect."""
    if device not in PLATFORMS:
        raise UsageError(f"unknown device {device!r}", hint=f"known: {', '.join(PLATFORMS)}")
    os.environ.setdefault(
        "NPROC", str(min(MOST_THREADS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))
    )
    options: Any = jax.config
    if options.jax_compilation_cache_dir is None:
        options.update("jax_compilation_cache_dir", str(cache_folder()))
        options.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    if device == "gpu":
        options.update("jax_default_matmul_precision", "float32")  # else products have 10 bits of mantissa: not what is exported
    for platform in PLATFORMS[device]:
        try:
            return jax.devices(platform)[0]
        except RuntimeError:
            continue
    raise UsageError(
        f"no {device} that JAX can use", hint="train with --device cpu, or install jax[cuda12] on a machine with an NVIDIA GPU"
    )
