"""Checks what must hold for any result, from the columns of the rows and segments alone.

Cost: loops over jobs and segments and a few sorts; some 30,000 jobs a second at 2,000 jobs that ran once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.cluster import MAX_DEVICES, Cluster
from gpuyard.model.result import STATUS
from gpuyard.model.rules import Rules, parse_terms
from gpuyard.model.workload import Workload
from gpuyard.testing.reference.site import partitions_named
from gpuyard.testing.site_invariants import check_site

SLACK = 1e-5  # for shares, cpus, GB and quotas: what the engine's tolerance can add up to
RELATIVE = 1e-6  # for work and times that are sums over runs


@dataclass(frozen=True)
class Run:
    """One uninterrupted stay of a job on its devices."""

    start: float  # s
    end: float  # s
    nodes: tuple[int, ...]
    gpus: tuple[float, ...]  # per node
    devices: tuple[int, ...]  # per node, bit sets


@dataclass(frozen=True)
class _Checked:
    """The arguments of `check_invariants`, with the jobs' home partitions and runs."""

    table: Array  # (jobs,) of ROW
    segments: Array  # (parts,) of SEGMENT
    workload: Workload
    cluster: Cluster
    rules: Rules
    home: Array  # (jobs,) int, -1: none
    runs: dict[int, list[Run]]


def check_invariants(table: Array, segments: Array, workload: Workload, cluster: Cluster, rules: Rules) -> None:
    """Raise AssertionError, naming job and time, if a result breaks a law of the model.

    `table` has a row of ROW per job, `segments` all parts of all runs (simulate with `segments=True`).
    """
    home = home_partitions(workload, cluster)
    checked = _Checked(table, segments, workload, cluster, rules, home, runs_of(segments))
    check_segments(checked)
    check_runs(checked)
    check_rows(checked)
    check_work(checked)
    check_devices(checked)
    check_hosts(checked)
    check_outages(checked)
    check_quotas(checked)
    check_site(table, segments, workload, cluster)


def fail(job: int, time: float, what: str) -> NoReturn:
    raise AssertionError(f"job {job} at {time} s: {what}")


def home_partitions(workload: Workload, cluster: Cluster) -> Array:
    """Return (jobs,) the number of each job's partition in the cluster; −1 if the cluster has no such partition."""
    if len(cluster.partitions) == 1:
        return np.zeros(len(workload), np.int64)
    by_label = np.array([next(iter(partitions_named(label, cluster)), -1) for label in workload.jobs.partitions], np.int64)
    return by_label[workload.jobs.partition]


def runs_of(segments: Array) -> dict[int, list[Run]]:
    """Map each job to its runs in order of time; the parts of one run have the same start."""
    groups: dict[tuple[int, float], list[Array]] = defaultdict(list)
    for segment in segments:
        groups[int(segment["job"]), float(segment["start"])].append(segment)
    runs: dict[int, list[Run]] = defaultdict(list)
    for (job, start), parts in sorted(groups.items(), key=lambda item: item[0]):
        ends = {float(part["end"]) for part in parts}
        if len(ends) > 1:
            fail(job, start, f"the parts of one run end at {sorted(ends)} s")
        nodes = tuple(int(part["node"]) for part in parts)
        gpus = tuple(float(part["gpus"]) for part in parts)
        runs[job].append(Run(start, ends.pop(), nodes, gpus, tuple(int(part["devices"]) for part in parts)))
    return runs


# --- where ------------------------------------------------------------------------------------------------------------


def check_segments(c: _Checked) -> None:
    """Check that every part is on a node that exists, of the job's partition and of a type it allows, with as many devices."""
    jobs, nodes = c.workload.jobs, c.cluster.nodes
    named = [partitions_named(label, c.cluster) for label in jobs.partitions]
    for segment in c.segments:
        job, n, start = int(segment["job"]), int(segment["node"]), float(segment["start"])
        if not (0 <= job < len(jobs) and 0 <= n < len(nodes)):
            fail(job, start, f"runs on node {n}; there are {len(jobs)} jobs and {len(nodes)} nodes")
        if not set(nodes.partitions_of(n)) & set(named[jobs.partition[job]]):
            fail(job, start, f"node {n} is of partition {nodes.partition[n]}, the job of {c.home[job]}")
        wanted = jobs.gpu_types[jobs.gpu_type[job]]
        kind = c.cluster.types[nodes.gpu_type[n]].name
        if jobs.gpus[job] > 0 and wanted and kind not in wanted.split("|"):
            fail(job, start, f"node {n} has {kind}, the job asked for {wanted}")
        if nodes.gpus[n] <= MAX_DEVICES:
            held, gpus = int(segment["devices"]), float(segment["gpus"])
            if held.bit_count() != math.ceil(gpus) or held >> int(nodes.gpus[n]):
                fail(job, start, f"device set {held:#x} on node {n} is not {gpus} of its {nodes.gpus[n]} GPUs")


