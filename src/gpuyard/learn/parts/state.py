"""Trees of arrays (optimisers, statistics) as flat dictionaries, to be saved without pickle."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import numpy as np

from gpuyard.errors import DataError
from gpuyard.learn.base import Arrays

T = TypeVar("T")


def pack(prefix: str, tree: Any) -> Arrays:
    """`prefix/path` → a copy of the array, for every leaf."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {f"{prefix}/{jax.tree_util.keystr(path, simple=True, separator='.')}": np.array(leaf) for path, leaf in leaves}


def unpack(prefix: str, like: T, saved: Arrays, device: jax.Device | None = None) -> T:
    """The tree of the form of `like` with the saved arrays, on the device."""
    leaves, form = jax.tree_util.tree_flatten_with_path(like)
    found = []
    for path, leaf in leaves:
        name = f"{prefix}/{jax.tree_util.keystr(path, simple=True, separator='.')}"
        if name not in saved or saved[name].shape != np.shape(leaf):
            raise DataError(f"saved state has no {name} of shape {np.shape(leaf)}", hint="resume with the settings it was saved with")
        found.append(jax.device_put(saved[name].astype(leaf.dtype), device))
    restored: T = jax.tree_util.tree_unflatten(form, found)
    return restored
