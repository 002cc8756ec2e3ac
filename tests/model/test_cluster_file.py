from __future__ import annotations

import contextlib
import json
import re
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import DataError, GpuyardError, UnknownNameError, UsageError
from gpuyard.model.cluster import Cluster, GpuType, Outage, Partition
from gpuyard.model.cluster_file import cluster_from_dict, cluster_to_dict, describe_cluster, load_cluster
from gpuyard.model.presets import DEVICES, PRESETS

FULL = """
name = "lab"
span_nodes = 0.9
span_racks = 0.8
[[nodes]]
count = 2
gpus = 8
type = "A100"
cpus = 128
memory = "1TB"
rack = 3
partition = "train"
name = "a"
[[nodes]]
gpus = 4
type = "mine"
partition = "dev"
name = "login"
[[nodes]]
names = ["x", "y"]
gpus = 0
partition = "dev"
[types.mine]
speed = 0.5
memory = 16
price = 2.5
transfer = 0.25
[partitions.train]
quota = 12
[partitions.dev]
[speed.resnet]
a100 = 1.2
mine = 0.4
[[outages]]
node = "login"
start = "2h"
end = "1d"
gpus = 2
[[outages]]
node = 0
start = 10
end = 20.5
"""


def written(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "lab.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_every_key_of_a_file(tmp_path: Path) -> None:
    cluster = load_cluster(written(tmp_path, FULL))
    nodes = cluster.nodes
    assert nodes.names == ("a0", "a1", "login", "x", "y")
    assert nodes.gpus.tolist() == [8, 8, 4, 0, 0]
    assert [cluster.types[i].name for i in nodes.gpu_type] == ["a100", "a100", "mine", "cpu", "cpu"]
    assert nodes.cpus.tolist() == [128, 128, np.inf, np.inf, np.inf]
    assert nodes.memory[0] == 1000
    assert nodes.rack.tolist() == [3, 3, 0, 0, 0]
    assert cluster.partitions == (Partition("train", 12.0), Partition("dev"))
    assert nodes.partition.tolist() == [0, 0, 1, 1, 1]
    assert cluster.types[0] == GpuType("mine", speed=0.5, memory=16.0, price=2.5, transfer=0.25)
    assert cluster.speed == {"resnet": {"a100": 1.2, "mine": 0.4}}
    assert cluster.outages == (Outage(2, 7200.0, 86_400.0, 2), Outage(0, 10.0, 20.5))
    assert (cluster.name, cluster.span_nodes, cluster.span_racks) == ("lab", 0.9, 0.8)
    assert [column.dtype.name for column in (nodes.gpus, nodes.cpus, nodes.rack)] == ["int32", "float64", "int32"]


@pytest.mark.parametrize(
    ("text", "nodes", "gpus", "types"),
    [
        ("16x8:a100", 16, 128, ["a100"]),
        ("4x8:a100+8x4:t4", 12, 64, ["a100", "t4"]),
        ("4x8:a100 + 2x4:a100", 6, 40, ["a100"]),
        ("256", 1, 256, ["cpu"]),
        ("2x4", 2, 8, ["gpu"]),
        ("2x4:A100", 2, 8, ["a100"]),
        ("2x4:my-chip", 2, 8, ["my-chip"]),
    ],
)
def test_short_forms(text: str, nodes: int, gpus: int, types: list[str]) -> None:
    cluster = load_cluster(text)
    assert (len(cluster.nodes), cluster.gpus, [kind.name for kind in cluster.types]) == (nodes, gpus, types)
    assert cluster.name == text


def test_a_known_type_has_figures_and_a_made_up_one_speed_1() -> None:
    assert load_cluster("1x8:h100").types[0] == DEVICES["h100"]
    assert load_cluster("1x8:nonesuch").types[0] == GpuType("nonesuch")
    assert DEVICES["a100"].speed == 1.0


def test_only_a_processor_takes_no_transfer() -> None:
    assert {name for name in DEVICES if DEVICES[name].transfer != 1} == {"cpu"}
    assert DEVICES["cpu"].transfer == 0
    assert "transfer × 0" in dict(describe_cluster(load_cluster("256")))["type cpu"]
    assert "transfer" not in dict(describe_cluster(load_cluster("1x8:a100")))["type a100"]


@pytest.mark.parametrize("name", list(DEVICES))
def test_device_figures_are_sound(name: str) -> None:
    kind = DEVICES[name]
    assert kind.name == name
    assert 0 < kind.idle_watts < kind.busy_watts
    assert kind.speed > 0
    assert kind.tflops > 0


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_load_and_describe_themselves(name: str) -> None:
    cluster = load_cluster(name)
    assert cluster.name == name
    assert PRESETS[name].title
    assert dict(describe_cluster(cluster))["cluster"] == name


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'dgx-a100-16'"):
        load_cluster("dgx-a100-61")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "16x8;a100",
        "16x",
        "0x8",
        "16x8:",
        "1x8:a|b",
        "1000000000x8",
        "1x1000000000",
        "9" * 30,
        "1x1+1000000x1",
        "²",
        "nope.toml",
        "/nope",
        "a\0b.toml",
        "x" * 9999,
    ],
)
def test_bad_names_and_forms(text: str) -> None:
    with pytest.raises(GpuyardError) as caught:
        load_cluster(text)
    assert len(str(caught.value)) < 20_000


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("gpus = 8", "gpus = -1", r"\[\[nodes\]\] #1: gpus = -1 is below 0"),
        ("gpus = 8", "gpus = 1000000000", "gpus = 1000000000 is more than 50,000,000"),
        ("gpus = 8", "gpus = 30000000", "more than 50,000,000 GPUs in all"),
        ("gpus = 8", "gpus = 8.0", "gpus = 8.0 is not a whole number"),
        ("gpus = 8", "gpus = true", "gpus = true is not a whole number"),
        ("gpus = 8", 'gpus = "8"', "gpus = '8' is not a whole number"),
        ("gpus = 8", "", "#1: gpus is missing"),
        ("gpus = 8", "gpu = 8", "gpus is missing"),
        ("count = 2", "count = 1000000000", "is more than 1,000,000"),
        ("count = 2", "count = 0", "is below 1"),
        ("cpus = 128", "cpus = nan", "cpus = nan is not a finite number"),
        ("cpus = 128", "cpu = 128", r"#1: unknown key 'cpu'; hint: did you mean 'cpus'\?"),
        ('memory = "1TB"', 'memory = "1XB"', "memory = '1XB' cannot be read"),
        ('memory = "1TB"', "memory = []", "memory is not a number"),
        ("rack = 3", "rack = -3", "rack = -3 is below 0"),
        ('type = "A100"', "type = 3", "type = 3 is not a text"),
        ('type = "A100"', 'type = "a|b"', "is not a type's name"),
        ('partition = "train"', 'partition = "trian"', "unknown partition 'trian'; hint: did you mean 'train'"),
        ('partition = "train"', "", "partition is missing; hint: partitions: train, dev"),
        ('names = ["x", "y"]', 'names = ["x", "login"]', "two nodes are called 'login'"),
        ('names = ["x", "y"]', 'names = ["x", "y"]\ncount = 3', "has 2 names for 3 nodes"),
        ('names = ["x", "y"]', 'names = ["x", 2]', "names is not a list of texts"),
        ('names = ["x", "y"]', r'names = ["x", "\u001b[31m"]', "which is not a name"),
        ("[types.mine]", "[types.mien]", r"\[types.mien\]: no node has this type"),
        ("speed = 0.5", "speed = 0", "speed = 0 is not above 0"),
        ("speed = 0.5", "speed = inf", "speed = inf is not a finite number"),
        ("price = 2.5", "price = -2.5", r"\[types.mine\]: price = -2.5 is below 0"),
        ("transfer = 0.25", "transfer = -1", r"\[types.mine\]: transfer = -1 is below 0"),
        ("transfer = 0.25", "transfer = 1e7", r"\[types.mine\]: transfer = 10000000.0 is more than 1,000,000"),
        ("quota = 12", "quota = -1", r"\[partitions.train\]: quota = -1 is below 0"),
        ("quota = 12", "qota = 12", "did you mean 'quota'"),
        ("a100 = 1.2", "a10O = 1.2", r"\[speed.resnet\]: unknown device type 'a10O'; hint: did you mean 'a100'"),
        ("a100 = 1.2", "a100 = 0", "a100 = 0 is not above 0"),
        ("[speed.resnet]", "[speed]\nx = 1\n[speed.resnet]", r"\[speed.x\] is not a table"),
        ("span_nodes = 0.9", "span_nodes = 0", "span_nodes = 0 is not above 0"),
        ("span_nodes = 0.9", "span_node = 0.9", "unknown key 'span_node'"),
        ('name = "lab"', "name = 7", "name = 7 is not a text"),
        ('name = "lab"', 'name = "l\\u0007b"', "control character"),
        ('node = "login"', 'node = "logni"', "unknown node 'logni'; hint: did you mean 'login'"),
        ("node = 0", "node = 5", "node = 5 is more than 4"),
        ("node = 0", "node = -1", "node = -1 is below 0"),
        ("node = 0", "", r"\[\[outages\]\] #2: node is missing"),
        ("end = 20.5", "end = 10", "end = 10 is not after start = 10"),
        ("end = 20.5", "end = inf", "end = inf is not a finite number"),
        ("end = 20.5", "end = 20.5\ngpus = 9", "gpus = 9 is more than the 8 of node a0"),
        ('start = "2h"', 'start = "2x"', "start = '2x' cannot be read"),
        ("[[outages]]", "[outages]", "not TOML|not an array"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_file_and_key(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in FULL
    with pytest.raises(DataError, match=says) as caught:
        load_cluster(written(tmp_path, FULL.replace(old, new, 1)))
    assert "lab.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no \\[\\[nodes\\]\\]"),
        (b"nodes = 3", "not an array of tables"),
        (b"nodes = [3]", "#1 is not a table"),
        (b"a = ", "not TOML"),
        (b"\xff\xfe", "byte 0 is not UTF-8"),
        (b"a = " + b"[" * 100_000, "not TOML"),
        (b"a = " + b"9" * 10_000, "not TOML"),
        (b"[[nodes]]\ngpus = " + b"9" * 400, "a very large number"),
        (b"[[nodes]]\ngpus = 1\ncpus = " + b"9" * 400, "a very large number"),
    ],
)
def test_broken_files(tmp_path: Path, content: bytes, says: str) -> None:
    with pytest.raises(DataError, match=says):
        load_cluster(written(tmp_path, content))


