"""Train the models of device choice beforehand: forest, network, Q-network and linear bandit see the same profile."""

from __future__ import annotations

from dataclasses import dataclass

from gpuyard.arrays import Array
from gpuyard.engine.simulation import simulate
from gpuyard.errors import UsageError
from gpuyard.model.cluster import Cluster
from gpuyard.model.workload import Workload
from gpuyard.policies.deciders.learning.choice import LearnedDevice
from gpuyard.policies.deciders.learning.dqn import DqnConfig, DqnDevice
from gpuyard.policies.deciders.learning.forest import Forest
from gpuyard.policies.deciders.learning.models import LinearPrior, profile
from gpuyard.policies.deciders.learning.network import NetworkDurations
from gpuyard.policies.deciders.learning.strategies import DeviceModels

TRAINING = DqnConfig(epsilon=0.5)  # of the DQN while it is trained beforehand


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
