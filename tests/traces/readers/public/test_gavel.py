from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.errors import DataError
from gpuyard.traces import load_workload, reader_of

ROWS = (
    "Transformer (batch size 128)\tcd %s && python3 train.py\t-step\t1\t5771211\t0.000000\t1",
    "LM (batch size 80)\tpython3\t--steps\t0\t439036\t60.5\t4",
    "A3C\tpython3\t--max-steps\t0\t823303\t100\t4",
)
THROUGHPUTS = {
    "v100": {
        "('Transformer (batch size 128)', 1)": {"null": 10.0}, "('LM (batch size 80)', 1)": {"null": 2.0},
        "('LM (batch size 80)', 4)": {"null": 8.0}, "('A3C', 1)": {"null": 5.0},
    },
    "v100_unconsolidated": {"anything": 5},
}  # fmt: skip


def test_steps_become_run_times_by_gavels_own_throughputs(write: Callable[..., str]) -> None:
    path = write(*ROWS)
    assert reader_of(Path(path)).name == "gavel"
    work = load_workload(path)
    assert work.jobs.submit.tolist() == [0, 60.5, 100]
    assert work.jobs.gpus.tolist() == [1, 4, 4]
    assert work.runtime.tolist() == pytest.approx([1e6, 1e4, 1e5], rel=1e-5)
    assert [work.jobs.classes[k] for k in work.jobs.job_class] == ["Transformer (batch size 128)", "LM (batch size 80)", "A3C"]


def test_a_table_of_throughputs_can_be_given(write: Callable[..., str]) -> None:
    table = write(json.dumps(THROUGHPUTS), name="rates.json")
    work = load_workload(write(*ROWS), speeds=table)
    assert work.runtime.tolist() == [577121.1, 54879.5, 164660.6]
    assert [work.jobs.classes[k] for k in work.jobs.job_class] == ["Transformer (batch size 128)", "LM (batch size 80), 4 GPUs", "A3C"]
    with pytest.raises(DataError, match="unknown reference type 'p100'"):
        load_workload(write(*ROWS), speeds=table, reference="p100")


def test_an_unknown_job_type_says_what_is_needed(write: Callable[..., str]) -> None:
    with pytest.raises(DataError, match=r"trace\.txt:4: no throughput is known for job type 'GPT'; hint: give a table"):
        load_workload(write(*ROWS, "GPT\tpython3\t-n\t0\t5\t100\t4"))


def test_the_reference_gives_back_what_philly_logged(shared: Path) -> None:
    """Jobs of the trace that meet exactly one submission of Philly's virtual cluster 103959 run as long as that was logged."""
    with gzip.open(shared / "traces" / "philly" / "philly_jobs_vc.csv.gz", "rt") as lines:
        rows = [line.strip().split(",") for line in lines if line.strip().endswith("103959")]
    origin = "2017-09-21 17:00:12"
    philly = load_workload(str(shared / "traces" / "philly" / "philly_jobs_vc.csv.gz"))
    assert len(rows) == 1934
    first = min(row[0] for row in rows)
    in_vc = philly.jobs.partition == philly.jobs.partitions.index("103959")
    submit, runtime = philly.jobs.submit[in_vc], philly.runtime[in_vc]
    from datetime import datetime

    shift = (datetime.fromisoformat(origin) - datetime.fromisoformat(first)).total_seconds()
    logged: dict[float, list[float]] = {}
    for when, took in zip((submit - submit.min() - shift).tolist(), runtime.tolist(), strict=True):
        logged.setdefault(round(when), []).append(took)
    trace = load_workload(str(shared / "traces" / "throughput" / "gavel_msr_vc103959_seed0.trace.gz"))
    pairs = [(took, logged[when][0]) for when, took in zip(trace.jobs.submit.tolist(), trace.runtime.tolist(), strict=True)
             if len(logged.get(when, ())) == 1]  # fmt: skip
    assert len(pairs) == 728
    assert sum(abs(ours - theirs) <= max(0.001 * theirs, 4) for ours, theirs in pairs) >= 715
