"""Result → numbers: each metric defined once, with unit, direction, formula and source.

`measure(result, ["wait", "wait.p95", "utilization"])`; `measure_many(results, names)`;
`measure_by(result, ["bsld"], by="user")`; `counts(result)`.
"""

from __future__ import annotations

from gpuyard.metrics import jobs, objective, queue, stops, system  # registers the built-in metrics
from gpuyard.metrics.base import AGGREGATIONS, METRICS, Metric, aggregate, is_metric, measure, measure_many, metric, resolve
from gpuyard.metrics.groups import GROUPINGS, counts, measure_by, rejections
from gpuyard.metrics.queue import backlog_level, recovery_after

__all__ = [
    "AGGREGATIONS", "GROUPINGS", "METRICS", "Metric", "aggregate", "backlog_level", "counts", "is_metric", "jobs", "measure", "measure_by",
    "measure_many", "metric", "objective", "queue", "recovery_after", "rejections", "resolve", "stops", "system",
]  # fmt: skip
