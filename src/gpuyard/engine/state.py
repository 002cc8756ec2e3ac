"""The state of one simulation: a handful of record arrays that the kernels work on.

Few arrays of wide records instead of many columns: a record is one or two cache lines, and the compiled functions
take few arguments. Everything is allocated here, before the loop.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.jobs import JOB
from gpuyard.model.result import ROW
from gpuyard.model.snapshot import MIX

# ── job states; the order is that of gpuyard.model.result.STATUS ──
PENDING, WAITING, RUNNING, DONE, KILLED, REJECTED = range(6)

_STATIC = [(name, JOB.fields[name][0].str) for name in JOB.names if name != "id"] if JOB.names and JOB.fields else []
_LIVE = [
    ("attained", "f8"),  # GPU-s held so far: ran × gpus
    ("ran", "f8"),  # s on devices in earlier runs
    ("remaining", "f8"),  # s on a reference GPU that are believed to be left
    ("queued", "f8"),  # s, when it last entered the queue
    ("start", "f8"),  # s, first start; -1: none yet
    ("run_start", "f8"),  # s, start of this run
    ("rate", "f8"),  # work per second in this run
    ("done", "f8"),  # reference s of work kept
    ("est_end", "f8"),  # s, when this run is believed to end
    ("preemptions", "i4"),
    ("status", "i4"),
]
_HIDDEN = [
    ("runtime", "f8"),
    ("end", "f8"),  # s, when this run ends
    ("alloc", "i4"),  # first part in the pool; -1: none
    ("units", "i4"),
    ("plain", "i1"),  # whole GPUs, spread at will, no other demand: counters decide
    ("overrun", "i1"),  # this run ends by the walltime limit
    ("benched", "i1"),  # preempted in the pass that is under way: 1; about to be: 2
]
_FACTORS = [  # visible too; at the end of the row, because few policies read them
    ("usage", "f8"),  # the user's part of all users' decayed usage when the pass began, 0..1
    ("fair_share", "f8"),  # the user's part of the cluster by right, 0..1
    ("size_factor", "f8"),  # GPUs over those of the cluster
    ("partition_factor", "f8"),  # the partition's priority over the highest
    ("qos_factor", "f8"),  # the QOS's priority over the highest
]
# What is looked at of every waiting job comes first, within one cache line; a row is four of them.
_FIRST = ("submit", "gpus", "remaining", "deadline", "priority", "estimate", "partition", "units", "plain", "overrun", "benched", "status")
_ALL = dict(_STATIC + _LIVE + _HIDDEN + _FACTORS)
_REST = sorted((name for name in _ALL if name not in _FIRST), key=lambda name: -np.dtype(_ALL[name]).itemsize)  # no gaps
JOB_ROW = np.dtype([(name, _ALL[name]) for name in (*_FIRST, *_REST)], align=True)
VISIBLE_NAMES = tuple(name for name, _ in _STATIC + _LIVE + _FACTORS)


def _visible(row: np.dtype[Any]) -> np.dtype[Any]:
    """The same layout with the hidden fields left out: what a policy is compiled against."""
    fields: Any = row.fields
    return np.dtype({
        "names": list(VISIBLE_NAMES),
        "formats": [fields[n][0] for n in VISIBLE_NAMES],
        "offsets": [fields[n][1] for n in VISIBLE_NAMES],
        "itemsize": row.itemsize,
    }, align=True)  # fmt: skip


VISIBLE_ROW = _visible(JOB_ROW)

NODE_ROW = np.dtype(
    [
        ("gpus", "i4"),
        ("free", "i4"),  # wholly free devices
        ("gpu_type", "i4"),
        ("rack", "i4"),
        ("partition", "i4"),
        ("number", "i4"),  # in the cluster; kernels keep nodes sorted by partition
        ("down", "i4"),  # whole outages that hold now
        ("off", "i4"),  # devices taken by partial outages
        ("first_device", "i4"),  # into devices; -1: a pool
        ("word", "i4"),  # position within the partition, for the index of free nodes
        ("cpus", "f8"),
        ("free_cpus", "f8"),
        ("memory", "f8"),
        ("free_memory", "f8"),
        ("speed", "f8"),  # the type's own
        ("share", "f8"),  # largest free share on one device
        ("mask", "u8"),  # wholly free devices
        ("shared", "u8"),  # devices in shared use
    ],
    align=True,
)
PARTITION_ROW = np.dtype(
    [
        ("node_lo", "i8"),
        ("node_hi", "i8"),
        ("queue_lo", "i8"),  # this partition's region of the queue arrays
        ("queue_hi", "i8"),
        ("head", "i8"),  # the queue is queue_jobs[head:tail], in order
        ("tail", "i8"),
        ("running", "i8"),  # how many; running_jobs[queue_lo : queue_lo + running], by believed end
        ("free", "i8"),  # wholly free devices on nodes that are up
        ("total", "i8"),
        ("quota", "f8"),
        ("used", "f8"),  # GPUs in use
        ("factor", "f8"),  # its priority over the highest
        ("work", "f8"),  # GPU-s on the reference GPU that the jobs of the queue are believed to need
        ("index", "i8"),  # offset of the index of free nodes; -1: none
        ("words", "i8"),  # 64-bit words of a level
        ("levels", "i8"),  # most devices on a node
        ("most_gpus", "f8"),  # on one node
        ("most_cpus", "f8"),  # cores of one node, of those where they are limited
        ("dirty", "i8"),  # something changed since its last pass
        ("unsorted", "i8"),  # jobs have come that are not in their places yet
    ],
    align=True,
)
PART_ROW = np.dtype([("mask", "u8"), ("node", "i4"), ("next", "i4"), ("gpus", "i4"), ("gpu", "i4")], align=True)
TYPE_ROW = np.dtype(
    [
        ("busy_seconds", "f8"),  # GPU-s of runs that have ended
        ("up_seconds", "f8"),  # device-s until `since`
        ("late_seconds", "f8"),  # the part of them after the last end so far
        ("up", "f8"),  # devices in order now
        ("since", "f8"),
        ("transfer", "f8"),  # factor on the transfer of jobs
        ("held", "f8"),  # devices in use now
        ("idle_watts", "f8"),
        ("busy_watts", "f8"),
    ],
    align=True,
)
USER_ROW = np.dtype(
    [
        ("usage", "f8"),  # decayed GPU-s at control.usage_at
        ("held", "f8"),  # GPUs held now, in units of gpuyard.engine.kernels.usage.UNITS
        ("part", "f8"),  # of all users' usage, when the pass began
    ],
    align=True,
)
OUTAGE_ROW = np.dtype(
    [("time", "f8"), ("kind", "i4"), ("node", "i4"), ("gpus", "i4"), ("taken", "i4"), ("mask", "u8"), ("pair", "i8")], align=True
)
SLOT_ROW = np.dtype(
    [
        ("ordering", "i8"),  # addresses
        ("placement", "i8"),
        ("preemption", "i8"),
        ("reads_clock", "i8"),  # CLOCK_*: when keys must be worked out anew
        ("score", "i8"),  # built-in placement score; SCORE_OWN: call `placement`
        ("span", "i8"),  # of gpuyard.engine.slots.SPANS
        ("backfill", "i8"),
        ("depth", "i8"),
        ("ordering_network", "i8"),  # addresses of networks; 0: none
        ("placement_network", "i8"),
    ],
    align=True,
)
SYSTEM = ("waiting", "running", "free", "gpus", "oldest", "urgent", "work", "recent", "schedulers")  # the last: how many to choose from
SYSTEM_ROW = np.dtype([(n, "f8") for n in SYSTEM], align=True)
BIN_ROW = np.dtype([("span", "f8"), ("queue", "f8"), ("queue_max", "f8"), ("busy", "f8"), ("up", "f8")], align=True)
LOG_ROW = np.dtype([("job", "i4"), ("node", "i4"), ("gpus", "f8"), ("devices", "u8"), ("start", "f8"), ("end", "f8")], align=True)
CONTROL_ROW = np.dtype(
    [
        ("now", "f8"),
        ("checkpoint", "f8"),
        ("restart_cost", "f8"),
        ("span_nodes", "f8"),
        ("span_racks", "f8"),
        ("fastest", "f8"),  # no run has a higher rate
        ("least_transfer", "f8"),  # no run has a lower factor on its transfer
        ("timer", "f8"),  # s between timer events; 0: none
        ("next_timer", "f8"),
        ("switch_every", "f8"),
        ("next_switch", "f8"),
        ("bin_width", "f8"),
        ("bin_origin", "f8"),
        ("last_tick", "f8"),
        ("busy", "f8"),  # GPUs in use now
        ("up", "f8"),  # GPUs in order now
        ("gpus", "f8"),  # GPUs of the cluster
        ("half_life", "f8"),  # s, of the users' usage; 0: it is not kept
        ("usage_at", "f8"),  # s, when it was last brought up to date
        ("first_submit", "f8"),
        ("last_end", "f8"),
        ("shadow", "f8"),  # of the head, while a choice behind it is open
        ("spare", "f8"),  # devices left over then
        ("spare_quota", "f8"),
        ("seed", "i8"),
        ("next_job", "i8"),
        ("recent_job", "i8"),
        ("next_outage", "i8"),
        ("waiting", "i8"),
        ("running", "i8"),
        ("heap", "i8"),  # length of the heap of ends
        ("free_part", "i8"),  # first free part
        ("parts_used", "i8"),
        ("bins", "i8"),  # bins in use
        ("log", "i8"),  # log rows in use
        ("logging", "i8"),
        ("kills", "i8"),
        ("tracking", "i8"),  # running jobs are kept in order of their believed ends
        ("sharing", "i8"),  # some job asks for a share of a device
        ("hosts", "i8"),  # some job asks for cpus or memory
        ("external", "i8"),  # decisions come from outside
        ("at_pass", "i8"),  # events of `now` are handled, its pass is still to come
        ("switch", "i8"),  # address of the switch rule; 0: none
        ("active", "i8"),
        ("instants", "i8"),
        ("passes", "i8"),
        ("queue_max", "i8"),
        ("explosions", "i8"),
        ("exploded", "i8"),
        ("preempted", "i8"),  # all victims so far
        ("failures", "i8"),
        ("late", "i8"),  # some late_seconds are not 0
        ("migrations", "i8"),
        ("noting", "i8"),
        ("notes", "i8"),
        ("steps", "i8"),  # of the plan under way
        ("timeline", "i8"),  # time integrals are kept in bins
        ("tallying", "i8"),  # sums for rewards are kept
        ("network", "i8"),  # of the switch rule; 0: none
        ("asked", "i8"),  # how often a network was asked
        ("samples", "i8"),  # written to `history` so far
        ("sampled_job", "i8"),  # next_job at the last of them
        ("open", "i8"),  # which decision is left open; OPEN_*
        ("window", "i8"),  # jobs that an open ordering may choose from
        ("stage", "i8"),  # 1: a pass is under way that waits for choices
        ("choice", "i8"),  # what was chosen; -1: nothing yet
        ("open_part", "i8"),  # the partition, the head that does not fit (-1: none), the position, and the job (-1: none) of that pass
        ("open_head", "i8"),
        ("open_at", "i8"),
        ("open_job", "i8"),
        ("counters", "i8"),  # numbers of devices decide about that head
        ("missing", "i8"),  # units of that job that have no node yet
        ("picked", "i8"),  # nodes that it has
        ("error_job", "i8"),
    ],
    align=True,
)

TALLY_ROW = np.dtype(
    [
        (name, "f8")
        for name in (
            "ended",  # jobs
            "slowdown",
            "capped_slowdown",  # min(slowdown, 10) / 10
            "bsld",
            "missed",  # deadlines
            "wait",  # s until the first start
            "capped_wait",  # min(wait, 3600) / 3600
            "turnaround",  # s
            "queue_time",  # job-s in the queue
            "busy_time",  # GPU-s held
            "gpu_seconds",  # GPU-s offered
            "energy",  # watt-s
        )
    ],
    align=True,
)  # sums over the jobs that ended and over time so far

BINS = 2048
CLOCK_NO, CLOCK_YES, CLOCK_STATE = range(3)  # keys once; at every pass; by what sees the whole state, after every start
OPEN_NONE, OPEN_ORDERING, OPEN_PLACEMENT, OPEN_SWITCH = range(4)
OUTPUTS = 64  # schedulers that a network can choose from, at most
HISTORY = 8  # samples of the past that a switch rule may see
SAMPLE = 4  # numbers of a sample
HOST_SUMS = 37  # numbers that features of hosts share
PARAMS = 8  # of one policy
EXPLOSION = 200  # jobs waiting
INDEX_FROM = 16  # nodes in a partition from which the index of free nodes pays


class State(NamedTuple):
    """All arrays of a simulation."""

    control: Array  # (1,) CONTROL_ROW
    table: Array  # (jobs,) JOB: what was submitted
    runtime: Array  # (jobs,) f8, hidden
    rows: Array  # (jobs,) JOB_ROW; a row is filled when its job is submitted
    result: Array  # (jobs,) of gpuyard.model.result.ROW; a row is written when its job ends
    nodes: Array  # (nodes,) NODE_ROW, by partition
    partitions: Array
    queue_keys: Array  # (jobs,) f8
    queue_jobs: Array  # (jobs,) i4
    running_jobs: Array  # (jobs,) i4
    end_times: Array  # (most runs at once,) f8, heap by (end, index)
    ends: Array  # (most runs at once,) i4, the jobs of that heap
    parts: Array  # pool of PART_ROW
    devices: Array  # (devices,) f8 free share of devices in shared use
    types: Array
    speed: Array  # (classes × types,) f8
    type_rank: Array  # (classes × types,) i4: by speed, then price; 0 is the best
    allowed: Array  # (gpu_type labels,) i8 bit set of types
    mix: Array  # what jobs ask for, by partition
    mix_at: Array  # (partitions + 1,) i8: where a partition's rows of `mix` begin
    fragment: Array  # (nodes,) i8: expected fragment as the node is now; -1: not known
    partial: Array  # (MAX_DEVICES + 1,) i8 scratch: free shares of the devices in shared use of one node
    partition_of: Array  # (partition labels,) i4; -1: no such partition
    qos_factor: Array  # (qos labels,) f8: the priority over the highest
    users: Array  # (users,) USER_ROW
    outages: Array
    slots: Array
    params: Array  # (schedulers × 4 × PARAMS,) f8: ordering, placement, preemption, switch rule (of the first)
    free_index: Array  # u8 words: nodes by number of free devices
    bins: Array
    log: Array
    system: Array  # (1,) SYSTEM_ROW
    room: Array  # (nodes,) i4 scratch
    score: Array  # (nodes,) f8 scratch; (jobs,) with preemption
    pick_node: Array  # (nodes,) i4 scratch: the placement that was found
    pick_units: Array
    pick_device: Array  # (1,) i8 scratch: device forced for a shared job; -1: the node's rule
    candidates: Array  # (nodes,) i4 scratch
    shadow_nodes: Array  # (nodes,) NODE_ROW scratch
    shadow_devices: Array
    notes: Array  # i4, decisions in order: j started, -1 - j stopped
    plan_time: Array  # (steps,) f8
    plan_used: Array  # (steps,) f8
    plan_free: Array  # (steps × nodes,) i4
    plan_cpus: Array
    plan_memory: Array
    least_cpus: Array  # (nodes,) f8 scratch of the plan
    least_memory: Array
    least_free: Array
    tally: Array  # (1,) TALLY_ROW
    legal: Array  # (window,) i4: LEGAL | FITS of the jobs that may be chosen from
    history: Array  # (HISTORY × SAMPLE,) f8: a ring of samples
    scratch: Array  # f4, of networks
    outputs: Array  # (OUTPUTS,) f8 scratch: what a network says of each action
    busy_until: Array  # (nodes,) f8 scratch: s, when the last job of a node is believed to end
    host_sums: Array  # (HOST_SUMS,) f8 scratch: see gpuyard.features.hosts


DTYPES: dict[str, Any] = dict.fromkeys(State._fields, np.float64) | {
    "control": CONTROL_ROW, "table": np.dtype(JOB, align=True), "rows": JOB_ROW, "result": ROW, "nodes": NODE_ROW,
    "partitions": PARTITION_ROW, "queue_jobs": np.int32, "running_jobs": np.int32, "ends": np.int32, "parts": PART_ROW,
    "types": TYPE_ROW, "type_rank": np.int32, "allowed": np.int64, "mix": MIX, "mix_at": np.int64,
    "fragment": np.int64, "partial": np.int64, "partition_of": np.int32, "outages": OUTAGE_ROW, "slots": SLOT_ROW, "users": USER_ROW,
    "free_index": np.uint64, "bins": BIN_ROW, "log": LOG_ROW, "system": SYSTEM_ROW, "room": np.int32, "pick_node": np.int32,
    "pick_units": np.int32, "pick_device": np.int64, "candidates": np.int32, "shadow_nodes": NODE_ROW, "notes": np.int32,
    "plan_free": np.int32, "least_free": np.int32, "tally": TALLY_ROW, "legal": np.int32, "scratch": np.float32,
}  # fmt: skip
