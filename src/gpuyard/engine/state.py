"""The state of one simulation: a handful of record arrays that the kernels work on.

Few arrays of wide records instead of many columns: a record is one or two cache lines, and the compiled functions
take few arguments. Everything is allocated here, before the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpuyard.arrays import RecordRow, columns_of, row_dtype
from gpuyard.engine.rows.ranking import AskRow, RankedRow
from gpuyard.engine.rows.sums import BinRow, GroupRow, HeadRow, TallyRow, UserRow
from gpuyard.model.jobs import JobColumns
from gpuyard.model.result import SegmentRow
from gpuyard.model.rules import TermsRow

if TYPE_CHECKING:
    from gpuyard.arrays import Ints, Reals, Vector, Words, f4, f8, i1, i4, i8, u8
    from gpuyard.model.jobs import SubmittedRow
    from gpuyard.model.result import ResultRow, TimelineRow
    from gpuyard.model.snapshot import MixRow

PENDING, WAITING, RUNNING, DONE, KILLED, REJECTED = range(6)  # of a job; the order is that of gpuyard.model.result.STATUS


class CopiedColumns(RecordRow):
    """The submitted columns that kernels often look at, or that may differ from what was submitted; the others stay in `table`."""

    submit: f8
    gpus: f8
    estimate: f8  # it may be made in the simulation
    deadline: f8
    partition: i4  # of the cluster, not of the labels
    job_class: i4
    terms: i4  # what may be done to it: a row of `terms`


class LiveColumns(RecordRow):
    """The visible columns of a job's past and present."""

    ran: f8  # s on devices in earlier runs
    remaining: f8  # s on a reference GPU that are estimated to be left
    queued: f8  # s, when it last entered the queue
    start: f8  # s, first start; -1: none yet
    run_start: f8  # s, start of this run
    rate: f8  # work per second in this run
    done: f8  # reference s of work kept
    est_end: f8  # s, when this run is estimated to end
    preemptions: i4
    status: i1


class HiddenColumns(RecordRow):
    """The columns of a job that policies do not see."""

    runtime: f8
    number: i4  # of its row: the place of the rest in `table` and `factors`
    alloc: i4  # first part in the pool; -1: none
    reached: f4  # s of work that it had done when it was stopped, at most: it takes longer than that
    units: i4
    plain: i1  # 1: whole GPUs, spread at will, no other demand: counters decide; negative: only nodes of partition −1 − plain
    hosted: i1  # it asks for cpus or memory, which are in `table`
    moved: i1  # it has a transfer, which is in `table`
    overrun: i1  # this run ends by the walltime limit
    benched: i1  # preempted in the pass that is under way: 1; about to be: 2
    silent: i1  # its present or next run writes no checkpoints, although they cost something
    barren: i1  # stops that kept less work than the run had overhead


class FactorRow(RecordRow):
    """Shares, priorities and service; visible. Few policies read them, and only then are they kept."""

    attained: f8  # GPU-s held so far: ran × gpus
    usage: f8  # the user's part of all users' decayed usage when the pass began, 0..1
    fair_share: f8  # the user's part of the cluster by right, 0..1
    size_factor: f8  # GPUs over those of the cluster
    partition_factor: f8  # the partition's priority over the highest
    qos_factor: f8  # the QOS's priority over the highest


class VisibleRow(JobColumns, LiveColumns, FactorRow):
    """A job as a policy sees it."""


class JobRow(CopiedColumns, LiveColumns, HiddenColumns):
    """A job as the kernels have it."""


# What is looked at of every waiting job comes first, in 64 bytes.
_FIRST = (
    "submit", "gpus", "remaining", "estimate", "deadline", "partition", "units", "plain", "overrun", "benched", "barren", "status",
    "hosted", "moved", "silent", "preemptions", "number",
)  # fmt: skip
_ALL = columns_of(JobRow)
_REST = sorted((name for name in _ALL if name not in _FIRST), key=lambda name: -np.dtype(_ALL[name]).itemsize)
JOB_ROW = np.dtype([(name, _ALL[name]) for name in (*_FIRST, *_REST)], align=True)  # no gaps
FACTOR_ROW = row_dtype(FactorRow)
VISIBLE_ROW = np.dtype(list(columns_of(JobColumns, LiveColumns, FactorRow).items()))  # all that a policy sees of a job, as one record
VISIBLE_NAMES = VISIBLE_ROW.names or ()


