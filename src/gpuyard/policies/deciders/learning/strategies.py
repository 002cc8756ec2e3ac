"""Learned strategies of device choice by name: `forest`, `regressor`, `online` and `linucb-device`, with models that come with the package.

The models were trained on 2,000 compute-heavy tasks (`benchmarks/devices.py`). Each simulation starts from them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from os import PathLike
from pathlib import Path

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError, UsageError
from gpuyard.networks.tensor_file import Caps, read_arrays, write_arrays
from gpuyard.policies.deciders.learning.choice import Exploration, PredictedDevice, by_prediction
from gpuyard.policies.deciders.learning.dqn import STATE, DeviceDqnConfig, DqnDevice
from gpuyard.policies.deciders.learning.forest import Forest
from gpuyard.policies.deciders.learning.models import KINDS, TERMS, ForestDurations, LinearConfig, LinearDurations, LinearPrior
from gpuyard.policies.deciders.learning.network import INPUTS, NetworkDurations, SmallNetwork, network_of
from gpuyard.policies.schedulers import decider

SHIPPED = Path(__file__).with_name("devices.safetensors")
DQN_EPSILON, REGRESSOR_EPSILON = 0.1, 0.02
_FORM = "gpuyard-devices-1"
_CAPS = Caps(file=256 << 20, header=1 << 20, tensors=64)


@dataclass(frozen=True, eq=False)
class DeviceModels:
    """All that is trained beforehand, on the same tasks."""

    forest: Forest
    seconds: SmallNetwork  # log seconds on each kind
    values: SmallNetwork  # of the DQN
    linear: LinearPrior

    def forest_durations(self) -> ForestDurations:
        return ForestDurations(self.forest)

    def linear_durations(self, config: LinearConfig | None = None) -> LinearDurations:
        return LinearDurations(self.linear, config)

    def network_durations(self, seed: int) -> NetworkDurations:
        return NetworkDurations(self.seconds, seed)

    def dqn(self, config: DeviceDqnConfig | None = None, seed: int = 0) -> DqnDevice:
        return DqnDevice(self.network_durations(seed), self.values, config, seed)

    def save(self, path: str | PathLike[str]) -> None:
        """Write them as one safetensors file."""
        arrays: dict[str, Array] = {f"forest.{name}": array for name, array in self.forest.arrays.items()}
        for name, network in (("seconds", self.seconds), ("values", self.values)):
            arrays |= {f"{name}.flat": network.flat, f"{name}.widths": np.array(network.widths)}
        arrays |= {
            "linear.products": self.linear.products,
            "linear.weights": self.linear.weights,
            "linear.tasks": np.array([self.linear.tasks]),
        }
        write_arrays(path, arrays, {"form": _FORM}, caps=_CAPS)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> DeviceModels:
        """Read what `save` wrote; anything else is refused."""
        arrays, metadata = read_arrays(path, caps=_CAPS)
        if metadata.get("form") != _FORM:
            raise DataError(f"{path}: does not hold models of device choice")
        trees = {name.removeprefix("forest."): array for name, array in arrays.items() if name.startswith("forest.")}
        return cls(
            Forest.of_arrays(trees, len(("size", "intensity", "memory")), str(path)), network_of(arrays, "seconds", INPUTS, str(path)),
            network_of(arrays, "values", STATE, str(path)), _linear(arrays, str(path)),
        )  # fmt: skip


def _linear(arrays: dict[str, Array], where: str) -> LinearPrior:
    wanted = {"products": (TERMS, TERMS), "weights": (len(KINDS), TERMS), "tasks": (1,)}
    found = {name: arrays.get(f"linear.{name}", np.zeros(0)) for name in wanted}
    if any(found[name].shape != shape or not np.isfinite(found[name].astype(float)).all() for name, shape in wanted.items()):
        raise DataError(f"{where}: the linear model is broken")
    return LinearPrior(int(found["tasks"][0]), found["products"].astype(float), found["weights"].astype(float))


@cache
def shipped_models() -> DeviceModels:
    """Read the models that come with the package, once."""
    return DeviceModels.load(SHIPPED)


def _share(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise UsageError(f"{name} = {value:g} does not lie in 0..1")
    return value


@decider("forest", title="Device choice: by a random forest that was trained before and stays as it is")
def forest_device(*, replan: float = 1) -> PredictedDevice:
    """Predicts each task's seconds on a CPU and on a GPU with a random forest that was trained on compute-heavy tasks. It sees size,
    intensity and memory, not the law. With `replan` waiting tasks are assigned and ordered again whenever a task comes or ends; 0: they
    stay, first in first out."""
    return by_prediction(shipped_models().forest_durations(), replan=bool(replan))


@decider("regressor", title="Device choice: by a network that goes on learning seconds from each task that ends")
def regressor_device(*, epsilon: float = REGRESSOR_EPSILON, half: float = 50.0, replan: float = 1) -> PredictedDevice:
    """Predicts seconds as `forest` does, with a network that learns from each task that ends, in one step and without bootstrapping. The
    n-th task tries the kind that looks worse with probability `epsilon` / (1 + n / `half`)."""
    if not half > 0:
        raise UsageError(f"regressor: half = {half:g} is not above 0")
    exploration = Exploration(_share("regressor: epsilon", epsilon), half)
    return by_prediction(shipped_models().network_durations(0), exploration, replan=bool(replan))


@decider("linucb-device", title="Device choice: by a linear bandit that goes on learning seconds from each task that ends")
def linear_device(*, alpha: float = LinearConfig.alpha, replan: float = 1) -> PredictedDevice:
    """Predicts log seconds by a quadratic regression that learns from each task that ends, and counts on `alpha` standard deviations less
    (LinUCB, Li et al. 2010)."""
    return by_prediction(shipped_models().linear_durations(LinearConfig(alpha=alpha)), replan=bool(replan))


@decider("online", title="Device choice: by a DQN that goes on learning from each task that ends")
def online_device(
    *, epsilon: float = DQN_EPSILON, discount: float = DeviceDqnConfig.discount, learning_rate: float = DeviceDqnConfig.learning_rate,
    updates: float = DeviceDqnConfig.updates, sync: float = DeviceDqnConfig.sync,
) -> PredictedDevice:  # fmt: skip
    """Chooses CPU or GPU for each task by Q-values: the turnaround to come, bootstrapped over later tasks with `discount` from a target
    network that is copied every `sync` updates. A share `epsilon` of the tasks goes to either at random. After each decision at which a
    task has ended it makes `updates` steps. Within a kind, tasks are ordered by predicted seconds."""
    if not (0 <= updates <= 10_000 and updates == int(updates) and 1 <= sync <= 1e9 and sync == int(sync)):
        raise UsageError(f"online: updates = {updates:g} and sync = {sync:g} must be whole numbers, sync at least 1")
    if not 0 < learning_rate <= 1:
        raise UsageError(f"online: learning_rate = {learning_rate:g} does not lie in 0..1")
    config = DeviceDqnConfig(
        epsilon=_share("online: epsilon", epsilon), discount=_share("online: discount", discount), learning_rate=learning_rate,
        updates=int(updates), sync=int(sync),
    )  # fmt: skip
    return shipped_models().dqn(config)
