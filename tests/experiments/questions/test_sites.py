"""Changes of a site: what they leave alone, what they refuse, and what the same jobs then get."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard.errors import GpuyardError, UsageError
from gpuyard.experiments.questions.sites import SITE_CHANGES, change_in_words, changed_site, scaled
from gpuyard.experiments.questions.whatif import usual_changes, whatif
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import cluster_from_dict, load_cluster
from gpuyard.model.workload import Workload

POOLS = "96@big+32@small"
NODES = "4x8:v100@train+2x4:t4@infer"


def _jobs(n: int = 400, seed: int = 0) -> Workload:
    draws = np.random.default_rng(seed)
    part = draws.integers(0, 2, n)
    columns = {
        "submit": np.sort(draws.uniform(0, 40_000, n)), "gpus": np.where(part == 0, 8, 4) * draws.integers(1, 3, n), "partition": part,
        "user": draws.integers(0, 5, n), "gpu_type": np.zeros(n),
    }  # fmt: skip
    return Workload.build(columns, draws.uniform(300, 2000, n), partitions=("big", "small"), users=tuple("abcde"))


def _gpus(cluster: Cluster) -> dict[str, int]:
    nodes = cluster.nodes
    return {p.name: int(nodes.gpus[nodes.partition == k].sum()) for k, p in enumerate(cluster.partitions)}


@pytest.mark.parametrize(
    ("start", "change", "gpus"),
    [
        (POOLS, "nodes:add=4", {"big": 100, "small": 32}),
        (POOLS, "nodes:add=-2,partition=small", {"big": 96, "small": 30}),
        (NODES, "nodes:add=2", {"train": 48, "infer": 8}),
        (NODES, "nodes:add=-1,kind=t4", {"train": 32, "infer": 4}),
        (POOLS, "scale:1.5", {"big": 144, "small": 48}),
        ("2x8:a100", "scale:1.1", {"all": 24}),
        ("2x8:a100", "scale:0.9", {"all": 8}),
        (NODES, "scale:factor=0.5,partition=train", {"train": 16, "infer": 8}),
        (POOLS, "merge", {"big": 128}),
        (NODES, "merge:train|infer", {"train": 40}),
        (POOLS, "split:nodes=16,most=8,partition=big", {"big": 80, "small": 32, "big-small": 16}),
        (NODES, "split:nodes=1,most=1,partition=train", {"train": 24, "infer": 8, "train-small": 8}),
        (POOLS, "scale:2 + nodes:add=1", {"big": 193, "small": 64}),
    ],
)
def test_devices_of_each_partition(start: str, change: str, gpus: dict[str, int]) -> None:
    _, cluster = changed_site(change, _jobs(), load_cluster(start))
    assert _gpus(cluster) == gpus


def test_every_change_has_words_and_leaves_the_site_as_it_was() -> None:
    work, cluster = _jobs(), load_cluster(NODES)
    given = {"retype": "retype:new=h100,old=v100", "split": "split:nodes=1,most=2,partition=train", "quota": "quota:gpus=8"}
    before = (work.jobs.table.tobytes(), _gpus(cluster), cluster.partitions, cluster.types)
    for name in SITE_CHANGES:
        text = given.get(name, name)
        jobs, machine = changed_site(text, work, cluster)
        assert ":" not in change_in_words(text)
        assert (jobs, machine) != (work, cluster)
    assert before == (work.jobs.table.tobytes(), _gpus(cluster), cluster.partitions, cluster.types)


def test_partitions_that_share_nodes_are_counted_and_merged() -> None:
    nodes = [{"count": 2, "gpus": 4, "partition": "a"}, {"count": 3, "gpus": 4, "partition": "a,b"}, {"gpus": 4, "partition": "b,c"}]
    cluster = cluster_from_dict({"partitions": {"a": {}, "b": {"tier": 2.0}, "c": {}}, "nodes": nodes})
    _, more = changed_site("nodes:add=2,partition=b", _jobs(), cluster)
    assert [int(more.nodes.of_partition(k).sum()) for k in range(3)] == [7, 6, 1]
    _, merged = changed_site("merge:a|b", _jobs(), cluster)
    assert [(each.name, each.tier, int(merged.nodes.of_partition(k).sum())) for k, each in enumerate(merged.partitions)] == [
        ("a", 2.0, 6),
        ("c", 0.0, 1),
    ]
    _, one = changed_site("merge", _jobs(), cluster)
    assert one.nodes.member_of is None
    with pytest.raises(UsageError, match="share nodes"):
        changed_site("split:nodes=1,partition=a", _jobs(), cluster)


def test_small_jobs_go_to_their_part_and_others_stay() -> None:
    work = _jobs()
    jobs = changed_site("split:nodes=16,most=8,partition=big", work, load_cluster(POOLS))[0].jobs
    labels = np.array(jobs.partitions)[jobs.partition]
    was = np.array(work.jobs.partitions)[work.jobs.partition]
    assert (labels[(was == "big") & (jobs.gpus <= 8)] == "big-small").all()
    assert (labels[was == "small"] == "small").all()
    assert (labels[(was == "big") & (jobs.gpus > 8)] == "big").all()


def test_another_type_is_as_much_faster_as_its_figures_say_and_jobs_ask_for_it() -> None:
    work = Workload.build({"submit": [0.0], "gpus": [1], "gpu_type": [1]}, [100.0], gpu_types=("", "v100"))
    jobs, cluster = changed_site("retype:new=fast,old=v100,speed=2", work, load_cluster("2x8:v100"))
    assert jobs.jobs.gpu_types == ("", "fast")
    assert cluster.types[0].speed == pytest.approx(2 * load_cluster("2x8:v100").types[0].speed)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("nodse:add=1", "did you mean 'nodes'"), ("nodes:ad=1", "parameter"), ("nodes:add=x", "whole number"),
        ("nodes:add=-400", "taken away"), ("nodes:add=1,partition=nix", "partition"), ("scale:0", "factor"),
        ("retype:new=h100", "device type"), ("merge:big", "nothing to merge"),
        ("merge:big|nix", "partition"), ("split:nodes=96,partition=big", "leave nothing"), ("split:nodes=1", "several partitions"),
        ("quota", "gpus is missing"), ("demand:0", "factor"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(change: str, words: str) -> None:
    with pytest.raises(GpuyardError, match=words):
        changed_site(change, _jobs(), load_cluster(POOLS if "retype" not in change else NODES))


def test_what_if_says_a_sentence_for_each_change_from_the_same_jobs() -> None:
    work, cluster = _jobs(), load_cluster(POOLS)
    found = whatif(work, cluster)
    assert [each.change for each in found.changes] == list(usual_changes(cluster))
    assert len(found.sentences) == 1 + len(found.changes)
    by_change = {each.change: each for each in found.changes}
    assert by_change["scale:factor=1.1"].after.mean < found.present.mean < by_change["scale:factor=0.9"].after.mean
    assert by_change["merge"].after.mean < found.present.mean
    assert by_change["demand:factor=0.8"].after.mean < found.present.mean < by_change["demand:factor=1.2"].after.mean
    assert all(each.jobs == len(work) for each in found.changes)
    share = by_change["merge"].share
    assert share.mean == pytest.approx(by_change["merge"].after.mean / found.present.mean - 1)


def test_jobs_that_no_longer_fit_are_counted_and_not_compared() -> None:
    work = Workload.build({"submit": [0.0, 1.0, 2.0], "gpus": [16, 8, 8]}, [100.0] * 3)
    found = whatif(work, load_cluster("2x8:a100"), ["nodes:add=-1"]).changes[0]
    assert (found.after.rejected, found.jobs) == (1, 2)
    assert "the mean wait goes from 98.5 s to 49.5 s" in found.sentence
    assert found.sentence.startswith("1 fewer node (8 GPUs instead of 16): ")
    assert "1 more job no longer fits, and is left out of both means" in found.sentence


def test_a_change_without_consequences_says_so() -> None:
    work = Workload.build({"submit": [0.0, 0.0], "gpus": [8, 8]}, [100.0, 100.0])
    assert "no job waits longer or shorter" in whatif(work, load_cluster("1x8:a100"), ["quota:gpus=8"]).changes[0].sentence


def test_outages_stay_with_their_nodes() -> None:
    cluster = changed_site("aside:nodes=1,length=10", _jobs(), load_cluster("4x8:a100"))[1]
    twice = scaled(cluster, 2.0)
    assert [twice.nodes.names[each.node] for each in twice.outages] == ["n3"]
    assert scaled(cluster, 0.5).outages == ()
