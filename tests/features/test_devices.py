"""What is seen of devices and tasks, on cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard import Simulation, load_cluster
from gpuyard.features.devices import DEVICE, DEVICE_PHYSICS, QueueColumns, fill_context, fill_rows, intensity_of, is_gpu, task_facts
from gpuyard.model.units import Range
from gpuyard.traces.generators.sampling import stream
from gpuyard.traces.generators.tasks import tasks


def test_a_task_is_its_size_intensity_and_memory():
    workload = tasks(5, jobs=20)
    size = stream(5, "tasks/size").uniform(500, 4000, 20) / 1000
    found = np.array([task_facts(workload.jobs, row) for row in range(20)])
    assert found[:, 0] == pytest.approx(size)
    assert found[:, 1].tolist() == [float(workload.jobs.classes[k][1:]) for k in workload.jobs.job_class]
    assert found[:, 2].tolist() == workload.jobs.memory.tolist()
    assert intensity_of("resnet") == 0.5


def test_the_seconds_on_a_device_are_seen_only_where_physics_are_asked_for():
    assert set(DEVICE_PHYSICS.rows) - set(DEVICE.rows) == {"free_in", "free_in_log2", "seconds", "seconds_log2"}
    assert DEVICE.hash != DEVICE_PHYSICS.hash
    snapshot = Simulation(tasks(1, jobs=3, memory=Range(8, 8)), load_cluster("tasks")).advance()
    nodes = np.arange(6)
    lanes = QueueColumns(nodes, np.array([0, 0, 4, 0, 12, 0.0]), np.array([0, 1, 1, 0, 1, 0], bool), np.array([0, 10, 30, 0, 3.0, 0]),
                  np.full(6, 2.0), np.full(6, 3.0))  # fmt: skip
    rows, other = np.zeros((6, len(DEVICE.rows)), np.float32), np.zeros((6, len(DEVICE.rows)), np.float32)
    fill_rows(snapshot, 0, lanes, False, rows)
    fill_rows(snapshot, 0, lanes._replace(free_in=np.zeros(6), seconds=np.full(6, 9.0)), False, other)
    assert rows.tolist() == other.tolist()
    seen = dict(zip(DEVICE.rows, rows.T.tolist(), strict=True))
    assert seen["gpu"] == [0, 0, 0, 0, 1, 1] == is_gpu(snapshot.cluster)[nodes].tolist()
    assert seen["idle"] == [1, 0, 0, 1, 0, 1]
    assert seen["waiting"] == [0, 0, 0.5, 0, 0.75, 0]
    assert seen["work"] == [0, 0.5, 0.75, 0, pytest.approx(3 / 13), 0]
    assert seen["memory_share"] == [0.125] * 4 + [0.5] * 2
    context = np.zeros(len(DEVICE.context), np.float32)
    fill_context(snapshot, 0, lanes, context)
    told = dict(zip(DEVICE.context, context.tolist(), strict=True))
    assert told["waiting"] == 0.5
    assert (told["idle_cpus"], told["idle_gpus"]) == (0.5, 0.5)
    assert told["transfer"] == pytest.approx(1 / 3)  # 8 GB at 16 GB/s
    assert told["memory"] == pytest.approx(8 / 12)
