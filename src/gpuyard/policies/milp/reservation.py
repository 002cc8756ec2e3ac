"""When the head of the queue could start, as EASY believes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from gpuyard.model.snapshot import Snapshot
from gpuyard.policies.capacity import Capacity, JobRequest, Requests, Start, estimated_end, held_parts, with_starts


def reservation(snapshot: Snapshot, requests: Requests, head: JobRequest, starts: Sequence[Start]) -> float:
    """Return the earliest estimated end at which `head` fits once all that end by then have left; now if it fits, inf if it never does.

    `starts` are jobs that start now. Shares among them need their devices named. More room is never worse, so a binary search does.
    """
    after = with_starts(snapshot, starts)
    parts = {row: held for row, held in held_parts(after).items() if requests.partition[row] == head.partition}
    ends = {row: estimated_end(snapshot, float(after.live["est_end"][row])) for row in parts}
    times = sorted({snapshot.now, *ends.values()})

    def fits(at: float) -> bool:
        capacity = Capacity(snapshot.cluster, snapshot.nodes)
        for row, held in parts.items():
            if ends[row] > at:
                capacity.take(requests[row], held)
        return capacity.fits(head)

    first = bisect_left(times, True, key=fits)
    return float(times[first]) if first < len(times) else np.inf