def check_runs(c: _Checked) -> None:
    """Check that gangs are complete and in chunks, no run begins before its submit, and runs of a job do not overlap."""
    jobs = c.workload.jobs
    for job, runs in c.runs.items():
        gpus, chunk = float(jobs.gpus[job]), int(jobs.chunk[job])
        before = -math.inf
        for run in runs:
            if run.start < jobs.submit[job]:
                fail(job, run.start, f"started before its submit at {jobs.submit[job]} s")
            if run.end < run.start:
                fail(job, run.start, f"ended at {run.end} s, before it started")
            if run.start < before:
                fail(job, run.start, f"started while its earlier run, until {before} s, went on")
            before = run.end
            if sum(run.gpus) != gpus:
                fail(job, run.start, f"got {sum(run.gpus)} GPUs of {gpus}: the gang is incomplete")
            if len(set(run.nodes)) < len(run.nodes) or (gpus < 1 and len(run.nodes) > 1):
                fail(job, run.start, f"has its parts on nodes {run.nodes}")
            if gpus >= 1 and any(part % chunk for part in run.gpus):
                fail(job, run.start, f"got {run.gpus} GPUs on its nodes, not in chunks of {chunk}")


# --- rows against runs --------------------------------------------------------------------------------------------------


def check_rows(c: _Checked) -> None:
    """Check that the row of a job agrees with its runs."""
    for job, row in enumerate(c.table):
        status = STATUS[row["status"]]
        runs = c.runs.get(job, [])
        ended = status in ("done", "killed")
        if status not in ("waiting", "done", "killed", "rejected") or (status == "rejected") != bool(row["reason"]):
            fail(job, math.nan, f"is left {status}, reason {int(row['reason'])}")
        if (ended and not runs) or (runs and status == "rejected"):
            fail(job, float(row["start"]), f"is {status} with {len(runs)} runs")
        if int(row["preemptions"]) != len(runs) - ended:
            fail(job, float(row["start"]), f"was stopped {row['preemptions']} times, but is {status} after {len(runs)} runs")
        _same_time(job, row, "start", runs[0].start if runs else math.nan)
        _same_time(job, row, "end", runs[-1].end if ended else math.nan)
        ran = sum(run.end - run.start for run in runs)
        gpu_seconds = sum((run.end - run.start) * sum(run.gpus) for run in runs)
        for name, expected in (("ran", ran), ("gpu_seconds", gpu_seconds)):
            if not math.isclose(row[name], expected, rel_tol=RELATIVE, abs_tol=RELATIVE):
                fail(job, float(row["start"]), f"{name} = {row[name]}, its segments sum to {expected}")
        if int(row["nodes"]) != (len(runs[-1].nodes) if runs else 0):
            fail(job, float(row["start"]), f"nodes = {row['nodes']}, which its last run contradicts")
        if int(row["node"]) not in (runs[-1].nodes if runs else (-1,)):
            fail(job, float(row["start"]), f"node = {row['node']}, which its last run does not use")


def _same_time(job: int, row: Array, name: str, expected: float) -> None:
    found = float(row[name])
    if found != expected and not (math.isnan(found) and math.isnan(expected)):
        fail(job, expected, f"{name} = {found}, its segments say {expected}")


def rate_of(c: _Checked, job: int, run: Run, *, silent: bool = False) -> float:
    """Return reference seconds of work per second of the run, from its nodes. `silent`: it writes no checkpoints."""
    working = 1.0 if silent else _terms(c, job)[1]
    if c.workload.jobs.gpus[job] == 0:
        return working
    nodes, label = c.cluster.nodes, c.workload.jobs.classes[c.workload.jobs.job_class[job]]
    slowest = min(c.cluster.speed_of(label, c.cluster.types[nodes.gpu_type[n]]) for n in run.nodes)
    racks = len({int(nodes.rack[n]) for n in run.nodes})
    locality = c.cluster.span_racks if racks > 1 else c.cluster.span_nodes if len(run.nodes) > 1 else 1.0
    return slowest * locality * working


