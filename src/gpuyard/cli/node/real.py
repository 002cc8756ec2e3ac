"""`gpuyard run real`: real jobs on this machine under several schedulers, beside what the simulator predicts for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.cli.common.messages import say
from gpuyard.cli.common.output import Format, Output, Table, emit, short

if TYPE_CHECKING:
    from gpuyard.experiments.real.judging import RealSummary

_SHOWN = ("turnaround", "slowdown", "wait", "deadline_met", "makespan")


def run_real(folder: Path, values: Mapping[str, str], how: Format, *, quick: bool) -> None:
    """Do what is missing of the study in a folder, and show what there is."""
    from gpuyard.experiments.real.judging import judge
    from gpuyard.experiments.real.study import run_study, settings_of

    settings = settings_of(values, quick=quick)
    try:
        missing = run_study(folder, settings, say)
    except KeyboardInterrupt:
        say(f"{folder}: finished replays are kept; the same command resumes")
        raise
    if missing:
        say(f"{missing} replays are missing: the same command goes on")
    emit(describe(judge(folder)), how)


def describe(summary: RealSummary) -> Output:
    """Show a row for each scheduler, measured and predicted, and the answer in words."""
    slots = summary.slots
    records = [_record(summary, name, slots) for name in summary.schedulers(slots)]
    rows = [
        (
            each["scheduler"], f"{short(each['turnaround'])} s", f"{100 * each['gap']:+.0f} %", short(each["slowdown"]),
            f"{100 * each['deadline_met']:.0f} %", f"{short(each['predicted'])} s", f"{100 * each['error']:.0f} %",
        )
        for each in records
    ]  # fmt: skip
    header = ("scheduler", "mean\nturnaround", "vs best\nheuristic", "slowdown", "deadlines\nmet", "predicted", "median job\noff by")
    device = summary.rates.device_name if summary.rates.device == "gpu" else "CPU slots"
    traces = len({each.trace for each in summary.of(slots)})
    table = Table(header, rows, f"Real jobs on this machine: {device}, {slots} at once", caption=f"means over {traces} traces")
    return Output([table], {"slots": slots, "device": device, "traces": traces, "schedulers": records}, records, _words(summary))


def _record(summary: RealSummary, name: str, slots: int) -> dict[str, Any]:
    mine = [each for each in summary.of(slots) if each.scheduler == name]
    found: dict[str, Any] = {"scheduler": name} | {metric: summary.mean(name, slots, metric) for metric in _SHOWN}
    found |= {"gap": summary.gap(name, slots), "predicted": summary.mean(name, slots, "turnaround", predicted=True)}
    errors = sorted(each.error for each in mine)
    return found | {"error": errors[len(errors) // 2], "joules": sum(each.joules for each in mine), "lost": sum(each.lost for each in mine)}


def _words(summary: RealSummary) -> list[str]:
    from gpuyard.experiments.real.judging import best_is_predicted

    right, of = best_is_predicted(summary, summary.slots)
    lost = sum(each.lost for each in summary.replays)
    jobs = sum(each.jobs for each in summary.replays)
    lines = [f"The simulator named the best scheduler on {right} of {of} traces.", f"{jobs:,} jobs were run; {lost or 'none'} failed."]
    if summary.of(1):
        lines.append(f"One job at a time, the predicted turnaround of a job is off by {100 * summary.median_error(1):.1f} % (median).")
    return lines
