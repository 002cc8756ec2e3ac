"""The forward pass of a network as the text of `networks.spec` describes it: obvious and slow, in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.networks.shapes import tensor_shapes, value_shapes
from gpuyard.networks.spec import NetworkSpec

Arrays = Mapping[str, Array]


def reference_scores(spec: NetworkSpec, arrays: Arrays, rows: Array, context: Array) -> Array:
    """Return the scores of one decision: (n,) for rows (n, features), or (actions,) without rows."""
    z = (context.astype(np.float64) - arrays["context.mean"]) * arrays["context.scale"]
    if not spec.rows:
        return _action_scores(spec, arrays, z)
    x = [(row.astype(np.float64) - arrays["rows.mean"]) * arrays["rows.scale"] for row in rows]
    h = [_stack(spec, arrays, "row", each) for each in x]
    e = _stack(spec, arrays, "context", z)
    c = _pooled(spec, arrays, h, e)
    return np.array([_stack(spec, arrays, "head", np.concatenate([each, e, c]), linear_last=True)[0] for each in h])


def _action_scores(spec: NetworkSpec, arrays: Arrays, z: Array) -> Array:
    now, history = z[: spec.context - spec.history], z[spec.context - spec.history :]
    m = _stack(spec, arrays, "memory", history)
    e = _stack(spec, arrays, "context", np.concatenate([now, m]))
    y = _stack(spec, arrays, "head", e, linear_last=True).reshape(spec.actions, spec.atoms)
    if spec.atoms == 1:
        return y[:, 0]
    support = np.linspace(spec.low, spec.high, spec.atoms)
    return np.array([_softmax(each) @ support for each in y])


def _pooled(spec: NetworkSpec, arrays: Arrays, h: list[Array], e: Array) -> Array:
    if spec.pool == "none":
        return np.zeros(0)
    if spec.pool == "mean":
        return np.asarray(np.mean(h, axis=0))
    q = arrays["query.weight"] @ e
    d = len(q) // spec.heads
    parts = []
    for head in range(spec.heads):
        part = slice(head * d, (head + 1) * d)
        k = [(arrays["key.weight"] @ each)[part] for each in h]
        v = [(arrays["value.weight"] @ each)[part] for each in h]
        weight = _softmax(np.array([q[part] @ each for each in k]) / np.sqrt(d))
        parts.append(sum((w * each for w, each in zip(weight, v, strict=True)), np.zeros(d)))
    return np.concatenate(parts)


def _stack(spec: NetworkSpec, arrays: Arrays, name: str, x: Array, *, linear_last: bool = False) -> Array:
    number = 0
    while f"{name}.{number}.weight" in arrays:
        x = arrays[f"{name}.{number}.weight"].astype(np.float64) @ x + arrays[f"{name}.{number}.bias"]
        number += 1
        if not (linear_last and f"{name}.{number}.weight" not in arrays):
            x = np.tanh(x) if spec.act == "tanh" else np.maximum(x, 0)
    return x


def _softmax(values: Array) -> Array:
    powers = np.exp(values - values.max())
    return np.asarray(powers / powers.sum())


def random_arrays(spec: NetworkSpec, rng: np.random.Generator, *, value: bool = False) -> dict[str, Array]:
    """Draw arrays of a network as training might leave them, with those of the value if wanted."""
    shapes = tensor_shapes(spec) | (value_shapes(spec) if value else {})
    return {name: _random_array(name, shape, rng) for name, shape in shapes.items()}


def _random_array(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    values: Any = rng.normal(size=shape) / np.sqrt(shape[-1] if len(shape) == 2 and shape[-1] else 1.0)
    if name.endswith(".scale"):
        values = rng.uniform(0.3, 3.0, shape)
    return np.asarray(values, np.float32)
