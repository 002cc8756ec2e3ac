"""A trained network as plain arrays, evaluated by compiled code, with no learning framework."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.compiler.jit import INTERPRETED, NOTHING, WORD, array_of, entry, inner
from gpuyard.engine.compiler.sources import source_hash
from gpuyard.errors import DataError
from gpuyard.features import hosts, jobs, ranks
from gpuyard.networks import kernels as nk
from gpuyard.networks.shapes import (
    check_arrays,
    check_spec,
    context_inputs,
    context_width,
    head_outputs,
    row_width,
)
from gpuyard.networks.spec import NetworkSpec

if TYPE_CHECKING:
    from gpuyard.arrays import Int

BLOCK = nk.BLOCK
# Where things are in the scratch of a state: a context, a block of rows, then what kernels need.
CONTEXT_AT = 0
BLOCK_AT = 128  # the longest context has fewer features
NETWORK_AT = BLOCK_AT + BLOCK * max(jobs.TYPED_ROWS, hosts.ROWS, ranks.ROWS)
_ACTS = {"relu": int(nk.RELU), "tanh": int(nk.TANH)}
_POOLS = {"none": nk.NO_POOL, "mean": nk.MEAN_POOL, "attention": nk.ATTENTION_POOL}
_F4 = np.dtype(np.float32)


@dataclass(frozen=True, eq=False)
class Network:
    """A network ready to be evaluated. `address` is valid as long as this object lives."""

    spec: NetworkSpec
    arrays: Mapping[str, Array]  # as given, float32
    floats: Array  # all weights as the kernels want them
    header: Array  # int64, see network_kernels

    @staticmethod
    def of(spec: NetworkSpec, arrays: Mapping[str, Array]) -> Network:
        """Pack the arrays of `network_spec`; refuses missing, unknown and misshapen ones."""
        check_spec(spec)
        check_arrays(spec, arrays)
        kept = {name: np.ascontiguousarray(array, _F4) for name, array in arrays.items()}
        packing = _Packing()
        words = _words_of(spec, kept, packing)
        floats = np.concatenate([*packing.parts, np.zeros(BLOCK, _F4)])
        words |= {"floats": floats.ctypes.data, "size": len(floats)}
        layers = [word for layer in packing.layers for word in layer]
        return Network(spec, kept, floats, np.array([words[name] for name in nk.WORDS] + layers, np.int64))

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is packed again: the header has the address of the weights, which are elsewhere in a copy."""
        return Network.of, (self.spec, dict(self.arrays))

    @property
    def address(self) -> int:
        """The address that compiled policies get."""
        return int(self.header.ctypes.data)

    @property
    def actions(self) -> int:
        """How many actions it chooses from; 0: one for each row."""
        return self.spec.actions

    @property
    def scratch(self) -> int:
        """Floats of scratch that the kernels need."""
        return int(self.header[nk.WORDS.index("end")])

    @property
    def state_scratch(self) -> int:
        """Floats of scratch that a state of the engine needs: for the kernels, and for the features before them."""
        return NETWORK_AT + self.scratch

    def scores(self, rows: Array, context: Array) -> Array:
        """Scores of one decision, float64: (n,) for rows (n, features), or (actions,) where `rows` is of no matter."""
        spec = self.spec
        context = np.ascontiguousarray(context, _F4)
        if context.shape != (spec.context,):
            raise DataError(f"network: a context of shape {context.shape}, not {(spec.context,)}")
        if not spec.rows:
            out = np.empty(spec.actions)
            _entries()[0](self.address, context, np.empty(self._room, _F4), out)
            return out
        rows = np.ascontiguousarray(rows, _F4)
        if rows.ndim != 2 or rows.shape[1] != spec.rows:
            raise DataError(f"network: rows of shape {rows.shape}, not (n, {spec.rows})")
        out = np.empty(len(rows))
        _entries()[1](self.address, rows, context, np.empty(self._room, _F4), out)
        return out

    @property
    def _room(self) -> int:
        """Scratch and one block of rows."""
        return self.scratch + BLOCK * self.spec.rows


