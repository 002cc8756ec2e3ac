"""Results written by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from gpuyard.model.cluster import Cluster
from gpuyard.model.result import BIN, ROW, SEGMENT, STATUS, Result
from gpuyard.model.workload import Workload

Make = Callable[..., Result]


def _result(
    rows: Sequence[tuple[float, float, float, float, str]] = (),
    *,
    cluster: Cluster | None = None,
    columns: Mapping[str, Any] | None = None,
    node: Sequence[int] | None = None,
    nodes: Sequence[int] | None = None,
    ran: Sequence[float] | None = None,
    preemptions: Sequence[int] | None = None,
    timeline: Sequence[tuple[float, ...]] = (),
    segments: Sequence[tuple[float, ...]] = (),
    totals: Mapping[str, float] | None = None,
    manifest: Mapping[str, Any] | None = None,
    **labels: Any,
) -> Result:
    """rows: (submit, start, end, runtime, status), submit ascending; 1 GPU each unless `columns` says otherwise."""
    given = np.array([row[:4] for row in rows], dtype=np.float64).reshape(len(rows), 4)
    submit, start, end, runtime = given.T
    workload = Workload.build({"submit": submit, **(columns or {})}, runtime, **labels)
    table = np.zeros(len(rows), ROW)
    table["start"], table["end"] = start, end
    table["ran"] = np.nan_to_num(end - start) if ran is None else ran
    table["gpu_seconds"] = table["ran"] * workload.jobs.gpus
    table["node"] = np.where(np.isnan(start), -1, 0) if node is None else node
    table["nodes"] = ~np.isnan(start) if nodes is None else nodes
    table["preemptions"] = 0 if preemptions is None else preemptions
    table["status"] = [STATUS.index(row[4]) for row in rows]
    return Result(
        workload=workload,
        cluster=cluster or Cluster.uniform(2, 4),
        scheduler="by hand",
        seed=0,
        table=table,
        timeline=np.array(list(timeline), BIN),
        segments=np.array(list(segments), SEGMENT),
        totals=MappingProxyType(dict(totals or {})),
        manifest=MappingProxyType(dict(manifest or {})),
    )


@pytest.fixture
def make() -> Make:
    return _result
