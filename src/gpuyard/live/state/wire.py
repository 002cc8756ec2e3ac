"""A snapshot as bytes, for a process of our own: a line of JSON with all that is small, then the arrays."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.files import from_plain, to_plain
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import cluster_from_dict, cluster_to_dict
from gpuyard.model.jobs import JOB, LABELS, Jobs
from gpuyard.model.rules import Rules
from gpuyard.model.snapshot import ENDED, HELD, LIVE, NODE, Snapshot

VERSION = 3  # of what is written
_ARRAYS = {"jobs": JOB, "live": LIVE, "held": HELD, "nodes": NODE, "ended": ENDED, "homes": np.dtype(np.int32)}
_LAYOUT = [VERSION, *(kind.itemsize for kind in _ARRAYS.values())]


class SnapshotWriter:
    """Writes snapshots one after the other. The cluster and the rules are sent when they change."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None

    def write(self, snapshot: Snapshot) -> list[bytes | memoryview]:
        """Return a snapshot as pieces of memory, one behind the other. The arrays are the snapshot's own."""
        arrays = {"jobs": snapshot.jobs.table, **{name: getattr(snapshot, name) for name in _ARRAYS if name != "jobs"}}
        head: dict[str, Any] = {
            "version": _LAYOUT, "now": snapshot.now, "submitted": snapshot.submitted, "excess": snapshot.excess,
            "labels": snapshot.jobs.labels, "spent": dict(snapshot.spent),
            "counts": {name: len(array) for name, array in arrays.items()},
        }  # fmt: skip
        if snapshot.cluster is not self._cluster:
            head["cluster"] = to_plain(cluster_to_dict(snapshot.cluster), "cluster")
            head["rules"] = to_plain(vars(snapshot.rules), "rules")
            self._cluster = snapshot.cluster
        return [json.dumps(head).encode(), b"\n", *(_bytes_of(array) for array in arrays.values() if len(array))]


def _bytes_of(array: Array) -> memoryview:
    return np.ascontiguousarray(array).view(np.uint8).data


class SnapshotReader:
    """Reads what a `SnapshotWriter` wrote, in the same order. Equal clusters are one object, so that deciders keep their state."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None
        self._rules = Rules()
        self._labels: dict[str, Any] = {}

    def read(self, data: bytes) -> Snapshot:
        """Return the snapshot."""
        end = data.index(b"\n")
        head = json.loads(data[:end])
        if head.get("version") != _LAYOUT:
            raise DataError("snapshot: another version of gpuyard wrote it", hint="restart the node: gpuyard node stop, gpuyard node start")
        if "cluster" in head:
            self._cluster = cluster_from_dict(from_plain(head["cluster"]))
            self._rules = Rules(**from_plain(head["rules"]))
        if self._cluster is None:
            raise DataError("snapshot: it has no cluster, and is the first")
        labels = {name: tuple(head["labels"][name]) for name in LABELS.values()}
        if labels != self._labels:
            self._labels = labels
        found: dict[str, Any] = {}
        at = end + 1
        for name, kind in _ARRAYS.items():
            count = head["counts"][name]
            found[name] = np.frombuffer(data, kind, count, at).copy()
            at += count * kind.itemsize
        jobs = Jobs(found.pop("jobs"), **self._labels)
        found |= {name: head[name] for name in ("submitted", "excess", "spent")}
        return Snapshot(head["now"], jobs, cluster=self._cluster, rules=self._rules, seed=0, **found)
