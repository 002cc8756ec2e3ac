"""The compiled forward pass of a network. Everything about it is reached from one number, the address of its header.

A **block** holds up to 16 rows, feature by feature: feature f of row r at `block[at + f * BLOCK + r]`. One call of
`net_begin`, then for networks that pool `net_pool_block` for each block and `net_end_pool`, then `net_score_block` for
each block; rows are encoded again in the second pass, so that nothing grows with their number. A network with a fixed
number of actions takes one call of `net_score_actions`.

The header is an int64 array of `HEADER` words, then four words for each layer (`weight`, `bias`, inputs, outputs, the first
two as positions in one float32 array). `gpuyard.networks.network` packs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.compiler.vectors import (
    LANES,
    exponential,
    first_of,
    floats_at,
    hyperbolic_tangent,
    larger,
    largest,
    load,
    minus,
    plus,
    splat,
    spread,
    store,
    times,
    total,
    words_at,
)

if TYPE_CHECKING:
    from gpuyard.arrays import Array, Int

BLOCK = LANES  # rows
TILE = 4  # outputs of a layer that are computed together for a block

# Words of the header, by name: `floats` is the address of all weights, `size` how many they are; positions among the weights; the
# first layer of each stack and how many; single layers (of the head's first one the parts that see the context and what was pooled,
# then the one from the context to what each head looks for in a row); positions in the scratch, of which `end` is the size.
WORDS = (
    *("floats", "size", "act", "pool", "heads", "rows", "width", "context", "history", "actions", "atoms"),
    *("row_mean", "row_scale", "context_mean", "context_scale", "support"),
    *("row_first", "row_count", "context_first", "context_count", "memory_first", "memory_count", "head_first", "head_count"),
    *("common", "pooled", "asking"),
    *("one", "other", "now", "next", "base", "query", "most", "mass", "sums", "seen", "end"),
)
HEADER = len(WORDS)
LAYER = 4
(
    _FLOATS, _SIZE, _ACT, _POOL, _HEADS, _ROWS, _WIDTH, _CONTEXT, _HISTORY, _ACTIONS, _ATOMS,
    _ROW_MEAN, _ROW_SCALE, _CONTEXT_MEAN, _CONTEXT_SCALE, _SUPPORT,
    _ROW_FIRST, _ROW_COUNT, _CONTEXT_FIRST, _CONTEXT_COUNT, _MEMORY_FIRST, _MEMORY_COUNT, _HEAD_FIRST, _HEAD_COUNT,
    _COMMON, _POOLED, _ASKING,
    _ONE, _OTHER, _NOW, _NEXT, _BASE, _QUERY, _MOST, _MASS, _SUMS, _SEEN, _END,
) = range(HEADER)  # fmt: skip

LINEAR, RELU, TANH = (np.int64(i) for i in range(3))  # typed: a literal would compile its users again
NO_POOL, MEAN_POOL, ATTENTION_POOL = range(3)
_ZERO, _LOWEST = np.float32(0.0), np.float32(-1e30)


@inner
def _layer_at(net: Int, number: Int) -> Any:
    """The address of the four words of a layer."""
    return net + 8 * (HEADER + LAYER * number)


@inner
def _bias_of(net: Int, number: Int) -> Any:
    """Where the bias of a layer begins among the weights."""
    return words_at(_layer_at(net, number), LAYER)[1]


@inner
def _activate(values: Array, at: Int, size: Int, act: Int) -> None:
    """Apply `act` to at least `size` values from `at` on, in whole lanes."""
    if act == RELU:
        for i in range(0, size, LANES):
            store(larger(load(values, at + i), splat(_ZERO)), values, at + i)
    if act == TANH:
        for i in range(0, size, LANES):
            store(hyperbolic_tangent(load(values, at + i)), values, at + i)


@inner
def _dense_block(net: Int, number: Int, base: Array, base_at: Int, scratch: Array, x_at: Int, y_at: Int, act: Int) -> None:
    """One layer for a block of rows: y = act(base + weight · x). Weights of four outputs lie side by side for each input."""
    words, layer = words_at(net, HEADER), words_at(_layer_at(net, number), LAYER)
    weights = floats_at(words[_FLOATS], words[_SIZE])
    w, inputs, outputs = layer[0], layer[2], layer[3]
    o = 0
    while o + TILE <= outputs:
        y0, y1 = spread(base, base_at + o), spread(base, base_at + o + 1)
        y2, y3 = spread(base, base_at + o + 2), spread(base, base_at + o + 3)
        for i in range(inputs):
            x = load(scratch, x_at + i * BLOCK)
            y0 = plus(y0, times(spread(weights, w), x))
            y1 = plus(y1, times(spread(weights, w + 1), x))
            y2 = plus(y2, times(spread(weights, w + 2), x))
            y3 = plus(y3, times(spread(weights, w + 3), x))
            w += TILE
        to = y_at + o * BLOCK
        store(y0, scratch, to)
        store(y1, scratch, to + BLOCK)
        store(y2, scratch, to + 2 * BLOCK)
        store(y3, scratch, to + 3 * BLOCK)
        o += TILE
    while o < outputs:
        y = spread(base, base_at + o)
        for i in range(inputs):
            y = plus(y, times(spread(weights, w), load(scratch, x_at + i * BLOCK)))
            w += 1
        store(y, scratch, y_at + o * BLOCK)
        o += 1
    _activate(scratch, y_at, outputs * BLOCK, act)


@inner
def _dense_one(net: Int, number: Int, base: Array, base_at: Int, scratch: Array, x_at: Int, y_at: Int, act: Int) -> None:
    """One layer for one input: y = act(base + weight · x). Weights of 16 outputs lie side by side for each input."""
    words, layer = words_at(net, HEADER), words_at(_layer_at(net, number), LAYER)
    weights = floats_at(words[_FLOATS], words[_SIZE])
    w, inputs, outputs = layer[0], layer[2], layer[3]
    for o in range(0, outputs, LANES):
        y = load(base, base_at + o)
        for i in range(inputs):
            y = plus(y, times(spread(scratch, x_at + i), load(weights, w)))
            w += LANES
        store(y, scratch, y_at + o)
    _activate(scratch, y_at, outputs, act)


@inner
def _several(net: Int, first: Int, count: Int, scratch: Array, x_at: Int, y_at: Int, act: Int, last_act: Int, of_rows: bool) -> Any:
    """Apply layer after layer for a block of rows or for one input, to and fro between two places; returns where the last result is."""
    words = words_at(net, HEADER)
    weights = floats_at(words[_FLOATS], words[_SIZE])
    for number in range(first, first + count):
        this_act = last_act if number == first + count - 1 else act
        if of_rows:
            _dense_block(net, number, weights, _bias_of(net, number), scratch, x_at, y_at, this_act)
        else:
            _dense_one(net, number, weights, _bias_of(net, number), scratch, x_at, y_at, this_act)
        x_at, y_at = y_at, x_at
    return x_at


@inner
def _embed_context(net: Int, context: Array, c_at: Int, scratch: Array, at: Int) -> Any:
    """e from the context; returns its place, `now` or `next`."""
    words = words_at(net, HEADER)
    weights = floats_at(words[_FLOATS], words[_SIZE])
    size, act, now, other = words[_CONTEXT], words[_ACT], at + words[_NOW], at + words[_NEXT]
    mean, scale = words[_CONTEXT_MEAN], words[_CONTEXT_SCALE]
    for i in range(size):
        scratch[now + i] = (context[c_at + i] - weights[mean + i]) * weights[scale + i]
    if words[_MEMORY_COUNT] > 0:
        recent = now + size - words[_HISTORY]  # the embedding takes the place of the history, behind the present
        place = at + words[_QUERY]
        for i in range(words[_HISTORY]):
            scratch[place + i] = scratch[recent + i]
        made = _several(net, words[_MEMORY_FIRST], words[_MEMORY_COUNT], scratch, place, other, act, act, False)
        last = words_at(_layer_at(net, words[_MEMORY_FIRST] + words[_MEMORY_COUNT] - 1), LAYER)[3]
        for i in range(last):
            scratch[recent + i] = scratch[made + i]
    return _several(net, words[_CONTEXT_FIRST], words[_CONTEXT_COUNT], scratch, now, other, act, act, False)


@inner
def net_begin(net: Int, context: Array, c_at: Int, scratch: Array, at: Int) -> None:
    """Begin a decision among rows: work out what all of them share, from `context[c_at:]`."""
    words = words_at(net, HEADER)
    weights = floats_at(words[_FLOATS], words[_SIZE])
    embedded = _embed_context(net, context, c_at, scratch, at)
    common = words[_COMMON]
    _dense_one(net, common, weights, _bias_of(net, common), scratch, embedded, at + words[_BASE], LINEAR)
    if words[_POOL] == NO_POOL:
        return
    scratch[at + words[_SEEN]] = _ZERO
    heads, width = words[_HEADS], words[_WIDTH]
    for i in range(heads * width):
        store(splat(_ZERO), scratch, at + words[_SUMS] + i * BLOCK)
    if words[_POOL] == ATTENTION_POOL:
        asking = words[_ASKING]
        _dense_one(net, asking, weights, _bias_of(net, asking), scratch, embedded, at + words[_QUERY], LINEAR)
        for head in range(heads):
            store(splat(_LOWEST), scratch, at + words[_MOST] + head * BLOCK)
            store(splat(_ZERO), scratch, at + words[_MASS] + head * BLOCK)


@inner
def _encode_block(net: Int, block: Array, b_at: Int, count: Int, scratch: Array, at: Int) -> Any:
    """h of the rows of a block; returns its place, `one` or `other`. Lanes without a row begin as zeros."""
    words = words_at(net, HEADER)
    weights = floats_at(words[_FLOATS], words[_SIZE])
    mean, scale, one = words[_ROW_MEAN], words[_ROW_SCALE], at + words[_ONE]
    for f in range(words[_ROWS]):
        x = times(minus(load(block, b_at + f * BLOCK), spread(weights, mean + f)), spread(weights, scale + f))
        store(first_of(x, count, splat(_ZERO)), scratch, one + f * BLOCK)
    act = words[_ACT]
    return _several(net, words[_ROW_FIRST], words[_ROW_COUNT], scratch, one, at + words[_OTHER], act, act, True)


@inner
def net_rows(net: Int) -> Any:
    """Return how many features of a row it sees."""
    return words_at(net, HEADER)[_ROWS]


@inner
def net_context(net: Int) -> Any:
    """Return how many features of the situation it sees."""
    return words_at(net, HEADER)[_CONTEXT]


@inner
def net_is_pooled(net: Int) -> Any:
    """Whether scores depend on all rows together: the blocks are then seen twice."""
    return words_at(net, HEADER)[_POOL] != NO_POOL


@inner
def net_pool_block(net: Int, block: Array, b_at: Int, count: Int, scratch: Array, at: Int) -> None:
    """Take the first `count` rows of a block into what is pooled. Each lane has its own running sums."""
    if count <= 0:
        return
    words = words_at(net, HEADER)
    h = _encode_block(net, block, b_at, count, scratch, at)
    width, sums = words[_WIDTH], at + words[_SUMS]
    scratch[at + words[_SEEN]] += np.float32(count)
    if words[_POOL] == MEAN_POOL:
        for f in range(width):
            place = sums + f * BLOCK
            value = first_of(load(scratch, h + f * BLOCK), count, splat(_ZERO))
            store(plus(load(scratch, place), value), scratch, place)
        return
    for head in range(words[_HEADS]):
        query, most, mass = at + words[_QUERY] + head * width, at + words[_MOST] + head * BLOCK, at + words[_MASS] + head * BLOCK
        fit = splat(_ZERO)
        for f in range(width):
            fit = plus(fit, times(spread(scratch, query + f), load(scratch, h + f * BLOCK)))
        fit = first_of(fit, count, splat(_LOWEST))
        before = load(scratch, most)
        after = larger(before, fit)
        fading, weight = exponential(minus(before, after)), first_of(exponential(minus(fit, after)), count, splat(_ZERO))
        store(after, scratch, most)
        store(plus(times(load(scratch, mass), fading), weight), scratch, mass)
        for f in range(width):
            place = sums + (head * width + f) * BLOCK
            store(plus(times(load(scratch, place), fading), times(load(scratch, h + f * BLOCK), weight)), scratch, place)


@inner
def net_end_pool(net: Int, scratch: Array, at: Int) -> None:
    """End the pooling: pass what all rows have in common to the head's first layer."""
    words = words_at(net, HEADER)
    width, sums, now, base = words[_WIDTH], at + words[_SUMS], at + words[_NOW], at + words[_BASE]
    seen = scratch[at + words[_SEEN]]
    if seen <= _ZERO:
        return
    for head in range(words[_HEADS]):
        share, mass = splat(np.float32(1.0)), seen
        if words[_POOL] == ATTENTION_POOL:
            most = load(scratch, at + words[_MOST] + head * BLOCK)
            share = exponential(minus(most, splat(largest(most))))
            mass = total(times(load(scratch, at + words[_MASS] + head * BLOCK), share))
        for f in range(head * width, (head + 1) * width):
            scratch[now + f] = total(times(load(scratch, sums + f * BLOCK), share)) / mass
    _dense_one(net, words[_POOLED], scratch, base, scratch, now, base, LINEAR)


