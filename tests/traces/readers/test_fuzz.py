"""Mutated real lines: a reader gives jobs or one clear line, never a traceback."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuyard.errors import DataError, UsageError
from gpuyard.traces import load_workload, reader_of
from gpuyard.traces.readers.public.helios import LOG_HEADER
from support.mutations import mutated

LINES = 20_000  # mutated, for each case
HELIOS_LOG = (
    ",".join(LOG_HEADER),
    "7,u1,8,64,2,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:01:10,2020-04-01 00:02:50,100,60,vcA",
    "8,u2,0,4,1,FAILED,2020-04-01 00:00:00,2020-04-01 00:00:00,2020-04-01 00:00:05,5,0,vcB",
)
PAI_TASKS = ("a,worker,3,Terminated,100.0,160.0,600.0,30.0,50.0,T4", "b,ps,4,Terminated,90.0,95.0,300.0,2.5,200.0,V100")
SWF19 = tuple(f"{k} {k * 10} 5 100 {k % 9} -1 -1 64 3600 -1 1 user{k % 7} lab 1 q -1 -1 vcA V100" for k in range(1, 301))
OWN_TABLE = (
    "id,submit,start,runtime,walltime,gpus,cpus,user,partition,gpu_type,deadline",
    *(
        f"{k},2026-03-01T{k % 24:02d}:00:00Z,2026-03-02T{k % 24:02d}:00:00Z,{k * 7},36000,{k % 9},4,u{k % 5},p,a100|h100,"
        for k in range(1, 301)
    ),
)
PHILLY_JOB = {
    "status": "Pass", "vc": "vc0", "jobid": "a1", "submitted_time": "2017-10-09 07:00:10", "user": "u",
    "attempts": [{"start_time": "2017-10-09 07:01:00", "end_time": "2017-10-09 07:01:30", "detail": [{"ip": "m", "gpus": ["g0", "g1"]}]}],
}  # fmt: skip
# case → (reader, file among the traces or own lines, header lines)
CASES: dict[str, tuple[str, str | Sequence[str], int]] = {
    "philly-vc": ("philly", "philly/philly_jobs_vc.csv.gz", 1),
    "philly-shapes": ("philly", "philly/philly_jobs_rfold.csv.gz", 1),
    "philly-log": ("philly", ("[", *(json.dumps(PHILLY_JOB) + "," for _ in range(199)), json.dumps(PHILLY_JOB), "]"), 0),
    "helios": ("helios", "helios/helios_venus_gpu_jobs.csv.gz", 1),
    "helios-log": ("helios", HELIOS_LOG, 1),
    "pai2020": ("pai2020", "alibaba/pai2020_gpu_tasks_sample.csv.gz", 1),
    "pai2020-tasks": ("pai2020", PAI_TASKS, 0),
    "openb": ("openb", "alibaba/openb2023_pod_list_gpuspec33.csv.gz", 1),
    "google2011": ("google2011", "google/google2011_job_events_part00000-00017.csv.gz", 0),
    "dlrm2025": ("dlrm2025", "alibaba/dlrm2025_instances.csv.gz", 1),
    "genai2026": ("genai2026", "alibaba/genai2026_lora_request_trace.csv.gz", 1),
    "rlmetadqn": ("rlmetadqn", "rlmetadqn/trace_001.csv", 1),
    "gavel": ("gavel", "throughput/gavel_msr_vc103959_seed0.trace.gz", 0),
    "rubick": ("rubick", "throughput/rubick_workload_mt.csv", 1),
    "swf": ("swf", "swf/lublin_256.swf.gz", 0),
    "csv": ("csv", OWN_TABLE, 1),
    "swf19": ("swf19", SWF19, 0),
    "swf19-commas": ("swf19", tuple(row.replace(" ", ",") for row in SWF19), 0),
}


def lines_of(source: str | Sequence[str], shared: Path) -> list[str]:
    if not isinstance(source, str):
        return list(source)
    raw = (shared / "traces" / source).read_bytes()
    text = gzip.decompress(raw) if source.endswith(".gz") else raw
    lines = text.decode().splitlines()
    if source.startswith("google"):  # events of a job side by side, from the end: those at the beginning have no times
        return sorted(lines[-5000:], key=lambda line: line.split(",")[2])
    return [lines[0], *lines[1:][-5000:]]


def check(path: Path, reader: str) -> bool:
    """Whether it is read; fails on anything but jobs or one line of words."""
    try:
        reader_of(path)
    except UsageError as error:
        assert "\n" not in str(error)
    try:
        work = load_workload(str(path), reader=reader)
    except DataError as error:
        assert "\n" not in str(error).replace("\\n", "")
        assert len(str(error)) < 2000
        return False
    assert len(work) >= 1
    return True


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_mutated_lines_never_give_a_traceback(case: str, shared: Path, tmp_path: Path) -> None:
    reader, source, header = CASES[case]
    rng = random.Random(case)
    lines = lines_of(source, shared)
    body, path = lines[header:], tmp_path / "trace.txt"
    done = read = 0
    while done < LINES:
        size = 1 if rng.random() < 0.9 else 200  # alone among good ones, so that it alone is at fault; or many at once
        part = list(body)
        if case != "philly-log":  # which is one text
            begin = rng.randrange(max(len(body) - 200, 1))
            part = (body[begin : begin + 200] * 200)[: max(size, 5)]
        for k in rng.sample(range(len(part)), min(size, len(part))):
            part[k] = mutated([part[k]], rng).rstrip("\n")
            done += 1
        top = [mutated([line], rng) if rng.random() < 0.05 else line for line in lines[:header]]
        path.write_bytes("\n".join([*top, *part]).encode("utf-8", errors="surrogatepass") + b"\n")
        read += check(path, reader)
    assert read > 0
