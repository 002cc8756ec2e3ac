"""A snapshot: all that is visible at one instant, in simulation and in production alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gpuyard.arrays import Array, RecordRow, row_dtype
from gpuyard.model.cluster import Cluster
from gpuyard.model.jobs import Jobs
from gpuyard.model.rules import MAY_STOP_ONCE, MUST_RUN, Rules, terms_table
from gpuyard.views import Displayed

if TYPE_CHECKING:
    from gpuyard.arrays import b1, f8, i4, i8, u8


class LiveRow(RecordRow):
    """A job's past and present."""

    attained: f8  # GPU-s held before this run
    ran: f8  # s on devices before this run
    queued: f8  # s, when it last entered the queue
    start: f8  # s, first start; -1: none yet
    run_start: f8  # s, start of this run; waiting jobs: of the last
    rate: f8  # work per second in this run
    done: f8  # reference s of work kept
    est_end: f8  # s, when this run is estimated to end
    reached: f8  # s of work that it had done when it was stopped, at most: it takes longer than that
    preemptions: i4
    barren: i4  # stops that kept less work than the run had overhead
    running: b1
    silent: b1  # its present run writes no checkpoints, although they cost something: a stop keeps nothing of it


LIVE = row_dtype(LiveRow, align=False)


class HeldRow(RecordRow):
    """The devices that a running job holds on one node."""

    row: i4  # into jobs
    node: i4
    gpus: i4  # whole devices; 0: a share, or a CPU job
    device: i4  # of a share; -1: none
    devices: u8  # bit set; 0: a pool or a CPU job


HELD = row_dtype(HeldRow, align=False)


class EndedRow(RecordRow):
    """A job that has ended."""

    job: i4  # index
    node: i4  # the first of its last run
    start: f8  # s, of its last run
    end: f8  # s
    killed: b1  # by its walltime: it would have taken longer


ENDED = row_dtype(EndedRow, align=False)
HALF_LIFE = 604_800.0  # s, a week: what Slurm takes where nothing else is said
RECENT = 300.0  # s: jobs submitted since then count as recent arrivals


class NodeStatusRow(RecordRow):
    """Return which devices of a node can be used."""

    down: i4  # whole outages
    off: i4  # devices out of order
    mask: u8  # devices that could be used


NODE = row_dtype(NodeStatusRow, align=False)


class MixRow(RecordRow):
    """A request that jobs of a partition often make."""

    gpus: f8  # of one unit of placement: devices, or a share of one; 0: none
    cpus: f8
    memory: f8
    allowed: i8  # bit set of device types
    weight: i8  # its part of the jobs of the partition, in 1/100,000
    partition: i8


MIX = row_dtype(MixRow)  # what jobs ask for, the most frequent requests of each partition; rows by partition


@dataclass(frozen=True, eq=False)
class Snapshot(Displayed):
    """The waiting and running jobs (in index order), what they hold, and the state of the nodes.

    Hidden run times are not in it: a decision made from a snapshot cannot be clairvoyant.
    """

    now: float
    jobs: Jobs
    live: Array  # (jobs,) of LIVE
    held: Array  # (parts,) of HELD
    nodes: Array  # (nodes,) of NODE, by node number
    cluster: Cluster
    rules: Rules
    seed: int
    active: int = 0  # the scheduler that a meta-scheduler used last
    submitted: int = 0  # jobs submitted in the last RECENT seconds
    mix: Array | None = None  # of MIX: what the whole workload asks for; None: what the jobs above ask for
    usage: Array = field(default_factory=lambda: np.zeros(0))  # (users,) GPU-s, decayed with `half_life`; (0,): not known, taken as none
    half_life: float = HALF_LIFE  # s
    excess: float = 0.0  # by what part jobs that may be stopped have waited longer than others of their size; 0.25: a quarter
    ended: Array = field(default_factory=lambda: np.zeros(0, ENDED))  # of ENDED: who has ended since the snapshot before, in index order
    homes: Array = field(default_factory=lambda: np.zeros(0, np.int32))  # (jobs,) partition a job runs in, of several with its nodes, or -1
    spent: Mapping[str, float] = field(default_factory=dict)  # GPU-s of runs that have ended, by group of a limit, see gpuyard.engine.site

    @property
    def terms(self) -> Array:
        """(jobs,) of TERMS: on what terms each job may be stopped, by its own word or by the rules."""
        said = len(self.jobs.term_texts)
        found: Array = terms_table(self.jobs.term_texts, self.rules)[self.jobs.terms + np.where(self.live["silent"], said, 0)]
        found["stops"][(found["stops"] == MAY_STOP_ONCE) & (self.live["preemptions"] > 0)] = MUST_RUN
        return found

    @property
    def waiting(self) -> Array:
        """Rows of the waiting jobs."""
        return np.flatnonzero(~self.live["running"])

    @property
    def running(self) -> Array:
        """Rows of the running jobs."""
        return np.flatnonzero(self.live["running"])

    def rows(self) -> dict[int, int]:
        """Return the row of each job, by its index."""
        return {index: row for row, index in enumerate(self.jobs.index.tolist())}

    def free_gpus(self) -> Array:
        """(nodes,) wholly free devices, by node number."""
        nodes = self.cluster.nodes
        up = self.nodes["down"] == 0
        free = np.where(up, nodes.gpus - self.nodes["off"], 0).astype(np.int64)
        shared = self.held["device"] >= 0
        np.subtract.at(free, self.held["node"][~shared], self.held["gpus"][~shared])
        for node, device in set(zip(self.held["node"][shared].tolist(), self.held["device"][shared].tolist(), strict=True)):
            free[node] -= 1 if up[node] and device >= 0 else 0
        return np.maximum(free, 0)  # a node that takes no new jobs may still run some
