"""Checkpoints: what is written is read again, by others too; what does not fit is refused in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from gpuyard.errors import CheckpointError, GpuyardError, UnknownNameError
from gpuyard.features.schema import Schema
from gpuyard.networks import checkpoint as checkpoints
from gpuyard.networks.checkpoint import (
    Manifest,
    TrainingRecord,
    Use,
    check_schema,
    find_checkpoint,
    read_arrays,
    read_checkpoint,
    shipped_names,
    write_arrays,
    write_checkpoint,
)
from gpuyard.networks.network import Network
from gpuyard.networks.spec import NetworkSpec
from gpuyard.testing.reference.network import random_arrays

SPEC = NetworkSpec(3, 2, row_layers=(4,), pool="attention", heads=2, head_layers=(4,))
ARRAYS = random_arrays(SPEC, np.random.default_rng(0), value=True)
SCHEMA = Schema("job", 2, ("width", "estimate", "waited"), ("free", "load"))
MANIFEST = Manifest(
    name="small",
    title="A policy für Tests — ünïcode",
    schema=SCHEMA,
    network=SPEC,
    objective="bsld",
    choices={"placement": "best", "backfill": "easy", "limit": float("inf")},
    training=TrainingRecord(
        learner="ppo",
        config={"rate": 3e-4, "layers": [4, 4], "clip": {"low": 0.1}, "none": None},
        seed=2**63,
        steps=1_000_000,
        workloads=(Use("lublin --jobs 1000", seeds=(0, 99)), Use("philly.csv", times=(0.0, 5e6))),
        validation=(Use("lublin --jobs 1000", seeds=(100, 109)),),
    ),
    versions={"gpuyard": "0.1.0", "numpy": "2.4.6"},
    command="gpuyard train PickJob --learner ppo --seed 1",
    curve=({"steps": 1_000, "score": 1.5}, {"steps": 2_000, "score": float("nan")}),
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "small.safetensors", MANIFEST, ARRAYS)
    return tmp_path / "small.safetensors"


def test_round_trip(saved: Path):
    found = read_checkpoint(saved)
    kept, read = MANIFEST.curve, found.manifest.curve
    assert replace(found.manifest, curve=()) == replace(MANIFEST, curve=())
    assert read[0] == kept[0]
    assert read[1]["steps"] == 2_000
    assert np.isnan(read[1]["score"])
    assert set(found.arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert found.arrays[name].dtype == np.float32
        assert np.array_equal(found.arrays[name], array)
    rows, context = np.ones((5, 3), np.float32), np.ones(2, np.float32)
    scores = Network.of(found.manifest.network, found.arrays).scores(rows, context)
    assert np.array_equal(scores, Network.of(SPEC, ARRAYS).scores(rows, context))


def test_the_library_reads_it(saved: Path):
    found = safetensors.numpy.load_file(saved)
    assert set(found) == set(ARRAYS)
    assert all(np.array_equal(found[name], ARRAYS[name]) for name in ARRAYS)
    with safetensors.safe_open(saved, "numpy") as opened:
        assert set(opened.metadata()) == {"gpuyard"}


def test_what_the_library_writes_is_read(tmp_path: Path, saved: Path):
    _, meta = read_arrays(saved)
    safetensors.numpy.save_file(ARRAYS, tmp_path / "theirs.safetensors", meta)
    assert read_checkpoint(tmp_path / "theirs.safetensors").manifest.name == "small"


def test_the_same_bytes_again(saved: Path, tmp_path: Path):
    write_checkpoint(tmp_path / "again.safetensors", MANIFEST, dict(reversed(ARRAYS.items())))
    assert (tmp_path / "again.safetensors").read_bytes() == saved.read_bytes()


def test_a_failed_write_leaves_what_was_there(saved: Path):
    before = saved.read_bytes()
    with pytest.raises(GpuyardError, match="missing"):
        write_checkpoint(saved, MANIFEST, {})
    with pytest.raises(CheckpointError, match="cannot be saved"):
        write_arrays(saved, {"text": np.array(["a"])}, {})
    with pytest.raises(CheckpointError, match="is not a text"):
        write_arrays(saved, {}, {"a": 1})  # type: ignore[dict-item]
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_places_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "file" / "below.safetensors"):
        with pytest.raises(CheckpointError):
            write_checkpoint(path, MANIFEST, ARRAYS)
    write_checkpoint(tmp_path / "new" / "folder" / "a.safetensors", MANIFEST, ARRAYS)
    assert read_checkpoint(tmp_path / "new" / "folder" / "a.safetensors").manifest.name == "small"


DTYPES = ["f8", "i8", "u8", "f4", "i4", "u4", "f2", "i2", "u2", "?", "i1", "u1", ">f8", ">i4"]
anything = st.sampled_from(DTYPES).flatmap(lambda dtype: st_numpy.arrays(dtype, st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0)))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(texts, anything, max_size=6), st.dictionaries(texts, texts, max_size=3))
def test_any_arrays_come_back(tmp_path_factory: Any, arrays: dict[str, np.ndarray], meta: dict[str, str]):
    arrays.pop("__metadata__", None)
    path = tmp_path_factory.mktemp("state") / "state.safetensors"
    write_arrays(path, arrays, meta)
    found, texts_found = read_arrays(path)
    assert texts_found == meta
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes()
    assert set(safetensors.numpy.load_file(path)) == set(arrays)


# ── another schema ──
@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (replace(SCHEMA, decision="host"), ["'job'", "'host'"]),
        (replace(SCHEMA, version=3), ["version 2 of the features, not 3", "train it again"]),
        (replace(SCHEMA, rows=("width", "runtime", "waited")), ["row has also 'estimate'", "row lacks 'runtime'"]),
        (replace(SCHEMA, context=("load", "free")), ["context", "another order"]),
        (replace(SCHEMA, rows=(*SCHEMA.rows, *(f"new{i}" for i in range(9)))), ["'new4' and 4 more"]),
    ],
)
def test_another_schema(schema: Schema, words: list[str]):
    check_schema(MANIFEST, SCHEMA)
    with pytest.raises(CheckpointError) as caught:
        check_schema(MANIFEST, schema)
    for word in ["'small'", *words]:
        assert word in str(caught.value)


def test_manifests_that_contradict_themselves():
    for changes in ({"schema": replace(SCHEMA, rows=("a",))}, {"name": "../up"}, {"name": ""}, {"curve": ({"score": "high"},)}):
        with pytest.raises(GpuyardError):
            replace(MANIFEST, **changes)
    with pytest.raises(GpuyardError):
        Use("lublin", seeds=(5, 4))
    with pytest.raises(GpuyardError):
        replace(MANIFEST, choices={"object": object()})


# ── by name ──
def test_by_name(saved: Path):
    assert shipped_names(saved.parent) == ("small",)
    assert find_checkpoint("learned:small", saved.parent) == saved
    assert find_checkpoint(str(saved)) == saved
    with pytest.raises(UnknownNameError, match="did you mean 'small'"):
        find_checkpoint("learned:smal", saved.parent)
    with pytest.raises(CheckpointError, match="did you mean learned:small"):
        find_checkpoint("small", saved.parent)
    for text in ("learned:../small", "learned:", "learned:/etc/passwd", "", "a\0b", "x" * 5_000, str(saved.parent)):
        with pytest.raises(GpuyardError):
            find_checkpoint(text, saved.parent)


def test_every_shipped_policy_reads():
    assert checkpoints.SHIPPED.is_dir()
    for name in shipped_names():
        assert read_checkpoint(find_checkpoint(f"learned:{name}")).manifest.name == name
