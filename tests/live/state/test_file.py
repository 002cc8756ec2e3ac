"""The snapshot file loads back equal, refuses what is damaged with one clear line, and decides as simulations and nodes do."""

from __future__ import annotations

import json
import random
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.mutations import mutated

from gpuyard import Simulation, simulate
from gpuyard.errors import DataError, GpuyardError
from gpuyard.live.deciding import decide_now, outlook
from gpuyard.live.node.advice.deciding import _decider
from gpuyard.live.state.file import MAX_BYTES, SavedSnapshot, parse_snapshot, read_snapshot, snapshot_bytes, snapshot_from, write_snapshot
from gpuyard.live.state.wire import SnapshotReader, SnapshotWriter
from gpuyard.model.decision import Action
from gpuyard.policies import parse_scheduler
from gpuyard.testing.sites import random_site
from gpuyard.testing.strategies import cases, random_case

BUSY = 7  # a case with jobs that run and jobs that wait


def assert_equal(one, other):
    """Every field, to the last bit."""
    for each in fields(one):
        a, b = getattr(one, each.name), getattr(other, each.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype, each.name
            assert a.tobytes() == b.tobytes(), each.name
        else:
            assert a == b, each.name


def snapshots(case, scheduler, limit):
    """The first snapshots of a run, and the simulation, which goes on as the scheduler decides."""
    sim = Simulation(case.workload, case.cluster, rules=case.rules)
    for _ in range(limit):
        snapshot = sim.advance()
        if snapshot is None:
            return
        yield snapshot
        sim.apply(scheduler.decide(snapshot))


@cache
def busy():
    """A snapshot in which jobs run and wait, with names, tiers and the rest."""
    case = random_case(BUSY, "rack")
    found = [s for s in snapshots(case, parse_scheduler("sjf/fewest/easy"), 40) if len(s.running) and len(s.waiting) > 2]
    names = tuple(f"{number}_{number % 3}" for number in found[-1].jobs.table["id"].tolist())
    tiers = dict.fromkeys(found[-1].jobs.partitions, 10)
    return SavedSnapshot(found[-1], "slurm 22.05.8", names, tiers, {"99": "it is held"}, ("one line could not be read",))


@given(case=cases(), which=st.integers(0, 11))
def test_it_loads_back_equal(case, which):
    for snapshot in list(snapshots(case, parse_scheduler("sjf/fewest/skip"), 1 + which))[-1:]:
        saved = SavedSnapshot(snapshot)
        again = parse_snapshot(snapshot_bytes(saved))
        assert_equal(snapshot, again.snapshot)
        assert snapshot_bytes(again) == snapshot_bytes(saved)


def test_sites_are_kept_in_files_and_on_the_wire():
    told, writer, reader = {"homes": 0, "spent": 0}, SnapshotWriter(), SnapshotReader()
    for seed in range(40):
        for snapshot in list(snapshots(random_site(seed), parse_scheduler("sjf/fewest/skip"), 6))[-1:]:
            told = {name: count + (len(getattr(snapshot, name)) > 0) for name, count in told.items()}
            assert_equal(snapshot, parse_snapshot(snapshot_bytes(SavedSnapshot(snapshot))).snapshot)
            sent = reader.read(b"".join(map(bytes, writer.write(snapshot))))
            assert (sent.homes.tolist(), sent.spent) == (snapshot.homes.tolist(), snapshot.spent)
    assert min(told.values()) > 3, told


def test_homes_that_are_no_partition_are_refused():
    text = json.loads(snapshot_bytes(busy()))
    for homes, words in (([0], "homes has 1 values"), ([99] * len(busy().snapshot.jobs), "homes: row 1 is no partition")):
        with pytest.raises(DataError, match=words):
            snapshot_from(text | {"homes": homes}, "s.json")


def test_names_tiers_and_notes_are_kept(tmp_path):
    write_snapshot(busy(), tmp_path / "s.json")
    again = read_snapshot(tmp_path / "s.json")
    assert replace(again, snapshot=busy().snapshot) == busy()
    assert again.name(0) == busy().names[0]


def test_a_file_of_version_1_is_read():
    """It lies in data/; whoever makes version 2 keeps reading it."""
    saved = read_snapshot(Path(__file__).with_name("data") / "snapshot-1.json")
    assert (saved.source, saved.names[:2], len(saved.notes), saved.ineligible) == (
        "slurm 22.05.8",
        ("37_1", "7_1"),
        1,
        {"99": "it is held"},
    )
    assert (saved.snapshot.now, len(saved.snapshot.running), len(saved.snapshot.waiting)) == (197.0, 2, 3)
    (made,) = decide_now(saved, parse_scheduler("sjf/fewest/easy"))
    assert (made.job, made.action, [(part.node, part.gpus) for part in made.parts]) == (39, Action.START, [(6, 1.0)])


# ── one truth ──


@pytest.mark.parametrize("text", ["fcfs", "sjf/fewest/easy", "wfp3/best/conservative", "saf/fewest/easy/gittins"])
@pytest.mark.parametrize("number", range(8))
def test_the_same_file_decides_as_a_simulation_at_every_instant(number, text):
    case, scheduler = random_case(number), parse_scheduler(text)
    sim = Simulation(case.workload, case.cluster, rules=case.rules, every=getattr(scheduler.preemption, "every", 0.0))
    while (snapshot := sim.advance()) is not None:
        sim.apply(decide_now(parse_snapshot(snapshot_bytes(SavedSnapshot(snapshot))), scheduler))
    expected = simulate(case.workload, case.cluster, scheduler, rules=case.rules)
    for name in ("start", "end", "node", "status"):
        np.testing.assert_array_equal(sim.result().table[name], expected.table[name], err_msg=name)


@pytest.mark.parametrize("number", range(8))
def test_the_same_file_decides_as_the_node(number):
    text = "sjf/fewest/easy"
    node, writer = _decider(text), SnapshotWriter()
    for snapshot in snapshots(random_case(number, "rack"), parse_scheduler(text), 30):
        saved = parse_snapshot(snapshot_bytes(SavedSnapshot(snapshot)))
        answer = node(b"".join(writer.write(saved.snapshot)))
        ours = [(d.job, d.action.value, [(p.node, p.gpus, p.devices) for p in d.parts]) for d in decide_now(saved, parse_scheduler(text))]
        assert [tuple(each[:3]) for each in answer["decisions"]] == ours


# ── the outlook ──


@pytest.mark.parametrize("number", range(12))
def test_every_waiting_job_is_told_of_and_started_ones_first(number):
    scheduler = parse_scheduler("sjf/fewest/easy")
    for snapshot in snapshots(random_case(number), scheduler, 20):
        saved = SavedSnapshot(snapshot)
        found = outlook(saved, scheduler)
        assert sorted(each.row for each in found) == snapshot.waiting.tolist()
        at = snapshot.rows()
        starts = [at[each.job] for each in decide_now(saved, scheduler) if each.action is Action.START]
        assert [each.row for each in found if each.action == "start"] == starts
        assert all(each.reason and bool(each.place) == (each.action == "start") for each in found)


def test_a_higher_tier_goes_first():
    """Two jobs of 8 GPUs for 8 free ones: the shorter goes first, unless the other's partition has a higher tier."""
    saved = tiered({})
    scheduler = parse_scheduler("sjf")
    assert [each.name for each in outlook(saved, scheduler) if each.action == "start"] == ["2"]
    found = outlook(tiered({"slow": 5}), scheduler)
    assert [each.name for each in found if each.action == "start"] == ["1"]
    assert found[1].reason == "asks for 8 GPUs; 0 are free"


def test_who_names_several_partitions_is_told_of_all_their_nodes():
    """Four GPUs for `day`, four for `night`; a job for either of them waits behind the head of `day`, not for want of nodes."""
    from gpuyard import Workload
    from gpuyard.model.cluster_file import cluster_from_dict

    nodes = [{"gpus": 4, "partition": name} for name in ("day", "night")]
    cluster = cluster_from_dict({"partitions": {"day": {}, "night": {}}, "nodes": nodes})
    labels = ("day", "night", "night,day")
    columns = {"submit": [0, 0, 0, 0], "gpus": [2, 3, 4, 2], "chunk": [1, 1, 1, 2], "estimate": [9, 9, 9, 99], "partition": [0, 1, 0, 2]}
    snapshot = Simulation(Workload.build(columns, [9] * 4, partitions=labels), cluster).advance()
    found = {each.name: (each.action, each.reason) for each in outlook(SavedSnapshot(snapshot), parse_scheduler("fcfs/first/easy"))}
    assert found == {
        "1": ("start", "is next"),
        "2": ("start", "is next"),
        "3": ("wait", "asks for 4 GPUs; 2 are free"),
        "4": ("wait", "would fit, but could delay job 3, which goes first"),
    }


def tiered(tiers):
    from gpuyard import Workload
    from gpuyard.model.cluster import Cluster, Partition

    cluster = replace(Cluster.uniform(1, 8), partitions=(Partition("all", also=("slow", "quick")),))
    workload = Workload.build(
        {"submit": [0, 0], "gpus": [8, 8], "estimate": [900, 60], "partition": [0, 1]}, [900, 60], partitions=("slow", "quick")
    )
    snapshot = Simulation(workload, cluster).advance()
    return SavedSnapshot(snapshot, tiers=tiers)


# ── hostile files ──


def damaged(change):
    """The file of `busy` with one change, as bytes."""
    table = json.loads(snapshot_bytes(busy()))
    change(table)
    return json.dumps(table).encode()


def put(value, *path):
    def change(table):
        for step in path[:-1]:
            table = table[step]
        table[path[-1]] = value

    return change


CASES = {
    "not JSON": (b"{", "s.json: not JSON"),
    "a list": (b"[]", "s.json: the file is not a table"),
    "something else": (b'{"format": "x"}', "s.json: is not a snapshot"),
    "brackets": (b"[" * 600_000, "too many for a snapshot"),
    "NaN": (b'{"now": NaN}', "NaN is not a number"),
    "newer": (damaged(put(2, "version")), "version = 2 is not 1"),
    "unknown key": (damaged(put(1, "nwo")), "unknown key 'nwo'"),
    "unknown column": (damaged(put(1, "jobs", "gpu")), "[jobs]: unknown key 'gpu'"),
    "rows": (damaged(put(10**9, "jobs", "rows")), "rows = 1000000000 is more than 1,000,000"),
    "short column": (damaged(put([1], "jobs", "submit")), "jobs: submit has 1 values for"),
    "text": (damaged(put("x", "live", "start")), "live: start: row 1: 'x' is not a number"),
    "fraction": (damaged(put(0.5, "jobs", "user")), "jobs: user: row 1: '0.5' is not a whole number that fits into 32 bits"),
    "overflow": (damaged(put(2**40, "jobs", "chunk")), "is not a whole number that fits into 32 bits"),
    "flag": (damaged(put(1, "live", "running")), "live: running: row 1: '1' is not true or false"),
    "gpus": (damaged(put(-1, "jobs", "gpus")), "jobs: row 1: gpus = -1.0 is negative"),
    "label": (damaged(put(999, "jobs", "user")), "jobs: row 1: user = 999 has no label"),
    "terms": (damaged(put(["boom=1"], "labels", "term_texts")), "'boom=1' is not one of"),
    "held row": (damaged(put(999, "held", "row")), "held: row: row 1 is not one of"),
    "held node": (damaged(put(-1, "held", "node")), "held: node: row 1 is not one of"),
    "held gpus": (damaged(put(10**6, "held", "gpus")), "held: gpus: row 1 is not a number of the node's GPUs"),
    "off": (damaged(put(-1, "nodes", "off")), "nodes: off: row 1 is not"),
    "infinite time": (damaged(put("nan", "live", "est_end")), "live: est_end: row 1 is not a time"),
    "rules": (damaged(put("x", "rules", "checkpoint")), "s.json: rules: "),
    "cluster": (damaged(put([], "cluster", "nodes")), "s.json: cluster: no [[nodes]]"),
    "names": (damaged(put(["a"], "names")), "names does not have one name for each of"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_file_is_refused_by_field_and_row(name, tmp_path):
    data, message = CASES[name]
    (tmp_path / "s.json").write_bytes(data)
    with pytest.raises(GpuyardError) as error:
        read_snapshot(tmp_path / "s.json")
    assert message in str(error.value)
    assert "s.json" in str(error.value)


def test_a_large_file_is_refused_unread(tmp_path):
    with (tmp_path / "s.json").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(GpuyardError, match="larger than 64,000,000 bytes"):
        read_snapshot(tmp_path / "s.json")


def test_random_damage_gives_one_error_or_decisions():
    """Whatever passes the reader can be decided on: nothing refers to what is not there."""
    text = snapshot_bytes(busy()).decode()
    lines, scheduler, rng = text.splitlines(), parse_scheduler("sjf/fewest/easy"), random.Random(1)
    read = 0
    for _ in range(400):
        k = rng.randrange(len(lines))
        try:
            saved = parse_snapshot("\n".join([*lines[:k], mutated([lines[k]], rng).rstrip("\n"), *lines[k + 1 :]]).encode())
            decide_now(saved, scheduler)
            read += 1
        except GpuyardError as error:
            assert "\n" not in str(error)
    assert 10 < read < 390
