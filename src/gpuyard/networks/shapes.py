"""The arrays that a network has by its spec, and checks that a spec makes sense."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.networks.spec import NetworkSpec

Shapes = dict[str, tuple[int, ...]]

NORMALISATION = ("rows.mean", "rows.scale", "context.mean", "context.scale")  # of the inputs; not trained by gradients
MOST_FEATURES = 65_536
MOST_LAYERS = 32
MOST_UNITS = 8_192
MOST_HEADS = 64
MOST_NUMBERS = 16_777_216  # in all arrays together: 64 MB


def row_width(spec: NetworkSpec) -> int:
    """Return the width of h, an encoded row."""
    return spec.row_layers[-1] if spec.row_layers else spec.rows


def context_width(spec: NetworkSpec) -> int:
    """Return the width of e, the encoded context."""
    return spec.context_layers[-1] if spec.context_layers else context_inputs(spec)


def context_inputs(spec: NetworkSpec) -> int:
    """Return how many numbers the context's layers see: the present and the embedded history."""
    embedded = spec.memory_layers[-1] if spec.memory_layers else spec.history
    return spec.context - spec.history + embedded


def pooled_width(spec: NetworkSpec) -> int:
    """Return the width of c, the pooled rows."""
    return 0 if spec.pool == "none" else row_width(spec)


def head_inputs(spec: NetworkSpec) -> int:
    """Return how many numbers the head sees."""
    return context_width(spec) + (row_width(spec) + pooled_width(spec) if spec.rows else 0)


def head_outputs(spec: NetworkSpec) -> int:
    """Return how many outputs the head's last layer has."""
    return 1 if spec.rows else spec.actions * spec.atoms


def tensor_shapes(spec: NetworkSpec) -> Shapes:
    """Return the shapes of the arrays that every checkpoint holds, by name."""
    shapes: Shapes = {}
    if spec.rows:
        shapes |= {"rows.mean": (spec.rows,), "rows.scale": (spec.rows,)}
    shapes |= {"context.mean": (spec.context,), "context.scale": (spec.context,)}
    shapes |= _stack("row", spec.rows, spec.row_layers)
    shapes |= _stack("memory", spec.history, spec.memory_layers)
    shapes |= _stack("context", context_inputs(spec), spec.context_layers)
    if spec.pool == "attention":
        width = row_width(spec)
        shapes |= {"query.weight": (width, context_width(spec)), "key.weight": (width, width), "value.weight": (width, width)}
    return shapes | _stack("head", head_inputs(spec), (*spec.head_layers, head_outputs(spec)))


def value_shapes(spec: NetworkSpec) -> Shapes:
    """Return the shapes of the value head, of which all or none are there: only training uses them."""
    inputs = context_width(spec) + (row_width(spec) if spec.rows else 0)
    return _stack("value_head", inputs, (*spec.value_layers, 1))


def _stack(name: str, inputs: int, layers: tuple[int, ...]) -> Shapes:
    shapes: Shapes = {}
    for i, outputs in enumerate(layers):
        shapes |= {f"{name}.{i}.weight": (outputs, inputs), f"{name}.{i}.bias": (outputs,)}
        inputs = outputs
    return shapes


def check_spec(spec: NetworkSpec, where: str = "network") -> None:
    """Refuse a network that is contradictory or absurdly large."""
    for problem in _problems(spec):
        raise DataError(f"{where}: {problem}")


def _problems(spec: NetworkSpec) -> Iterator[str]:
    yield from _size_problems(spec)
    if spec.act not in ("relu", "tanh"):
        yield f"act is {spec.act!r}, not relu or tanh"
    if spec.pool not in ("none", "mean", "attention"):
        yield f"pool is {spec.pool!r}, not none, mean or attention"
    if (spec.rows > 0) == (spec.actions > 0):
        yield f"{spec.rows} features of rows and {spec.actions} actions: exactly one of them must be 0"
    if spec.rows and (spec.history or spec.memory_layers or spec.atoms != 1):
        yield "history and atoms are for a fixed number of actions, not for rows"
    if not spec.rows and (spec.row_layers or spec.pool != "none"):
        yield "row layers and pooling without features of rows"
    if spec.history > spec.context:
        yield f"history is {spec.history} of {spec.context} features"
    if spec.memory_layers and not spec.history:
        yield "memory layers without history"
    if not spec.rows and not spec.context:
        yield "no inputs: neither rows nor context"
    if spec.heads > MOST_HEADS:
        yield f"{spec.heads} heads, at most {MOST_HEADS}"
    if spec.heads * row_width(spec) * (context_width(spec) + (*spec.head_layers, 1)[0] + 1) > MOST_NUMBERS:
        yield f"{spec.heads} heads of attention over a width of {row_width(spec)} are too many"
    if spec.pool == "attention" and row_width(spec) % spec.heads:
        yield f"{spec.heads} heads do not divide a width of {row_width(spec)}"
    if not (math.isfinite(spec.low) and math.isfinite(spec.high) and abs(spec.low) < 1e30 and abs(spec.high) < 1e30):
        yield f"the support from {spec.low} to {spec.high} is not finite or too wide"
    if spec.atoms > 1 and spec.low >= spec.high:
        yield f"{spec.atoms} atoms need a support that ascends, not from {spec.low} to {spec.high}"


def _size_problems(spec: NetworkSpec) -> Iterator[str]:
    for name, least in (("rows", 0), ("context", 0), ("actions", 0), ("history", 0), ("heads", 1), ("atoms", 1)):
        if not least <= getattr(spec, name) <= MOST_FEATURES:
            yield f"{name} is {getattr(spec, name)}, not from {least} to {MOST_FEATURES}"
    for name in ("row_layers", "context_layers", "memory_layers", "head_layers", "value_layers"):
        layers = getattr(spec, name)
        if len(layers) > MOST_LAYERS:
            yield f"{name} has {len(layers)} layers, at most {MOST_LAYERS}"
        for units in layers:
            if not 1 <= units <= MOST_UNITS:
                yield f"{name} has a layer of {units}, not from 1 to {MOST_UNITS}"
    count = sum(math.prod(shape) for shape in (tensor_shapes(spec) | value_shapes(spec)).values())
    if count > MOST_NUMBERS:
        yield f"{count:,} numbers, at most {MOST_NUMBERS:,}"


def check_arrays(spec: NetworkSpec, arrays: Mapping[str, Array], where: str = "network") -> None:
    """Refuse arrays that are missing, unknown, misshapen, of another type than float32, or not finite."""
    wanted, optional = tensor_shapes(spec), value_shapes(spec)
    if any(name in arrays for name in optional):
        wanted |= optional
    for name, shape in wanted.items():
        if name not in arrays:
            raise DataError(f"{where}: tensor {name!r} is missing")
        array = arrays[name]
        if array.dtype != np.float32:
            raise DataError(f"{where}: tensor {name!r} has type {array.dtype}, not float32")
        if array.shape != shape:
            raise DataError(f"{where}: tensor {name!r} has shape {array.shape}, the network needs {shape}")
        if not np.isfinite(array).all():
            raise DataError(f"{where}: tensor {name!r} has values that are not finite")
    for name in arrays:
        if name not in wanted:
            raise DataError(f"{where}: tensor {name[:100]!r} does not belong to the network")