def _terms(c: _Checked, job: int) -> tuple[float, float, float]:
    """Return the restart cost of a job (s, with its drain), the part of its time that is work, and the time between checkpoints."""
    said = parse_terms(c.workload.jobs.term_texts[c.workload.jobs.terms[job]])
    own = c.rules if said.preemptible else Rules()
    every, cost, drain, restart = (
        ours if math.isnan(its) else its
        for its, ours in (
            (said.checkpoint, math.inf if said.once else c.rules.checkpoint), (said.checkpoint_cost, own.checkpoint_cost),
            (said.drain, own.drain), (said.restart_cost, c.rules.restart_cost),
        )
    )  # fmt: skip
    return restart + drain, every / (every + cost) if cost > 0 and 0 < every < math.inf else 1.0, every


def _may_be_silent(c: _Checked, job: int) -> bool:
    """Whether runs of the job need not write checkpoints: it may be stopped, and writing costs something."""
    said = parse_terms(c.workload.jobs.term_texts[c.workload.jobs.terms[job]])
    return said.preemptible is True and not said.once and _terms(c, job)[1] < 1.0


def transfer_of(c: _Checked, job: int, run: Run) -> float:
    """Return the seconds of transfer with which the run begins, for the slowest of its device types."""
    transfer = float(c.workload.jobs.transfer[job])
    if c.workload.jobs.gpus[job] == 0:
        return transfer
    return transfer * max(c.cluster.types[int(c.cluster.nodes.gpu_type[n])].transfer for n in run.nodes)


def check_work(c: _Checked) -> None:
    """Check that no work is lost or invented: exactly for a single run, within RELATIVE over several."""
    jobs = c.workload.jobs
    for job, runs in c.runs.items():
        row, runtime = c.table[job], float(c.workload.runtime[job])
        status, walltime = STATUS[row["status"]], float(jobs.walltime[job])
        rates = [rate_of(c, job, run) for run in runs]
        if _may_be_silent(c, job) and (row["rate"] != rates[-1] or len(runs) > 1):  # which of several were is not known: as fast as may be
            rates = [rate_of(c, job, run, silent=True) for run in runs]
        if row["rate"] != rates[-1] and row["rate"] != rate_of(c, job, runs[-1]):
            fail(job, runs[-1].start, f"rate = {row['rate']}, its nodes give {rates[-1]}")
        transfers = [transfer_of(c, job, run) for run in runs]
        overheads = [transfer + (_terms(c, job)[0] if k > 0 else 0.0) for k, transfer in enumerate(transfers)]
        work = sum(max(r.end - r.start - o, 0.0) * rate for r, o, rate in zip(runs, overheads, rates, strict=True))
        slack = RELATIVE * (1 + runtime) + 1e-12 * runs[-1].end * max(rates)
        if status == "killed":
            _check_killed(c, job, runs, walltime)
        elif status == "done" and len(runs) == 1 and runs[0].end != runs[0].start + (transfers[0] + runtime / rates[0]):
            fail(job, runs[0].end, f"ended, but {runs[0].start} + {transfers[0]} + {runtime} / {rates[0]} s is another time")
        elif status == "done" and work < runtime - slack:
            fail(job, runs[-1].end, f"is done with {work} s of work of {runtime}")
        if _terms(c, job)[2] == 0 and work > runtime + slack:
            fail(job, runs[-1].end, f"has done {work} s of work of {runtime} though nothing was lost")
        if c.rules.walltime_kill and status == "done" and row["ran"] > walltime + slack:
            fail(job, runs[-1].end, f"ran {row['ran']} s, its walltime is {walltime} s")


def _check_killed(c: _Checked, job: int, runs: list[Run], walltime: float) -> None:
    if not c.rules.walltime_kill:
        fail(job, runs[-1].end, "was killed, although walltime_kill is off")
    last = runs[-1]
    left = max(walltime - sum(run.end - run.start for run in runs[:-1]), 0.0)
    if not math.isclose(last.end - last.start, left, rel_tol=RELATIVE, abs_tol=RELATIVE * (1 + last.end)):
        fail(job, last.end, f"was killed {last.end - last.start} s into a run, with {left} s of its walltime left")


# --- resources over time --------------------------------------------------------------------------------------------------