class NodeRow(RecordRow):
    """A node as it is now."""

    gpus: i4
    free: i4  # wholly free devices
    gpu_type: i4
    rack: i4
    partition: i4
    number: i4  # in the cluster; kernels keep nodes sorted by partition
    down: i4  # whole outages that hold now
    off: i4  # devices taken by partial outages
    first_device: i4  # into devices; -1: a pool
    word: i4  # position within the partition, for the index of free nodes
    cpus: f8
    free_cpus: f8
    memory: f8
    free_memory: f8
    speed: f8  # the type's own
    share: f8  # largest free share on one device
    mask: u8  # wholly free devices
    shared: u8  # devices in shared use


class PartitionRow(RecordRow):
    """A partition with its queue and its running jobs."""

    node_lo: i8
    node_hi: i8
    queue_lo: i8  # this partition's region of the queue arrays
    queue_hi: i8
    head: i8  # the queue is queue_jobs[head:tail], in order
    tail: i8
    first_run: i8  # the running jobs are running_jobs[first_run : first_run + running], by estimated end
    running: i8
    free: i8  # wholly free devices on nodes that are up
    total: i8
    quota: f8
    used: f8  # GPUs in use
    factor: f8  # its priority over the highest
    work: f8  # GPU-s on the reference GPU that the jobs of the queue are estimated to need
    index: i8  # offset of the index of free nodes; -1: none
    words: i8  # 64-bit words of a level
    levels: i8  # most devices on a node
    most_gpus: f8  # on one node
    most_cpus: f8  # cores of one node, of those where they are limited
    unsorted: i8  # jobs have come that are not in their places yet
    sifted: i8  # queue_need and queue_length are those of the queue
    settled: i8  # no job that waited at its last pass can start before something is released
    came: i8  # jobs that came since
    newcomer: i8  # position of the last of them
    reserved: i8  # the head's reservation is kept: shadow and spare
    calm: f8  # s: where ranks decide and the queue is settled, no pass before then starts or stops a job
    weighed: i8  # in the last pass by rank, stops were refused or undone, for which the order of the runs among themselves matters
    last_ranked: i8  # in the pass by rank under way: the last entry that runs; -1: none
    passed: i8  # in the last pass by rank: 1 if a job was turned down for the reservation of another, + 2 if one started behind that
    ageing: f8  # s: no job of the queue counts for less before then
    shared: i8  # how many partitions share these nodes; 0: this one has them for itself
    tiers: i8  # of their jobs, if there are several
    tier: i8  # of this one among them, from 0, the highest
    touches: u8  # bit set of the partitions that have a node of this one
    shadow: f8
    spare: f8


class LineRow(RecordRow):
    """Waiting jobs of which the first to come goes first, whatever the time. The queue has one entry for all of them."""

    bound: f8  # the key of that entry
    filed: i4  # its job: the first of the line at the time, which may run by now
    head: i4  # they are line_jobs[head:tail], in the order in which they came
    tail: i4
    need: f4  # none needs fewer devices
    length: f4  # nor less time, s
    stale: i4  # both may be too low


class PartRow(RecordRow):
    """A part of a running job: the devices that it holds on one node."""

    mask: u8
    node: i4
    next: i4
    gpus: i4
    gpu: i4


class CellRow(RecordRow):
    """An amount that the conservative plan has free on a node from a time on, until the next cell of the node."""

    time: f8
    cpus: f8
    memory: f8
    free: i4
    next: i4  # -1: none


class TypeRow(RecordRow):
    """A device type and what its devices have done so far."""

    busy_seconds: f8  # GPU-s of runs that have ended
    up_seconds: f8  # device-s until `since`
    late_seconds: f8  # the part of them after the last end so far
    up: f8  # devices in order now
    since: f8
    transfer: f8  # factor on the transfer of jobs
    speed: f8  # its own, for classes of jobs that have no other
    held: f8  # devices in use now
    idle_watts: f8
    busy_watts: f8
    here: f8  # devices in the partition that gpuyard.features.types measured last
    free_here: f8  # and those of them that are wholly free


