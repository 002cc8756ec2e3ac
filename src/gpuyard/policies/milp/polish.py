"""Local search on a joint placement: moves, swaps and exchanges of whole nodes' contents, all scored at once."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.decision import Part
from gpuyard.policies.capacity import Parts
from gpuyard.policies.milp.joint import Candidate, Placed, Problem, Weights

LEAST = 1e-9  # an improvement of less is none
MOST_STEPS = 200


class Polish:
    """Gangs and CPU jobs on one node each can be moved, gangs that may be spread be placed again; shares stay.

    Throughput and fragmentation are looked at. The other terms are not, so the caller compares the whole value.
    """

    def __init__(self, problem: Problem, weights: Weights, nodes: Array, placed: Placed) -> None:
        capacity = problem.capacity.copy()
        self._placed = dict(placed)
        self._keys = [k for k, parts in placed.items() if not (problem.jobs[k].spread or problem.jobs[k].request.shared)]
        self._jobs = problem.jobs
        for k, parts in placed.items():
            capacity.take(problem.jobs[k].request, parts)
        jobs = [problem.jobs[k] for k in self._keys]
        self._frag = weights.frag
        self._nodes = nodes
        place = {int(n): i for i, n in enumerate(nodes)}
        self._at = np.array([place[placed[k][0].node] for k in self._keys], int)  # (jobs,) where each is
        kinds = capacity.cluster.nodes.gpu_type[nodes]
        self._cluster, self._kinds, self._racks = capacity.cluster, kinds, capacity.cluster.nodes.rack[nodes]
        self._up = capacity.up[nodes]
        self._wide = {k: _span(placed[k], place, problem.jobs[k]) for k in placed if problem.jobs[k].spread}
        asked = [job.request for job in jobs]
        self._need = np.array([[each.gpus, each.cpus * each.units, each.memory * each.units] for each in asked])  # (jobs, 3)
        self._free = np.array([capacity.free[nodes], capacity.cpus[nodes], capacity.memory[nodes]], float).T  # (nodes, 3)
        self._usable = capacity.usable[nodes]
        rates = [job.request.speeds[kinds] if job.request.gpus > 0 else np.ones(len(nodes)) for job in jobs]
        allowed = [(job.request.allowed[kinds] | (job.request.gpus == 0)) & capacity.up[nodes] for job in jobs]
        self._worth = np.array([np.where(ok, job.worth * rate, -np.inf) for job, rate, ok in zip(jobs, rates, allowed, strict=True)])

    def run(self) -> dict[int, Parts]:
        """Improve until nothing does."""
        steps = (self._move, self._swap, self._eject, self._exchange) if self._keys else ()
        for _ in range(MOST_STEPS):
            if not (any(step() for step in steps) or self._spread_again()):
                break
        for k, node in zip(self._keys, self._nodes[self._at].tolist(), strict=True):
            self._placed[k] = (Part(int(node), self._placed[k][0].gpus),)
        for k, (nodes, units) in self._wide.items():
            chunk = self._jobs[k].request.chunk
            self._placed[k] = tuple(Part(int(self._nodes[n]), float(u * chunk)) for n, u in zip(nodes, units, strict=True))
        return self._placed

    def _spread_again(self) -> bool:
        """Move each gang that may be spread to the best place: whole nodes, and the fullest or emptiest nodes of a type or rack."""
        changed = False
        for k, (nodes, units) in self._wide.items():
            job = self._jobs[k]
            need = np.array([job.request.chunk, job.request.cpus, job.request.memory])
            self._free[nodes] += units[:, None] * need
            best, most = (nodes, units), self._span_value(job, nodes, units) + LEAST
            for span in self._spans(job, need):
                value = self._span_value(job, *span)
                if value > most:
                    best, most, changed = span, value + LEAST, True
            self._wide[k] = best
            self._free[best[0]] -= best[1][:, None] * need
        return changed

    def _span_value(self, job: Candidate, nodes: Array, units: Array) -> float:
        rate = job.request.speed(self._cluster, self._nodes[nodes].tolist())
        more = self._added(self._free[nodes, 0], units * job.request.chunk, self._usable[nodes])
        return float(job.worth * rate - more.sum())

    def _spans(self, job: Candidate, need: Array) -> list[tuple[Array, Array]]:
        """(nodes, units) of places that have room."""
        request = job.request
        asked = need > 0
        room = np.floor(((self._free[:, asked] + LEAST) / need[asked]).min(axis=1)).astype(int)
        room[~(self._up & request.allowed[self._kinds])] = 0
        found = [(np.array([n]), np.array([request.units])) for n in np.flatnonzero(room >= request.units)]
        for kind in np.flatnonzero(request.allowed):
            here = np.flatnonzero((room > 0) & (self._kinds == kind))
            racks = [here[self._racks[here] == rack] for rack in np.unique(self._racks[here])]
            for group in [here] if len(racks) < 2 else [here, *racks]:
                able = np.minimum(room[group], request.units - 1)
                if able.sum() < request.units:
                    continue
                for order in (np.argsort(-able, kind="stable"), np.argsort(self._free[group, 0], kind="stable")):
                    before = np.cumsum(able[order]) - able[order]
                    given = np.clip(request.units - before, 0, able[order])
                    found.append((group[order][given > 0], given[given > 0]))
        return found

    def _fragments(self, left: Array, usable: Array) -> Array:
        """Return the cost of free devices that are left on partly used nodes."""
        return np.where(left < usable, left, 0.0) * self._frag

    def _added(self, free: Array, gpus: Array, usable: Array) -> Array:
        """Return how much the cost of fragments grows where `gpus` more are taken."""
        return self._fragments(free - gpus, usable) - self._fragments(free, usable)

    def _move(self) -> bool:
        """One job to another node."""
        jobs, at = np.arange(len(self._at)), self._at
        fits = (self._need[:, None, :] <= self._free[None, :, :] + LEAST).all(axis=2)
        gpus, free, usable = self._need[:, :1], self._free[:, 0], self._usable
        there = self._added(free[None, :], gpus, usable[None, :])
        here = self._added(free[at], -gpus[:, 0], usable[at])
        gain = self._worth - self._worth[jobs, at][:, None] - there - here[:, None]
        gain[~fits] = -np.inf
        gain[jobs, at] = -np.inf
        k, n = np.unravel_index(int(np.argmax(gain)), gain.shape)
        if not gain[k, n] > LEAST:
            return False
        self._put(np.array([k]), int(n))
        return True

    def _swap(self) -> bool:
        """Two jobs change places."""
        jobs, at = np.arange(len(self._at)), self._at
        more = self._need[:, None, :] - self._need[None, :, :]  # what k takes more than l
        free = self._free[at]
        fits = (more <= free[None, :, :] + LEAST).all(axis=2) & (-more <= free[:, None, :] + LEAST).all(axis=2)
        own = self._worth[jobs, at]
        other = self._worth[:, at]  # (k, l): k where l is
        gain = other + other.T - own[:, None] - own[None, :]
        gpus, usable = more[:, :, 0], self._usable[at]
        gain -= self._added(free[:, None, 0], -gpus, usable[:, None])
        gain -= self._added(free[None, :, 0], gpus, usable[None, :])
        gain[~fits | (at[:, None] == at[None, :])] = -np.inf
        k, m = np.unravel_index(int(np.argmax(gain)), gain.shape)
        if not gain[k, m] > LEAST:
            return False
        here, there = int(at[k]), int(at[m])
        self._put(np.array([k]), there)
        self._put(np.array([m]), here)
        return True

    def _eject(self) -> bool:
        """One job goes where another is, and that one to a third node."""
        count, at = len(self._at), self._at
        if len(self._nodes) < 3:
            return False
        jobs, free, usable = np.arange(count), self._free[:, 0], self._usable
        gpus = self._need[:, 0]
        away = self._worth - self._added(free[None, :], gpus[:, None], usable[None, :])
        away[~(self._need[:, None, :] <= self._free[None, :, :] + LEAST).all(axis=2)] = -np.inf
        away[jobs, at] = -np.inf
        first, second = np.argsort(-away, axis=1, kind="stable")[:, :2].T
        goes = np.where(first[None, :] == at[:, None], second[None, :], first[None, :])  # (k, l): where l goes if k takes its place
        more = self._need[:, None, :] - self._need[None, :, :]
        fits = (more <= self._free[at][None, :, :] + LEAST).all(axis=2) & (at[:, None] != at[None, :])
        own = self._worth[jobs, at]
        gain = self._worth[:, at] + away[jobs[None, :], goes] - own[:, None] - own[None, :]
        gain -= self._added(free[at], -gpus, usable[at])[:, None]
        gain -= self._added(free[at][None, :], more[:, :, 0], usable[at][None, :])
        gain[~fits] = -np.inf
        k, m = np.unravel_index(int(np.argmax(gain)), gain.shape)
        if not gain[k, m] > LEAST:
            return False
        there, third = int(at[m]), int(goes[k, m])
        self._put(np.array([m]), third)
        self._put(np.array([k]), there)
        return True

    def _exchange(self) -> bool:
        """All that two nodes hold of these jobs changes places."""
        count = len(self._nodes)
        held = np.zeros((count, 3))
        np.add.at(held, self._at, self._need)
        worth = np.zeros((count, count))
        np.add.at(worth, self._at, self._worth)  # (a, b): what a holds, on b
        more = held[:, None, :] - held[None, :, :]
        fits = (more <= self._free[None, :, :] + LEAST).all(axis=2)
        fits &= fits.T & (held[:, :1] + held[:, 0][None, :] > 0)
        own = np.diag(worth)
        free, usable, gpus = self._free[:, 0], self._usable, more[:, :, 0]
        change = self._added(free[:, None], -gpus, usable[:, None])
        gain = worth + worth.T - own[:, None] - own[None, :] - change - change.T
        gain[~fits] = -np.inf
        np.fill_diagonal(gain, -np.inf)
        a, b = np.unravel_index(int(np.argmax(gain)), gain.shape)
        if not gain[a, b] > LEAST:
            return False
        here, there = np.flatnonzero(self._at == a), np.flatnonzero(self._at == b)
        self._put(here, int(b))
        self._put(there, int(a))
        return True

    def _put(self, jobs: Array, node: int) -> None:
        np.add.at(self._free, self._at[jobs], self._need[jobs])
        self._free[node] -= self._need[jobs].sum(axis=0)
        self._at[jobs] = node


def _span(parts: Parts, place: dict[int, int], job: Candidate) -> tuple[Array, Array]:
    """Nodes and units of a placement."""
    units = [round(part.gpus) // job.request.chunk for part in parts]
    return np.array([place[part.node] for part in parts]), np.array(units)
