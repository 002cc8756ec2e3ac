"""Files from outside that are damaged or malicious: each reads as a valid checkpoint or ends in one line, and takes little memory."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard.errors import CheckpointError
from gpuyard.features.schema import Schema
from gpuyard.networks.checkpoint import Manifest, TrainingRecord, Use, read_arrays, read_checkpoint, write_checkpoint
from gpuyard.networks.network import Network
from gpuyard.networks.spec import NetworkSpec
from gpuyard.testing.reference.network import random_arrays

SPEC = NetworkSpec(3, 2, row_layers=(4,), pool="attention", heads=2, head_layers=(4,))
ALL_MEMORY = 64 << 20
EVIL: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 2**64, 10**400, -(2**63), 1e308, 0.5, "", "F32", "\x00", "x" * 5_000, "\n", [], [[]], {},
    {"a": {}}, [0, 0], [0, 2**62], [-4, 4], [True, False], ["1", "2"], [1] * 100, [2**32, 2**32], [0, 2**62, 2**62], {"$float": "nan"},
    {"$float": "x"}, {"$float": []}, "\u202e", "gelu", [10**9], ["a"] * 3,
)  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory: Any) -> bytes:
    manifest = Manifest(
        name="small",
        title="t",
        schema=Schema("job", 1, ("a", "b", "c"), ("d", "e")),
        network=SPEC,
        objective="wait",
        choices={"placement": "best"},
        training=TrainingRecord("ppo", {"rate": 1e-3}, 1, 10, (Use("lublin", (0, 1)), Use("trace", None, (0.0, 9.0)))),
        versions={"gpuyard": "0"},
        command="gpuyard train",
        curve=({"steps": 1.0},),
    )
    path = tmp_path_factory.mktemp("good") / "small.safetensors"
    write_checkpoint(path, manifest, random_arrays(SPEC, np.random.default_rng(0)))
    return path.read_bytes()


def outcome(path: Path, raw: bytes) -> str:
    """Nothing for a file that reads, else its one line; anything but a CheckpointError gets through and fails the test."""
    path.write_bytes(raw)
    with contextlib.suppress(CheckpointError):
        read_arrays(path)
    try:
        found = read_checkpoint(path)
    except CheckpointError as error:
        text = str(error)
        text.encode()
        assert str(path) in text
        assert "\n" not in text
        assert len(text) < 2_000
        return text
    scores = Network.of(found.manifest.network, found.arrays).scores(
        np.ones((3, found.manifest.network.rows)), np.ones(found.manifest.network.context)
    )
    assert scores.shape == (3,)
    return ""


def parts(raw: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def joined(header: dict[str, Any] | bytes, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


# ── at random ──
@pytest.mark.parametrize("seed", range(4))
def test_flipped_and_cut_bytes(good: bytes, tmp_path: Path, seed: int):
    rng = np.random.default_rng(seed)
    refused = 0
    for number in range(250):
        raw = bytearray(good)
        if number % 5 == 0:
            del raw[int(rng.integers(len(raw))) :]
        elif number % 5 == 1:
            at = int(rng.integers(len(raw)))
            raw[at:at] = rng.bytes(int(rng.integers(1, 20)))
        else:
            area = len(raw) if number % 5 < 4 else 8 + int.from_bytes(good[:8], "little")
            for _ in range(int(rng.integers(1, 4))):
                raw[int(rng.integers(area))] = int(rng.integers(256))
        refused += bool(outcome(tmp_path / "x.safetensors", bytes(raw)))
    assert 100 < refused < 250  # a changed weight is a valid weight


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(tree, dict | list):
        for key in tree if isinstance(tree, dict) else range(len(tree)):
            yield from places(tree[key], (*path, key))


def changed(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    tree = copy.deepcopy(tree)
    inner = tree
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return tree


def test_every_value_of_the_header_replaced(good: bytes, tmp_path: Path):
    header, data = parts(good)
    for path in list(places(header)):
        if path and path[0] not in ("__metadata__", "key.weight", "head.1.bias"):
            continue
        for value in EVIL:
            outcome(tmp_path / "x.safetensors", joined(json.dumps(changed(header, path, value)).encode(), data))


def test_every_value_of_the_manifest_replaced(good: bytes, tmp_path: Path):
    header, data = parts(good)
    manifest = json.loads(header["__metadata__"]["gpuyard"])
    refused = 0
    for path in list(places(manifest)):
        for value in EVIL:
            header["__metadata__"]["gpuyard"] = json.dumps(changed(manifest, path, value))
            refused += bool(outcome(tmp_path / "x.safetensors", joined(header, data)))
    assert refused > 1_000


def test_every_key_of_the_manifest_taken_away_or_misspelt(good: bytes, tmp_path: Path):
    header, data = parts(good)
    manifest = json.loads(header["__metadata__"]["gpuyard"])
    for path in places(manifest):
        if not path or not isinstance(path[-1], str) or path[0] in ("choices", "versions", "curve") or path[:2] == ("training", "config"):
            continue
        outer = copy.deepcopy(manifest)
        table = outer
        for key in path[:-1]:
            table = table[key]
        value = table.pop(path[-1])
        table[path[-1] + "s"] = value
        header["__metadata__"]["gpuyard"] = json.dumps(outer)
        assert outcome(tmp_path / "x.safetensors", joined(header, data))


# ── by hand ──
def overlap(header: dict[str, Any], data: bytes) -> bytes:
    header["key.weight"]["data_offsets"] = header["value.weight"]["data_offsets"]
    return joined(header, data)


def beyond(header: dict[str, Any], data: bytes) -> bytes:
    begin, end = header["value.weight"]["data_offsets"]
    header["value.weight"]["data_offsets"] = [begin + len(data), end + len(data)]
    return joined(header, data)


def backwards(header: dict[str, Any], data: bytes) -> bytes:
    header["value.weight"]["data_offsets"].reverse()
    return joined(header, data)


def twice(header: dict[str, Any], data: bytes) -> bytes:
    text = json.dumps(header)
    return joined(('{"key.weight":' + json.dumps(header["key.weight"]) + "," + text[1:]).encode(), data)


def extra_metadata(header: dict[str, Any], data: bytes) -> bytes:
    header["__metadata__"]["gpuyard"] = "[" * 100_000
    return joined(header, data)


def deep_choices(header: dict[str, Any], data: bytes) -> bytes:
    manifest = header["__metadata__"]["gpuyard"]
    header["__metadata__"]["gpuyard"] = manifest.replace('"placement":"best"', '"placement":' + "[" * 200 + "]" * 200)
    return joined(header, data)


def twice_in_manifest(header: dict[str, Any], data: bytes) -> bytes:
    header["__metadata__"]["gpuyard"] = header["__metadata__"]["gpuyard"].replace("{", '{"name":"other",', 1)
    return joined(header, data)


def half_a_character(header: dict[str, Any], data: bytes) -> bytes:
    header["__metadata__"]["gpuyard"] = header["__metadata__"]["gpuyard"].replace('"title":"t"', '"title":"\\ud800"')
    return joined(header, data)


def other_type(header: dict[str, Any], data: bytes) -> bytes:
    header["key.weight"]["dtype"] = "I32"
    return joined(header, data)


def other_shape(header: dict[str, Any], data: bytes) -> bytes:
    header["key.weight"]["shape"] = [2, 8]
    return joined(header, data)


def not_finite(header: dict[str, Any], data: bytes) -> bytes:
    begin, end = header["key.weight"]["data_offsets"]
    return joined(header, data[:begin] + np.full((end - begin) // 4, np.inf, np.float32).tobytes() + data[end:])


def other_name(header: dict[str, Any], data: bytes) -> bytes:
    header["key.weights"] = header.pop("key.weight")
    return joined(header, data)


CRAFTED: dict[str, tuple[Callable[[dict[str, Any], bytes], bytes], str]] = {
    "overlap": (overlap, "invalid offset for tensor `query.weight`"),
    "beyond": (beyond, "invalid offset for tensor `value.weight`"),
    "backwards": (backwards, "invalid offset for tensor `value.weight`"),
    "twice": (twice, "twice"),
    "deep metadata": (extra_metadata, "not JSON"),
    "deep choices": (deep_choices, "nested"),
    "twice in the manifest": (twice_in_manifest, "twice"),
    "half a character": (half_a_character, "not JSON"),
    "other type": (other_type, "'key.weight' has type int32, not float32"),
    "other shape": (other_shape, r"'key.weight' has shape \(2, 8\), the network needs \(4, 4\)"),
    "not finite": (not_finite, "'key.weight' has values that are not finite"),
    "other name": (other_name, "'key.weight' is missing"),
    "no manifest": (
        lambda header, data: joined({k: v for k, v in header.items() if k != "__metadata__"}, data),
        "without a gpuyard manifest",
    ),
    "metadata is a list": (lambda header, data: joined(header | {"__metadata__": ["gpuyard"]}, data), "not texts"),
    "no header": (lambda header, data: joined(b"", data), "not JSON"),
    "a list": (lambda header, data: joined(b"[1, 2]", data), "not a table"),
    "not UTF-8": (lambda header, data: joined(b'{"\xff\xfe": {}}', data), "not JSON"),
    "deep": (lambda header, data: joined(b"[" * 1_000_000, data), "not JSON"),
    "NaN": (lambda header, data: joined(b'{"a": NaN}', data), "not JSON"),
    "giant length": (lambda header, data: b"\xff" * 8 + data, "cut short"),
    "length to the end": (lambda header, data: (2**40).to_bytes(8, "little") + data, "cut short"),
    "giant number": (lambda header, data: joined(b'{"a": ' + b"9" * 100_000 + b"}", data), "not JSON"),
    "longer": (lambda header, data: joined(header, data + b"1234"), "cut short or was changed"),
    "cut": (lambda header, data: joined(header, data[:-1]), "cut short or was changed"),
    "many tensors": (
        lambda header, data: joined({f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(2_000)}, b""),
        "2,000 tensors",
    ),
    "many empty lists": (lambda header, data: joined(b'{"a": [' + b"[]," * 600_000 + b"[]]}", data), "fields other than dtype"),
    "header too long": (lambda header, data: joined(b" " * (3 << 20) + b"{}", data), "at most"),
    "nothing": (lambda header, data: b"", "cut short"),
    "text": (lambda header, data: b"#!/bin/sh\necho hello\n", "not a safetensors file"),
    "pickle": (lambda header, data: b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix", "not a safetensors file"),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_made_by_hand(good: bytes, tmp_path: Path, name: str):
    make, words = CRAFTED[name]
    path = tmp_path / "evil.safetensors"
    path.write_bytes(make(*parts(good)))
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=words) as caught:
            read_checkpoint(path)
        assert tracemalloc.get_traced_memory()[1] < ALL_MEMORY
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2_000


def test_a_shape_with_a_zero_and_a_giant(tmp_path: Path):
    raw = joined({"a": {"dtype": "F64", "shape": [0, 2**62, 2**62], "data_offsets": [0, 0]}}, b"")
    (tmp_path / "a.safetensors").write_bytes(raw)
    with pytest.raises(CheckpointError, match="too large"):
        read_arrays(tmp_path / "a.safetensors")


def test_truth_values_are_0_or_1(tmp_path: Path):
    (tmp_path / "a.safetensors").write_bytes(joined({"a": {"dtype": "BOOL", "shape": [2], "data_offsets": [0, 2]}}, b"\x01\x02"))
    with pytest.raises(CheckpointError, match="truth values"):
        read_arrays(tmp_path / "a.safetensors")


def test_what_is_no_file(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "absent", Path("/dev/zero"), tmp_path / ("x" * 5_000), f"{tmp_path}\0"):
        with pytest.raises(CheckpointError):
            read_checkpoint(path)


def test_a_large_file_is_refused_unread(tmp_path: Path):
    with (tmp_path / "large.safetensors").open("wb") as stream:
        stream.truncate(65 << 20)
    with pytest.raises(CheckpointError, match="68,157,440 bytes, at most 67,108,864"):
        read_checkpoint(tmp_path / "large.safetensors")