class OutageRow(RecordRow):
    """A failure or a repair to come."""

    time: f8
    kind: i4
    node: i4
    gpus: i4
    taken: i4
    mask: u8
    pair: i8


class SlotRow(RecordRow):
    """The four slots of one scheduler."""

    ordering: i8  # addresses
    placement: i8
    preemption: i8
    reads_clock: i8  # CLOCK_*: when keys must be computed again
    score: i8  # built-in placement score; SCORE_OWN: call `placement`
    span: i8  # of gpuyard.engine.slots.SPANS
    backfill: i8
    depth: i8
    ordering_network: i8  # addresses of networks; 0: none
    placement_network: i8
    rank: i8  # how it ranks jobs, of gpuyard.engine.rows.ranking; 0: not
    rank_network: i8  # address of the network of RANK_NETWORK
    table: i8  # where its table of run times begins
    chosen: i8  # how often a switch rule chose it


class SystemRow(RecordRow):
    """The whole cluster as a switch rule sees it."""

    waiting: f8
    running: f8
    free: f8
    gpus: f8
    oldest: f8
    urgent: f8
    work: f8
    recent: f8
    schedulers: f8  # how many to choose from


class ControlRow(RecordRow):
    """The numbers of a simulation that exist once."""

    now: f8
    span_nodes: f8
    span_racks: f8
    fastest: f8  # no run has a higher rate
    least_transfer: f8  # no run has a lower factor on its transfer
    timer: f8  # s between timer events; 0: none
    next_timer: f8
    switch_every: f8
    next_switch: f8
    bin_width: f8
    bin_origin: f8
    last_tick: f8
    busy: f8  # GPUs in use now
    up: f8  # GPUs in order now
    gpus: f8  # GPUs of the cluster
    half_life: f8  # s, of the users' usage; 0: it is not kept
    usage_at: f8  # s, when it was last brought up to date
    first_submit: f8
    last_end: f8
    shadow: f8  # of the head, while a choice behind it is open
    spare: f8  # devices left over then
    spare_quota: f8
    next_estimate: f8  # s, a submission before whose instant Python makes the estimates of those to come; inf: none
    observed: f8  # s of work of all jobs that have ended
    observed_jobs: i8  # how many
    estimating: i8  # estimates are made inside the simulation
    gated: i8  # some job says when it may start
    next_release: i8  # into releases
    limits: i8  # columns of group_of; 0: nothing is limited
    explaining: i8  # it is noted for how long jobs are not eligible, and why
    over: i8  # jobs of the queues that are over a limit: they are not offered
    heads: i8  # how many heads the pass under way has, over partitions that share nodes
    headed: u8  # bit set of the partitions that have one
    blocked: u8  # bit set of the partitions that share a node with one of these
    given: i8  # 1 + the partition in which a decision from outside starts a job; 0: the first in which it may
    left: i8  # pairs that the pass may still look at behind the first head
    parts: i8  # address of what is compiled apart (gpuyard.engine.compiler.parts)
    rolling: i8  # the mean of how many run times of the user an estimate is; 0: estimates are not made by kernels
    seed: i8
    next_job: i8
    recent_job: i8
    next_outage: i8
    waiting: i8
    running: i8
    heap: i8  # length of the heap of ends
    free_part: i8  # first free part
    parts_used: i8
    parts_laid: i8  # parts that the snapshot before had held
    bins: i8  # bins in use
    log: i8  # log rows in use
    logging: i8
    kills: i8
    tracking: i8  # running jobs are kept in order of their estimated ends
    sharing: i8  # some job asks for a share of a device
    hosts: i8  # some job asks for cpus or memory
    external: i8  # decisions come from outside
    at_pass: i8  # events of `now` are handled, its pass is still to come
    switch: i8  # address of the switch rule; 0: none
    active: i8
    instants: i8
    passes: i8
    queue_max: i8
    explosions: i8
    exploded: i8
    preempted: i8  # all victims so far
    failures: i8
    late: i8  # some late_seconds are not 0
    migrations: i8
    noting: i8
    notes: i8
    steps: i8  # of the plan under way
    cells: i8  # the same
    timeline: i8  # time integrals are kept in bins
    tallying: i8  # sums for rewards are kept
    network: i8  # of the switch rule; 0: none
    asked: i8  # how often a network was asked
    samples: i8  # written to `history` so far
    sampled_job: i8  # next_job at the last of them
    open: i8  # which decision is left open; OPEN_*
    window: i8  # jobs that an open ordering may choose from
    stage: i8  # 1: a pass is under way that waits for choices
    choice: i8  # what was chosen; -1: nothing yet
    open_part: i8  # the partition, the head that does not fit (-1: none), the position, and the job (-1: none) of that pass
    open_head: i8
    open_at: i8
    open_job: i8
    counters: i8  # numbers of devices decide about that head
    doubt: i8  # a job was turned down for the nodes that it would have got
    missing: i8  # units of that job that have no node yet
    picked: i8  # nodes that it has
    error_job: i8
    horizon: f8  # s: where keys only fall, the queues are in the order of the keys of this time
    bound_at: f8  # s, when these were worked out
    bound_until: f8  # s: up to then they are lower bounds
    wasted: i8  # keys worked out since then that a better bound would have spared
    front: i8  # length of the heap of keys, in this walk
    front_at: i8  # position of the first job of the queue that has not been looked at, in this walk
    stoppable: i8  # some job says that it may be stopped
    learned: i8  # jobs that have ended and from which a table of run times could learn
    excess: f8  # by what part jobs that may be stopped have waited longer than others of their size
    tested: i8  # jobs that are done and by which the table of run times was tested
    evidence: f8  # bits that estimates told more about them than the table
    misfit: f8  # the same a job
    attention: i8  # address of a word that is not 0 when Python wants the kernels to return; 0: none


