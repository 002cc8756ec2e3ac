"""Makes a snapshot of all that is visible of a simulation, and others of a snapshot: some of its jobs, or after decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.site import spent_of
from gpuyard.model.cluster import Cluster
from gpuyard.model.decision import Action, Decision, Part
from gpuyard.model.jobs import Jobs
from gpuyard.model.rules import Rules
from gpuyard.model.snapshot import ENDED, HELD, LIVE, NODE, RECENT, Snapshot

_COPIED = ("ran", "queued", "start", "run_start", "rate", "done", "est_end", "reached", "preemptions", "barren", "silent")


def snapshot_of(s: st.State, jobs: Jobs, cluster: Cluster, rules: Rules, seed: int, mix: Array) -> Snapshot:
    """Return what is visible of a simulation now."""
    status = s.rows["status"][: int(s.control["next_job"][0])]
    offered = (status == st.WAITING) & (s.rows["benched"][: len(status)] == 0)  # not over a limit
    seen = np.flatnonzero(offered | (status == st.RUNNING))
    rows = s.rows[seen]
    table = jobs.table[seen]
    table["estimate"] = rows["estimate"]  # it may have been made in this simulation
    live = np.zeros(len(seen), LIVE)
    for name in _COPIED:
        live[name] = rows[name]
    live["running"] = rows["status"] == st.RUNNING
    revise_ends(live, table["walltime"], float(s.control["now"][0]), rules)
    live["attained"] = rows["ran"] * rows["gpus"]
    nodes = np.zeros(len(cluster.nodes), NODE)
    usable = s.nodes["mask"].copy()
    number = s.nodes["number"]
    row, pieces = _held_pieces(s, rows["alloc"])
    np.bitwise_or.at(usable, pieces["node"], pieces["mask"])
    held = np.zeros(len(row), HELD)
    held["row"], held["node"], held["gpus"], held["device"] = row, number[pieces["node"]], pieces["gpus"], pieces["gpu"]
    held["devices"] = pieces["mask"]
    nodes["down"][number] = s.nodes["down"]
    nodes["off"][number] = s.nodes["off"]
    nodes["mask"][number] = usable
    now = float(s.control["now"][0])
    submits = s.rows["submit"][: int(s.control["next_job"][0])]
    return Snapshot(
        now, jobs.with_table(table), live, held, nodes,
        cluster, rules, seed, int(s.control["active"][0]), int(len(submits) - np.searchsorted(submits, now - RECENT, "right")), mix,
        s.users["usage"].copy(), float(s.control["half_life"][0]), float(s.control["excess"][0]), spent=spent_of(s, jobs, cluster),
        homes=homes_of(rows),
    )  # fmt: skip


def homes_of(rows: Array) -> Array:
    """(jobs,) int32: the partition in which each job runs, where it shares nodes with others, or -1; (0,) where none does."""
    found = np.where((rows["status"] == st.RUNNING) & (rows["plain"] < 0), -1 - rows["plain"].astype(np.int32), -1).astype(np.int32)
    return found if (found >= 0).any() else found[:0]


def _held_pieces(s: st.State, alloc: Array) -> tuple[Array, Array]:
    """(parts,) rows and parts of the jobs whose first parts are `alloc`, by row, the parts of a job in their order."""
    row = np.flatnonzero(alloc >= 0)
    at = alloc[row]
    rows, found = [row], [at]
    while len(at):  # the first part of every job, then the second of those that have one, …
        at = s.parts["next"][at]
        row, at = row[at >= 0], at[at >= 0]
        rows.append(row)
        found.append(at)
    every = np.concatenate(rows)
    order = np.argsort(every, kind="stable")
    return every[order], s.parts[np.concatenate(found)[order]]


def ended_since(s: st.State, reported: Array) -> Array:
    """Return the jobs that have ended and are not yet marked in `reported` (jobs,) bool, as rows of ENDED; marks them."""
    status = s.rows["status"][: int(s.control["next_job"][0])]
    new = np.flatnonzero(((status == st.DONE) | (status == st.KILLED)) & ~reported[: len(status)])
    reported[new] = True
    ended = np.zeros(len(new), ENDED)
    ended["job"], ended["killed"] = new, status[new] == st.KILLED
    ended["start"], ended["end"] = s.rows["run_start"][new], s.result["end"][new]
    ended["node"] = s.result["node"][new]
    return ended


def revise_ends(live: Array, walltime: Array, now: float, rules: Rules) -> None:
    """Double the estimates of running jobs that have outlived them until the ends lie ahead, as a pass would."""
    late = np.flatnonzero(live["running"] & (live["est_end"] <= now))
    for k in late.tolist():
        begin, end = float(live["run_start"][k]), float(live["est_end"][k])
        while end <= now:
            end = begin + max(2.0 * (end - begin), 1.0)
        limit = begin + max(float(walltime[k]) - float(live["ran"][k]), 0.0)
        live["est_end"][k] = min(end, limit) if rules.walltime_kill and limit > now else end


# ── what a snapshot becomes ──


def rows_of(s: Snapshot, kept: Array) -> Snapshot:
    """Return the snapshot with some of its jobs, (jobs,) bool; every running one must be among them."""
    place = np.cumsum(kept) - 1
    held = s.held.copy()
    held["row"] = place[held["row"]]
    homes = s.homes[kept] if len(s.homes) else s.homes
    return replace(s, jobs=s.jobs.with_table(s.jobs.table[kept]), live=s.live[kept], held=held, homes=homes)


def carried_out(s: Snapshot, decisions: Sequence[Decision]) -> Snapshot:
    """Return the snapshot after some decisions have been carried out at the same instant."""
    live, rows = s.live.copy(), s.rows()
    stopped: set[int] = set()
    begun: dict[int, list[tuple[int, int, int, int, int]]] = {}
    homes = s.homes.copy() if len(s.homes) else np.full(len(live), -1, np.int32)
    for each in decisions:
        row = rows[each.job]
        homes[row] = each.partition
        if each.action in (Action.PREEMPT, Action.MIGRATE):
            live["running"][row] = False
            stopped.add(row)
            begun.pop(row, None)
        if each.action in (Action.START, Action.MIGRATE):
            live["running"][row], live["run_start"][row] = True, s.now
            live["rate"][row] = rate = _rate(s, row, each)
            live["est_end"][row] = s.now + max(float(s.jobs.table["estimate"][row]) - float(live["done"][row]), 0.0) / rate
            begun[row] = [_piece(s.jobs, row, part) for part in each.parts]
    held = s.held[~np.isin(s.held["row"], list(stopped))] if stopped else s.held
    held = np.concatenate([held, np.array([piece for pieces in begun.values() for piece in pieces], HELD)])
    return replace(s, live=live, held=held[np.argsort(held["row"], kind="stable")], homes=homes)


def _rate(s: Snapshot, row: int, decision: Decision) -> float:
    job_class = s.jobs.classes[s.jobs.table["job_class"][row]]
    types = {int(s.cluster.nodes.gpu_type[part.node]) for part in decision.parts}
    return min((s.cluster.speed_of(job_class, s.cluster.types[kind]) for kind in types), default=1.0)


def _piece(jobs: Jobs, row: int, part: Part) -> tuple[int, int, int, int, int]:
    whole = float(jobs.table["gpus"][row]) >= 1
    shared = 0 < float(jobs.table["gpus"][row]) < 1
    mask = sum(1 << device for device in part.devices)
    return row, part.node, int(part.gpus) if whole else 0, part.devices[0] if shared and part.devices else -1, mask
