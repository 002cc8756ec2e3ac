"""The DQN for devices: gradients, targets that bootstrap from a target network, exploration that never ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuyard import Workload, load_cluster, simulate
from gpuyard.model.units import Range
from gpuyard.policies.deciders.learning.choice import LearnedDevice
from gpuyard.policies.deciders.learning.dqn import STATE, DeviceDqnConfig, DqnDevice
from gpuyard.policies.deciders.learning.network import SmallNetwork
from gpuyard.policies.deciders.learning.strategies import shipped_models
from gpuyard.traces.generators.tasks import tasks

CLUSTER = load_cluster("tasks")
NEXT = (3.0, 2.0)  # predicted turnarounds of the next task


@pytest.fixture(scope="module")
def light() -> Workload:
    return tasks(2, jobs=150, intensity=Range(0, 0.3), memory=Range(4, 12))


def test_a_step_follows_the_gradient() -> None:
    rng = np.random.default_rng(0)
    network = SmallNetwork.drawn(rng, (4, 8, 8, 2))
    x, action, target = rng.normal(size=(5, 4)), np.array([0, 1, 0, 1, 1]), rng.normal(size=5)

    def loss(flat: np.ndarray) -> float:
        return float(((SmallNetwork(network.widths, flat)(x)[np.arange(5), action] - target) ** 2).mean())

    before = network.flat.copy()
    slopes = [(loss(before + step) - loss(before - step)) / 2e-6 for step in 1e-6 * np.eye(len(before))]
    assert network.step(x, action, target, 1e-3) == pytest.approx(loss(before))
    assert np.allclose(network._gradient, slopes, atol=1e-7)
    assert loss(network.flat) < loss(before)


def agent(**settings: float) -> DqnDevice:
    config = replace(DeviceDqnConfig(learning_rate=3e-3, updates=50, batch_size=4), **settings)  # type: ignore[arg-type]
    return DqnDevice(shipped_models().network_durations(0), DqnDevice.untrained(0), config)


def learn_one(made: DqnDevice, rounds: int, *, loop: bool) -> float:
    """Store one transition of cost 1 (`loop`: into its own state), learn, and return its Q-value."""
    state, after = np.linspace(0, 1, STATE), np.linspace(0, 1, STATE) if loop else np.linspace(1, 0, STATE)
    ahead = np.array([0.5, 9.0])
    made._replay.add(state=state, ahead=ahead, action=0, cost=1.0, next=after, next_ahead=ahead if loop else np.array(NEXT))
    for _ in range(rounds):
        made._update()
    return float(ahead[0] + made.network(state[None])[0, 0])


def test_a_value_is_the_cost_and_the_discounted_least_value_of_the_next_task() -> None:
    still = agent(discount=0.5, sync=10**9)  # the target network stays as it was drawn, at about 0
    assert learn_one(still, 40, loop=False) == pytest.approx(1.0 + 0.5 * min(NEXT), abs=0.03)
    assert np.array_equal(still.target.flat, DqnDevice.untrained(0).flat)
    assert learn_one(agent(discount=0.0), 40, loop=False) == pytest.approx(1.0, abs=0.03)


def test_bootstrapping_reaches_the_value_of_going_on_for_ever() -> None:
    """A cost of 1 again and again, discounted by 0.5, is 2."""
    assert learn_one(agent(discount=0.5, sync=50), 60, loop=True) == pytest.approx(2.0, abs=0.05)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
def test_it_explores_with_the_same_probability_to_the_end(epsilon: float, light: Workload) -> None:
    result = simulate(light, CLUSTER, LearnedDevice("dqn", lambda: shipped_models().dqn(DeviceDqnConfig(epsilon=epsilon))))
    report = result.manifest["decider"]
    assert report["assigned"] == len(light)
    expected = epsilon * len(light)
    assert abs(report["explored"] - expected) <= 3 * np.sqrt(expected * (1 - epsilon))
    assert report["updates"] > 100 and report["transitions"] > 100
    assert report["target copies"] == report["updates"] // DeviceDqnConfig.sync


def test_weights_change_while_it_decides_and_stay_in_their_simulation(light: Workload) -> None:
    made: list[DqnDevice] = []

    def make() -> DqnDevice:
        made.append(shipped_models().dqn())
        return made[-1]

    first, again, other = (simulate(light, CLUSTER, LearnedDevice("dqn", make), seed=seed) for seed in (0, 0, 1))
    assert first.same_bytes(again) and not first.same_bytes(other)
    assert all(not np.array_equal(each.network.flat, shipped_models().values.flat) for each in made)
    assert not np.array_equal(made[0].target.flat, made[0].network.flat)  # copied from time to time, not always


def test_a_task_that_fits_no_gpu_goes_to_a_cpu() -> None:
    large = tasks(3, jobs=40, memory=Range(20, 30))  # GPUs have 16 GB
    result = simulate(large, CLUSTER, LearnedDevice("dqn", lambda: shipped_models().dqn(DeviceDqnConfig(epsilon=1.0))))
    assert np.isfinite(result.table["end"]).all()
    assert set(result.table["node"].tolist()) <= {0, 1, 2, 3}


def test_it_survives_devices_that_fail(light: Workload) -> None:
    from gpuyard.model.cluster import Outage

    cluster = replace(CLUSTER, outages=(Outage(4, 5.0, 60.0), Outage(0, 20.0, 90.0), Outage(5, 30.0, 1e6)))
    result = simulate(light, cluster, LearnedDevice("dqn", lambda: shipped_models().dqn()))
    assert np.isfinite(result.table["end"]).all()
    assert result.table["preemptions"].sum() > 0