NODE_ROW, PARTITION_ROW, PART_ROW, CELL_ROW, ASK_ROW = map(row_dtype, (NodeRow, PartitionRow, PartRow, CellRow, AskRow))
HEAD_ROW, GROUP_ROW = map(row_dtype, (HeadRow, GroupRow))
TYPE_ROW, USER_ROW, OUTAGE_ROW, SLOT_ROW, SYSTEM_ROW = map(row_dtype, (TypeRow, UserRow, OutageRow, SlotRow, SystemRow))
BIN_ROW, LOG_ROW, CONTROL_ROW, TALLY_ROW, LINE_ROW = map(row_dtype, (BinRow, SegmentRow, ControlRow, TallyRow, LineRow))
SYSTEM = tuple(columns_of(SystemRow))

BINS = 2048
# Keys are worked out once; at every pass; by what sees the whole state, after every start; at every pass, and they only fall.
CLOCK_NO, CLOCK_YES, CLOCK_STATE, CLOCK_FALLS = range(4)
OPEN_NONE, OPEN_ORDERING, OPEN_PLACEMENT, OPEN_SWITCH = range(4)
# What is compiled apart: nodes for a job, a conservative plan, a rank pass, a pass over partitions that share nodes.
PART_PICK, PART_PLAN, PART_RANK, PART_SHARED = range(4)
OUTPUTS = 64  # schedulers that a network can choose from, at most
HISTORY, SAMPLE = 8, 4  # samples of the past that a switch rule may see, and numbers of a sample
HOST_SUMS = 37  # numbers that features of hosts share
PARAMS, OWN_PARAMS = 17, 8  # numbers that a policy is given; of them parameters of its function, at most
EXPLOSION = 200  # jobs waiting
INDEX_FROM = 16  # nodes in a partition from which the index of free nodes pays


