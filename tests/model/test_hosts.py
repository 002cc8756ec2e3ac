"""Hosts drawn from ranges."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard.errors import UsageError
from gpuyard.model.cluster_file import cluster_from_dict, cluster_to_dict, load_cluster


def test_every_host_lies_in_the_ranges() -> None:
    cluster = load_cluster("hosts:count=400,cores=16:32,memory=64GB:256GB,seed=1")
    nodes = cluster.nodes
    assert len(nodes) == 400
    assert set(nodes.cpus.tolist()) == set(range(16, 33))
    assert nodes.memory.min() >= 64
    assert nodes.memory.max() <= 256
    assert len(set(nodes.memory.tolist())) > 100
    assert cluster.gpus == 0
    assert [kind.name for kind in cluster.types] == ["cpu"]
    assert cluster.nodes == load_cluster("hosts:count=400,cores=16:32,memory=64:256,seed=1").nodes
    assert cluster_from_dict(cluster_to_dict(cluster)) == cluster


def test_the_seed_and_nothing_else_decides() -> None:
    first, other = load_cluster("hosts:seed=1"), load_cluster("hosts:seed=2")
    assert first == load_cluster("hosts:seed=1")
    assert not np.array_equal(first.nodes.cpus, other.nodes.cpus)
    assert load_cluster("hosts").nodes == load_cluster("hosts:seed=0").nodes
    assert np.array_equal(load_cluster("hosts:memory=8:9").nodes.cpus, load_cluster("hosts").nodes.cpus)


def test_gpus_of_a_type() -> None:
    cluster = load_cluster("hosts:count=100,gpus=0:4,type=t4")
    assert set(cluster.nodes.gpus.tolist()) == {0, 1, 2, 3, 4}
    assert {cluster.types[k].name for k in cluster.nodes.gpu_type[cluster.nodes.gpus > 0]} == {"t4"}
    assert set(load_cluster("hosts:cores=8,memory=32").nodes.cpus.tolist()) == {8}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hosts:core=4", "did you mean 'cores'?"),
        ("hosts:cores=8:4", "cores: '8:4' is not a range"),
        ("hosts:count=0", "0 hosts"),
        ("hosts:count=1G", "1,000,000,000 hosts"),
        ("hosts:count", "is not NAME=VALUE"),
        ("hosts:memory=lots", "memory: 'lots'"),
        ("hosts:seed=-1", "seed: '-1'"),
    ],
)
def test_what_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_cluster(text)
    assert says in str(caught.value)
