"""A fractional solution of the joint model → a placement near it."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.cluster import EPS
from gpuyard.model.decision import Part
from gpuyard.policies.capacity import Capacity, JobRequest, Parts
from gpuyard.policies.milp.joint_model import Scope
from gpuyard.policies.milp.placing import Placing

NEAR = 100.0  # GPUs that a column at 1 is worth against one at 0: the solution comes first, the gain decides among equals


def rounded(placing: Placing, values: Array) -> dict[int, Parts] | None:
    """Job by job, surest first, to the best of what is still free. None: a job that must start finds no place."""
    jobs = placing.problem.jobs
    capacity = placing.problem.capacity.copy()
    placed: dict[int, Parts] = {}
    sure = [round(float(values[placing.options(k)].max(initial=0.0)), 6) for k in range(len(jobs))]
    musts = sorted((k for k, job in enumerate(jobs) if job.must), key=lambda k: (-sure[k], -jobs[k].worth))
    for k in [*musts, *(k for k, job in enumerate(jobs) if not job.must)]:
        parts = _nearest(placing, k, values, capacity) if capacity.within_quota(jobs[k].request) else ()
        if parts:
            placed[k] = capacity.take(jobs[k].request, parts)
        elif jobs[k].must:
            return None
        else:
            break
    return placed


def _nearest(placing: Placing, k: int, values: Array, capacity: Capacity) -> Parts:
    """Where the values put most of job k, of the places that can take it."""
    request = placing.problem.jobs[k].request
    room = capacity.rooms(request)[placing.nodes]
    if request.shared:
        return _nearest_share(placing, k, values, capacity, room)
    columns, nodes = placing.singles[k]
    able = room[nodes] >= request.units
    columns, nodes = columns[able], nodes[able]
    spread = sorted(placing.scopes[k], key=lambda scope: -values[scope.chosen])
    if len(nodes) and not (spread and values[spread[0].chosen] > values[columns].max() + 0.01):
        where = placing.nodes[nodes]
        free = capacity.free[where]
        fragments = np.where(free == capacity.usable[where], free - request.gpus, -request.gpus)
        gain = placing.gains[columns] - placing.weights.frag * fragments + NEAR * np.round(values[columns], 3)
        return (Part(int(where[int(np.argmax(gain))]), request.gpus),)
    return next((parts for scope in spread if (parts := _nearest_span(placing, request, scope, values, room))), ())


def _nearest_span(placing: Placing, request: JobRequest, scope: Scope, values: Array, room: Array) -> Parts:
    """The units of a scope as whole numbers; empty if it cannot be done over two nodes (or racks, if it is over several)."""
    able = np.minimum(room[scope.nodes], request.units - 1)
    wanted = values[scope.units]
    units = np.minimum(np.floor(wanted + 1e-6).astype(int), able)
    for i in np.lexsort((-able, -wanted)):
        units[i] += min(int(able[i] - units[i]), max(request.units - int(units.sum()), 0))
    used = np.flatnonzero(units)
    racks = len(set(placing.racks[scope.nodes[used]].tolist()))
    if units.sum() != request.units or len(used) < 2 or (placing.apart(scope) and racks < 2):
        return ()
    return tuple(Part(int(placing.nodes[scope.nodes[i]]), float(units[i] * request.chunk)) for i in used)


def _nearest_share(placing: Placing, k: int, values: Array, capacity: Capacity, room: Array) -> Parts:
    """The device that the values name, or the next best with enough left."""
    request = placing.problem.jobs[k].request
    best: Parts = ()
    most = -np.inf
    for each, columns in zip(placing.bins, placing.in_bin, strict=True):
        node = int(placing.nodes[each.node])
        free = capacity.shares.get((node, each.device), float(capacity.mask[node] >> each.device & 1))
        if columns[k] >= 0 and room[each.node] > 0 and request.gpus <= free + EPS:
            opening = (node, each.device) not in capacity.shares
            gain = NEAR * round(float(values[columns[k]]), 3) + placing.gains[columns[k]] - opening * placing.weights.frag
            if gain > most:
                best, most = (Part(node, request.gpus, (each.device,)),), gain
    return best
