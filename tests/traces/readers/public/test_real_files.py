"""Every real file: nothing is lost without being counted, and its cluster holds (nearly) all of it."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from gpuyard.errors import DataError
from gpuyard.traces import guess_cluster, load_workload, reader_of
from gpuyard.traces.opening import head_of
from gpuyard.traces.readers.csv import what_file

# file → reader, data rows (as the collection's README counts them), header lines
FILES = {
    "philly/philly_jobs_vc.csv.gz": ("philly", 82_247, 1),
    "philly/philly_jobs_rfold.csv.gz": ("philly", 111_549, 1),
    "alibaba/lingjun2023_jobs_rfold.csv": ("philly", 2_498, 1),
    "helios/helios_venus_gpu_jobs.csv.gz": ("helios", 125_303, 1),
    "alibaba/openb2023_pod_list_default.csv.gz": ("openb", 8_152, 1),
    "alibaba/openb2023_pod_list_gpuspec33.csv.gz": ("openb", 8_152, 1),
    "alibaba/openb2023_pod_list_gpushare40.csv.gz": ("openb", 8_152, 1),
    "alibaba/openb2023_pod_list_cpu050.csv.gz": ("openb", 7_439, 1),
    "alibaba/pai2020_gpu_tasks_sample.csv.gz": ("pai2020", 60_105, 1),
    "alibaba/dlrm2025_instances.csv.gz": ("dlrm2025", 23_871, 1),
    "alibaba/genai2026_lora_request_trace.csv.gz": ("genai2026", 26_823, 1),
    "rlmetadqn/trace_001.csv": ("rlmetadqn", 50, 1),
    "throughput/gavel_msr_vc103959_seed0.trace.gz": ("gavel", 986, 0),
    "throughput/rubick_workload_mt.csv": ("rubick", 406, 1),
}


def lines_of(path: Path) -> list[str]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [line for line in text.decode().splitlines() if line.strip()]


@pytest.mark.parametrize("name", FILES)
def test_rows_are_kept_or_counted(shared: Path, name: str) -> None:
    reader, rows, header = FILES[name]
    path = shared / "traces" / name
    assert reader_of(path).name == reader
    work = load_workload(str(path))
    assert len(lines_of(path)) - header == rows
    assert len(work) + sum(work.dropped.values()) == rows


def test_google_counts_jobs_not_events(shared: Path) -> None:
    path = shared / "traces" / "google" / "google2011_job_events_part00000-00017.csv.gz"
    assert reader_of(path).name == "google2011"
    rows = [line.split(",") for line in lines_of(path)]
    events: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        events.setdefault(row[2], []).append((int(row[0]), int(row[3])))
    expected = {}
    for job, seen in events.items():
        first, (end, last) = seen[0][0], seen[-1]
        if first > 0 and any(kind == 1 for _, kind in seen) and last in (2, 3, 4, 5, 6):
            start = next(when for when, kind in seen if kind == 1)
            expected[int(job)] = (first / 1e6, (end - start) / 1e6)
    work = load_workload(str(path))
    assert len(work) + sum(work.dropped.values()) == len(events) == 24_578
    assert set(work.jobs.id.tolist()) == set(expected)
    for job, submit, took in zip(work.jobs.id.tolist(), work.jobs.submit.tolist(), work.runtime.tolist(), strict=True):
        assert (submit, took) == pytest.approx(expected[job], rel=1e-12)


def test_pods_value_by_value(shared: Path) -> None:
    path = shared / "traces" / "alibaba" / "openb2023_pod_list_gpuspec33.csv.gz"
    rows = [line.split(",") for line in lines_of(path)[1:]]
    kept = [row for row in rows if row[7] != "Pending"]
    kept.sort(key=lambda row: float(row[8]))
    work = load_workload(str(path))
    assert work.jobs.submit.tolist() == [float(row[8]) for row in kept]
    assert work.runtime.tolist() == [float(row[9]) - float(row[10]) for row in kept]
    assert work.jobs.gpus.tolist() == [int(row[4]) / 1000 if row[3] == "1" else int(row[3]) for row in kept]
    assert [work.jobs.gpu_types[k] for k in work.jobs.gpu_type] == [row[5] for row in kept]
    assert [work.jobs.qoses[k] for k in work.jobs.qos] == [row[6] for row in kept]


@pytest.mark.parametrize("name", [name for name in FILES if name.split("/")[0] in ("philly", "helios", "alibaba", "rlmetadqn")])
def test_the_cluster_that_belongs_to_it_holds_every_gang(shared: Path, name: str) -> None:
    work = load_workload(str(shared / "traces" / name))
    cluster, _ = guess_cluster(work)
    assert all(kind.speed == 1 for kind in cluster.types)
    per_node = np.floor(cluster.nodes.gpus[:, None] / np.unique(work.jobs.chunk)).sum(axis=0)
    most = [float((work.jobs.gpus / work.jobs.chunk)[work.jobs.chunk == chunk].max()) for chunk in np.unique(work.jobs.chunk)]
    assert (per_node >= most).all()


def test_files_without_jobs_say_what_they_are(shared: Path) -> None:
    for name, says in {
        "azure/AzureLLMInferenceTrace_code.csv.gz": "token counts but no run times",
        "alibaba/openb2023_node_list_gpu_node.csv": "the machines of openb",
        "alibaba/pai2020_machine_spec.csv.gz": "the machines of PAI",
        "alibaba/lingjun2023_topo.csv": "hosts and switches",
        "philly/philly_machine_list.csv": "the machines of Philly",
        "philly/philly_vc_nodes.csv": "virtual clusters",
        "helios/helios_cluster_summary.csv": "a summary",
        "helios/helios_earth_vc_gpu_number.csv": "by day",
        "throughput/sia_step_times_by_gpu.csv.gz": "speed table",
        "throughput/rubick_a800_iter_times.csv": "speed table",
        "throughput/zeus_summary_power_a40.csv": "power",
        "throughput/zeus_summary_train.csv.gz": "epochs",
    }.items():
        path = shared / "traces" / name
        head = head_of(path)
        assert head is not None
        assert says in what_file(head)
        with pytest.raises(DataError, match="not a list of jobs"):
            load_workload(str(path))
    head = head_of(shared / "traces" / "throughput" / "gavel_simulation_throughputs.json.gz")
    assert head is not None
    assert "throughputs" in what_file(head)
