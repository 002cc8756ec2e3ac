"""Pools of a machine, found in what its log says ran at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpuyard.errors import UsageError
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.workload import Machine, Workload
from gpuyard.traces import guess_cluster, load_workload, write_swf
from gpuyard.traces.pools import find_pools
from support.sites import Site, errors, site


@pytest.fixture(scope="module")
def sites() -> list[Site]:
    return [site(seed, jobs=4000, stated=bool(seed % 3)) for seed in range(4)]


def test_three_known_pools_are_found_and_the_error_of_the_wait_at_least_halves(sites: list[Site]) -> None:
    """Of every site, not on average; the log has ends that were written down late, and two sites run another policy than FCFS."""
    for made in sites:
        cluster, why = guess_cluster(made.log)
        assert [p.name for p in cluster.partitions] == ["1", "2", "3"], why
        np.testing.assert_allclose(cluster.nodes.gpus, made.truth.nodes.gpus, rtol=0.13)
        was, before, after = errors(made)
        assert after <= before / 2, (was, before, after, why)


def test_queues_that_share_nodes_are_one_pool() -> None:
    for seed in range(3):
        made = site(seed, apart=False, jobs=4000)
        cluster, why = guess_cluster(made.log)
        assert (cluster.name, len(cluster.partitions)) == ("768", 1)
        assert "share nodes" in why


def test_the_evidence_and_the_line_that_overrides_it(sites: list[Site]) -> None:
    cluster, why = guess_cluster(sites[1].log)
    assert "jobs waited while the whole machine had room for them" in why
    assert f"--cluster {cluster.name}" in why
    again = load_cluster(cluster.name)
    assert (again.nodes, again.partitions) == (replace(cluster.nodes, names=again.nodes.names), cluster.partitions)


def test_a_peak_that_was_brief_is_not_the_size() -> None:
    """64 processors, full for days while jobs wait; for ten minutes records overlap and 218 seem to run."""
    rows = np.arange(2000)
    start = np.repeat(np.arange(500) * 3600.0, 4)
    extra = np.full(10, 100 * 3600.0)
    work = Workload.build(
        {"submit": np.concatenate([np.maximum(start - 1800, 0), extra]), "gpus": np.full(2010, 16.0)},
        np.concatenate([np.full(2000, 3600.0), np.full(10, 600.0)]), logged_start=np.concatenate([start, extra]),
        machines=[Machine("pool", 0, gpu_type="cpu")],
    )  # fmt: skip
    assert len(rows) == 2000
    found = find_pools(work).pools[0]
    assert (found.size, found.peak) == (64, 224)
    assert "the bare peak of 224 was brief" in guess_cluster(work)[1]


def test_where_nobody_waited_nothing_speaks_for_pools() -> None:
    work = Workload.build(
        {"submit": np.arange(100) * 100.0, "gpus": np.full(100, 4.0), "partition": np.arange(100) % 2}, np.full(100, 90.0),
        partitions=("a", "b"), logged_start=np.arange(100) * 100.0,
    )  # fmt: skip
    cluster, why = guess_cluster(work)
    assert len(cluster.partitions) == 1
    assert "hardly anybody waited" in why or "share nodes" in why


def test_field_16_of_a_log_in_the_standard_format(tmp_path: Path, sites: list[Site]) -> None:
    """The queues of the log say nothing of pools; the partition numbers do, and the queue is then the QOS."""
    path = tmp_path / "site.swf"
    write_swf(sites[1].log, path)
    lines = []
    for line in path.read_text().splitlines():
        fields = line.split()
        if not line.startswith(";"):
            fields[15], fields[14] = fields[14], str(int(fields[0]) % 2)
            line = " ".join(fields)
        lines.append(line)
    path.write_text("\n".join(lines) + "\n")
    workload = load_workload(str(path))
    assert workload.jobs.partitions == ("1", "2", "3")
    assert workload.jobs.qoses == ("0", "1")
    assert any("field 16" in note for note in workload.notes)
    assert [p.name for p in guess_cluster(workload)[0].partitions] == ["1", "2", "3"]
    by_queue = load_workload(str(path), pools="queue")
    assert by_queue.jobs.partitions == ("0", "1")
    assert len(guess_cluster(by_queue)[0].partitions) == 1


def test_a_flag_in_field_16_is_no_part_of_the_machine(tmp_path: Path) -> None:
    """The re-simulated logs of CTC and SDSC have −1 and 1 there: whether the job was backfilled."""
    row = "{0} {1} 0 60 4 -1 -1 4 100 -1 1 1 1 -1 7 {2} -1 -1\n".format
    path = tmp_path / "flag.swf"
    path.write_text("".join(row(k, k, -1 if k % 3 else 1) for k in range(1, 30)))
    assert load_workload(str(path)).jobs.partitions == ("7",)
    assert load_workload(str(path), pools="partition").jobs.partitions == ("", "1")


def test_a_log_without_a_header_counts_processors(tmp_path: Path) -> None:
    path = tmp_path / "bare.swf"
    path.write_text("1 0 0 60 4 -1 -1 4 100 -1 1 1 1 -1 1 -1 -1 -1\n2 0 0 60 3 -1 -1 4 100 -1 1 1 1 -1 1 -1 -1 -1\n")
    cluster, why = guess_cluster(load_workload(str(path)))
    assert (cluster.name, [kind.name for kind in cluster.types]) == ("7", ["cpu"])
    assert "processors" in why
    assert "GPU" not in why


def test_partitions_of_sacct_without_nodes(tmp_path: Path, sites: list[Site]) -> None:
    log, lines = sites[3].log, ["JobID|User|Partition|State|Submit|Start|End|Timelimit|NCPUS|AllocTRES"]
    for k, (submit, start, run, gpus, part) in enumerate(
        zip(log.jobs.submit, log.known_start, log.runtime, log.jobs.gpus, log.jobs.partition, strict=True)
    ):
        times = "|".join(f"{1_700_000_000 + each:.0f}" for each in (submit, start, start + run))
        lines.append(f"{k}|u{k % 5}|{('big', 'mid', 'small')[part]}|COMPLETED|{times}|2-00:00:00|{gpus:.0f}|gres/gpu={gpus:.0f}")
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join(lines) + "\n")
    cluster, why = guess_cluster(load_workload(str(path)))
    sizes = {p.name: int(cluster.nodes.gpus[cluster.nodes.partition == k].sum()) for k, p in enumerate(cluster.partitions)}
    assert sizes == {"big": pytest.approx(512, rel=0.1), "mid": pytest.approx(192, rel=0.1), "small": pytest.approx(64, rel=0.13)}, why
    assert f"--cluster {cluster.name}" in why


@pytest.mark.parametrize(
    ("text", "gpus", "partitions"),
    [
        ("256@batch+64@long", [256, 64], [("batch", ()), ("long", ())]),
        ("256@1,3,+64@2", [256, 64], [("1", ("3", "")), ("2", ())]),
        ("2x8:a100@train+1x4:t4@infer,debug", [8, 8, 4], [("train", ()), ("infer", ("debug",))]),
        ("2x8:a100@train+1x4:t4@train", [8, 8, 4], [("train", ())]),
    ],
)
def test_partitions_in_the_short_form(text: str, gpus: list[int], partitions: list[tuple[str, tuple[str, ...]]]) -> None:
    cluster = load_cluster(text)
    assert cluster.nodes.gpus.tolist() == gpus
    assert [(p.name, p.also) for p in cluster.partitions] == partitions
    assert cluster.name == text


@pytest.mark.parametrize("text", ["256@batch+64", "256+64", "256@", "64@a+@b", "8:a100@x"])
def test_a_short_form_that_mixes_parts_with_and_without_a_partition_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        load_cluster(text)