class State(NamedTuple):
    """All arrays of a simulation."""

    control: Vector[ControlRow]  # (1,) CONTROL_ROW
    table: Vector[SubmittedRow]  # (jobs,) JOB: what was submitted
    runtime: Reals  # (jobs,) f8, hidden
    rows: Vector[JobRow]  # (jobs,) JOB_ROW; a row is filled when its job is submitted
    factors: Vector[FactorRow]  # (jobs,) FACTOR_ROW, the same; (0,) where no policy reads them
    result: Vector[ResultRow]  # (jobs,) of gpuyard.model.result.ROW; a row is written when its job ends
    nodes: Vector[NodeRow]  # (nodes,) NODE_ROW, by partition
    partitions: Vector[PartitionRow]
    queue_keys: Reals  # (jobs,) f8
    queue_jobs: Ints  # (jobs,) i4
    queue_need: Reals  # (jobs,) f4, with skip or EASY: whole devices that a job of the queue needs at least
    queue_length: Reals  # (jobs,) f4, the same: s that it is estimated to take at least
    line_of: Ints  # (jobs,) i4, where keys only fall: the line in which a job waits for the first time; -1: none
    lines: Vector[LineRow]  # (lines,) LINE_ROW
    line_jobs: Ints  # (jobs,) i4, for these queue_need and queue_length too
    line_need: Reals
    line_length: Reals
    front_keys: Reals  # (jobs,) f8, where keys only fall: heap by (key, index) of the keys that a pass has worked out
    front_jobs: Ints  # (jobs,) i4, the jobs of that heap
    running_jobs: Ints  # (jobs,) i4
    running_ends: Reals  # (jobs,) f8, the estimated ends of running_jobs
    end_times: Reals  # (most runs at once,) f8, heap by (end, index)
    ends: Ints  # (most runs at once,) i4, the jobs of that heap
    parts: Vector[PartRow]  # pool of PART_ROW
    devices: Reals  # (devices,) f8 free share of devices in shared use
    types: Vector[TypeRow]
    speed: Reals  # (classes × types,) f8
    type_rank: Ints  # (classes × types,) i4: by speed, then price; 0 is the best
    allowed: Ints  # (gpu_type labels,) i8 bit set of types
    mix: Vector[MixRow]  # what jobs ask for, by partition
    mix_at: Ints  # (partitions + 1,) i8: where a partition's rows of `mix` begin
    fragment: Ints  # (nodes,) i8: expected fragment as the node is now; -1: not known
    partial: Ints  # (MAX_DEVICES + 1,) i8 scratch: free shares of the devices in shared use of one node
    partition_of: Ints  # (partition labels,) i4; -1: no such partition
    partition_factor: Reals  # (partition labels,) f8: the priority over the highest
    pair_at: Ints  # (partition labels + 1,) i4: where the partitions of a label begin in `pairs`
    pairs: Ints  # i4: the partitions of each label, those of higher tiers first
    members: Words  # (nodes,) u8, by node number: bit set of the partitions of a node
    releases: Ints  # i4, the jobs that state a delay, by the time at which it is over
    release: Reals  # (jobs,) f8, where some job says when it may start: s, before which it may not; inf: it is held
    unmet: Ints  # (jobs,) i4, the same: how many jobs it still waits for; -1: one that had to succeed did not
    follower_at: Ints  # (jobs + 1,) i4, the same: where the jobs that wait for it begin in `followers`
    followers: Ints  # i4: 2 × job, + 1 if it must succeed
    failing: Ints  # (jobs,) i4 scratch: jobs that have been rejected, and whose followers do not know yet
    groups: Vector[GroupRow]  # (groups,) GROUP_ROW
    group_of: Ints  # (jobs × limits,) i4: the groups that a job belongs to; -1: none
    why: Ints  # (jobs,) i4, where jobs may not be eligible: the present reason, into gpuyard.model.result.WAITS_FOR
    why_since: Reals  # (jobs,) f8, the same: s
    why_total: Reals  # (jobs × reasons,) f8, the same: s that a job was not eligible, by reason
    chances: Words  # (jobs,) u8, where partitions share nodes: bit set of those in which a job can fit
    heads: Vector[HeadRow]  # (partitions,) HEAD_ROW scratch, where partitions share nodes
    head_nodes: Vector[NodeRow]  # (partitions × nodes,) NODE_ROW, the same: the nodes as they will be when a head is estimated to fit
    head_devices: Reals  # (partitions × devices,) f8, the same
    qos_factor: Reals  # (qos labels,) f8: the priority over the highest
    terms: Vector[TermsRow]  # (terms labels,) TERMS: on what terms jobs may be stopped
    users: Vector[UserRow]  # (users,) USER_ROW
    recent_work: Reals  # (users × (1 + rolling),) f8: how many run times of a user are kept, and these, s, oldest first; (1,): none are
    outages: Vector[OutageRow]
    slots: Vector[SlotRow]
    params: Reals  # (schedulers × 4 × PARAMS,) f8: ordering, placement, preemption, switch rule (of the first)
    free_index: Words  # u8 words: nodes by number of free devices
    bins: Vector[BinRow]
    timeline: Vector[TimelineRow]  # the bins as a result shows them
    log: Vector[SegmentRow]
    system: Vector[SystemRow]  # (1,) SYSTEM_ROW
    room: Ints  # (nodes,) i4 scratch
    score: Reals  # (nodes,) f8 scratch; (jobs,) with preemption
    pick_node: Ints  # (nodes,) i4 scratch: the placement that was found
    pick_units: Ints
    pick_device: Ints  # (1,) i8 scratch: device forced for a shared job; -1: the node's rule
    candidates: Ints  # (nodes,) i4 scratch
    shadow_nodes: Vector[NodeRow]  # (nodes,) NODE_ROW scratch
    shadow_devices: Reals
    asks: Vector[AskRow]  # (ASKS,) ASK_ROW scratch
    notes: Ints  # i4, decisions in order: j started, -1 - j stopped
    plan_time: Reals  # (steps,) f8
    plan_used: Reals  # (steps,) f8
    plan_free: Ints  # (steps,) i8: wholly free devices of the partition
    plan_cells: Vector[CellRow]  # pool of CELL_ROW
    plan_first: Ints  # (nodes,) i4: the first cell of each node
    tally: Vector[TallyRow]  # (1,) TALLY_ROW
    legal: Ints  # (window,) i4: LEGAL | FITS of the jobs that may be chosen from
    history: Reals  # (HISTORY × SAMPLE,) f8: a ring of samples
    scratch: Reals  # f4, of networks
    outputs: Reals  # (OUTPUTS,) f8 scratch: what a network says of each action
    busy_until: Reals  # (nodes,) f8 scratch: s, when the last job of a node is estimated to end
    host_sums: Reals  # (HOST_SUMS,) f8 scratch: see gpuyard.features.hosts
    rank_table: Reals  # f8: tables of run times, one behind the other, see gpuyard.engine.rows.ranking, and a place for an estimate
    ranked: Vector[RankedRow]  # (jobs,) with a rank rule: scratch of a pass, like those below
    ranked_parts: Vector[PartRow]  # what jobs that are to start would hold
    ranked_nodes: Vector[NodeRow]
    ranked_devices: Reals
    rank_ends: Reals  # (jobs,) f8
    rank_jobs: Ints  # (jobs,) i4
    rank_factors: Reals  # (jobs,) f8 with a learned rank: what the network multiplies the time of a job by, in the pass under way
    rank_level: Ints  # (jobs,) i4, of a run that may be stopped: its level, known up to the time below
    rank_until: Reals  # (jobs,) f8
    rank_soon: Reals  # (SOON + 2,) f8: by number of devices, a time by which so many fit in the plan under way; what runs are like
    rank_calm: Reals  # (jobs,) f8: up to then no level of the run changes the order, while nothing happens and the queue is settled
    burden: Reals  # (RATIOS_AT + OCTAVES,) f8, see gpuyard.engine.rows.ranking; (1,): no account is kept

    @classmethod
    def of(cls, **arrays: Any) -> State:
        """A state from plain arrays, whose rows the type checker does not know."""
        return cls(**arrays)

    def replace(self, **arrays: Any) -> State:
        """Return the state with some other arrays."""
        return self._replace(**arrays)


if TYPE_CHECKING:  # for policies, which read a column of a table and then a row of it: `jobs.estimate[j]`
    JobTable = type[VisibleRow]
    NodeTable = type[NodeRow]
