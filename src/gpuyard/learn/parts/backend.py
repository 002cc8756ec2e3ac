"""JAX for learners: the device, methods that are compiled, optimisers, and trees of arrays that are saved."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import jax
import numpy as np
import optax

from gpuyard.errors import DataError, LearningError, UsageError
from gpuyard.learn.base import Arrays

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MOST_THREADS = 8  # small networks do not gain from more
PLATFORMS = {"cpu": ("cpu",), "gpu": ("cuda", "rocm")}
_GIB = 1 << 30


# ── the device ──


def cache_folder() -> Path:
    """Return the folder of compiled code: GPUYARD_JAX_CACHE, or `gpuyard/jax` in the user's cache folder."""
    named = os.environ.get("GPUYARD_JAX_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuyard" / "jax"


def setup(device: str = "cpu") -> jax.Device:
    """Return the first device of that name (cpu or gpu). Call it before any other use of JAX, or the limit on threads has no effect."""
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
        options.update("jax_default_matmul_precision", "float32")  # the default has 10 bits of mantissa, less than what is exported
    for platform in PLATFORMS[device]:
        try:
            return jax.devices(platform)[0]
        except RuntimeError:
            continue
    raise UsageError(
        f"no {device} that JAX can use", hint="train with --device cpu, or install jax[cuda12] on a machine with an NVIDIA GPU"
    )


def available_memory() -> int:
    """Return the bytes that can be used without swapping, as the operating system estimates them (/proc/meminfo)."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:  # not Linux: the allocation itself will fail
        return 1 << 62
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 1 << 62)


def refuse_if_too_large(what: str, size: int, hint: str) -> None:
    """Refuse an allocation of `size` bytes if less memory is available."""
    if size > available_memory():
        raise too_large(what, size, hint)


def too_large(what: str, size: int, hint: str) -> LearningError:
    """Return the error for an allocation of `size` bytes that does not fit."""
    return LearningError(f"{what} needs {size / _GIB:.1f} GiB of memory and {available_memory() / _GIB:.1f} GiB are available", hint=hint)


# ── compiled methods ──


class compiled(Generic[P, R]):
    """Compile a method of a learner with JAX, once for each class, network and configuration.

    The method may read `self.spec`, `self.config` and other methods, nothing else of `self`: everything that changes is an argument.
    A subclass that overrides one step therefore gets its own compiled code. `donate` names arguments whose memory is used again.
    """

    def __init__(self, method: Callable[Concatenate[Any, P], R], donate: str = "") -> None:
        self.__doc__ = method.__doc__
        self._call = jax.jit(method, static_argnums=0, donate_argnames=donate or None)

    def __get__(self, learner: Any, kind: Any) -> Callable[P, R]:
        return partial(self._call, _bare(kind, learner.spec, learner.config))


@cache
def _bare(kind: Any, spec: Any, config: Any) -> Any:
    """Return a learner with its network's form and its settings alone: compiled code must not keep environments and buffers alive."""
    made = object.__new__(kind)
    made.spec, made.config = spec, config
    return made


def clipped_adam(max_grad_norm: float, eps: float = 1e-8) -> Any:
    """Return Adam behind a clip of the gradient's norm (0: not clipped). The caller multiplies by the learning rate."""
    clipping = optax.clip_by_global_norm(max_grad_norm) if max_grad_norm else optax.identity()
    return optax.chain(clipping, optax.scale_by_adam(eps=eps))


def descend(params: T, changes: Any, learning_rate: Any) -> T:
    """Return the parameters after a step of `clipped_adam`."""
    stepped: T = jax.tree.map(lambda old, change: old - learning_rate * change, params, changes)
    return stepped


# ── saved trees ──


def pack(prefix: str, tree: Any) -> Arrays:
    """Return `prefix/path` → a copy of the array, for every leaf of a tree."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {f"{prefix}/{jax.tree_util.keystr(path, simple=True, separator='.')}": np.array(leaf) for path, leaf in leaves}


def unpack(prefix: str, like: T, saved: Arrays, device: jax.Device | None = None) -> T:
    """Return a tree of the form of `like` with the saved arrays, on the device."""
    leaves, form = jax.tree_util.tree_flatten_with_path(like)
    found = []
    for path, leaf in leaves:
        name = f"{prefix}/{jax.tree_util.keystr(path, simple=True, separator='.')}"
        if name not in saved or saved[name].shape != np.shape(leaf):
            raise DataError(f"saved state has no {name} of shape {np.shape(leaf)}", hint="resume with the settings it was saved with")
        found.append(jax.device_put(saved[name].astype(leaf.dtype), device))
    restored: T = jax.tree_util.tree_unflatten(form, found)
    return restored
