"""The joint placement of some jobs as a mixed-integer model: what may go where.

Exact over the placements that it allows (`options` below); the value is `joint.evaluate`, of which the model is the linear form.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.cluster import EPS
from gpuyard.policies.milp.joint import Placed, Problem, Weights
from gpuyard.policies.milp.solver import LinearModel

MOST_NODES = 128  # in one model; beyond that of each kind of node some


@dataclass(frozen=True, eq=False)
class Scope:
    """A way to spread a gang: one column that says whether, and one per node that says how many units."""

    chosen: int
    nodes: Array
    units: Array  # columns


@dataclass(frozen=True, eq=False)
class Bin:
    """A device that shares may go to."""

    node: int  # of the model
    device: int
    free: float
    opening: int = -1  # the column that opens it; −1: it is shared already


class JointModel:
    """The model of a problem: its columns, rows and objective."""

    def __init__(self, problem: Problem, weights: Weights) -> None:
        self.problem = problem
        self.weights = weights
        self.model = LinearModel()
        self._capacity = problem.capacity
        self._cluster = problem.capacity.cluster
        self._uses: list[tuple[Array, ...]] = [(np.zeros(0),) * 5]  # columns, nodes, and the devices, cpus and memory that they take
        self._rooms = [self._capacity.rooms(job.request) for job in problem.jobs]
        self.nodes = self._choose_nodes()
        self._place_of = {int(n): i for i, n in enumerate(self.nodes)}
        self._free = self._capacity.free[self.nodes]
        self._kinds = self._cluster.nodes.gpu_type[self.nodes]
        self.racks = self._cluster.nodes.rack[self.nodes]
        self.singles: list[tuple[Array, Array]] = []  # per job: columns, nodes
        self.scopes: list[list[Scope]] = []
        self.bins: list[Bin] = self._make_bins() if any(job.request.shared for job in problem.jobs) else []
        self.in_bin: list[Array] = [np.full(len(problem.jobs), -1) for _ in self.bins]  # per bin: column by job
        for k in range(len(problem.jobs)):
            self._add_job(k)
        self.gains = self.model.cost  # of the throughput alone
        self._add_order()
        self._add_used()
        self._add_limits()
        self._add_fragmentation()
        self._add_room()
        self._add_balance()

    def _choose_nodes(self) -> Array:
        """Nodes on which some job finds room. Of many, those that the inner scheduler uses and of each kind in turn."""
        room = np.max(self._rooms, axis=0)
        nodes = np.flatnonzero(room > 0)
        spread = any(job.spread for job in self.problem.jobs)
        if len(nodes) <= MOST_NODES and spread:
            return nodes
        greedy = {part.node for parts in self.problem.greedy.values() for part in parts}
        shares: dict[int, list[float]] = {}
        for (n, _), share in sorted(self._capacity.shares.items()):
            shares.setdefault(n, []).append(share)
        seen: dict[tuple[object, ...], int] = {}
        ranked = []
        c, table = self._capacity, self._cluster.nodes
        for n in nodes.tolist():
            rack = table.rack[n] if spread else 0
            kind = (table.gpu_type[n], rack, c.free[n], c.usable[n], c.cpus[n], c.memory[n], tuple(shares.get(n, ())))
            seen[kind] = seen.get(kind, 0) + 1
            ranked.append((n not in greedy, seen[kind], n))
        # without spread gangs each job takes one node, and more equal ones than jobs are of no use
        useful = [n for other, rank, n in sorted(ranked) if spread or not other or rank <= len(self.problem.jobs)]
        return np.array(sorted(useful[: max(MOST_NODES, len(greedy))]))

    def _make_bins(self) -> list[Bin]:
        """The shared devices, and on every node as many that could be as the inner scheduler opens there, at least one."""
        found = [Bin(self._place_of[n], d, free) for (n, d), free in sorted(self._capacity.shares.items()) if n in self._place_of]
        opened = self._openings(self.problem.greedy)
        for i, n in enumerate(self.nodes.tolist()):
            if self._capacity.pool[n] or self._free[i] == 0:
                continue
            mask = self._capacity.mask[n]
            devices = [d for d in range(mask.bit_length()) if mask >> d & 1]
            for device in devices[: max(1, len(opened.get(n, ())))]:
                column = self.model.columns(1)
                self._use(column, np.array([i]), 1.0, 0.0, 0.0)
                found.append(Bin(i, device, 1.0, int(column[0])))
        return found

    def _openings(self, placed: Placed) -> dict[int, list[int]]:
        """Node → devices that are opened for shares, in order."""
        found: dict[int, list[int]] = {}
        for k, parts in placed.items():
            if self.problem.jobs[k].request.shared:
                node, device = parts[0].node, parts[0].devices[0]
                if (node, device) not in self._capacity.shares and device not in found.setdefault(node, []):
                    found[node].append(device)
        return found

    # ── columns of a job, and its row ──

    def _use(self, columns: Array, nodes: Array, *amounts: float) -> None:
        """Note the devices, cpus and memory that each of the columns takes on its node of the model."""
        self._uses.append((columns, nodes, *(np.full(len(columns), float(amount)) for amount in amounts)))

    def _add_job(self, k: int) -> None:
        job = self.problem.jobs[k]
        request, room = job.request, self._rooms[k][self.nodes]
        chosen: list[Array] = []
        self.scopes.append([])
        if request.shared:
            self.singles.append((np.zeros(0, int), np.zeros(0, int)))
            chosen.append(self._add_shares(k, room))
        else:
            nodes = np.flatnonzero(room >= request.units)
            speed = request.speeds[self._kinds[nodes]] if request.gpus > 0 else np.ones(len(nodes))
            columns = self.model.columns(len(nodes), job.worth * speed)
            self._use(columns, nodes, int(request.gpus), request.cpus * request.units, request.memory * request.units)
            self.singles.append((columns, nodes))
            chosen.append(columns)
            if job.spread:
                chosen.append(self._add_scopes(k, room))
        columns = np.concatenate(chosen)
        self.model.entries(self.model.rows(1, float(job.must), 1.0), columns, 1.0)

    def _add_shares(self, k: int, room: Array) -> Array:
        """One column for each device that has enough of it left."""
        job = self.problem.jobs[k]
        request = job.request
        columns = []
        for b, each in enumerate(self.bins):
            if room[each.node] == 0 or request.gpus > each.free + EPS:
                continue
            column = self.model.columns(1, job.worth * request.speeds[self._kinds[each.node]])
            self._use(column, np.array([each.node]), 0.0, request.cpus, request.memory)
            self.in_bin[b][k] = column[0]
            columns.append(column)
        return np.concatenate(columns) if columns else np.zeros(0, int)

    def _add_scopes(self, k: int, room: Array) -> Array:
        """Ways to spread a gang over nodes of one type: inside one rack, and over several."""
        request = self.problem.jobs[k].request
        flat = self._cluster.span_nodes == self._cluster.span_racks
        for kind in np.flatnonzero(request.allowed):
            here = np.flatnonzero((room > 0) & (self._kinds == kind))
            if flat:
                self._add_scope(k, here, room, self._cluster.span_nodes, apart=False)
                continue
            racks = np.unique(self.racks[here])
            for rack in racks:
                self._add_scope(k, here[self.racks[here] == rack], room, self._cluster.span_nodes, apart=False)
            if len(racks) > 1:
                self._add_scope(k, here, room, self._cluster.span_racks, apart=True)
        return np.array([scope.chosen for scope in self.scopes[k]], int)

    def _add_scope(self, k: int, nodes: Array, room: Array, factor: float, *, apart: bool) -> None:
        """At least two nodes (apart: two racks) give units, so that the factor is the true one."""
        job, model = self.problem.jobs[k], self.model
        request = job.request
        most = np.minimum(room[nodes], request.units - 1)
        if len(nodes) < 2 or most.sum() < request.units:
            return
        speed = float(request.speeds[self._kinds[nodes[0]]])
        chosen = model.columns(1, job.worth * speed * factor)
        units = model.columns(len(nodes), 0.0, most)
        self._use(units, nodes, request.chunk, request.cpus, request.memory)
        self.scopes[k].append(Scope(int(chosen[0]), nodes, units))
        complete = model.rows(1, 0.0, 0.0)
        model.entries(complete, units, 1.0)
        model.entries(complete, chosen, -float(request.units))
        tight = model.rows(len(nodes), -np.inf, 0.0)
        model.entries(tight, units, 1.0)
        model.entries(tight, chosen, -most)
        for rack in np.unique(self.racks[nodes]) if apart else ():
            short = model.rows(1, -np.inf, 0.0)
            model.entries(short, units[self.racks[nodes] == rack], 1.0)
            model.entries(short, chosen, -float(request.units - 1))

    def options(self, k: int) -> Array:
        """All columns that say that job k is placed."""
        shares = [column[k] for column in self.in_bin if column[k] >= 0]
        scopes = [scope.chosen for scope in self.scopes[k]]
        return np.concatenate([self.singles[k][0], np.array([*scopes, *shares], int)])

    def apart(self, scope: Scope) -> bool:
        """Whether a gang in this scope is over several racks, and that matters."""
        return self._cluster.span_nodes != self._cluster.span_racks and len(set(self.racks[scope.nodes].tolist())) > 1

    # ── rows over jobs ──

    def _add_order(self) -> None:
        extra = [k for k, job in enumerate(self.problem.jobs) if not job.must]
        for before, after in pairwise(extra):
            row = self.model.rows(1, 0.0, np.inf)
            self.model.entries(row, self.options(before), 1.0)
            self.model.entries(row, self.options(after), -1.0)
        quota = float(self._capacity.quota[self.problem.partition])
        if sum(job.request.gpus for job in self.problem.jobs) > quota:
            row = self.model.rows(1, -np.inf, quota + EPS / 2)
            for k, job in enumerate(self.problem.jobs):
                self.model.entries(row, self.options(k), job.request.gpus)

    def _add_limits(self) -> None:
        """Devices, cpus and memory of the nodes, shares of the devices."""
        model = self.model
        column, node, self._devices, cpus, memory = (np.concatenate(pieces) for pieces in zip(*self._uses, strict=True))
        self._column, self._node = column.astype(int), node.astype(int)
        limit = np.where(np.isin(np.arange(len(self.nodes)), self._whole), 0, self._free)
        rows = model.rows(len(self.nodes), -np.inf, limit)
        busy = self._devices > 0
        model.entries(rows[self._node[busy]], self._column[busy], self._devices[busy])
        model.entries(rows[self._whole], self._used, -self._free[self._whole])
        self._add_host_limit(cpus, self._capacity.cpus[self.nodes])
        self._add_host_limit(memory, self._capacity.memory[self.nodes])
        for each, columns in zip(self.bins, self.in_bin, strict=True):
            self._add_bin(each, columns)

    def _add_host_limit(self, amount: Array, free: Array) -> None:
        most = np.bincount(self._node, amount * self.model.upper(self._column), len(self.nodes))
        tight = np.flatnonzero(most > free)  # elsewhere all that could come has room
        if len(tight) == 0:
            return
        row_of = np.full(len(self.nodes), -1)
        row_of[tight] = self.model.rows(len(tight), -np.inf, free[tight] + EPS / 2)
        kept = (amount > 0) & (row_of[self._node] >= 0)
        self.model.entries(row_of[self._node[kept]], self._column[kept], amount[kept])

    def _add_bin(self, each: Bin, columns: Array) -> None:
        model, kept = self.model, np.flatnonzero(columns >= 0)
        shares = np.array([self.problem.jobs[int(k)].request.gpus for k in kept])
        if each.opening < 0:
            if shares.sum() > each.free:
                model.entries(model.rows(1, -np.inf, each.free + EPS / 2), columns[kept], shares)
            return
        full = model.rows(1, -np.inf, EPS / 2)
        model.entries(full, columns[kept], shares)
        model.entries(full, each.opening, -1.0)
        needed = model.rows(1, 0.0, np.inf)  # a device is not opened for nobody
        model.entries(needed, columns[kept], 1.0)
        model.entries(needed, each.opening, -1.0)

    # ── the other terms of the objective ──

    def _add_used(self) -> None:
        """Columns that say whether a wholly free node is used; none where fragmentation costs nothing."""
        whole = (self._free == self._capacity.usable[self.nodes]) & (self._free > 0)
        self._whole = np.flatnonzero(whole) if self.weights.frag > 0 else np.zeros(0, int)
        self._used = self.model.columns(len(self._whole), -self.weights.frag * self._free[self._whole])

    def _add_fragmentation(self) -> None:
        """A device taken is one less that is free on a used node; a wholly free node that is used brings all of its own."""
        model, busy = self.model, self._devices > 0
        model.add_cost(self._column[busy], self.weights.frag * self._devices[busy])
        position = np.full(len(self.nodes), -1)
        position[self._whole] = np.arange(len(self._whole))
        kept = busy & (position[self._node] >= 0)
        rows = model.rows(int(kept.sum()), -np.inf, 0.0)  # one for each option: tighter than the nodes' device rows alone
        model.entries(rows, self._column[kept], 1.0)
        model.entries(rows, self._used[position[self._node[kept]]], -model.upper(self._column[kept]))

    def _add_room(self) -> None:
        """One node is chosen whose free devices count; on nodes outside the model they are fixed."""
        outside = np.setdiff1d(self.problem.nodes, self.nodes)
        self._outside = int(self._capacity.free[outside].max(initial=0))
        blocks = np.flatnonzero(self._free > self._outside) if self.weights.room > 0 else np.zeros(0, int)
        self._blocks = blocks
        if len(blocks) == 0:
            return
        model, free = self.model, self._free[blocks]
        self._chosen = model.columns(len(blocks) + 1)
        model.add_cost(self._chosen[-1:], self.weights.room * self._outside)
        self._left = model.columns(len(blocks), self.weights.room, free, integer=False)
        model.entries(model.rows(1, -np.inf, 1.0), self._chosen, 1.0)
        counted = model.rows(len(blocks), -np.inf, 0.0)
        model.entries(counted, self._left, 1.0)
        model.entries(counted, self._chosen[:-1], -free)
        position = np.full(len(self.nodes), -1)
        position[blocks] = model.rows(len(blocks), -np.inf, free)
        model.entries(position[blocks], self._left, 1.0)
        kept = (self._devices > 0) & (position[self._node] >= 0)
        model.entries(position[self._node[kept]], self._column[kept], self._devices[kept])

    def _add_balance(self) -> None:
        """The highest and the lowest load of a type, from above and below."""
        capacity, nodes = self._capacity, self.problem.nodes
        kinds = self._cluster.nodes.gpu_type[nodes]
        self._types = np.unique(kinds[capacity.usable[nodes] > 0]) if self.weights.balance > 0 else np.zeros(0, int)
        if len(self._types) < 2:
            return
        model = self.model
        self._loads = model.columns(2, [-self.weights.balance, self.weights.balance], 1.0, integer=False)
        for kind in self._types:
            total = float(capacity.usable[nodes[kinds == kind]].sum())
            base = 1.0 - float(capacity.free[nodes[kinds == kind]].sum()) / total
            taken = (self._devices > 0) & (self._kinds[self._node] == kind)
            for column, bounds in zip(self._loads, ((base, np.inf), (-np.inf, base)), strict=True):
                row = model.rows(1, *bounds)
                model.entries(row, column, 1.0)
                model.entries(row, self._column[taken], -self._devices[taken] / total)
