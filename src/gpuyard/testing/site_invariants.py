"""Checks that a result keeps the rules of its site: partitions of each run, conditions of jobs, and every limit at every time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.cluster import Cluster
from gpuyard.model.result import STATUS
from gpuyard.model.rules import conditions_in
from gpuyard.model.site.eligibility import parse_conditions
from gpuyard.model.site.limits import Limit
from gpuyard.model.workload import Workload
from gpuyard.testing.reference.site import partitions_named

_SLACK = 1e-5
_ENDED = ("done", "killed", "rejected")


def check_site(table: Array, segments: Array, workload: Workload, cluster: Cluster) -> None:
    """Raise AssertionError, naming job and time, if a result breaks a rule of its site."""
    _check_partitions(segments, workload, cluster)
    _check_conditions(table, workload)
    starts, ends, jobs = _runs(segments)
    for limit in cluster.limits:
        if limit.partition or "partition" in limit.each:
            continue  # where a run could be of several partitions, the result does not say in which it was
        for members in _groups(limit, workload).values():
            inside = np.isin(jobs, members)
            _check_limit(limit, starts[inside], ends[inside], jobs[inside], workload)


def _runs(segments: Array) -> tuple[Array, Array, Array]:
    """Return the starts, ends and jobs of all runs."""
    unique = np.unique(segments[["start", "end", "job"]])
    return unique["start"], unique["end"], unique["job"]


def _check_partitions(segments: Array, workload: Workload, cluster: Cluster) -> None:
    named = [partitions_named(label, cluster) for label in workload.jobs.partitions]
    runs: dict[tuple[int, float], list[int]] = {}
    for segment in segments:
        runs.setdefault((int(segment["job"]), float(segment["start"])), []).append(int(segment["node"]))
    for (job, start), nodes in runs.items():
        homes = named[int(workload.jobs.partition[job])]
        if not any(all(cluster.nodes.of_partition(home)[node] for node in nodes) for home in homes):
            raise AssertionError(f"job {job} at {start} s: no partition of the job has all of the nodes {nodes}")


def _check_conditions(table: Array, workload: Workload) -> None:
    jobs = workload.jobs
    said = [parse_conditions(conditions_in(text)) for text in jobs.term_texts]
    rows = {number: row for row, number in enumerate(jobs.id.tolist())}
    status = [STATUS[number] for number in table["status"].tolist()]
    for job, start in enumerate(table["start"].tolist()):
        asked = said[int(jobs.terms[job])]
        if math.isnan(start) or not asked.any:
            continue
        if asked.held or start < jobs.submit[job] + asked.begin:
            raise AssertionError(f"job {job} at {start} s: started although it was held, or before its time")
        for leader in (rows[number] for number in (*asked.after, *asked.after_any) if number in rows):
            if status[leader] not in _ENDED or (status[leader] != "rejected" and table["end"][leader] > start):
                raise AssertionError(f"job {job} at {start} s: started before job {leader} had ended")
        if any(status[rows[number]] != "done" for number in asked.after if number in rows):
            raise AssertionError(f"job {job} at {start} s: started although a job that had to succeed did not")


def _groups(limit: Limit, workload: Workload) -> Mapping[tuple[int, ...], list[int]]:
    jobs = workload.jobs
    labels = {"user": jobs.users, "account": jobs.accounts, "qos": jobs.qoses}
    found: dict[tuple[int, ...], list[int]] = {}
    for job in range(len(jobs)):
        if all(getattr(limit, name) in ("", texts[int(getattr(jobs, name)[job])]) for name, texts in labels.items()):
            found.setdefault(tuple(int(getattr(jobs, name)[job]) for name in limit.each), []).append(job)
    return found


def _check_limit(limit: Limit, starts: Array, ends: Array, jobs: Array, workload: Workload) -> None:
    columns = workload.jobs
    gpus = columns.gpus[jobs]
    asked = gpus * np.where(np.isfinite(columns.walltime), columns.walltime, columns.estimate)[jobs]
    for time in np.unique(starts).tolist():
        now = (starts <= time) & (ends > time)
        spent = float((gpus * (ends - starts))[ends <= time].sum())
        amounts: Iterable[tuple[str, float, float]] = (
            ("jobs", float(now.sum()), limit.jobs),
            ("gpus", float(gpus[now].sum()), limit.gpus),
            ("running_gpu_minutes", float(asked[now].sum()), 60 * limit.running_gpu_minutes),
            ("gpu_minutes", spent + float(asked[now].sum()), 60 * limit.gpu_minutes),
        )
        for name, used, most in amounts:
            if used > most + _SLACK:
                raise AssertionError(f"job {int(jobs[now][0])} at {time} s: {name}: {used} in use, the limit is {most}")
