"""Features for the choice of a device for a task: of each device, of the task and of the situation.

A task is seen as its size, its compute intensity (by its job class) and its memory. How these make seconds on a kind of device is left
out unless `physics` is asked for: it is what there is to learn.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from gpuyard.arrays import Array
from gpuyard.features.schema import Schema
from gpuyard.model.cluster import Cluster
from gpuyard.model.jobs import Jobs
from gpuyard.model.presets import TASK_INTENSITIES
from gpuyard.model.snapshot import Snapshot

_ROWS = (
    "gpu",  # 1: a GPU; 0: a CPU
    "idle",  # nothing runs or waits there
    "waiting",  # tasks that wait for it, n / (n + 4)
    "waiting_log2",  # log2(1 + n) / 8
    "work",  # reference seconds of work before it: what waits and what is left of what runs, x / (x + 10)
    "work_log2",  # log2(1 + x) / 8
    "memory_limit",  # log2(1 + GB) / 8; 1 without a limit
    "memory_share",  # of the limit that the task needs
)
_PHYSICS = (
    "free_in",  # estimated seconds until it has done all that it has, x / (x + 10)
    "free_in_log2",  # log2(1 + x) / 8
    "seconds",  # estimated for the task there, x / (x + 10)
    "seconds_log2",  # log2(1 + x) / 8
)
_CONTEXT = (
    "size",  # of the task, in thousands, x / (x + 2)
    "size_log2",  # log2(size in thousands) / 4, −2..2
    "intensity",  # 0..1
    "memory",  # GB, x / (x + 4)
    "memory_log2",  # log2(1 + GB) / 8
    "transfer",  # s before work begins on a device that takes it, x / (x + 1)
    "waiting",  # tasks that wait for any device, n / (n + 16)
    "idle_cpus",  # share of the CPUs that are idle
    "idle_gpus",  # share of the GPUs that are idle
)
DEVICE = Schema("device", 1, _ROWS, _CONTEXT)
DEVICE_PHYSICS = Schema("device", 1, _ROWS + _PHYSICS, _CONTEXT)
UNKNOWN_INTENSITY = 0.5  # of a class that tells none; the size is then estimate^(2/3)


class TaskFacts(NamedTuple):
    """A task as it is described when it is submitted."""

    size: float  # thousands
    intensity: float
    memory: float  # GB


class QueueColumns(NamedTuple):
    """The queues of the devices, in the order of the devices."""

    node: Array  # (devices,) i
    waiting: Array  # (devices,) tasks that wait there
    busy: Array  # (devices,) bool: a task runs there
    work: Array  # (devices,) reference s before it
    free_in: Array  # (devices,) estimated s; only read with physics
    seconds: Array  # (devices,) estimated s of the task; inf: it can never run there; only read with physics


def intensity_of(label: str) -> float:
    """Return the compute intensity that a job class names (`c0.35`: 0.35)."""
    return TASK_INTENSITIES.get(label, UNKNOWN_INTENSITY)


def task_facts(jobs: Jobs, row: int) -> TaskFacts:
    """Return the task of a row. Its size comes from its estimate on the reference device: (estimate · (intensity + 0.5))^(2/3) thousand."""
    job = jobs.table[row]
    intensity = intensity_of(jobs.classes[int(job["job_class"])])
    return TaskFacts((float(job["estimate"]) * (intensity + 0.5)) ** (2 / 3), intensity, float(job["memory"]))


@cache
def _gpu_types(names: tuple[str, ...]) -> Array:
    return np.array([name != "cpu" for name in names])


def is_gpu(cluster: Cluster) -> Array:
    """Return (nodes,) bool: whether the devices of a node are GPUs; those of a CPU worker have the type `cpu`."""
    kinds: Array = _gpu_types(tuple(kind.name for kind in cluster.types))[cluster.nodes.gpu_type]
    return kinds


def fill_rows(snapshot: Snapshot, row: int, queues: QueueColumns, physics: bool, out: Array) -> None:
    """Write what is seen of each device into `out` (devices, features) f4."""
    limit = snapshot.cluster.nodes.memory[queues.node]
    memory = float(snapshot.jobs.memory[row])
    gpu = is_gpu(snapshot.cluster)[queues.node]
    columns = [
        gpu, ~queues.busy & (queues.waiting == 0), _squash(queues.waiting, 4), _log(queues.waiting),
        _squash(queues.work, 10), _log(queues.work),
        np.where(np.isfinite(limit), _log(np.where(np.isfinite(limit), limit, 0.0)), 1.0),
        np.minimum(memory / np.maximum(limit, 1e-9), 2.0),
    ]  # fmt: skip
    if physics:
        seconds = np.where(np.isfinite(queues.seconds), queues.seconds, 0.0)
        columns += [_squash(queues.free_in, 10), _log(queues.free_in), _squash(seconds, 10), _log(seconds)]
    out[:] = np.stack(columns, axis=1)


def fill_context(snapshot: Snapshot, row: int, queues: QueueColumns, out: Array) -> None:
    """Write what is seen of the task and of the situation into `out` (features,) f4."""
    task = task_facts(snapshot.jobs, row)
    transfer = float(snapshot.jobs.transfer[row])
    idle = ~queues.busy & (queues.waiting == 0)
    gpu = is_gpu(snapshot.cluster)[queues.node]
    waiting = float(queues.waiting.sum())
    out[:] = (
        task.size / (task.size + 2), np.clip(np.log2(max(task.size, 1e-3)), -8, 8) / 4, task.intensity,
        task.memory / (task.memory + 4), np.log2(1 + task.memory) / 8, transfer / (transfer + 1), waiting / (waiting + 16),
        idle[~gpu].mean() if (~gpu).any() else 0.0, idle[gpu].mean() if gpu.any() else 0.0,
    )  # fmt: skip


def _squash(x: Array, scale: float) -> Array:
    squashed: Array = x / (x + scale)
    return squashed


def _log(x: Array) -> Array:
    logged: Array = np.log2(1 + x) / 8
    return logged
