"""Readings on disk stay within bounds, survive a torn row, and become text for Prometheus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from gpuyard.live.gpus.prometheus import prometheus_text
from gpuyard.live.gpus.samples import MAGIC, SAMPLE, SampleFiles
from gpuyard.live.node.devices import GpuProcess, GpuReading

GPU = GpuReading(0, "GPU-a", "Test GPU", memory=16.0, free=12.0, processes=(GpuProcess(7),), utilisation=0.5, watts=300.0, celsius=60.0)
PAIR = (GPU, replace(GPU, index=1, uuid="GPU-b", lost="fell off the bus"))


def test_what_was_kept_is_read_again(tmp_path: Path) -> None:
    files = SampleFiles(tmp_path / "samples")
    for second in range(5):
        files.add(1000.0 + second, PAIR)
    rows = files.read(1001.0, 1003.0)
    assert rows["time"].tolist() == [1001.0, 1001.0, 1002.0, 1002.0, 1003.0, 1003.0]
    first = rows[0]
    assert (first["used"], first["watts"], first["utilisation"], first["processes"]) == (4.0, 300.0, 0.5, 1)
    assert rows["lost"].tolist() == [0, 1] * 3
    assert SampleFiles(tmp_path / "samples").read()["gpu"].tolist() == [0, 1] * 5


def test_the_files_stay_within_their_limit(tmp_path: Path) -> None:
    files = SampleFiles(tmp_path, most=20_000, each=2_000)
    random = np.random.default_rng(1)
    for second in range(3000):
        files.add(float(second), [replace(GPU, watts=float(random.uniform(0, 700)), free=float(random.uniform(0, 16)))])
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 20_000
    rows = files.read()
    assert rows["time"][-1] == 2999.0
    assert 500 < len(rows) < 3000
    assert (np.diff(rows["time"]) == 1.0).all()


def test_torn_and_damaged_files_cost_no_other_rows(tmp_path: Path) -> None:
    files = SampleFiles(tmp_path, each=200)
    for second in range(20):
        files.add(float(second), [GPU])
    newest = max(tmp_path.glob("*.bin"))
    with newest.open("ab") as stream:
        stream.write(b"\x01" * (SAMPLE.itemsize - 3))
    min(tmp_path.glob("*.gz")).write_bytes(b"\x1f\x8b damaged")
    (tmp_path / "12345.bin").write_bytes(b"something else")
    kept = files.read()["time"].tolist()
    assert kept[-1] == 19.0
    assert kept == sorted(kept)
    assert newest.read_bytes().startswith(MAGIC)


def test_a_folder_that_cannot_be_written_is_a_problem_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    files = SampleFiles(tmp_path / "file" / "samples")
    files.add(0.0, PAIR)
    assert "readings are not kept" in files.problem


def test_prometheus_reads_the_text() -> None:
    status = {"jobs": {"RUNNING": 3}, "slots": 1, "busy": 0.5, "draining": False, "ready": True, "trouble": "", "took": 0.002}
    text = prometheus_text([replace(GPU, name='a "b" \\ c\n')], status)
    assert text.endswith("\n")
    assert 'gpuyard_gpu_power_watts{gpu="0",uuid="GPU-a",name="a \\"b\\" \\\\ c\\n"} 300' in text.splitlines()
    assert 'gpuyard_gpu_memory_free_bytes{gpu="0",uuid="GPU-a",name="a \\"b\\" \\\\ c\\n"} 12000000000' in text.splitlines()
    assert 'gpuyard_jobs{state="RUNNING"} 3' in text.splitlines()
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names)) == 13
    assert 'gpuyard_jobs{state="PENDING"} 0' in text.splitlines()
    assert {"gpuyard_slots_busy 0.5", "gpuyard_scheduler_ready 1", "gpuyard_decision_seconds 0.002"} <= set(text.splitlines())
    assert "gpuyard_gpu" not in prometheus_text([], status)
