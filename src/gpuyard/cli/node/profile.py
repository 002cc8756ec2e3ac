"""`gpuyard profile`: measures the devices of this machine, and writes them as a cluster file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.messages import say
from gpuyard.cli.common.output import Format, Output, Table, emit, short
from gpuyard.errors import UsageError

if TYPE_CHECKING:
    from gpuyard.workbench.speed import DeviceSpeed

_BAR = 24  # characters of the longest bar
_COLUMNS: Mapping[str, tuple[str, Callable[[DeviceSpeed], float]]] = {
    "tflops": ("TFLOP/s\nsingle", lambda each: each.products[0]),
    "half_tflops": ("TFLOP/s\nbfloat16", lambda each: each.products[1]),
    "bandwidth": ("memory\nGB/s", lambda each: each.bandwidth),
    "to_device": ("to it\nGB/s", lambda each: each.transfer[0]),
    "from_device": ("from it\nGB/s", lambda each: each.transfer[1]),
    "busy_watts": ("power\nW", lambda each: each.watts[1]),
}


def profile(
    out: Annotated[Path, typer.Option(metavar="FILE.toml", help="Where to write the cluster file.")] = Path("machine.toml"),
    library: Annotated[str, typer.Option(metavar="auto|torch|jax|numba", help="What measures a GPU; the first that sees one.")] = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="Smaller matrices and copies: a second, and less exact.")] = False,
    how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:
    """Measure this machine: matrix products, memory bandwidth, and transfers to its GPUs and back.

    The result is a cluster file, so that `gpuyard simulate tasks --cluster machine.toml` simulates this machine. Without a GPU it
    measures the CPU and says so.
    """
    if out.suffix != ".toml":
        raise UsageError(f"--out {out} is not a .toml file", hint="a cluster file ends with .toml")
    from gpuyard.files import toml_text, write_bytes
    from gpuyard.model.cluster_file import cluster_from_dict
    from gpuyard.workbench.machine import machine_table
    from gpuyard.workbench.speed import Effort, measure_machine, seen

    effort = Effort(cpu_side=512, gpu_side=2048, megabytes=64, repeats=2) if quick else Effort()
    say("measuring, which takes some seconds")
    devices = measure_machine(effort, library=library, watts=_watts())
    table = machine_table(devices)
    cluster_from_dict(table, where=str(out))  # what cannot be read again is not written
    write_bytes(out, toml_text(table).encode())
    if not seen(devices):
        say("no GPU found by torch, jax or numba.cuda: only the CPU was measured")
    say(f"written to {out}; try gpuyard simulate tasks --cluster {out} --scheduler greedy-device")
    emit(describe(devices), how)


def _watts() -> Any:
    """Return what reads the power of the first GPU, 0 where nothing does."""
    from gpuyard.live.gpus.nvml import NvmlLibrary

    library = NvmlLibrary()
    if not library.open():
        return lambda: 0.0
    return lambda: library.read()[0].watts


def describe(devices: Sequence[DeviceSpeed]) -> Output:
    """Show a row per device, with a bar of its matrix products."""
    records: list[dict[str, Any]] = [
        {"device": each.title, "kind": each.kind, "count": each.count, "library": each.library, "memory": each.memory}
        | {key: figure(each) for key, (_, figure) in _COLUMNS.items()}
        for each in devices
    ]
    shown = [key for key in _COLUMNS if any(record[key] for record in records)]
    bars = _bars([max(each.products) for each in devices])
    rows = [
        [f"{each.title}{f' ×{each.count}' if each.count > 1 else ''}\n{each.library}", *(_cell(record[key]) for key in shown), bar]
        for each, record, bar in zip(devices, records, bars, strict=True)
    ]
    header = ("device", *(_COLUMNS[key][0] for key in shown), "matrix products")
    notes = list(dict.fromkeys(note for each in devices for note in each.notes))
    return Output([Table(header, rows, "This machine", left=frozenset({0, len(header) - 1}), caption="; ".join(notes))], records, records)


def _cell(value: float) -> str:
    return short(value) if value else "–"


def _bars(values: Sequence[float]) -> list[str]:
    """Draw one bar per value, linear from 0; the shortest is a thin line."""
    most = max(values) or 1.0
    return ["█" * max(round(_BAR * value / most), 0) or "▏" for value in values]
