"""Describes a workload in words and as data, for `gpuyard show` and `gpuyard trace info`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpuyard.cli.common.output import short

if TYPE_CHECKING:
    from gpuyard.model.workload import Workload
    from gpuyard.traces.summary import Spread, WorkloadSummary

Facts = list[tuple[str, str]]
_KINDS = {
    "users": "users", "partitions": "partitions", "classes": "job classes", "gpu_types": "GPU types", "qoses": "QOS",
    "accounts": "accounts", "term_texts": "terms",
}  # fmt: skip


def facts_of(workload: Workload, cluster: str | None = None) -> Facts:
    """Describe jobs, span, sizes, run times, waits, load, labels, estimates, what is missing, and the cluster that would be guessed."""
    from gpuyard.traces.summary import summarise

    s = summarise(workload)
    facts: Facts = [("workload", s.name), ("jobs", f"{s.jobs:,}" + (f" of {s.rows:,} rows" if s.rows > s.jobs else ""))]
    facts += [("dropped", f"{count:,} rows: {reason}") for reason, count in s.dropped.items()]
    if s.jobs:
        facts += [*_when(s), *_work(s), *_estimates(s), *_where(workload, s, cluster)]
    facts += [("missing", ", ".join(s.missing))] if s.missing else []
    return facts + [("note", note) for note in s.notes]


def _when(s: WorkloadSummary) -> Facts:
    from gpuyard.model.units import format_seconds

    dates = f", {s.first} to {s.last}" if s.first else ""
    rate = f", {short(s.jobs_per_day)} jobs a day" if s.span else ""
    return [("submits", f"over {format_seconds(s.span)}{dates}{rate}")]


def _work(s: WorkloadSummary) -> Facts:
    cores = f", {short(s.core_hours)} core·h" if s.core_hours else ""
    device = f"{s.device}s"
    facts = [(device, _sizes(s.sizes, s.jobs)), ("work", f"{short(s.gpu_hours)} {s.device}·h{cores}"), ("run time", _times(s.run))]
    facts += [("wait in the log", f"{_times(s.wait)}; of {s.wait.count:,} jobs")] if s.wait.count else []
    facts += [("load", f"{short(s.mean_gpus)} {device} on average over the submits")] if s.span and s.gpu_hours else []
    return facts + ([("in use at once", f"up to {short(s.peak_gpus)} {device} by the log's starts")] if s.peak_gpus == s.peak_gpus else [])


def _times(spread: Spread) -> str:
    from gpuyard.model.units import format_seconds

    middle, low, high, mean, most = (format_seconds(x) for x in (spread.p50, spread.p5, spread.p95, spread.mean, spread.largest))
    return f"{middle} median; {low} to {high} for nine tenths; mean {mean}, longest {most}"


def _sizes(sizes: dict[str, int] | Any, jobs: int) -> str:
    """List the eight sizes that occur most, ascending."""
    top = sorted(sorted(sizes, key=lambda size: -sizes[size])[:8], key=float)
    text = ", ".join(f"{size} ({sizes[size] / jobs:.0%})" for size in top)
    return text + (f" and {len(sizes) - 8} more sizes, up to {max(sizes, key=float)}" if len(sizes) > 8 else "")


def _estimates(s: WorkloadSummary) -> Facts:
    ratio = f"; median {s.estimate.p50:.2f} × the run time" if s.estimate.count else ""
    asked = f"; {s.requested:,} jobs ask for a time" if s.requested else ""
    facts = [("estimates", f"{s.estimates}{ratio}; {s.too_short:.1%} too short{asked}")]
    facts += [("deadlines", f"{s.deadlines:,} jobs")] if s.deadlines else []
    return [*facts, ("priorities", _names([f"{value:g}" for value in s.priorities]))]


def _where(workload: Workload, s: WorkloadSummary, cluster: str | None) -> Facts:
    busiest = f"; the busiest has {s.busiest_user:.0%} of the jobs"
    facts = [(label, _names(s.labels[kind]) + (busiest if kind == "users" else "")) for kind, label in _KINDS.items() if s.labels[kind]]
    facts += [("nodes", f"{len(workload.machines):,} in the trace")] if len(workload.machines) > 1 else []
    if cluster:
        from gpuyard.model.cluster_file import load_cluster

        return [*facts, (f"load on {cluster}", _load(s, load_cluster(cluster).gpus))]
    guess = guessed(workload)
    return [*facts, ("cluster", f"{guess['origin']}; {_load(s, guess['gpus'])}")]


def _load(s: WorkloadSummary, gpus: int) -> str:
    if not s.span or not gpus or not s.gpu_hours:
        return "almost no load on its devices"
    return f"{s.mean_gpus / gpus:.0%} of its devices, at speed 1"


def guessed(workload: Workload) -> dict[str, Any]:
    """Return the cluster that would be used unless another is given."""
    from gpuyard.errors import DataError
    from gpuyard.traces import guess_cluster

    try:
        cluster, origin = guess_cluster(workload)
    except DataError as error:
        return {"name": "", "nodes": 0, "gpus": 0, "origin": f"no cluster can be guessed: {error}"}
    return {"name": cluster.name, "nodes": len(cluster.nodes), "gpus": cluster.gpus, "origin": origin}


def _names(names: Sequence[str]) -> str:
    return f"{len(names):,}: " + ", ".join(names[:8]) + (" …" if len(names) > 8 else "")


def data_of(workload: Workload, file: str, form: str) -> dict[str, Any]:
    """Return all facts as numbers, for json."""
    from gpuyard.traces.summary import summarise

    return {"file": file, "format": form} | asdict(summarise(workload)) | {"cluster": guessed(workload)}


def record_of(data: dict[str, Any]) -> dict[str, Any]:
    """Return one line of csv."""
    flat = {
        name: data[name] for name in ("file", "format", "jobs", "rows", "first", "last", "span", "jobs_per_day", "gpu_hours", "mean_gpus")
    }
    flat |= {f"{name}_{part}": data[name][part] for name in ("run", "wait", "estimate") for part in ("mean", "p50", "p95")}
    flat |= {kind: len(names) for kind, names in data["labels"].items()}
    return flat | {"cluster": data["cluster"]["name"], "cluster_gpus": data["cluster"]["gpus"]}
