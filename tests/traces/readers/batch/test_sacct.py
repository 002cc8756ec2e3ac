"""`sacct` listings, with expected values worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard.errors import DataError, UsageError
from gpuyard.model.units import GIB
from gpuyard.model.workload import Machine, Workload
from gpuyard.traces import guess_cluster, load_workload
from gpuyard.traces.base import reader_of

HEADER = "JobID|User|Account|QOS|Partition|State|Submit|Eligible|Start|End|Elapsed|Timelimit|NNodes|NCPUS|ReqMem|ReqTRES|AllocTRES|NodeList"
D = "2024-03-01T"
DONE = f"100|ann|lab|normal|gpu|COMPLETED|{D}10:00:00|{D}10:00:30|{D}10:01:00|{D}10:11:00|00:10:00|01:00:00|1|8|32G|"
DONE += "cpu=8,mem=32G,node=1,gres/gpu:a100=2,gres/gpu=2|cpu=8,mem=32G,node=1,gres/gpu=2,gres/gpu:a100=2|g1"
GANG = f"101|bob|lab|high|gpu|TIMEOUT|{D}10:00:10|{D}10:00:10|{D}10:02:00|{D}10:04:00|00:02:00|UNLIMITED|2|16|64Gn|"
GANG += "cpu=16,mem=128G,node=2,gres/gpu=8|cpu=16,mem=128G,node=2,gres/gpu:a100=8,gres/gpu=8|g[1-2]"
WAITS = f"102|bob|lab|high|gpu|PENDING|{D}10:05:00|{D}10:05:00|Unknown|Unknown|00:00:00|01:00:00|1|1|1G|cpu=1,node=1||None assigned"
RUNS = f"103|bob|lab|high|gpu|RUNNING|{D}10:05:00|{D}10:05:00|{D}10:06:00|Unknown|01:00:00|02:00:00|1|1|1G|cpu=1|cpu=1|g2"
NEVER = (
    f"104|bob|lab|high|gpu|CANCELLED by 7|{D}10:05:00|{D}10:05:00|{D}10:06:00|{D}10:06:00|00:00:00|Partition_Limit|1|1|1G|||None assigned"
)
Read = Callable[..., Workload]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def load(*lines: str, **options: Any) -> Workload:
        path = tmp_path / "log.txt"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        assert "fields" in options or reader_of(path).name == "sacct"
        return load_workload(str(path), reader="sacct", **options)

    return load


def test_the_columns_of_a_job(read: Read) -> None:
    workload = read(HEADER, DONE, GANG)
    jobs = workload.jobs
    assert jobs.id.tolist() == [100, 101]
    assert jobs.submit.tolist() == [0, 10]
    assert jobs.gpus.tolist() == [2, 8]
    assert jobs.cpus.tolist() == [8, 16]
    assert jobs.memory.tolist() == [32 * GIB, 128 * GIB]
    assert jobs.walltime.tolist() == [3600, math.inf]
    assert workload.runtime.tolist() == [600, 120]
    assert workload.logged_start is not None and workload.logged_start.tolist() == [60, 120]
    assert [jobs.users[k] for k in jobs.user] == ["ann", "bob"]
    assert [jobs.accounts[k] for k in jobs.account] == ["lab", "lab"]
    assert [jobs.qoses[k] for k in jobs.qos] == ["normal", "high"]
    assert [jobs.gpu_types[k] for k in jobs.gpu_type] == ["a100", ""]  # the gang asked for GPUs of no type
    assert jobs.chunk.tolist() == [1, 1]
    assert "time 0 is 2024-03-01T10:00:00" in workload.notes


def test_gangs_as_they_ran(read: Read) -> None:
    assert read(HEADER, DONE, GANG, gangs="as-run").jobs.chunk.tolist() == [2, 4]


def test_nodes_are_as_large_as_the_most_at_once(read: Read) -> None:
    machines = read(HEADER, DONE, GANG).machines
    assert [replace(each, memory=0.0) for each in machines] == [
        Machine("g1", 6, 16.0, 0.0, "a100", ("gpu",)),
        Machine("g2", 4, 8.0, 0.0, "a100", ("gpu",)),
    ]
    assert [each.memory for each in machines] == pytest.approx([96 * GIB, 64 * GIB])


def test_every_row_is_kept_or_counted(read: Read) -> None:
    steps = [DONE.replace("100|", "100.batch|", 1), DONE.replace("100|", "100.0|", 1), DONE.replace("100|", "99.extern|", 1)]
    workload = read(HEADER, DONE, *steps, GANG, WAITS, RUNS, NEVER, DONE, HEADER)
    assert dict(workload.dropped) == {
        "repeated header line": 1,
        "step rows folded into their job": 2,
        "step rows whose job is not in the file": 1,
        "pending": 1,
        "still running": 1,
        "never started": 1,
        "record that occurs twice": 1,
    }
    assert len(workload) == 2


@pytest.mark.parametrize("delimiter", ["|#", "☃", ";", "\t", "^"])
def test_other_delimiters(read: Read, delimiter: str) -> None:
    plain = read(HEADER, DONE, GANG)
    assert read(*(line.replace("|", delimiter) for line in (HEADER, DONE, GANG))).jobs == plain.jobs


def test_commas_with_quotes(read: Read) -> None:
    lines = [",".join(f'"{field}"' if "," in field else field for field in line.split("|")) for line in (HEADER, DONE, GANG)]
    assert read(*lines).jobs == read(HEADER, DONE, GANG).jobs


def test_a_delimiter_at_the_end_of_lines(read: Read) -> None:
    plain = read(HEADER, DONE, GANG)
    assert read(HEADER + "|", DONE + "|", GANG + "|").jobs == plain.jobs
    assert read(HEADER, DONE + "|", GANG + "|").jobs == plain.jobs


def test_fields_named_by_the_caller(read: Read) -> None:
    assert read(DONE, GANG, fields=HEADER.replace("|", ",")).jobs == read(HEADER, DONE, GANG).jobs
    with pytest.raises(UsageError, match="JobID is missing"):
        read(DONE, fields="State,Start")


def test_arrays_and_requeues(read: Read) -> None:
    head = "JobID|JobIDRaw|State|Submit|Start|End|NCPUS|NNodes|NodeList"
    task = f"7_{{}}|{{}}|COMPLETED|{D}00:00:00|{D}00:00:05|{D}00:00:15|4|1|n1"
    again = f"9|9|NODE_FAIL|{D}00:00:00|{D}00:00:05|{D}00:00:15|4|1|n1"
    range_row = f"7_[3-9%2]|7|PENDING|{D}00:00:00|Unknown|Unknown|4|1|None assigned"
    last = again.replace("NODE_FAIL", "COMPLETED").replace(":15", ":25")
    workload = read(head, task.format(1, 8), task.format(2, 7), range_row, again, last)
    assert workload.jobs.id.tolist() == [8, 7, 9, 10]
    assert workload.runtime.tolist() == [10, 10, 10, 20]
    assert dict(workload.dropped) == {"pending": 1}
    assert any("1 records are further runs" in note for note in workload.notes)
    without_raw = read("JobID|State|Submit|Start|End|NCPUS", *(f"7_{k}|COMPLETED|{D}00:00:00|{D}00:00:05|{D}00:00:15|4" for k in (1, 2)))
    assert without_raw.jobs.id.tolist() == [7, 8]


def test_parts_of_heterogeneous_jobs(read: Read) -> None:
    rows = [f"12+{k}|{12 + k}|COMPLETED|{D}00:00:00|{D}00:00:05|{D}00:00:15|4" for k in (0, 1)]
    workload = read("JobID|JobIDRaw|State|Submit|Start|End|NCPUS", *rows)
    assert workload.jobs.id.tolist() == [12, 13]
    assert any("2 records are parts of heterogeneous jobs" in note for note in workload.notes)


CPU = f"5|COMPLETED|{D}00:00:00|{D}00:00:05|{D}00:00:15|8|{{}}|{{}}"
CPU_HEAD = "JobID|State|Submit|Start|End|NCPUS|NNodes|NodeList"


def test_what_a_device_is(read: Read) -> None:
    one, two = CPU.format(1, "n1"), CPU.replace("5|", "6|", 1).format(2, "n[1-2]")
    assert read(CPU_HEAD, one, two).jobs.gpus.tolist() == [8, 8]
    assert read(CPU_HEAD, one, two, count="nodes").jobs.gpus.tolist() == [1, 2]
    gpus = read(CPU_HEAD, one, two, count="gpus")
    assert (gpus.jobs.gpus.tolist(), gpus.jobs.cpus.tolist()) == ([0], [8])
    assert dict(gpus.dropped) == {"CPU job on several nodes (count=cpus keeps it)": 1}
    assert [(m.name, m.gpus, m.gpu_type) for m in read(CPU_HEAD, one, two).machines] == [("n1", 12, "cpu"), ("n2", 4, "cpu")]
    assert [(m.name, m.gpus) for m in read(CPU_HEAD, one, two, count="nodes").machines] == [("n1", 1), ("n2", 1)]


def test_epoch_seconds_and_raw_fields(read: Read) -> None:
    head = "JobIDRaw|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|AllocCPUS|ReqMem|AllocNodes|AllocGRES"
    first, second = (
        "3|COMPLETED|1700000000|1700000060|1700000100|40|5|4|2Gc|1|gpu:v100:2",
        "4|FAILED|1700000000|1700000060|Unknown|7||4|1Gn|2|gpu:2",
    )
    workload = read(head, first, second)
    assert workload.jobs.gpus.tolist() == [2, 2]
    assert workload.jobs.memory.tolist() == [8 * GIB, 2 * GIB]
    assert workload.jobs.walltime.tolist() == [300, math.inf]
    assert workload.runtime.tolist() == [40, 7]
    assert workload.jobs.gpu_types[workload.jobs.gpu_type[0]] == "v100"


def test_when_jobs_arrive(read: Read) -> None:
    assert read(HEADER, DONE, GANG, arrival="eligible").jobs.submit.tolist() == [0, 20]
    early = CPU.format(1, "n1").replace(f"{D}00:00:05", "2024-02-29T23:59:50")
    workload = read(CPU_HEAD, early)
    assert workload.logged_start is not None
    assert (workload.jobs.submit[0], workload.logged_start[0], workload.runtime[0]) == (0, 0, 25)
    without = read("JobID|State|Start|End|NCPUS", f"5|COMPLETED|{D}00:00:05|{D}00:00:15|8")
    assert without.logged_start is None and without.jobs.submit.tolist() == [0]


def test_names_with_delimiters_belong_to_the_last_field_only(read: Read) -> None:
    head, row = "JobID|State|Submit|Start|End|NCPUS", f"5|COMPLETED|{D}00:00:00|{D}00:00:05|{D}00:00:15|8"
    assert len(read(head + "|JobName", row + '|a|b|"c')) == 1
    with pytest.raises(DataError, match=r"log.txt:3: 7 fields instead of 6; hint: --with broken=drop"):
        read(head, row, row + "|x")
    dropped = read(head, row, row + "|x", "5|COMP", broken="drop")
    assert dict(dropped.dropped) == {"line with the wrong number of fields": 2}


def test_types_share_a_node_as_machines_of_their_own(read: Read) -> None:
    head = "JobID|State|Submit|Start|End|NCPUS|AllocTRES|NodeList|Partition"
    kinds = ((1, "a100"), (2, "v100"))
    rows = [f"{k}|COMPLETED|{D}00:00:00|{D}00:00:05|{D}00:00:15|4|cpu=4,node=1,gres/gpu:{kind}=1|n1|p" for k, kind in kinds]
    assert [(m.name, m.gpus, m.gpu_type) for m in read(head, *rows).machines] == [("n1:a100", 1, "a100"), ("n1:v100", 1, "v100")]


def test_jobs_without_nodes_or_partition_find_room(read: Read) -> None:
    head = "JobID|State|Submit|Start|End|NCPUS|NNodes|NodeList|Partition"
    places = enumerate([("n1", "p"), ("n2", "q"), ("", "")])
    rows = [f"{k}|COMPLETED|{D}00:00:00|{D}00:00:05|{D}00:00:15|8|1|{node}|{part}" for k, (node, part) in places]
    workload = read(head, *rows)
    assert [m.name for m in workload.machines] == ["n1", "n2", "unnamed-none-1"]
    cluster, _ = guess_cluster(workload)
    assert {p.name for p in cluster.partitions} == {"p", "q", "none"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("100|ann", "1o0|ann", "jobid = '1o0' is not a job id"),
        ("01:00:00|1|8", "soon|1|8", "timelimit = 'soon' is not a time"),
        (f"{D}10:01:00", "10 o'clock", 'start = "10 o\'clock" is neither an ISO time'),
        ("gres/gpu=2,", "gres/gpu=two,", "alloctres = .* has gres/gpu='two', which is not a count"),
        ("|g1", "|g[0-999999999]", "node list 'g.0-999999999.' names more than 100,000 nodes"),
        ("|g1", "|g[1", "brackets that do not match"),
        ("|32G|", "|lots|", "reqmem = 'lots' is not an amount of memory"),
        ("gres/gpu=2,gres/gpu:a100=2", "gres/gpu=99999999", "gpus = 99999999 is more than 1,000,000"),
        (f"{D}10:11:00", "9999-12-31T00:00:00", None),
        ("100|ann", "999999999999999|ann", None),
    ],
)
def test_wrong_values(read: Read, old: str, new: str, message: str | None) -> None:
    assert old in DONE
    if message is None:
        assert len(read(HEADER, GANG, DONE.replace(old, new))) == 2
        return
    with pytest.raises(DataError, match=rf"log\.txt:3: .*{message}"):
        read(HEADER, GANG, DONE.replace(old, new))


def test_no_usable_job(read: Read) -> None:
    with pytest.raises(DataError, match=r"no usable job \(1 pending, 1 still running, 1 never started\)"):
        read(HEADER, WAITS, RUNS, NEVER)
    with pytest.raises(DataError, match="no records, only a header"):
        read(HEADER)


def test_peaks_of_nodes_against_a_slow_twin(read: Read) -> None:
    rng = np.random.default_rng(5)
    rows, runs = [], []
    for k in range(300):
        start, length = int(rng.integers(0, 3000)), int(rng.integers(0, 200))
        nodes = sorted(rng.choice(6, int(rng.integers(1, 4)), replace=False).tolist())
        cores = int(rng.integers(1, 9)) * len(nodes)
        names = ",".join(f"n{n}" for n in nodes)
        rows.append(f"{k}|COMPLETED|{1e9 + start:.0f}|{1e9 + start:.0f}|{1e9 + start + length:.0f}|{cores}|{names}")
        runs.append((start, start + length, nodes, cores // len(nodes)))
    workload = read("JobID|State|Submit|Start|End|NCPUS|NodeList", *rows)
    for machine in workload.machines:
        mine = [(a, b, c) for a, b, nodes, c in runs if int(machine.name[1:]) in nodes]
        most = max(max(c for _, _, c in mine), *(sum(c for a, b, c in mine if a <= t < b) for t, _, _ in mine))
        assert machine.gpus == most


def test_files_of_other_formats_are_left_alone(tmp_path: Path) -> None:
    for name, text in (
        ("jobs.csv", "id,submit,start,end,user\n1,0,1,2,a\n"),
        ("squeue.csv", "JOBID|PARTITION|NAME|USER|STATE|TIME\n1|p|n|u|RUNNING|1:00\n"),
        ("log.swf", "1 0 0 60 4 -1 -1 4 120 -1 1 7 -1 -1 2 -1 -1 -1\n"),
        ("pipes.csv", "a|b|c\n1|2|3\n"),
    ):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        assert reader_of(path).name in ("csv", "swf")


# ── listings for people, listings that leave something out ──

PEOPLE = f"""\
JobID|User|Partition|State|Submit|Start|End|Elapsed|Timelimit|AllocTRES|NodeList
100|ann|gpu|COMPLETED|{D}10:00:00|{D}10:01:00|{D}10:11:00|00:10:00|01:00:00|gres/gpu=2|g1
100.batch|||COMPLETED|{D}10:01:00|{D}10:01:00|{D}10:11:00|00:10:00|||g1
101|longnameduse+|gpu|CANCELLED+|{D}10:00:10|{D}10:02:00|{D}10:04:00|00:02:00|UNLIMITED|gres/gpu=8|g[1-2]
"""


def _ruled(text: str) -> list[str]:
    """Lay a listing out as `sacct` does without --parsable2."""
    widths = (12, 13, 10, 10, 19, 19, 19, 10, 10, 10, 15)
    rows = [line.split("|") for line in text.splitlines()]
    lines = [" ".join(word.rjust(width) for word, width in zip(row, widths, strict=True)) for row in rows]
    return [lines[0], " ".join("-" * width for width in widths), *lines[1:]]


def test_a_listing_for_people(read: Read) -> None:
    workload = read(*_ruled(PEOPLE))
    assert workload.jobs.id.tolist() == [100, 101]
    assert workload.jobs.gpus.tolist() == [2, 8]
    assert workload.runtime.tolist() == [600, 120]
    assert workload.jobs.users == ("ann", "longnameduse+")
    assert workload.dropped == {"step rows folded into their job": 1}


def test_what_is_cut_off_in_a_listing_for_people(read: Read) -> None:
    lines = _ruled(PEOPLE)
    with pytest.raises(DataError, match=r"log.txt:3: alloctres = 'gres/gpu=\+' is cut off; hint: print it with --parsable2"):
        read(*lines[:2], lines[2].replace("gres/gpu=2", "gres/gpu=+"))
    with pytest.raises(DataError, match=r"log.txt:4: the line is wider than the ruler"):
        read(*lines[:3], lines[3] + " more")
    with pytest.raises(DataError, match=r"no columns Start and End .*; hint: ask for them: sacct --parsable2"):
        read("       JobID    JobName      State", "------------ ---------- ----------", "           1       wrap  COMPLETED")


def test_a_listing_without_times_of_runs(read: Read) -> None:
    with pytest.raises(DataError, match=r"log.txt:1: no columns Start and End .*: when jobs ran is not known"):
        read("JobID|User|State|Submit|AllocTRES", f"1|ann|COMPLETED|{D}10:00:00|gres/gpu=2")
    workload = read("JobID|State|Submit|End|Elapsed|AllocTRES", f"1|COMPLETED|{D}10:00:00|{D}10:11:00|00:10:00|gres/gpu=2")
    assert workload.logged_start is not None
    assert (workload.logged_start.tolist(), workload.runtime.tolist()) == ([60], [600])


def test_a_listing_without_ids(read: Read) -> None:
    header = "User|State|Submit|Start|End|AllocTRES"
    run = f"COMPLETED|{D}10:00:00|{D}10:01:00|{D}10:11:00|gres/gpu=2"
    workload = read(header, f"ann|{run}", f"|{run}", header, f"bob|{run}")
    assert workload.jobs.id.tolist() == [1, 3]
    assert [workload.jobs.users[k] for k in workload.jobs.user] == ["ann", "bob"]
    assert any(note.startswith("no JobID: jobs are numbered by row") for note in workload.notes)


def test_a_plain_table_is_no_listing(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("submit,start,end,state,user\n1,2,3,COMPLETED,ann\n")
    assert reader_of(path).name == "csv"


def test_shards_of_gpus(read: Read) -> None:
    lines = ("JobID|State|Submit|Start|End|AllocTRES", f"1|COMPLETED|{D}10:00:00|{D}10:01:00|{D}10:11:00|cpu=4,gres/shard=2")
    plain = read(*lines, count="gpus")
    assert plain.jobs.gpus.tolist() == [0]
    assert any("1 records have shards of GPUs" in note for note in plain.notes)
    assert read(*lines, shards=4).jobs.gpus.tolist() == [0.5]


def test_a_run_that_ends_before_it_starts_took_what_elapsed(read: Read) -> None:
    lines = ("JobID|State|Submit|Start|End|Elapsed|AllocTRES", f"1|COMPLETED|{D}10:00:00|{D}12:00:00|{D}11:00:00|01:00:00|gres/gpu=1")
    assert read(*lines).runtime.tolist() == [3600]
