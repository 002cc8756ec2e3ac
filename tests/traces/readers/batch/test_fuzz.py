"""Damaged real lines: each gives a Workload or one clear error, never anything else."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.traces import guess_cluster, load_workload
from support.mutations import mutated

REAL = {
    "sacct": ("traces/slurm/xdmod_pozidriv_sacct.txt.gz", "traces/slurm/habrok_sacct_snowman.txt.gz", "samples/sacct_parsable2.txt"),
    "sacct-json": ("samples/sacct.json", "traces/slurm/roddy_sacct_requeued.json", "traces/slurm/clockwork_sacct.json"),
    "jobcomp": ("samples/jobcomp_filetxt.txt",),
    "lsb-acct": ("traces/lsf/xdmod_lsb.acct", "samples/lsf/lsb_acct_10.1.txt", "samples/lsf/openlava_lsb.acct.txt"),
    "bjobs-json": ("traces/lsf/roddy_bjobs_done.json", "traces/lsf/roddy_bjobs_exit1.json"),
    "bjobs": ("traces/lsf/datadog_bjobs.txt",),
    "slurm-table": (),
}
TABLE = [  # no real export of the job table is at hand; the columns are those of MIT Supercloud's
    "id_job,id_array_job,id_array_task,id_user,nodes_alloc,nodelist,cpus_req,gres_used,mem_req,partition,priority,state,timelimit,"
    "time_submit,time_eligible,time_start,time_end,tres_alloc,tres_req",
    '7,0,4294967294,55,1,r1n1,8,gpu:volta:2,2048,gpu,5,3,60,1000000,1000000,1000010,1000110,"1=8,2=4096,4=1","1=8,2=4096,4=1"',
    '8,8,1,55,2,"r1n[1-2]",8,,9223372036854777856,cpu,5,5,60,1000000,1000000,1000020,1000110,"1=8,2=4096,4=2,1001=4","1=8,2=4096,4=2"',
]


def lines_of(path: Path) -> list[str]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return raw.decode().splitlines()


def damaged(name: str, lines: list[str], rng: random.Random) -> tuple[str, int]:
    """A text and how many of its lines are damaged; tables keep their header half of the time, JSON all other lines."""
    if name.endswith("json"):
        k = rng.randrange(len(lines))
        return "\n".join([*lines[:k], mutated([lines[k]], rng).rstrip("\n"), *lines[k + 1 :]]), 1
    headed = name in ("slurm-table", "bjobs") or lines[0].startswith("JobID|")
    chosen = [rng.choice(lines) for _ in range(rng.randint(1, 3))]
    whole = [lines[0], rng.choice(lines[1:])] if headed else [rng.choice(lines)]
    whole = whole if rng.random() < 0.9 else []
    return "\n".join([*whole, mutated(chosen, rng)]), len(chosen)


def try_out(shared: Path, path: Path, name: str, wanted: int) -> None:
    rng = random.Random(f"{name} {wanted}")
    files = [lines_of(shared / each) for each in REAL[name]] or [TABLE]
    done = read = 0
    while done < wanted:
        text, count = damaged(name, rng.choice(files), rng)
        done += count
        path.write_bytes(text.encode("utf-8", errors="replace"))
        options = {"count": rng.choice(("auto", "gpus", "cpus", "nodes")), "gangs": rng.choice(("free", "as-run"))}
        if name in ("sacct", "slurm-table"):
            options["broken"] = rng.choice(("refuse", "drop"))
        try:
            workload = load_workload(str(path), reader=name, **options)
            read += 1
            if read % 20 == 0:
                guess_cluster(workload)
        except GpuyardError as error:
            assert "\n" not in str(error), text
    assert read > 0 or name == "bjobs"


@pytest.mark.parametrize("name", REAL)
def test_some_damaged_lines(shared: Path, tmp_path: Path, name: str) -> None:
    try_out(shared, tmp_path / "log", name, 300)


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_20000_damaged_lines(shared: Path, tmp_path: Path, name: str) -> None:
    try_out(shared, tmp_path / "log", name, 20_000)
