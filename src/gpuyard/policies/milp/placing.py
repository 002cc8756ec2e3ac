"""Turns placements into columns of the joint model, and back."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.decision import Part
from gpuyard.policies.capacity import Parts
from gpuyard.policies.milp.joint import Placed
from gpuyard.policies.milp.joint_model import JointModel


class Placing(JointModel):
    """The model of a problem, and the way back from its columns to placements."""

    def encode(self, placed: Placed) -> Array | None:
        """A value per column; None if the model does not have the placement."""
        values = np.zeros(self.model.column_count)
        opened: dict[int, list[int]] = {}
        openings = self._openings(placed)
        for k, parts in placed.items():
            if self.problem.jobs[k].request.shared:
                self._encode_share(k, parts[0], values, openings, opened)
            elif not self._encode_gang(k, parts, values):
                return None
        for each in self.bins:
            if each.opening >= 0:
                values[each.opening] = float(each.device in opened.get(int(self.nodes[each.node]), ()))
        taken = np.bincount(self._node, self._devices * values[self._column], len(self.nodes))
        values[self._used] = taken[self._whole] > 0
        if len(self._blocks):
            left = self._free[self._blocks] - taken[self._blocks]
            best = int(np.argmax(left))
            if left[best] >= self._outside:
                values[self._chosen[best]], values[self._left[best]] = 1.0, left[best]
            else:
                values[self._chosen[-1]] = 1.0
        if len(self._types) >= 2:
            loads = self._type_loads(taken)
            values[self._loads] = max(loads), min(loads)
        return values

    def _type_loads(self, taken: Array) -> list[float]:
        nodes, capacity = self.problem.nodes, self._capacity
        kinds = self._cluster.nodes.gpu_type[nodes]
        free = [capacity.free[nodes[kinds == t]].sum() - taken[self._kinds == t].sum() for t in self._types]
        return [1.0 - float(f / capacity.usable[nodes[kinds == t]].sum()) for t, f in zip(self._types, free, strict=True)]

    def _encode_share(self, k: int, part: Part, values: Array, openings: dict[int, list[int]], opened: dict[int, list[int]]) -> None:
        """Devices that are opened on a node are the model's first ones there, in the order in which they come."""
        key = part.node, part.devices[0]
        device = key[1]
        if key not in self._capacity.shares:
            mine = [each.device for each in self.bins if each.opening >= 0 and self.nodes[each.node] == part.node]
            device = mine[openings[part.node].index(key[1])]
            opened.setdefault(part.node, []).append(device)
        for each, columns in zip(self.bins, self.in_bin, strict=True):
            if (self.nodes[each.node], each.device) == (part.node, device):
                values[columns[k]] = 1.0

    def _encode_gang(self, k: int, parts: Parts, values: Array) -> bool:
        nodes = [self._place_of[part.node] for part in parts]
        if len(nodes) == 1:
            columns, where = self.singles[k]
            values[columns[where == nodes[0]]] = 1.0
            return bool((where == nodes[0]).any())
        racks = len(set(self.racks[nodes].tolist()))
        for scope in self.scopes[k]:
            spans = len(set(self.racks[scope.nodes].tolist()))
            if set(nodes) <= set(scope.nodes.tolist()) and (
                racks > 1 or spans == 1 or self._cluster.span_nodes == self._cluster.span_racks
            ):
                values[scope.chosen] = 1.0
                for part, node in zip(parts, nodes, strict=True):
                    values[scope.units[scope.nodes == node]] = round(part.gpus) // self.problem.jobs[k].request.chunk
                return True
        return False

    def decode(self, values: Array) -> dict[int, Parts]:
        """Placements, shares with their devices."""
        placed: dict[int, Parts] = {}
        for k, job in enumerate(self.problem.jobs):
            columns, nodes = self.singles[k]
            for node in nodes[values[columns] > 0.5]:
                placed[k] = (Part(int(self.nodes[node]), job.request.gpus),)
            for each, of_job in zip(self.bins, self.in_bin, strict=True):
                if of_job[k] >= 0 and values[of_job[k]] > 0.5:
                    placed[k] = (Part(int(self.nodes[each.node]), job.request.gpus, (each.device,)),)
            for scope in self.scopes[k]:
                if values[scope.chosen] > 0.5:
                    units = np.rint(values[scope.units]).astype(int)
                    given = np.flatnonzero(units)
                    placed[k] = tuple(Part(int(self.nodes[scope.nodes[i]]), float(units[i] * job.request.chunk)) for i in given)
        return placed