def test_a_folder_is_no_cluster_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such cluster file"):
        load_cluster(str(tmp_path))


def test_a_malformed_short_form_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="is not COUNTxGPUS:TYPE"):
        load_cluster("16x8;a100")


def test_an_empty_partition_is_refused_in_a_file(tmp_path: Path) -> None:
    text = '[[nodes]]\ngpus = 1\npartition = "a"\n[partitions.a]\n[partitions.b]\n'
    with pytest.raises(DataError, match=r"\[partitions.b\]: has no nodes"):
        load_cluster(written(tmp_path, text))


def unusual() -> Cluster:
    """Upper-case types, an unused type and partition, a speed row of a type that is not there: legal when made in code."""
    base = load_cluster("2x4:a100+1x8:t4")
    return replace(
        base,
        types=(GpuType("A100", 1 / 3, transfer=0.1), GpuType("T4", 0.1), GpuType("unused")),
        partitions=(Partition("all", 1 / 7), Partition("empty")),
        speed=MappingProxyType({"": {"H100": 2.0}, "bert": {"A100": 0.7}}),
        outages=(Outage(0, 0.1, 1e9), Outage(2, 0.0, 5.0, 3)),
        name="odd \N{SNOWMAN}",
    )


@pytest.mark.parametrize("make", [unusual, *(lambda name=name: load_cluster(name) for name in PRESETS)])
def test_a_cluster_goes_through_json_and_back_equal(make) -> None:  # type: ignore[no-untyped-def]
    cluster = make()
    assert cluster_from_dict(json.loads(json.dumps(cluster_to_dict(cluster), allow_nan=False))) == cluster


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    groups = []
    for _ in range(draw(st.integers(1, 4))):
        group = {"count": draw(st.integers(1, 3)), "gpus": draw(st.integers(0, 9)), "type": draw(st.sampled_from(["a100", "t4", "own"]))}
        group |= {"rack": draw(st.integers(0, 2)), "partition": draw(st.sampled_from("pq"))}
        if draw(st.booleans()):
            group |= {"cpus": draw(st.floats(0, 1e6)), "memory": draw(st.floats(0, 1e6))}
        groups.append(group)
    factor = st.floats(0.01, 10)
    return cluster_from_dict({"nodes": groups, "span_nodes": draw(factor), "span_racks": draw(factor)})


