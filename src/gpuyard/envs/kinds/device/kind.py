"""PickDevice by name, for training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpuyard.arrays import Array
from gpuyard.envs.kinds.base import ENVS, EnvKind
from gpuyard.envs.kinds.device.batch import REWARDS, DeviceConfig, DeviceEnvs
from gpuyard.features.devices import DEVICE
from gpuyard.model.cluster import Cluster
from gpuyard.model.workload import Workload
from gpuyard.networks.network import Network
from gpuyard.networks.spec import NetworkSpec
from gpuyard.policies import Decider
from gpuyard.policies.deciders.network_device import network_devices
from gpuyard.traces.recipes import Source


@dataclass(frozen=True)
class PickDevice:
    """The device of each task is left open: choose a queue for it when it is submitted."""

    objective: str = "turnaround"
    lanes: int = 0  # rows; 0: as many devices as the first cluster has

    def __post_init__(self) -> None:
        REWARDS[self.objective]  # refuses an unknown name

    def config(self) -> DeviceConfig:
        return DeviceConfig(rewards=((self.objective, 1.0),), lanes=self.lanes)


def runs_of(source: Source) -> Callable[[int], tuple[Workload, Cluster]]:
    """Number of an episode → what is simulated in it."""

    def made(number: int) -> tuple[Workload, Cluster]:
        episode = source.episode(number)
        return episode.workload, episode.cluster

    return made


def device_envs(source: Source, options: PickDevice, count: int, seed: int) -> DeviceEnvs:
    return DeviceEnvs(runs_of(source), count, options.config())


def _scheduler(spec: NetworkSpec, arrays: Mapping[str, Array], options: PickDevice) -> Decider:
    return network_devices(Network.of(spec, arrays), "learned")


ENVS.add(
    "PickDevice",
    EnvKind(
        "PickDevice", "which device a task goes to, CPU or GPU", DEVICE, PickDevice, make=device_envs, scheduler=_scheduler,
        baselines=("round-robin", "random-device", "greedy-device", "optimal-device"), objective="turnaround", aliases=("device",),
        example="tasks:jobs=100 on tasks",
    ),
)  # fmt: skip
