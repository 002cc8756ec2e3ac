"""PickDevice: options, baselines, teachers and explanation of the decision which device a task goes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.envs.kinds.base import ENVS, Demonstrator, EnvKind, Explaining, instances_of
from gpuyard.envs.kinds.device.batch import REWARDS, DeviceConfig, DeviceEnvs
from gpuyard.features.devices import DEVICE
from gpuyard.networks.network import Network
from gpuyard.networks.spec import NetworkSpec
from gpuyard.policies import Decider
from gpuyard.policies.deciders.network_device import network_devices
from gpuyard.traces.recipes import EpisodeSource


@dataclass(frozen=True)
class PickDevice:
    """The device of each task is left open: choose a queue for it when it is submitted."""

    objective: str = "turnaround"
    lanes: int = 0  # rows; 0: as many devices as the first cluster has

    def __post_init__(self) -> None:
        REWARDS[self.objective]  # refuses an unknown name

    def config(self) -> DeviceConfig:
        return DeviceConfig(rewards=((self.objective, 1.0),), lanes=self.lanes)


def device_envs(source: EpisodeSource, options: PickDevice, count: int, seed: int) -> DeviceEnvs:
    return DeviceEnvs(instances_of(source), count, options.config())


def _scheduler(spec: NetworkSpec, arrays: Mapping[str, Array], options: PickDevice) -> Decider:
    return network_devices(Network.of(spec, arrays), "learned")


def _demonstrate(source: EpisodeSource, options: PickDevice, name: str, count: int, seed: int) -> Demonstrator:
    """Choose as `greedy-device` does."""
    envs = device_envs(source, options, count, seed)
    return Demonstrator(envs, lambda _: np.array([episode.greedy() for episode in envs.episodes], np.int32))


ENVS.add(
    "PickDevice",
    EnvKind(
        "PickDevice", "which device a task goes to, CPU or GPU", DEVICE, PickDevice, device_envs, _scheduler,
        ("round-robin", "random-device", "greedy-device", "optimal-device"), "turnaround", aliases=("device",),
        metrics=("turnaround", "wait", "slowdown", "makespan"),
        teachers=lambda _: ("greedy-device",), demonstrate=_demonstrate,
        explaining=Explaining(
            labels=lambda _: ("cpu", "gpu"), label_feature="gpu", situations=("intensity", "size", "memory", "idle_gpus")
        ),
        example="tasks:jobs=100 on tasks", workload="tasks:jobs=64 on tasks",
        entry_point="gpuyard.envs.kinds.device.gym:PickDeviceEnv", vector_entry_point=None,
    ),
)  # fmt: skip
