"""The policy of a Slurm site, read from what Slurm prints, and given to a cluster."""

from __future__ import annotations

import pytest

from gpuyard import load_cluster
from gpuyard.errors import DataError
from gpuyard.model.cluster_file import cluster_from_dict
from gpuyard.model.site.limits import Limit
from gpuyard.model.site.slurm_conf import parse_slurm_site, with_slurm_site
from gpuyard.policies import parse_scheduler

PRINTED = """\
Configuration data as of 2026-01-01T00:00:00
PriorityDecayHalfLife   = 1-00:00:00
PriorityFavorSmall      = Yes
PriorityMaxAge          = 14-00:00:00
PriorityType            = priority/multifactor
PriorityWeightAge       = 1000
PriorityWeightFairShare = 100000
SchedulerType           = sched/backfill

PartitionName=gpu
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   Nodes=g[01-03]
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO
PartitionName=debug
   Nodes=g03
   PriorityJobFactor=10 PriorityTier=2

Name|Priority|GrpTRES|MaxTRESPU|MaxJobsPU|MaxSubmitPU|
normal|0||gres/gpu=8|10||
high|100|cpu=100||||

Cluster|Account|User|Partition|Share|GrpJobs|GrpTRES|MaxJobs|
c|bio||||50|gres/gpu:a100=32||
c|bio|ann||1||||
"""
CONF = """\
# slurm.conf
PriorityType=priority/multifactor
PriorityWeightQOS=5
SchedulerType=sched/builtin
PartitionName=DEFAULT PriorityTier=3
PartitionName=gpu Nodes=g[01-02] Default=YES  # the usual one
"""


def test_weights_partitions_qos_and_limits_are_read():
    site = parse_slurm_site(PRINTED)
    assert site.scheduler.startswith(
        "multifactor:age=1000,size=0,partition=0,qos=0,fairshare=100000,max_age=1.2096e+06,half_life=86400,small=1/"
    )
    assert site.scheduler.endswith("/fewest/easy")
    assert [(each.name, each.tier, each.factor, each.nodes) for each in site.partitions] == [
        ("gpu", 1, 1, ("g01", "g02", "g03")), ("debug", 2, 10, ("g03",)),
    ]  # fmt: skip
    assert site.qos == {"normal": 0, "high": 100}
    assert site.limits == (
        Limit(("user",), qos="normal", jobs=10), Limit(("user",), qos="normal", gpus=8),
        Limit(account="bio", jobs=50), Limit(account="bio", gpus=32),
    )  # fmt: skip
    parse_scheduler(site.scheduler)


def test_a_slurm_conf_is_read_too():
    site = parse_slurm_site(CONF)
    assert site.scheduler.endswith("qos=5,fairshare=0,max_age=604800,half_life=604800,small=0/fewest/none")
    assert [(each.name, each.tier) for each in site.partitions] == [("gpu", 3)]


def test_partitions_that_list_the_nodes_replace_those_of_the_cluster():
    cluster = cluster_from_dict({"nodes": [{"gpus": 4, "names": ["g01", "g02", "g03"], "count": 3}]})
    made, notes = with_slurm_site(cluster, parse_slurm_site(PRINTED))
    assert [(each.name, each.tier, each.priority) for each in made.partitions] == [("gpu", 1, 1), ("debug", 2, 10)]
    assert [made.nodes.partitions_of(node) for node in range(3)] == [[0], [0], [0, 1]]
    assert notes == ()
    assert len(made.limits) == 4


def test_a_partition_of_all_nodes_has_them():
    cluster = cluster_from_dict({"nodes": [{"gpus": 4, "count": 2, "names": ["a", "b"]}]})
    made, notes = with_slurm_site(cluster, parse_slurm_site("PartitionName=every Nodes=ALL\nPartitionName=some Nodes=b"))
    assert [made.nodes.partitions_of(node) for node in range(2)] == [[0], [0, 1]]
    assert notes == ()


def test_otherwise_partitions_of_the_same_name_get_tier_and_priority():
    cluster = cluster_from_dict(
        {"partitions": {"gpu": {}, "other": {}}, "nodes": [{"gpus": 1, "partition": name} for name in ("gpu", "other")]}
    )
    made, notes = with_slurm_site(cluster, parse_slurm_site(PRINTED))
    assert [(each.tier, each.priority) for each in made.partitions] == [(1, 1), (0, 0)]
    assert notes == ("partition debug of the site is not in the cluster",)


@pytest.mark.parametrize("text", ["", "hello\nworld", "a|b|c\n1|2|3"])
def test_a_text_about_something_else_is_refused(text: str):
    with pytest.raises(DataError, match=r"somewhere: nothing of a Slurm site"):
        parse_slurm_site(text, "somewhere")


@pytest.mark.parametrize("text", ["PartitionName=x PriorityTier=high", "Name|Priority\nq|-3", "Name|Priority|MaxJobsPU\nq|1|x"])
def test_numbers_that_are_none_are_named(text: str):
    with pytest.raises(DataError, match="is not a number from 0"):
        parse_slurm_site(text)


def test_a_cluster_without_names_keeps_its_partition():
    made, _ = with_slurm_site(load_cluster("2x8:a100"), parse_slurm_site(PRINTED))
    assert [each.name for each in made.partitions] == ["all"]