@inner
def net_score_block(net: Int, block: Array, b_at: Int, count: Int, scratch: Array, at: Int, out: Array, o_at: Int) -> None:
    """Scores of the first `count` rows of a block: out[o_at : o_at + count], float64."""
    words = words_at(net, HEADER)
    h = _encode_block(net, block, b_at, count, scratch, at)
    one, other = at + words[_ONE], at + words[_OTHER]
    y = one if h == other else other
    first, layers, act = words[_HEAD_FIRST], words[_HEAD_COUNT], words[_ACT]
    _dense_block(net, first, scratch, at + words[_BASE], scratch, h, y, act if layers > 1 else LINEAR)
    y = _several(net, first + 1, layers - 1, scratch, y, h, act, LINEAR, True)
    for r in range(count):
        out[o_at + r] = scratch[y + r]


@inner
def net_score_actions(net: Int, context: Array, c_at: Int, scratch: Array, at: Int, out: Array, o_at: Int) -> None:
    """Scores of a fixed number of actions from `context[c_at:]`: out[o_at : o_at + actions], float64."""
    words = words_at(net, HEADER)
    embedded = _embed_context(net, context, c_at, scratch, at)
    now, other = at + words[_NOW], at + words[_NEXT]
    free = now if embedded == other else other
    y = _several(net, words[_HEAD_FIRST], words[_HEAD_COUNT], scratch, embedded, free, words[_ACT], LINEAR, False)
    atoms = words[_ATOMS]
    for action in range(words[_ACTIONS]):
        if atoms == 1:
            out[o_at + action] = scratch[y + action]
        else:
            out[o_at + action] = _expected(net, scratch, y + action * atoms)


@inner
def _expected(net: Int, scratch: Array, y_at: Int) -> Any:
    """Σ softmax(y) · support over the atoms from `y_at` on."""
    words = words_at(net, HEADER)
    weights = floats_at(words[_FLOATS], words[_SIZE])
    atoms = words[_ATOMS]
    most = splat(_LOWEST)
    for k in range(0, atoms, LANES):
        most = larger(most, first_of(load(scratch, y_at + k), atoms - k, splat(_LOWEST)))
    peak = splat(largest(most))
    mass, value = splat(_ZERO), splat(_ZERO)
    for k in range(0, atoms, LANES):
        below = first_of(minus(load(scratch, y_at + k), peak), atoms - k, splat(_ZERO))
        chance = first_of(exponential(below), atoms - k, splat(_ZERO))
        mass = plus(mass, chance)
        value = plus(value, times(chance, load(weights, words[_SUPPORT] + k)))
    return total(value) / total(mass)