def check_load(group: Array, capacity: Array, claims: Array, what: str) -> None:
    """Check that no group (a node, a device, a partition) is ever loaded beyond its capacity.

    `claims` has fields job, start, end, amount; a claim holds over [start, end). A claim of length 0 holds at that instant,
    after everything that ends then.
    """
    lasting = claims["end"] > claims["start"]
    times = np.concatenate([claims["start"][lasting], claims["end"][lasting]])
    deltas = np.concatenate([claims["amount"][lasting], -claims["amount"][lasting]])
    owners = np.concatenate([np.flatnonzero(lasting)] * 2)
    order = np.lexsort((deltas > 0, times, group[owners]))  # at one time, what leaves leaves first
    loads = np.cumsum(deltas[order])  # every group ends at zero, so one sum serves all
    over = loads > capacity[group[owners[order]]] + SLACK
    if over.any():
        at = int(np.argmax(over))
        owner = owners[order[at]]
        limit = capacity[group[owner]]
        fail(int(claims["job"][owner]), float(times[order[at]]), f"{what} {group[owner]} has {limit} and gives {loads[at]}")
    for i in np.flatnonzero(~lasting):
        time = claims["start"][i]
        around = (group == group[i]) & (claims["start"] < time) & (claims["end"] > time)
        load = claims["amount"][i] + claims["amount"][around].sum()
        if load > capacity[group[i]] + SLACK:
            fail(int(claims["job"][i]), float(time), f"{what} {group[i]} has {capacity[group[i]]} and gives {load}")


_CLAIM = np.dtype([("job", "i8"), ("start", "f8"), ("end", "f8"), ("amount", "f8")])


def _claims(segments: Array, amount: Array) -> Array:
    claims = np.zeros(len(segments), _CLAIM)
    for name in ("job", "start", "end"):
        claims[name] = segments[name]
    claims["amount"] = amount
    return claims


def check_devices(c: _Checked) -> None:
    """Check that no device is given twice or beyond its shares, and no node gives more devices than are in order."""
    capacity = c.cluster.nodes.gpus.astype(np.float64)
    out = devices_out(c.cluster)
    taken = np.concatenate([_claims(c.segments, c.segments["gpus"]), out[["job", "start", "end", "amount"]].astype(_CLAIM)])
    check_load(np.concatenate([c.segments["node"], out["node"]]), capacity, taken, "GPUs: node")
    for device in range(int(min(capacity.max(), MAX_DEVICES))):
        held = c.segments[(c.segments["devices"] >> np.uint64(device)) & np.uint64(1) == 1]
        check_load(held["node"], np.ones(len(capacity)), _claims(held, np.minimum(held["gpus"], 1.0)), f"device {device}: node")


def devices_out(cluster: Cluster) -> Array:
    """Return the partial outages as claims of job −1 on their nodes, never on more devices than a node has left."""
    partial = [outage for outage in cluster.outages if outage.gpus is not None]
    out = np.zeros(len(partial), np.dtype([("node", "i8"), *_CLAIM.descr]))
    out["job"] = -1
    for i in sorted(range(len(partial)), key=lambda i: (partial[i].start, i)):
        outage = partial[i]
        holding = (out["node"] == outage.node) & (out["start"] <= outage.start) & (out["end"] > outage.start)
        left = int(cluster.nodes.gpus[outage.node]) - out["amount"][holding].sum()
        out[i] = (outage.node, -1, outage.start, outage.end, min(outage.gpus or 0, left))
    return out


def check_hosts(c: _Checked) -> None:
    """Check that cpus and memory in use never exceed the node's."""
    jobs, of = c.workload.jobs, c.segments["job"]
    whole = jobs.gpus[of] >= 1
    fraction = np.where(whole, c.segments["gpus"] / np.where(whole, jobs.gpus[of], 1.0), 1.0)
    for name in ("cpus", "memory"):
        need = getattr(jobs, name)[of] * fraction
        check_load(c.segments["node"], getattr(c.cluster.nodes, name), _claims(c.segments, need), f"{name}: node")


def check_outages(c: _Checked) -> None:
    """Check that nothing runs on a node that is down, also no run of length 0 from the instant of the failure on."""
    for outage in c.cluster.outages:
        if outage.gpus is not None:
            continue
        s = c.segments
        during = (s["start"] < outage.end) & ((s["end"] > outage.start) | (s["start"] >= outage.start))
        bad = np.flatnonzero((s["node"] == outage.node) & during)
        if len(bad):
            fail(int(s["job"][bad[0]]), float(s["start"][bad[0]]), f"uses node {outage.node}, down from {outage.start} to {outage.end} s")


def check_quotas(c: _Checked) -> None:
    """Check that the GPUs in use in a partition never exceed its quota."""
    quota = np.array([partition.quota for partition in c.cluster.partitions])
    check_load(c.home[c.segments["job"]], quota, _claims(c.segments, c.segments["gpus"]), "quota: partition")
