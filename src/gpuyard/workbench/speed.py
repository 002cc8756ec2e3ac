"""Measure the devices of this machine: matrix products, memory bandwidth, and transfers both ways.

The CPU is measured with numpy on all cores, a GPU with the first of torch, jax and numba.cuda that is installed and sees it. A figure is
the best of several repetitions: other work on the machine can only slow them down.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gpuyard.errors import UsageError
from gpuyard.model.presets import DEVICES
from gpuyard.registry import unknown_name
from gpuyard.workbench.task import installed

MIB = 1 << 20
GIGA = 1e9
REPEATS = 5
LIBRARIES = ("torch", "jax", "numba")  # of GPUs, the first that sees one is taken


@dataclass(frozen=True)
class DeviceSpeed:
    """The figures of one device; 0: not measured."""

    kind: str  # cpu or gpu
    title: str  # as the machine names it
    library: str  # what measured it, with its version
    count: int = 1  # equal devices
    memory: float = 0.0  # GB
    bandwidth: float = 0.0  # GB/s of its memory, bytes read and written
    products: tuple[float, float] = (0.0, 0.0)  # TFLOP/s of matrix products in single precision (TF32 where it has it) and bfloat16
    transfer: tuple[float, float] = (0.0, 0.0)  # GB/s from the host and to it
    watts: tuple[float, float] = (0.0, 0.0)  # idle and busy
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Effort:
    """How large the measurements are."""

    cpu_side: int = 2048  # of the matrices
    gpu_side: int = 8192
    megabytes: int = 512  # that are copied
    repeats: int = REPEATS


@dataclass
class DeviceWork:
    """Operations of one device to time, by name: what to call, and how much it does (FLOP or bytes)."""

    title: str
    library: str
    count: int = 1
    memory: float = 0.0
    notes: tuple[str, ...] = ()
    work: dict[str, tuple[Callable[[], object], float]] = field(default_factory=dict)


class Watts(Protocol):
    """Reads the power of the GPUs."""

    def __call__(self) -> float:
        """Return the power of the first GPU (W); 0: not known."""


def measure_machine(effort: Effort, *, library: str = "auto", watts: Watts = lambda: 0.0) -> list[DeviceSpeed]:
    """Measure the CPU and, if some library sees one, the GPU."""
    core = DEVICES["cpu"]
    cpu = _timed("cpu", _cpu(effort), effort, lambda: 0.0)
    cpu = replace(cpu, watts=(core.idle_watts * cores(), core.busy_watts * cores()))
    found = _gpu(effort, library)
    return [cpu] if found is None else [cpu, _timed("gpu", found, effort, watts)]


def _timed(kind: str, plan: DeviceWork, effort: Effort, watts: Watts) -> DeviceSpeed:
    idle, busy = watts(), 0.0
    rates: dict[str, float] = {}
    for name, (call, amount) in plan.work.items():
        rates[name] = amount / _best(call, effort.repeats)
        busy = max(busy, watts())
    rate = rates.get
    return DeviceSpeed(
        kind, plan.title, plan.library, plan.count, plan.memory, rate("copy", 0.0) / GIGA,
        products=(rate("product", 0.0) / 1e12, rate("half", 0.0) / 1e12), transfer=(rate("to", 0.0) / GIGA, rate("from", 0.0) / GIGA),
        watts=(idle, busy), notes=plan.notes,
    )  # fmt: skip


def _best(call: Callable[[], object], repeats: int) -> float:
    """Return the seconds of the fastest of some calls, after one that does not count. A call returns when its work is done."""
    call()
    spent = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        spent.append(time.perf_counter() - began)
    return max(min(spent), 1e-9)


def _cpu(effort: Effort) -> DeviceWork:
    side = effort.cpu_side
    left, right = (np.random.default_rng(k).random((side, side), np.float32) for k in (0, 1))
    source = np.ones(effort.megabytes * MIB // 8)
    target = np.empty_like(source)
    plan = DeviceWork(
        cpu_name(), f"numpy {np.__version__}, {cores()} cores", memory=_host_memory(), notes=("the power of the CPU is assumed, per core",)
    )
    plan.work["product"] = (lambda: left @ right, 2.0 * side**3)
    plan.work["copy"] = (lambda: np.copyto(target, source), 2.0 * source.nbytes)
    return plan


def cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_name() -> str:
    """Return the processor as the system names it."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as stream:
            for line in stream:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()[:100]
    except OSError:
        pass
    return platform.processor() or platform.machine() or "cpu"


def _host_memory() -> float:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIGA
    except (ValueError, OSError):
        return 0.0


# ── GPUs ──


def _gpu(effort: Effort, library: str) -> DeviceWork | None:
    """Return the work for the GPU, by the library asked for or the first that sees one; None: none does."""
    if library != "auto" and library not in LIBRARIES:
        raise unknown_name("library", library, list(LIBRARIES))
    for name in LIBRARIES if library == "auto" else (library,):
        if installed(name):
            plan = _PLANS[name](effort)
            if plan is not None:
                return plan
        elif library != "auto":
            raise UsageError(f"{library} is not installed", hint="--library auto takes what is there")
    return None


def _then(wait: Callable[[], object], call: Callable[[], object]) -> Callable[[], object]:
    """Return a call that also waits until the device has done it."""

    def whole() -> None:
        call()
        wait()

    return whole


