"""The compiled forward pass against the plain one, against JAX, and against itself as plain Python."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numba import types

from gpuyard.engine.compiler.jit import entry
from gpuyard.engine.compiler.sources import source_hash
from gpuyard.errors import DataError
from gpuyard.networks import kernels as nk
from gpuyard.networks.network import BLOCK, Network
from gpuyard.networks.shapes import check_spec, tensor_shapes
from gpuyard.networks.spec import NetworkSpec
from gpuyard.testing.reference.network import random_arrays, reference_scores

F4, F8 = types.float32[::1], types.float64[::1]
BORDERS = (1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 97, 200)
layers = st.lists(st.integers(1, 40), max_size=3).map(tuple)
acts = st.sampled_from(["relu", "tanh"])


@st.composite
def row_specs(draw: Any) -> NetworkSpec:
    heads = draw(st.integers(1, 4))
    row_layers = draw(layers)
    if row_layers:
        row_layers = (*row_layers[:-1], heads * draw(st.integers(1, 9)))
    return NetworkSpec(
        rows=draw(st.integers(1, 20)) if row_layers else heads * draw(st.integers(1, 6)),
        context=draw(st.integers(0, 70)),
        row_layers=row_layers,
        context_layers=draw(layers),
        head_layers=draw(layers),
        pool=draw(st.sampled_from(["none", "mean", "attention"])),
        heads=heads,
        act=draw(acts),
    )


@st.composite
def action_specs(draw: Any) -> NetworkSpec:
    context = draw(st.integers(1, 70))
    history = draw(st.integers(0, context))
    low = draw(st.floats(-100, 100))
    return NetworkSpec(
        rows=0,
        context=context,
        actions=draw(st.integers(1, 40)),
        context_layers=draw(layers),
        memory_layers=draw(layers) if history else (),
        head_layers=draw(layers),
        history=history,
        act=draw(acts),
        atoms=draw(st.sampled_from([1, 2, 31, 32, 33, 51, 101])),
        low=low,
        high=low + draw(st.floats(0.5, 200)),
    )


def case_of(spec: NetworkSpec, seed: int, rows: int) -> tuple[Network, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    net = Network.of(spec, random_arrays(spec, rng))
    return net, rng.normal(size=(rows, spec.rows)).astype(np.float32), rng.normal(size=spec.context).astype(np.float32)


def assert_close(found: np.ndarray, wanted: np.ndarray, tolerance: float = 1e-5) -> None:
    assert found.shape == wanted.shape
    assert found.dtype == np.float64
    assert np.abs(found - wanted).max(initial=0.0) <= tolerance * max(1.0, np.abs(wanted).max(initial=0.0))


# ── against the reference ──
@given(row_specs(), st.integers(0, 1_000), st.integers(1, 200) | st.sampled_from(BORDERS))
@example(NetworkSpec(12, 8), 1, 128)
@example(NetworkSpec(18, 6, row_layers=(16,), pool="attention", head_layers=(16,)), 2, 1_000)
@example(NetworkSpec(3, 0, head_layers=(), pool="mean"), 3, 33)
def test_rows_as_the_reference(spec: NetworkSpec, seed: int, count: int):
    net, rows, context = case_of(spec, seed, count)
    assert_close(net.scores(rows, context), reference_scores(spec, net.arrays, rows, context))


@given(action_specs(), st.integers(0, 1_000))
@example(NetworkSpec(0, 24, 5, head_layers=(32, 32)), 1)
@example(NetworkSpec(0, 40, 5, context_layers=(32,), memory_layers=(16, 8), history=16, atoms=51, low=-10.0, high=10.0), 2)
def test_actions_as_the_reference(spec: NetworkSpec, seed: int):
    net, rows, context = case_of(spec, seed, 0)
    wide = 1e-5 if spec.atoms == 1 else 1e-5 * max(1.0, abs(spec.low), abs(spec.high))
    assert_close(net.scores(rows, context), reference_scores(spec, net.arrays, rows, context), wide)


@pytest.mark.parametrize("pool", ["none", "mean", "attention"])
def test_no_rows_no_scores(pool: Any):
    net, rows, context = case_of(NetworkSpec(5, 3, pool=pool), 1, 0)
    assert net.scores(rows, context).shape == (0,)


def test_normalisation_keeps_its_digits():
    """A feature that never changed in training: the mean and a huge scale; folded into weights it would drown the others."""
    spec = NetworkSpec(2, 1, row_layers=(8,), head_layers=(8,))
    rng = np.random.default_rng(0)
    arrays = random_arrays(spec, rng)
    arrays["rows.mean"], arrays["rows.scale"] = np.array([1_000.7, 0.0], np.float32), np.array([1e4, 1.0], np.float32)
    rows = np.column_stack([np.full(40, np.float32(1_000.7)), rng.normal(size=40)]).astype(np.float32)
    context = np.ones(1, np.float32)
    assert_close(Network.of(spec, arrays).scores(rows, context), reference_scores(spec, arrays, rows, context))


@pytest.mark.parametrize("size", [30.0, 1_000.0])
def test_attention_that_looks_at_few_rows(size: float):
    """Fits far apart, the best one last or first: the running maximum must carry over between blocks and lanes."""
    spec = NetworkSpec(4, 4, pool="attention", head_layers=())
    rng = np.random.default_rng(3)
    arrays = random_arrays(spec, rng)
    arrays["query.weight"] = np.eye(4, dtype=np.float32) * size
    arrays["key.weight"] = arrays["value.weight"] = np.eye(4, dtype=np.float32)
    net = Network.of(spec, arrays)
    rows = np.sort(np.round(rng.normal(size=(100, 4)), 1), axis=0).astype(np.float32)
    context = np.ones(4, np.float32)
    for each in (rows, rows[::-1]):
        assert_close(net.scores(each, context), reference_scores(spec, arrays, each, context), 1e-3)


def test_attention_ignores_the_order_of_rows():
    net, rows, context = case_of(NetworkSpec(6, 4, row_layers=(8,), pool="attention", heads=2), 5, 150)
    order = np.random.default_rng(1).permutation(len(rows))
    assert_close(net.scores(rows[order], context), net.scores(rows, context)[order])


# ── the kernels, as the engine calls them ──
def offset_kernels(source: int) -> tuple[Any, Any]:
    """Compile them again whenever the kernels change: `source` is part of the cache's key, as this file alone would not be enough."""

    @entry(types.void(types.int64, F4, types.int64, types.int64, F4, types.int64, F4, types.int64, F8, types.int64))
    def score_with_offsets(
        net: Any, blocks: Any, b_at: Any, total: Any, context: Any, c_at: Any, scratch: Any, at: Any, out: Any, o_at: Any
    ) -> None:
        if source == 0:  # never; what is cached is that of these sources
            return
        features = nk.words_at(net, nk.HEADER)[5]
        nk.net_begin(net, context, c_at, scratch, at)
        if nk.net_is_pooled(net):
            for first in range(0, total, BLOCK):
                nk.net_pool_block(net, blocks, b_at + first * features, min(BLOCK, total - first), scratch, at)
            nk.net_end_pool(net, scratch, at)
        for first in range(0, total, BLOCK):
            nk.net_score_block(net, blocks, b_at + first * features, min(BLOCK, total - first), scratch, at, out, o_at + first)

    @entry(types.void(types.int64, F4, types.int64, F4, types.int64, F8, types.int64))
    def actions_with_offsets(net: Any, context: Any, c_at: Any, scratch: Any, at: Any, out: Any, o_at: Any) -> None:
        if source == 0:
            return
        nk.net_score_actions(net, context, c_at, scratch, at, out, o_at)

    return score_with_offsets, actions_with_offsets


