"""Train the models of device choice beforehand: forest, network, Q-network and linear bandit see the same profile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.simulation import simulate
from gpuyard.errors import UsageError
from gpuyard.features.devices import task_facts
from gpuyard.model.cluster import Cluster
from gpuyard.model.workload import Workload
from gpuyard.policies.deciders.learning.choice import LearnedDevice
from gpuyard.policies.deciders.learning.dqn import DeviceDqnConfig, DqnDevice
from gpuyard.policies.deciders.learning.forest import Forest
from gpuyard.policies.deciders.learning.models import LinearPrior, Profile
from gpuyard.policies.deciders.learning.network import NetworkDurations
from gpuyard.policies.deciders.learning.strategies import DeviceModels

TRAINING = DeviceDqnConfig(epsilon=0.5)  # of the DQN while it is trained beforehand


def profile(workload: Workload, cluster: Cluster) -> Profile:
    """Measure every task once on the first type of each kind, alone: its transfer, then its run time at the device's speed."""
    jobs, types = workload.jobs, list(cluster.types)
    cpu = next(kind for kind in types if kind.name == "cpu")
    gpu = next(kind for kind in types if kind.name != "cpu")
    facts = np.array([task_facts(jobs, row) for row in range(len(jobs))]).reshape(-1, 3)
    columns = []
    for kind in (cpu, gpu):
        speed = np.array([cluster.speed_of(label, kind) for label in jobs.classes])[jobs.job_class]
        columns.append(jobs.transfer * kind.transfer + workload.runtime / speed)
    return Profile(facts, np.stack(columns, axis=1))


@dataclass(frozen=True)
class ForestConfig:
    """Settings of the forest, named as in scikit-learn's RandomForestRegressor."""

    trees: int = 50
    max_depth: int = 12
    min_samples_leaf: int = 2


def fit_forest(x: Array, y: Array, seed: int, config: ForestConfig | None = None) -> Forest:
    """Learn y (samples, outputs) from x (samples, features)."""
    config = config or ForestConfig()
    try:
        from sklearn.ensemble import RandomForestRegressor
    except ImportError:
        raise UsageError("a random forest is fitted with scikit-learn", hint="pip install 'gpuyard[learn]'") from None
    model = RandomForestRegressor(config.trees, max_depth=config.max_depth, min_samples_leaf=config.min_samples_leaf, random_state=seed)
    return Forest.of(model.fit(x, y))


def train_devices(workload: Workload, cluster: Cluster, seed: int, forest: ForestConfig | None = None, *, dqn: bool = True) -> DeviceModels:
    """Train all models on the same tasks. Forest, network and bandit see how long each takes on either kind; the DQN plays them once.

    Without `dqn` its network stays untrained, which saves most of the time.
    """
    data = profile(workload, cluster)
    seconds = NetworkDurations.trained(data, seed)
    player = DqnDevice(seconds.fresh(seed), DqnDevice.untrained(seed), TRAINING, seed)
    if dqn:
        simulate(workload, cluster, LearnedDevice("training", lambda: player), seed)
    return DeviceModels(fit_forest(data.facts, data.seconds, seed, forest), seconds.network, player.network, LinearPrior.of(data))
