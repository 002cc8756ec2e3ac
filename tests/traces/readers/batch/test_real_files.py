"""Every accounting file in the shared folder: read whole, nothing lost, and it runs on the cluster that it shows."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from gpuyard import parse_scheduler, simulate
from gpuyard.errors import DataError
from gpuyard.model.result import STATUS
from gpuyard.traces import guess_cluster, load_workload
from gpuyard.traces.base import reader_of

READ = {  # file → reader, jobs, records
    "traces/slurm/xdmod_phillips_sacct.txt.gz": ("sacct", 4046, 4285),
    "traces/slurm/xdmod_pozidriv_sacct.txt.gz": ("sacct", 11285, 11704),
    "traces/slurm/xdmod_unit_sacct.txt": ("sacct", 3, 4),
    "traces/slurm/xdmod_unit_sacct_arrays.txt": ("sacct", 6, 6),
    "traces/slurm/habrok_sacct_snowman.txt.gz": ("sacct", 87, 242),
    "traces/slurm/datadog_sacct.txt": ("sacct", 1, 2),
    "samples/sacct_parsable2.txt": ("sacct", 2, 4),
    "traces/slurm/clockwork_sacct.json": ("sacct-json", 2, 2),
    "traces/slurm/roddy_sacct.json": ("sacct-json", 1, 1),
    "traces/slurm/roddy_sacct_requeued.json": ("sacct-json", 2, 2),
    "samples/sacct.json": ("sacct-json", 1, 1),
    "samples/jobcomp_filetxt.txt": ("jobcomp", 2, 2),
    "traces/lsf/xdmod_lsb.acct": ("lsb-acct", 1, 2),
    "samples/lsf/lsb_acct_10.1.txt": ("lsb-acct", 1, 9),
    "samples/lsf/openlava_lsb.acct.txt": ("lsb-acct", 2, 3),
    "traces/lsf/roddy_bjobs_done.json": ("bjobs-json", 1, 1),
    "traces/lsf/roddy_bjobs_exit1.json": ("bjobs-json", 1, 1),
}
REFUSED = {
    "traces/slurm/gcm_sacct_running.txt": r"no usable job \(10 step rows whose job is not in the file\)",
    "traces/slurm/roddy_sacct_not_started.json": r"no usable job \(1 never started\)",
    "traces/lsf/roddy_bjobs_list.json": r"no usable job \(6 never started\)",
    "traces/lsf/datadog_bjobs.txt": r"no usable job \(2 pending, 1 still running\)",
    "samples/lsf/bjobs_json.txt": r"bjobs_json.txt:15: not JSON",
}


def records_in(path: Path) -> int:
    text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
    if path.suffix == ".json":
        document = json.loads(text)
        return len(document["jobs"] if "jobs" in document else document["RECORDS"])
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines) - lines[0].startswith("JobID|")


@pytest.mark.parametrize("name", READ)
def test_nothing_is_lost(shared: Path, name: str) -> None:
    reader, jobs, records = READ[name]
    path = shared / name
    assert reader_of(path).name == reader
    workload = load_workload(str(path))
    assert len(workload) == jobs
    assert len(workload) + sum(workload.dropped.values()) == records == records_in(path)


@pytest.mark.parametrize("count", ["auto", "gpus", "cpus", "nodes"])
@pytest.mark.parametrize("name", READ)
def test_every_job_runs_on_the_cluster_that_the_log_shows(shared: Path, name: str, count: str) -> None:
    for gangs in ("free", "as-run"):
        try:
            workload = load_workload(str(shared / name), count=count, gangs=gangs)
        except DataError as error:
            assert "no usable job" in str(error)
            return
        cluster, _ = guess_cluster(workload)
        result = simulate(workload, cluster, parse_scheduler("fcfs/best/easy"))
        assert (result.table["status"] == STATUS.index("done")).all()


@pytest.mark.parametrize("name", REFUSED)
def test_files_without_a_job_are_refused_in_one_line(shared: Path, name: str) -> None:
    with pytest.raises(DataError, match=REFUSED[name]) as caught:
        load_workload(str(shared / name))
    assert "\n" not in str(caught.value)


def test_other_commands_output_is_not_taken_for_accounting(shared: Path) -> None:
    ours = {"sacct", "sacct-json", "slurm-table", "jobcomp", "lsb-acct", "bjobs-json", "bjobs"}
    others = [p for folder in ("traces", "samples") for p in (shared / folder).rglob("*") if p.is_file()]
    others = [p for p in others if str(p.relative_to(shared)) not in READ | REFUSED]
    for path in others:
        try:
            assert reader_of(path).name not in ours, path
        except Exception as error:
            assert re.search("neither the content nor the name", str(error)), path


def test_habrok_value_by_value(shared: Path) -> None:
    path = shared / "traces" / "slurm" / "habrok_sacct_snowman.txt.gz"
    workload = load_workload(str(path), count="gpus")
    rows = [line.split("☃") for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
    typed = {row[0]: row for row in rows if "." not in row[0] and "gres/gpu" in row[22]}
    ids = workload.jobs.id.tolist()
    checked = 0
    for name, row in typed.items():
        if row[8].startswith(("RUNNING", "PENDING")):
            continue
        k = ids.index(int(name.split("_")[0]))
        match = re.search(r"gres/gpu=(\d+)", row[22])
        assert match is not None and workload.jobs.gpus[k] == int(match[1])
        assert workload.runtime[k] == (np.datetime64(row[11]) - np.datetime64(row[10])).astype(float)
        checked += 1
    assert checked == 7


def test_lsf_values(shared: Path) -> None:
    old, new = (load_workload(str(shared / name)) for name in ("traces/lsf/xdmod_lsb.acct", "samples/lsf/lsb_acct_10.1.txt"))
    assert (old.jobs.id[0], old.jobs.gpus[0], old.jobs.walltime[0], old.runtime[0]) == (404717, 128, 12 * 3600, 40368)
    assert (old.jobs.users, old.jobs.partitions, old.jobs.accounts) == (("anonuser",), ("regular",), ("anonproject",))
    assert old.logged_start is not None and old.logged_start[0] == 453
    assert (new.jobs.id[0], new.jobs.walltime[0], new.runtime[0]) == (7610, np.inf, 839)