@given(clusters())
def test_generated_clusters_go_through_json_and_back_equal(cluster: Cluster) -> None:
    again = cluster_from_dict(json.loads(json.dumps(cluster_to_dict(cluster), allow_nan=False)))
    assert again == cluster
    assert again.nodes.cpus.tobytes() == cluster.nodes.cpus.tobytes()


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["nodes", "gpus", "types", "node", "x"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["name", "nodes", "types", "partitions", "speed", "outages", "span_nodes"]), _json, max_size=5))
def test_no_table_gives_another_error(table: dict[str, object]) -> None:
    with contextlib.suppress(GpuyardError):
        cluster_from_dict(table)


def test_describe_tells_what_differs_from_plain(tmp_path: Path) -> None:
    rows = dict(describe_cluster(load_cluster(written(tmp_path, FULL))))
    assert rows["size"] == "5 nodes, 20 devices, 2 racks"
    assert "own type" in rows["type mine"]
    assert rows["partition train"].endswith("at most 12 in use")
    assert rows["speed of resnet"] == "a100 1.2, mine 0.4"
    assert {"locality", "outages"} <= set(rows)


def test_the_guide_is_right(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/clusters.md").read_text()
    toml, python = (re.findall(rf"```{language}\n(.*?)```", guide, re.S)[0] for language in ("toml", "python"))
    cluster = load_cluster(written(tmp_path, toml))
    assert cluster.nodes.names == ("a0", "a1", "a2", "a3", "desk-1", "desk-2")
    with pytest.raises(DataError, match=r"\[\[nodes\]\] #1: unknown key 'cpu'; hint: did you mean 'cpus'\?"):
        load_cluster(written(tmp_path, toml.replace("cpus = ", "cpu = ")))
    exec(compile(python, "clusters.md", "exec"), {})  # noqa: S102 (our own page)
