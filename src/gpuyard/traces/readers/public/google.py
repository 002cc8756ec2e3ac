"""Google ClusterData2011-2: the table job_events, in whole or any slice of it from the beginning."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.workload import Workload
from gpuyard.traces.base import reader
from gpuyard.traces.opening import DEFAULT_LIMITS, Head, Limits
from gpuyard.traces.readers.csv import Form, TextTable, open_table
from gpuyard.traces.readers.tables import workload_of

COLUMNS = ("time", "missing", "job", "event", "user", "class", "name", "logical_name")
SUBMIT, SCHEDULE = 0, 1
ENDS = (2, 3, 4, 5, 6)  # evicted, failed, finished, killed, lost
LAST_EVENT = 8
US = 1e-6  # s
AFTER = 2.0**62  # microseconds: 2^63 − 1 stands for "after the trace"
_FORM = Form({"submit": "time", "id": "job", "user": "user", "priority": "class"}, also=("event",), names=COLUMNS)


def _sniff(head: Head) -> bool:
    fields = head.fields()
    if len(fields) != len(COLUMNS) or not all(fields[k].isdecimal() for k in (0, 2, 3, 5)):
        return False
    return int(fields[3][:4]) <= LAST_EVENT and fields[5] in ("0", "1", "2", "3")


@reader("google2011", title="Google cluster data 2011: job_events (no header, microseconds)", sniff=_sniff)
def read_google(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Workload:
    """Read one job for each id; it runs from the first time it is scheduled to its last event.

    The table has no sizes: a job counts as one device. The priority is the scheduling class (0–3). Jobs that were there before the
    trace (time 0), that were never scheduled or that do not end inside the slice are dropped and counted.
    """
    table = open_table(path, _FORM, limits)
    time, job, event = table.numbers("submit"), table.numbers("id"), table.numbers("event")
    for name, values in (("time", time), ("job", job), ("event", event)):
        table.rows.refuse(~(values >= 0), name, values, "is not a number from 0")
    table.rows.refuse((event > LAST_EVENT) | (event != np.floor(event)), "event", event, "is not one of the types 0 to 8")
    inside = np.flatnonzero(time < AFTER)
    order = inside[np.lexsort((inside, time[inside], job[inside]))]
    return _jobs(table, time[order], job[order], event[order], order)


def _jobs(table: TextTable, time: Array, job: Array, event: Array, row: Array) -> Workload:
    """Build jobs from events sorted by job and time (in microseconds); `row` is the place of each event in the table."""
    first = np.flatnonzero(np.diff(job, prepend=-1.0))
    last = np.append(first[1:], len(job)) - 1
    scheduled = np.minimum.reduceat(np.where(event == SCHEDULE, time, np.inf), first) if len(first) else first
    ended = np.isin(event[last], ENDS)
    submit = time[first]
    unwanted = {
        "there before the trace": submit == 0, "never scheduled": np.isinf(scheduled), "does not end inside the slice": ~ended,
    }  # fmt: skip
    jobs = table.take(row[first])
    with np.errstate(invalid="ignore"):
        values = {"id": job[first], "submit": submit * US, "start": scheduled * US, "runtime": (time[last] - scheduled) * US}
    values["priority"] = jobs.numbers("priority")
    note = f"{len(job):,} events of {len(first):,} jobs; sizes are not in the table: each job counts as one device"
    return workload_of(jobs, values, (note,), unwanted=unwanted)