class _Packing:
    """Weights laid out one after the other, and the layers that use them."""

    def __init__(self) -> None:
        self.parts: list[Array] = []
        self.layers: list[tuple[int, int, int, int]] = []
        self._size = 0

    def put(self, values: Array) -> int:
        """Add values, in whole lanes; returns where they begin."""
        at, size = self._size, _padded(values.size)
        part = np.zeros(size, _F4)
        part[: values.size] = values.ravel()
        self.parts.append(part)
        self._size += size
        return at

    def for_blocks(self, weight: Array, bias: Array) -> int:
        """A layer for a block of rows: the weights of four outputs side by side for each input."""
        outputs, inputs = weight.shape
        whole = outputs - outputs % nk.TILE
        tiles = weight[:whole].reshape(whole // nk.TILE, nk.TILE, inputs).transpose(0, 2, 1)
        return self._add(np.concatenate([tiles.ravel(), weight[whole:].ravel()]), bias, weight)

    def for_one(self, weight: Array, bias: Array) -> int:
        """A layer for one input: the weights of 16 outputs side by side for each input."""
        outputs, inputs = weight.shape
        full = np.zeros((_padded(outputs), inputs), weight.dtype)
        full[:outputs] = weight
        return self._add(full.reshape(len(full) // BLOCK, BLOCK, inputs).transpose(0, 2, 1).ravel(), bias, weight)

    def _add(self, packed: Array, bias: Array, weight: Array) -> int:
        self.layers.append((self.put(packed), self.put(bias), weight.shape[1], weight.shape[0]))
        return len(self.layers) - 1


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _words_of(spec: NetworkSpec, arrays: Mapping[str, Array], packing: _Packing) -> dict[str, int]:
    """The header, apart from the address of the weights."""
    nothing = np.zeros(0, _F4)
    words = {
        "act": _ACTS[spec.act],
        "pool": _POOLS[spec.pool],
        "heads": _heads(spec),
        "rows": spec.rows,
        "width": row_width(spec),
        "context": spec.context,
        "history": spec.history,
        "actions": spec.actions,
        "atoms": spec.atoms,
        "row_mean": packing.put(arrays.get("rows.mean", nothing)),
        "row_scale": packing.put(arrays.get("rows.scale", nothing)),
        "context_mean": packing.put(arrays["context.mean"]),
        "context_scale": packing.put(arrays["context.scale"]),
        "support": packing.put(np.linspace(spec.low, spec.high, spec.atoms)),
    }
    counts = {"row": len(spec.row_layers), "context": len(spec.context_layers), "memory": len(spec.memory_layers)}
    for name, count in counts.items():
        words |= {f"{name}_first": len(packing.layers), f"{name}_count": count}
        put = packing.for_blocks if name == "row" else packing.for_one
        for i in range(count):
            put(arrays[f"{name}.{i}.weight"], arrays[f"{name}.{i}.bias"])
    return words | _head_words(spec, arrays, packing) | _places(spec)


def _head_words(spec: NetworkSpec, arrays: Mapping[str, Array], packing: _Packing) -> dict[str, int]:
    """The head's layers; the first is split into what sees the row, the context and what was pooled."""
    words = {"head_first": len(packing.layers), "head_count": len(spec.head_layers) + 1, "common": 0, "pooled": 0, "asking": 0}
    first, width, encoded = 0, row_width(spec), context_width(spec)
    weight, bias = arrays["head.0.weight"], arrays["head.0.bias"]
    put = packing.for_one
    if spec.rows:
        put, first = packing.for_blocks, 1
        put(weight[:, :width], bias)
    for i in range(first, len(spec.head_layers) + 1):
        put(arrays[f"head.{i}.weight"], arrays[f"head.{i}.bias"])
    if spec.rows:
        words["common"] = packing.for_one(weight[:, width : width + encoded], bias)
    if spec.pool == "mean":
        words["pooled"] = packing.for_one(weight[:, width + encoded :], np.zeros(len(weight)))
    if spec.pool == "attention":
        words |= _attention_words(spec, arrays, weight[:, width + encoded :], packing)
    return words


def _attention_words(spec: NetworkSpec, arrays: Mapping[str, Array], head: Array, packing: _Packing) -> dict[str, int]:
    """Attention in two layers. q · (K h) = (Kᵀ q) · h and Σ p (V h) = V (Σ p h): nothing is multiplied by K or V row by row."""
    each = row_width(spec) // spec.heads
    query, key, value, head = (
        np.asarray(a, np.float64) for a in (arrays["query.weight"], arrays["key.weight"], arrays["value.weight"], head)
    )
    slices = [slice(h * each, (h + 1) * each) for h in range(spec.heads)]
    asking = np.concatenate([key[part].T @ query[part] / math.sqrt(each) for part in slices])
    pooled = np.concatenate([head[:, part] @ value[part] for part in slices], axis=1)
    return {"asking": packing.for_one(asking, np.zeros(len(asking))), "pooled": packing.for_one(pooled, np.zeros(len(pooled)))}


def _heads(spec: NetworkSpec) -> int:
    return spec.heads if spec.pool == "attention" else 1


def _places(spec: NetworkSpec) -> dict[str, int]:
    """Where things lie in the scratch, from its beginning; `end` is its size."""
    width, heads = row_width(spec), _heads(spec)
    pooled = heads * width if spec.pool != "none" else 0
    block = BLOCK * max(spec.rows, *spec.row_layers, *spec.head_layers, 1) if spec.rows else 0
    single = max(
        spec.context, context_inputs(spec), *spec.context_layers, *spec.memory_layers, *spec.head_layers, head_outputs(spec), pooled
    )
    sizes = {
        "one": block,
        "other": block,
        "now": _padded(single) + BLOCK,
        "next": _padded(single) + BLOCK,
        "base": _padded((*spec.head_layers, 1)[0]),
        "query": _padded(max(pooled, spec.history, *spec.memory_layers, 0)),
        "most": BLOCK * heads if pooled else 0,
        "mass": BLOCK * heads if pooled else 0,
        "sums": BLOCK * pooled,
        "seen": BLOCK,
        "end": 0,
    }
    places, at = {}, 0
    for name, size in sizes.items():
        places[name] = at
        at += size
    return places


def _score_actions(net: Int, context: Array, scratch: Array, out: Array) -> None:
    nk.net_score_actions(net, context, 0, scratch, 0, out, 0)


def _score_rows(net: Int, rows: Array, context: Array, scratch: Array, out: Array) -> None:
    """Scores of all rows; a block of them is laid out at the end of the scratch."""
    total, features = rows.shape
    b_at = len(scratch) - nk.BLOCK * features
    nk.net_begin(net, context, 0, scratch, 0)
    passes = 2 if nk.net_is_pooled(net) else 1
    for number in range(passes):
        for first in range(0, total, nk.BLOCK):
            count = min(nk.BLOCK, total - first)
            for r in range(count):
                for f in range(features):
                    scratch[b_at + f * nk.BLOCK + r] = rows[first + r, f]
            if number < passes - 1:
                nk.net_pool_block(net, scratch, b_at, count, scratch, 0)
            else:
                nk.net_score_block(net, scratch, b_at, count, scratch, 0, out, first)
        if number < passes - 1:
            nk.net_end_pool(net, scratch, 0)


@lru_cache(maxsize=1)
def _entries() -> tuple[Callable[..., None], Callable[..., None]]:
    """(_score_actions, _score_rows), compiled on first use and cached on disk: loading them takes a third of a second."""
    if INTERPRETED:
        return _score_actions, _score_rows
    return _compile(source_hash(__name__))


# Globals: what an entry closes over is part of its key in the disk cache, and these differ by process.
_inner_actions, _inner_rows = inner(_score_actions), inner(_score_rows)


def _compile(source: int) -> tuple[Callable[..., None], Callable[..., None]]:
    floats, table, scores = array_of(_F4), array_of(_F4, 2), array_of(np.float64)

    @entry(NOTHING(WORD, floats, floats, scores))
    def of_actions(net: Int, context: Array, scratch: Array, out: Array) -> None:
        if source != 0:  # never 0; part of the cache's key
            _inner_actions(net, context, scratch, out)

    @entry(NOTHING(WORD, table, floats, floats, scores))
    def of_rows(net: Int, given: Any, context: Array, scratch: Array, out: Array) -> None:
        if source != 0:
            _inner_rows(net, given, context, scratch, out)

    return of_actions, of_rows