def _torch_plan(effort: Effort) -> DeviceWork | None:
    import torch

    if not torch.cuda.is_available():
        return None
    gpu, side = torch.device("cuda"), effort.gpu_side
    torch.set_float32_matmul_precision("high")
    about = torch.cuda.get_device_properties(gpu)
    singles = [torch.randn(side, side, device=gpu) for _ in range(2)]
    halves = [each.bfloat16() for each in singles]
    source = torch.ones(4 * effort.megabytes * MIB // 4, device=gpu)
    target = torch.empty_like(source)
    pinned = torch.ones(effort.megabytes * MIB // 4).pin_memory()
    there = torch.empty_like(pinned, device=gpu)

    done = partial(_then, torch.cuda.synchronize)
    plan = DeviceWork(
        about.name, f"torch {torch.__version__}", torch.cuda.device_count(), about.total_memory / GIGA, ("pinned host memory",)
    )
    plan.work["copy"] = (done(lambda: target.copy_(source)), 2.0 * source.numel() * 4)
    plan.work["to"] = (done(lambda: there.copy_(pinned, non_blocking=True)), pinned.numel() * 4.0)
    plan.work["from"] = (done(lambda: pinned.copy_(there, non_blocking=True)), pinned.numel() * 4.0)
    plan.work["product"] = (done(lambda: singles[0] @ singles[1]), 2.0 * side**3)
    plan.work["half"] = (done(lambda: [halves[0] @ halves[1] for _ in range(20)]), 40.0 * side**3)
    return plan


def _jax_plan(effort: Effort) -> DeviceWork | None:
    import jax
    import jax.numpy as jnp

    gpu = next((each for each in jax.devices() if each.platform != "cpu"), None)
    if gpu is None:
        return None
    side = effort.gpu_side
    single = jax.device_put(np.random.default_rng(0).random((side, side), np.float32), gpu)
    half = single.astype(jnp.bfloat16)
    host = np.ones(effort.megabytes * MIB // 4, np.float32)
    there = jax.device_put(host, gpu)
    product, copy = jax.jit(lambda x: x @ x), jax.jit(lambda x: x + 1)
    plan = DeviceWork(str(gpu.device_kind), f"jax {jax.__version__}", len(jax.devices(gpu.platform)), notes=("pageable host memory",))
    plan.work["copy"] = (lambda: copy(there).block_until_ready(), 2.0 * host.nbytes)
    plan.work["to"] = (lambda: jax.device_put(host, gpu).block_until_ready(), float(host.nbytes))
    plan.work["from"] = (lambda: np.array(copy(there)), float(host.nbytes))
    plan.work["product"] = (lambda: product(single).block_until_ready(), 2.0 * side**3)
    plan.work["half"] = (lambda: product(half).block_until_ready(), 2.0 * side**3)
    return plan


def _numba_plan(effort: Effort) -> DeviceWork | None:
    try:
        from numba import cuda
    except ImportError:
        return None
    if not cuda.is_available():
        return None
    side, tile = min(effort.gpu_side, 4096), 16
    product = _numba_product(tile)
    left, right, out = (cuda.device_array((side, side), np.float32) for _ in range(3))
    host = np.ones(effort.megabytes * MIB // 4, np.float32)
    source, target = cuda.to_device(host), cuda.device_array_like(host)

    done = partial(_then, cuda.synchronize)
    blocks = (side // tile, side // tile)
    name = cuda.get_current_device().name
    title = name.decode() if isinstance(name, bytes) else str(name)
    memory = cuda.current_context().get_memory_info()[1] / GIGA
    notes = ("pageable host memory", "products by a simple kernel of ours, not by the vendor's library")
    plan = DeviceWork(title, "numba.cuda", len(cuda.gpus), memory, notes)
    plan.work["copy"] = (done(lambda: target.copy_to_device(source)), 2.0 * host.nbytes)
    plan.work["to"] = (done(lambda: source.copy_to_device(host)), float(host.nbytes))
    plan.work["from"] = (done(lambda: source.copy_to_host(host)), float(host.nbytes))
    plan.work["product"] = (done(lambda: product[blocks, (tile, tile)](left, right, out)), 2.0 * side**3)
    return plan


def _numba_product(tile: int) -> Any:
    """Compile a product of square matrices that goes through tiles in shared memory."""
    from numba import cuda, float32

    @cuda.jit
    def product(left, right, out):  # type: ignore[no-untyped-def]
        mine, other = cuda.shared.array((tile, tile), float32), cuda.shared.array((tile, tile), float32)
        row, column = cuda.threadIdx.y, cuda.threadIdx.x
        y, x = cuda.blockIdx.y * tile + row, cuda.blockIdx.x * tile + column
        total = float32(0)
        for step in range(left.shape[1] // tile):
            mine[row, column] = left[y, step * tile + column]
            other[row, column] = right[step * tile + row, x]
            cuda.syncthreads()
            for k in range(tile):
                total += mine[row, k] * other[k, column]
            cuda.syncthreads()
        out[y, x] = total

    return product


_PLANS: Mapping[str, Callable[[Effort], DeviceWork | None]] = {"torch": _torch_plan, "jax": _jax_plan, "numba": _numba_plan}


def seen(devices: Sequence[DeviceSpeed]) -> bool:
    """Return whether a GPU is among the devices."""
    return any(each.kind == "gpu" for each in devices)
