"""State → snapshot, and snapshot → state, so that one pass can be run on what was seen of a real cluster."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.build import as_seen_by_kernels, build_state
from gpuyard.engine.compiler.entry import run_step
from gpuyard.engine.compiler.pointer import header_of
from gpuyard.engine.kernels.events import FILL
from gpuyard.engine.slots import Program
from gpuyard.errors import DataError, UsageError
from gpuyard.model.cluster import Cluster
from gpuyard.model.jobs import Jobs
from gpuyard.model.rules import Rules
from gpuyard.model.snapshot import ENDED, HELD, LIVE, NODE, Snapshot

_COPIED = ("ran", "queued", "start", "run_start", "rate", "done", "est_end", "preemptions")


def snapshot_of(s: st.State, jobs: Jobs, cluster: Cluster, rules: Rules, seed: int, mix: Array) -> Snapshot:
    """What is visible of a simulation now."""
    status = s.rows["status"][: int(s.control["next_job"][0])]
    seen = np.flatnonzero((status == st.WAITING) | (status == st.RUNNING))
    rows = s.rows[seen]
    live = np.zeros(len(seen), LIVE)
    for name in _COPIED:
        live[name] = rows[name]
    live["running"] = rows["status"] == st.RUNNING
    _revise_ends(live, rows["walltime"], float(s.control["now"][0]), rules)
    live["attained"] = rows["ran"] * rows["gpus"]
    nodes = np.zeros(len(cluster.nodes), NODE)
    usable = s.nodes["mask"].copy()
    held = []
    for row, alloc in zip(range(len(seen)), rows["alloc"], strict=True):
        k = int(alloc)
        while k >= 0:
            piece = s.parts[k]
            held.append((row, s.nodes["number"][piece["node"]], piece["gpus"], piece["gpu"], piece["mask"]))
            usable[piece["node"]] |= piece["mask"]
            k = int(piece["next"])
    number = s.nodes["number"]
    nodes["down"][number] = s.nodes["down"]
    nodes["off"][number] = s.nodes["off"]
    nodes["mask"][number] = usable
    now = float(s.control["now"][0])
    submits = s.rows["submit"][: int(s.control["next_job"][0])]
    return Snapshot(
        now, jobs.with_table(jobs.table[seen]), live, np.array(held, HELD), nodes,
        cluster, rules, seed, int(s.control["active"][0]), int(len(submits) - np.searchsorted(submits, now - 300.0, "right")), mix,
        s.users["usage"].copy(), float(s.control["half_life"][0]),
    )  # fmt: skip


def ended_since(s: st.State, told: Array) -> Array:
    """Who has ended and is not yet marked in `told` (jobs,) bool, as rows of ENDED; marks them."""
    status = s.rows["status"][: int(s.control["next_job"][0])]
    new = np.flatnonzero(((status == st.DONE) | (status == st.KILLED)) & ~told[: len(status)])
    told[new] = True
    ended = np.zeros(len(new), ENDED)
    ended["job"], ended["killed"] = new, status[new] == st.KILLED
    ended["start"], ended["end"] = s.rows["run_start"][new], s.result["end"][new]
    ended["node"] = s.result["node"][new]
    return ended


def _revise_ends(live: Array, walltime: Array, now: float, rules: Rules) -> None:
    """As a pass would: a running job that outlived its believed end is believed to take twice as long, until that lies ahead."""
    late = np.flatnonzero(live["running"] & (live["est_end"] <= now))
    for k in late.tolist():
        begin, end = float(live["run_start"][k]), float(live["est_end"][k])
        while end <= now:
            end = begin + max(2.0 * (end - begin), 1.0)
        limit = begin + max(float(walltime[k]) - float(live["ran"][k]), 0.0)
        live["est_end"][k] = min(end, limit) if rules.walltime_kill and limit > now else end


def state_of(snapshot: Snapshot, program: Program) -> st.State:
    """A state in which a pass by `program` can be run. Hidden run times are not known and not needed."""
    jobs, live = snapshot.jobs, snapshot.live
    _check_usage(snapshot, program)
    unknown = np.full(len(jobs), np.inf)
    s = build_state(jobs, unknown, snapshot.cluster, program, snapshot.seed, snapshot.rules, segments=False, mix=snapshot.mix)
    run_step(s, header_of(s), FILL)
    s = st.State._make(a.view(np.ndarray) for a in s)
    rows, control = s.rows, s.control[0]
    for name in (*_COPIED, "attained"):
        rows[name] = live[name]
    rows["remaining"] = np.maximum(rows["estimate"] - rows["done"], 0.0)
    rows["status"] = np.where(live["running"], st.RUNNING, st.WAITING)
    control["now"] = control["usage_at"] = snapshot.now
    if len(snapshot.usage):
        s.users["usage"] = snapshot.usage  # who holds what does not matter here: no time passes
    control["next_job"] = len(rows)
    control["recent_job"] = len(rows) - snapshot.submitted
    control["active"] = snapshot.active if snapshot.active < len(program.slots) else 0
    _set_nodes(s, snapshot)
    _set_held(s, snapshot.held)
    _set_queues(s)
    s.control["noting"] = 1
    s = s.replace(notes=np.zeros(2 * len(rows) + 1, np.int32))
    return as_seen_by_kernels(s)


def _check_usage(snapshot: Snapshot, program: Program) -> None:
    if program.half_life == 0 or len(snapshot.usage) == 0:
        return
    if len(snapshot.usage) != len(snapshot.jobs.users):
        raise DataError(f"snapshot: usage has {len(snapshot.usage)} values for {len(snapshot.jobs.users)} users")
    if program.half_life != snapshot.half_life:
        what = f"{program.label}: half_life = {program.half_life:g} s, but usage in the snapshot decays with {snapshot.half_life:g} s"
        raise UsageError(what, hint=f"in a simulation: Simulation(…, half_life={program.half_life:g})")


def _set_nodes(s: st.State, snapshot: Snapshot) -> None:
    seen = snapshot.nodes[s.nodes["number"]]
    s.nodes["down"] = seen["down"]
    s.nodes["off"] = seen["off"]
    s.nodes["free"] -= seen["off"]
    s.nodes["mask"] = np.where(s.nodes["first_device"] >= 0, seen["mask"], 0)


def _set_held(s: st.State, held: Array) -> None:
    """Link the parts of the running jobs; the kernel takes them from the nodes when it prepares."""
    where = np.empty(len(s.nodes), int)
    where[s.nodes["number"]] = np.arange(len(s.nodes))
    for k in range(len(held) - 1, -1, -1):  # the list of a job is built from its end
        piece = held[k]
        row = s.rows[piece["row"] : piece["row"] + 1]
        s.parts[k] = (piece["devices"], where[piece["node"]], row["alloc"][0], piece["gpus"], piece["device"])
        row["alloc"] = k
    s.control["free_part"] = len(held)
    s.control["parts_used"] = len(held)


def _set_queues(s: st.State) -> None:
    """Queues and running jobs, from the rows."""
    rows, control = s.rows, s.control[0]
    for p, part in enumerate(s.partitions):
        mine = rows["partition"] == p
        waiting = np.flatnonzero(mine & (rows["status"] == st.WAITING))
        lo = int(part["queue_lo"])
        s.queue_jobs[lo : lo + len(waiting)] = waiting
        s.queue_keys[lo : lo + len(waiting)] = 0.0
        part["tail"] = lo + len(waiting)
        running = np.flatnonzero(mine & (rows["status"] == st.RUNNING))
        part["used"] = rows["gpus"][running].sum()
        part["work"] = (rows["remaining"] * rows["gpus"])[waiting].sum()
        if control["tracking"]:
            order = np.lexsort((running, rows["est_end"][running]))
            s.running_jobs[lo : lo + len(running)] = running[order]
        part["running"] = len(running) if control["tracking"] else 0
        part["dirty"] = 1
    running = np.flatnonzero(rows["status"] == st.RUNNING)
    rows["end"] = np.inf  # unknown; the heap only has to hold the running jobs
    s.ends[: len(running)] = running
    s.end_times[: len(running)] = np.inf
    control["heap"] = control["running"] = len(running)
    control["waiting"] = int((rows["status"] == st.WAITING).sum())
