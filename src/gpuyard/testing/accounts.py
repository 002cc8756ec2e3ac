"""Recomputes the accounts of a result (totals, timeline) from the runs, the outages and the submits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.cluster import Cluster
from gpuyard.model.result import STATUS, Result
from gpuyard.testing.invariants import devices_out
from gpuyard.testing.reference.result import ReferenceResult

RELATIVE = 1e-9
_SPAN = np.dtype([("start", "f8"), ("end", "f8"), ("amount", "f8")])


def compare_accounts(result: Result, expected: ReferenceResult) -> list[str]:
    """Return differences of the totals and of every bin of the timeline beyond 1e-9 of their size."""
    workload, cluster = result.workload, result.cluster
    first = float(workload.jobs.submit[0]) if len(workload) else 0.0
    last_end = max([row.end for row in expected.rows if not math.isnan(row.end)], default=first)
    counted = ("passes", "preemptions", "failures", "queue_max", "queue_integral")
    totals: dict[str, float] = {"first_submit": first, "last_end": last_end} | {name: getattr(expected, name) for name in counted}
    for number, kind in enumerate(cluster.types):
        mine = cluster.nodes.gpu_type[expected.segment_table["node"]] == number
        totals[f"busy/{kind.name}"] = _sum(_busy(expected)[mine])
        totals[f"up/{kind.name}"] = _sum(_within(_up(cluster, number), first, last_end))
    return _compare_totals(result.totals, totals) or _compare_timeline(result, expected, first)


def _compare_totals(found: Mapping[str, float], expected: Mapping[str, float]) -> list[str]:
    return [
        f"{name}: simulated {found[name]}, from the runs {value}"
        for name, value in expected.items()
        if not math.isclose(found[name], value, rel_tol=RELATIVE, abs_tol=RELATIVE)
    ]


def _compare_timeline(result: Result, expected: ReferenceResult, first: float) -> list[str]:
    """Compare queue, busy and up, bin by bin."""
    bins = result.timeline
    if len(bins) == 0:
        return []
    last = float(bins["time"][-1] + bins["span"][-1])
    width = float(bins["time"][1] - bins["time"][0]) if len(bins) > 1 else last - first
    edges = np.append(bins["time"], bins["time"][-1] + width)
    up = np.concatenate([_up(result.cluster, number) for number in range(len(result.cluster.types))])
    series = {"queue": _waiting(expected, last), "busy": _busy(expected), "up": up}
    found = []
    for name, spans in series.items():
        integral = _per_bin(_within(spans, first, last), edges)
        scale = max(float(np.abs(integral).max()), 1.0) + last * RELATIVE * len(result)
        differs = np.abs(bins[name] * bins["span"] - integral) > RELATIVE * scale
        found += [
            f"timeline: {name} from {bins['time'][i]} s: simulated {bins[name][i] * bins['span'][i]}, from the runs {integral[i]}"
            for i in np.flatnonzero(differs)
        ]
    return found


def _busy(expected: ReferenceResult) -> Array:
    segments = expected.segment_table
    return _spans(segments["start"], segments["end"], segments["gpus"])


def _waiting(expected: ReferenceResult, last: float) -> Array:
    """Return one span for every stay of a job in the queue."""
    runs: dict[int, set[tuple[float, float]]] = {}
    for segment in expected.segments:
        runs.setdefault(segment.job, set()).add((segment.start, segment.end))
    stays = []
    for job, row in enumerate(expected.rows):
        since = expected.entered[job]
        if math.isnan(since):
            continue
        for start, end in sorted(runs.get(job, ())):
            stays.append((since, start, 1.0))
            since = end
        if row.status == STATUS[1]:
            stays.append((since, last, 1.0))
    return np.array(stays, _SPAN)


def _up(cluster: Cluster, kind: int) -> Array:
    """Return the devices of a type that are in order, node by node, between the begins and ends of outages."""
    out = devices_out(cluster)
    spans = []
    for n in np.flatnonzero(cluster.nodes.gpu_type == kind).tolist():
        outages = [outage for outage in cluster.outages if outage.node == n]
        partial = out[out["node"] == n]
        times = sorted({-math.inf, math.inf, *(o.start for o in outages), *(o.end for o in outages)})
        for start, end in pairwise(times):
            down = any(o.gpus is None and o.start <= start < o.end for o in outages)
            off = partial["amount"][(partial["start"] <= start) & (start < partial["end"])].sum()
            spans.append((start, end, 0.0 if down else float(cluster.nodes.gpus[n]) - off))
    return np.array(spans, _SPAN)


def _spans(start: Array, end: Array, amount: Array) -> Array:
    spans = np.zeros(len(start), _SPAN)
    spans["start"], spans["end"], spans["amount"] = start, end, amount
    return spans


def _within(spans: Array, first: float, last: float) -> Array:
    start, end = np.clip(spans["start"], first, last), np.clip(spans["end"], first, last)
    return _spans(start, end, spans["amount"])


def _sum(spans: Array) -> float:
    return float(((spans["end"] - spans["start"]) * spans["amount"]).sum())


def _per_bin(spans: Array, edges: Array) -> Array:
    """Return (bins,) the integral of the amounts over each bin: differences of the integral up to each edge."""
    total = np.zeros(len(edges))
    for start, end, amount in spans.tolist():
        total += amount * (np.clip(edges, start, end) - start)
    return np.diff(total)
