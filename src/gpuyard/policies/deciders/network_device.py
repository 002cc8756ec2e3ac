"""Device choice by a network."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.features.devices import DEVICE, DEVICE_PHYSICS, QueueColumns, fill_context, fill_rows
from gpuyard.networks.network import Network
from gpuyard.policies.capacity import JobRequest
from gpuyard.policies.deciders.devices import DeviceView, OneByOne
from gpuyard.policies.schedulers import Decider


class NetworkDevice(OneByOne):
    """Each task goes to the device with the highest score and waits there. `physics`: estimated seconds are seen."""

    def __init__(self, network: Network, physics: bool) -> None:
        super().__init__()
        self._network = network
        self._physics = physics

    def choose(self, board: DeviceView, task: JobRequest, suits: list[int], seconds: Array) -> int:
        """The highest score of those that suit, the first of equals."""
        devices = [i for i, (_, device) in enumerate(board.lanes) if device >= 0]
        waiting, busy, work = (values[devices] for values in self.loads(board))
        ends = self.estimated_ends(board)[devices] - board.snapshot.now if self._physics else np.zeros(len(devices))
        nodes = np.array([board.lanes[i][0] for i in devices])
        lanes = QueueColumns(nodes, waiting, busy.astype(bool), work, ends, seconds[devices])
        rows = np.zeros((len(devices), self._network.spec.rows), np.float32)
        context = np.zeros(self._network.spec.context, np.float32)
        fill_rows(board.snapshot, task.row, lanes, self._physics, rows)
        fill_context(board.snapshot, task.row, lanes, context)
        legal = [k for k, i in enumerate(devices) if i in suits]
        return devices[legal[int(np.argmax(self._network.scores(rows[legal], context)))]]


def network_devices(network: Network, name: str, title: str = "") -> Decider:
    """A decider by a network's scores, highest first."""
    physics = network.spec.rows == len(DEVICE_PHYSICS.rows) != len(DEVICE.rows)
    return Decider(name, title, lambda: NetworkDevice(network, physics))
