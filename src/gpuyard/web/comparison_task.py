"""Compares schedulers in a process of its own: `python -m gpuyard.web.comparison_task`. What to compare comes as JSON on stdin.

Each line on stdout is JSON: how far it is, and at the end what came out, with what is needed to play it back in time.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpuyard.errors import GpuyardError, UsageError
from gpuyard.experiments.judging.text import metric_title
from gpuyard.model.result import Result
from gpuyard.notebook.calls import compare, simulate_many, workload_of
from gpuyard.report.gantt import rows_of, span_of
from gpuyard.report.tables import as_data
from gpuyard.web.plain import plain, thinned

MOST_JOBS = 50_000
MOST_MEMORY = 8 << 30  # bytes of data
MOST_SECONDS = 900  # of CPU
MOST_SPANS = 1500  # in the chart of a scheduler
MOST_DEVICES = 128


def main() -> int:
    """Do what stdin says."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    os.nice(5)  # the dashboard and the jobs of this machine go first
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(**what: Any) -> None:
        out.write(json.dumps(what, allow_nan=False) + "\n")
        out.flush()

    try:
        given = json.loads(sys.stdin.read())
        tell(**_compared(given, lambda done: tell(done=done)))
    except GpuyardError as error:
        text = str(error).removesuffix(f"; hint: {error.hint}") if error.hint else str(error)
        tell(error=plain(text)[:1000], hint=plain(error.hint)[:300])
    except MemoryError:
        tell(error="it takes more memory than a comparison may have here", hint="fewer jobs or nodes")
    except Exception as error:
        tell(error=plain(" ".join(f"{type(error).__name__}: {error}".split()))[:500])
    return 0


def _compared(given: dict[str, Any], progress: Callable[[int], None]) -> dict[str, Any]:
    workload, cluster, schedulers, seeds = given["workload"], given["cluster"] or None, given["schedulers"], given["seeds"]
    jobs = workload_of(workload)
    if len(jobs) > MOST_JOBS:
        raise UsageError(f"{workload}: {len(jobs):,} jobs; at most {MOST_JOBS:,} are compared here", hint="gpuyard compare has no limit")
    progress(0)
    summary = compare(schedulers, workload, cluster, seeds=seeds, threads=2, progress=progress)
    results = summary.results
    told = plain(as_data(summary))
    told["names"] = {name: plain(results.name(name)) for name in results.schedulers}
    told["titles"] = {name: plain(metric_title(name)) for name in summary.metrics}
    runs = simulate_many(workload, cluster, schedulers or [each for each in results.schedulers if each != "log"], segments=True)
    return {"result": told, "play": played(runs)}


def played(runs: Sequence[Result]) -> dict[str, Any]:
    """Return who held what, how long the queue was and how much was busy, of each scheduler in the same window of time."""
    window = _window(runs)
    rows = rows_of(runs[0])
    nodes = int((rows.first + rows.size <= MOST_DEVICES).sum()) or 1
    names = [f"{plain(runs[0].cluster.nodes.names[k])}:{d}" for k in range(nodes) for d in range(int(rows.size[k]))]
    return {
        "from": window[0], "until": window[1], "devices": names[:MOST_DEVICES],
        "left_out": max(int(runs[0].cluster.gpus) - len(names), 0),
        "runs": [_run(each, window, rows.first[:nodes].tolist()) for each in runs],
    }  # fmt: skip


def _window(runs: Sequence[Result]) -> tuple[float, float]:
    """Return the time in which the most jobs wait that a chart can show: all of it where that is possible."""
    low, high = min(span_of(each)[0] for each in runs), max(span_of(each)[1] for each in runs)
    starts = [np.sort(each.segments["start"]) for each in runs]
    middle = float(runs[0].timeline["time"][int(np.argmax(runs[0].timeline["queue"]))]) if len(runs[0].timeline) else low
    half = (high - low) / 2
    while half > 1.0:
        first = min(max(middle - half, low), max(high - 2 * half, low))
        if all(np.searchsorted(each, first + 2 * half) - np.searchsorted(each, first) <= MOST_SPANS for each in starts):
            return first, first + 2 * half
        half *= 0.8
    return middle, middle + 2.0


def _run(result: Result, window: tuple[float, float], first: Sequence[int]) -> dict[str, Any]:
    bins = result.timeline
    inside = bins[(bins["time"] + bins["span"] >= window[0]) & (bins["time"] <= window[1])]
    chosen = inside[thinned(len(inside))]
    parts = result.segments
    parts = parts[(parts["end"] > window[0]) & (parts["start"] < window[1]) & (parts["node"] < len(first))][: 2 * MOST_SPANS]
    spans = []
    for job, node, gpus, devices, start, end in parts.tolist():
        held = [k for k in range(64) if devices >> k & 1] if devices else list(range(int(gpus)))
        spans.append([job, str(job), "", [first[node] + k for k in held], round(start, 1), round(end, 1)])
    ends = np.sort(result.table["end"][np.isfinite(result.table["end"])])
    return {
        "scheduler": result.scheduler, "spans": spans, "times": plain(chosen["time"]), "queue": plain(chosen["queue"]),
        "busy": plain(chosen["busy"]),
        "ended": [int(n) for n in np.searchsorted(ends, chosen["time"] + chosen["span"] + 1.0)], "jobs": len(result),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
