"""Rows that passes keep for themselves, and the table of run times by which a rank rule judges jobs, as kernels take it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuyard.arrays import Array, RecordRow, row_dtype

if TYPE_CHECKING:
    from gpuyard.arrays import f8, i4

# How a slot ranks jobs: not at all; by a function, keyed once or at every pass; by a table of run times; by a network on top of a table.
RANK_NONE, RANK_TIME, RANK_CLOCK, RANK_TABLE, RANK_NETWORK = range(5)
# Places of the settings of a rank rule among the parameters of a preemption rule, behind those of its function.
HYSTERESIS_AT, WIDTH_AT, PAY_AT, AGEING_AT, STRETCH_AT, BURDEN_AT, WRITING_AT, ONLINE_AT, TRUST_AT = range(8, 17)
SOON = 129  # numbers of devices, from 0, for which a pass keeps by when so many fit
# Behind them: the greatest length (s) that a run which competes was judged to have, 0: not known in this plan; the most devices of one.
LONGEST_AT, WIDEST_AT = SOON, SOON + 1
BURDEN_LEVELS = 64  # of areas, by which the waits of jobs that may be stopped are compared with those of all
SLACK = 600.0  # s by which the latter may wait longer in any case, all jobs together
BURDEN_ROW = 4  # for each: s waited by all, how many they are; the same of those that may be stopped
OCTAVES = 32  # of run times, and of run times over estimates, by which a table and estimates are compared
RATIOS_AT = BURDEN_LEVELS * BURDEN_ROW  # behind these accounts: how many jobs had each octave of the latter
TABLE_HEAD = 3  # numbers before the edges: by what classes go, classes, quantiles of each
# By what classes go: the estimate; the requested time, if there is one; the same, with a further table behind for jobs that requested none.
BY_ESTIMATE, BY_WALLTIME, BY_EITHER = range(3)


ASKS = 64  # requests that one search tells apart; of more than that some are looked at again


class AskRow(RecordRow):
    """A finding about one waiting job, which holds for others that ask for the same as long as nobody starts."""

    job: i4  # -1: none
    count: i4  # nodes that it would get; 0: none
    holds: i4  # 1: the head would no longer fit at its time if the job ran on then; 0: it would; -1: not looked at
    rate: f8  # of a run there
    factor: f8  # on its transfer


class RankedRow(RecordRow):
    """A job that waits, or one that runs and may be stopped, in the order of its rank."""

    key: f8  # within its level: the area (GPU-s) of one that waits, the start (s) of a run
    level: i4  # of one that runs, of a factor of two
    job: i4
    state: i4  # of gpuyard.engine.kernels.ranks.order
    cause: i4  # the entry for which it is stopped; for one that starts: how many are stopped for it
    alloc: i4  # first part of one that is to start; -1: none
    running: i4
    need: i4  # whole devices that it needs at least; of one that runs, that may be free if it is stopped
    earlier: i4  # of running jobs: the one before and the one behind; -1: none
    later: i4  # of one that waits: the first running job that was set aside for it


RANKED_ROW = row_dtype(RankedRow)


def packed_table(by: int, edges: Array, quantiles: Array) -> Array:
    """Return a table of run times as kernels read it: `edges` (classes - 1,), `quantiles` (classes, count), both ascending.

    `by` is BY_ESTIMATE, BY_WALLTIME or BY_EITHER.
    """
    classes, count = quantiles.shape
    return np.concatenate([[by, classes, count], edges, quantiles.ravel()]).astype(np.float64)