score_with_offsets, actions_with_offsets = offset_kernels(source_hash("gpuyard.networks.network"))


def blocks_of(rows: np.ndarray, b_at: int) -> np.ndarray:
    """Rows feature by feature in blocks, NaN wherever there is none."""
    count = -(-len(rows) // BLOCK)
    full = np.full((count * BLOCK, rows.shape[1]), np.nan, np.float32)
    full[: len(rows)] = rows
    return np.concatenate([np.full(b_at, np.nan, np.float32), full.reshape(count, BLOCK, -1).transpose(0, 2, 1).ravel()])


@pytest.mark.parametrize("pool", ["none", "mean", "attention"])
@pytest.mark.parametrize("act", ["relu", "tanh"])
def test_what_lies_around_is_neither_read_nor_written(pool: Any, act: Any):
    spec = NetworkSpec(7, 5, row_layers=(12,), context_layers=(9,), pool=pool, heads=3, act=act)
    for count in BORDERS:
        net, rows, context = case_of(spec, count, count)
        c_at, at, b_at, o_at = 3, 5, 7, 2
        around = np.concatenate([np.full(c_at, np.nan, np.float32), context, np.full(4, np.nan, np.float32)])
        scratch = np.full(at + net.scratch + 64, np.nan, np.float32)
        out = np.full(o_at + count + 40, -7.0)
        score_with_offsets(net.address, blocks_of(rows, b_at), b_at, count, around, c_at, scratch, at, out, o_at)
        assert np.array_equal(out[o_at : o_at + count], net.scores(rows, context))
        assert (out[:o_at] == -7.0).all()
        assert (out[o_at + count :] == -7.0).all()
        assert np.isnan(scratch[:at]).all()
        assert np.isnan(scratch[at + net.scratch :]).all()


@given(action_specs(), st.integers(0, 100))
def test_actions_stay_within_their_scratch(spec: NetworkSpec, seed: int):
    net, rows, context = case_of(spec, seed, 0)
    around = np.concatenate([np.full(3, np.nan, np.float32), context, np.full(40, np.nan, np.float32)])
    scratch, out = np.full(5 + net.scratch + 64, np.nan, np.float32), np.full(2 + spec.actions + 40, -7.0)
    actions_with_offsets(net.address, around, 3, scratch, 5, out, 2)
    assert np.array_equal(out[2 : 2 + spec.actions], net.scores(rows, context))
    assert (out[:2] == -7.0).all()
    assert (out[2 + spec.actions :] == -7.0).all()
    assert np.isnan(scratch[:5]).all()
    assert np.isnan(scratch[5 + net.scratch :]).all()


# ── the same bytes everywhere ──
FIXED = (
    (NetworkSpec(0, 24, 5, head_layers=(32, 32)), 0),
    (NetworkSpec(0, 40, 5, context_layers=(32,), memory_layers=(16, 8), history=16, atoms=51, low=-9.0, high=9.0, act="tanh"), 0),
    (NetworkSpec(12, 8, act="tanh"), 70),
    (NetworkSpec(9, 6, row_layers=(16,), pool="attention", heads=4, head_layers=(16,)), 100),
    (NetworkSpec(9, 6, row_layers=(16,), context_layers=(5,), pool="mean", head_layers=()), 33),
)
CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from test_network import digests
print(*digests(), sep="\\n")
"""


def digests() -> list[str]:
    found = []
    for spec, count in FIXED:
        net, rows, context = case_of(spec, 11, count)
        found.append(hashlib.sha256(net.scores(rows, context).tobytes()).hexdigest())
    return found


def test_compiled_equals_interpreted():
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", CHILD, str(Path(__file__).parent)]
    done = subprocess.run(command, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == digests()


# ── against JAX ──
@pytest.mark.parametrize(("spec", "count"), FIXED)
def test_as_in_jax(spec: NetworkSpec, count: int):
    pytest.importorskip("jax")
    networks = pytest.importorskip("gpuyard.learn.parts.networks")
    net, rows, context = case_of(spec, 17, count)
    mask = np.ones(count or spec.actions, bool)
    trained = networks.apply(spec, dict(net.arrays), rows, context, mask)
    assert_close(net.scores(rows, context), np.asarray(trained, np.float64))


# ── what is refused ──
GOOD = NetworkSpec(4, 3, row_layers=(6,), pool="attention", heads=2, head_layers=(5,))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": 0}, "exactly one"),
        ({"actions": 3}, "exactly one"),
        ({"heads": 4}, "do not divide"),
        ({"heads": 0}, "heads is 0"),
        ({"history": 2}, "for a fixed number"),
        ({"act": "gelu"}, "not relu or tanh"),
        ({"pool": "max"}, "not none, mean or attention"),
        ({"row_layers": (10**9,)}, "layer of 1000000000"),
        ({"row_layers": (-1,)}, "layer of -1"),
        ({"head_layers": (8,) * 100}, "100 layers"),
        ({"head_layers": (8_000, 8_000)}, "numbers, at most"),
        ({"context": -1}, "context is -1"),
        ({"low": float("nan")}, "support"),
    ],
)
def test_contradictory_networks(changes: dict[str, Any], words: str):
    with pytest.raises(DataError, match=words):
        check_spec(replace(GOOD, **changes))


def test_contradictory_networks_of_actions():
    good = NetworkSpec(0, 6, 3, history=2, memory_layers=(2,), atoms=5, low=-1.0, high=1.0)
    check_spec(good)
    for changes in ({"history": 7}, {"history": 0}, {"high": -1.0}, {"row_layers": (3,)}, {"pool": "mean"}, {"atoms": 0}):
        with pytest.raises(DataError):
            check_spec(replace(good, **changes))


@pytest.mark.parametrize("name", list(tensor_shapes(GOOD)))
def test_wrong_arrays_are_named(name: str):
    arrays = random_arrays(GOOD, np.random.default_rng(0))
    wrong = {
        "missing": {key: value for key, value in arrays.items() if key != name},
        "shape": arrays | {name: np.zeros((*arrays[name].shape, 1), np.float32)},
        "float32": arrays | {name: arrays[name].astype(np.float64)},
        "not finite": arrays | {name: np.full_like(arrays[name], np.nan)},
    }
    for words, each in wrong.items():
        with pytest.raises(DataError, match=words) as caught:
            Network.of(GOOD, each)
        assert repr(name) in str(caught.value)


def test_unknown_arrays_and_wrong_inputs():
    arrays = random_arrays(GOOD, np.random.default_rng(0), value=True)
    net = Network.of(GOOD, arrays)
    with pytest.raises(DataError, match="'extra' does not belong"):
        Network.of(GOOD, arrays | {"extra": np.zeros(1, np.float32)})
    with pytest.raises(DataError, match="'value_head.1.bias' is missing"):
        Network.of(GOOD, {key: value for key, value in arrays.items() if key != "value_head.1.bias"})
    with pytest.raises(DataError, match="context of shape"):
        net.scores(np.zeros((2, 4), np.float32), np.zeros(4, np.float32))
    with pytest.raises(DataError, match="rows of shape"):
        net.scores(np.zeros((2, 5), np.float32), np.zeros(3, np.float32))
