"""When the head of the queue could start, as EASY believes."""

from __future__ import annotations

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
    times = np.unique([snapshot.now, *ends.values()])

    def fits(at: float) -> bool:
        capacity = Capacity(snapshot.cluster, snapshot.nodes)
        for row, held in parts.items():
            if ends[row] > at:
                capacity.take(requests[row], held)
        return capacity.fits(head)

    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(float(times[middle])) else (middle + 1, high)
    return float(times[low]) if low < len(times) else np.inf
