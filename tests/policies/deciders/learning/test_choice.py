"""Device choice by learned seconds: what the models learn, that learning is real, and that nothing hidden is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gpuyard import Cluster, Simulation, Workload, load_cluster, simulate
from gpuyard.arrays import Array
from gpuyard.engine.simulation import HasDecide
from gpuyard.learn.devices import fit_forest, profile
from gpuyard.model.units import Range
from gpuyard.policies import parse_scheduler
from gpuyard.policies.deciders.learning.choice import Exploration, LearnedDevice, PredictedDevice, by_prediction
from gpuyard.policies.deciders.learning.dqn import DeviceDqnConfig, DqnDevice
from gpuyard.policies.deciders.learning.models import DurationModel, ForestDurations, LinearDurations, LinearPrior, Profile
from gpuyard.policies.deciders.learning.network import NetworkDurations, OnlineConfig
from gpuyard.traces.generators.tasks import tasks

CLUSTER = load_cluster("tasks")
TINY = OnlineConfig(layers=(16,), updates=300, online_updates=8)


@pytest.fixture(scope="module")
def heavy() -> Profile:
    return profile(tasks(1, jobs=400, intensity=Range(0.7, 1), memory=Range(0.1, 1)), CLUSTER)


@pytest.fixture(scope="module")
def light() -> Workload:
    return tasks(2, jobs=120, intensity=Range(0, 0.3), memory=Range(4, 12))


@pytest.fixture(scope="module")
def network(heavy: Profile) -> NetworkDurations:
    return NetworkDurations.trained(heavy, 0, TINY)


def predicting(
    name: str, make: Callable[[], DurationModel], exploration: Exploration | None = None, *, replan: bool = False
) -> LearnedDevice:
    return LearnedDevice(name, lambda: by_prediction(make(), exploration, replan=replan))


class Known(DurationModel):
    """Tells the law of tasks."""

    def predict(self, facts: Array) -> Array:
        size, c, memory = facts.T
        on_cpu = size**1.5 / (c + 0.5)
        return np.stack([on_cpu, on_cpu / (1 + 3 * c) + memory / 16], axis=1)


class Size(DurationModel):
    """Seconds are the estimate, on any device."""

    def predict(self, facts: Array) -> Array:
        return np.repeat(facts[:, :1] ** 1.5, 2, axis=1)


def test_a_profile_is_the_law_of_tasks(heavy: Profile):
    assert heavy.seconds == pytest.approx(Known().predict(heavy.facts))


def test_with_the_true_law_it_is_greedy(light: Workload):
    """The same Result, with no physics but those of the model."""
    result = simulate(light, CLUSTER, predicting("known", Known))
    assert result.table.tobytes() == simulate(light, CLUSTER, parse_scheduler("greedy-device")).table.tobytes()


@pytest.mark.parametrize("known", [8, 120])
def test_with_the_true_law_replanning_is_the_optimum_of_what_is_known(known: int, light: Workload):
    """The same sum of ends as `optimal-device`; equally good assignments may differ."""
    workload = light.head(known)
    ends = [
        simulate(workload, CLUSTER, scheduler).table["end"].sum()
        for scheduler in (predicting("known", Known, replan=True), parse_scheduler("optimal-device"))
    ]
    assert ends[0] == pytest.approx(ends[1], rel=0.02)


def test_who_waits_changes_its_place_only_with_replanning():
    """One CPU: 4 s runs, then 1 s before 2 s before 3 s, in whichever order they came."""
    workload = Workload.build({"submit": [0.0, 1.0, 1.0, 1.0]}, [4.0, 3.0, 1.0, 2.0])
    cluster = replace(Cluster.uniform(1, 1), types=(replace(Cluster.uniform(1, 1).types[0], name="cpu"),))
    ends = [simulate(workload, cluster, predicting("size", Size, replan=replan)).table["end"].tolist() for replan in (False, True)]
    assert ends == [[4.0, 7.0, 8.0, 10.0], [4.0, 10.0, 5.0, 7.0]]


def errors(model: DurationModel, data: Profile) -> Array:
    """(kinds,) mean error of log seconds."""
    found: Array = np.abs(np.log(model.predict(data.facts) / data.seconds)).mean(axis=0)
    return found


@pytest.mark.parametrize("name", ["network", "linear"])
def test_learning_in_evaluation_adapts_and_a_frozen_one_stays(name: str, heavy: Profile, light: Workload, network: NetworkDurations):
    makers: dict[str, Callable[[], DurationModel]] = {
        "network": lambda: network.fresh(1),
        "linear": lambda: LinearDurations(LinearPrior.of(heavy)),
    }
    model = makers[name]()
    truth = profile(light, CLUSTER)
    assert (errors(model, heavy) < 0.1).all()  # it has learned what it was shown
    before = errors(model, truth)
    simulate(light, CLUSTER, predicting(name, lambda: model))
    assert (errors(model, truth) < 0.6 * before).all()


def test_weights_change_while_it_decides_unless_learning_is_off(light: Workload, network: NetworkDurations):
    learner, frozen = network.fresh(1), network.fresh(1, learning=False)
    for model in (learner, frozen):
        simulate(light, CLUSTER, predicting("net", lambda model=model: model))
    assert np.array_equal(frozen.network.flat, network.network.flat)
    assert frozen.measured == 0
    assert (learner.network.flat != network.network.flat).mean() > 0.9
    assert 100 <= learner.measured <= len(light)  # those that end after the last decision are not told of


def test_what_is_learned_stays_in_its_simulation_and_the_seed_decides(light: Workload, network: NetworkDurations):
    scheduler = predicting("net", lambda: network.fresh(1), Exploration(0.3))
    first, again, other = (simulate(light, CLUSTER, scheduler, seed=seed) for seed in (0, 0, 1))
    assert first.same_bytes(again)
    assert not first.same_bytes(other)


def test_the_memory_keeps_the_latest(network: NetworkDurations):
    model = network.fresh(0, capacity=4)
    facts = np.full((6, 3), 1.0)
    model.learn(facts, np.zeros(6, int), np.arange(1.0, 7.0))
    assert sorted(np.exp(model._measured["target"]).round(3).tolist()) == [3.0, 4.0, 5.0, 6.0]


def test_the_bandit_learns_of_the_device_that_was_chosen_alone():
    model, facts = LinearDurations(LinearPrior.of(Profile(np.ones((3, 3)), np.full((3, 2), 2.0)))), np.ones((1, 3))
    before = model.predict(facts)[0]
    model.learn(np.ones((50, 3)), np.ones(50, int), np.full(50, 9.0))
    after = model.predict(facts)[0]
    assert after[0] == before[0]
    assert after[1] > 2 * before[1]


def test_little_known_is_hoped_for(heavy: Profile):
    model = LinearDurations(LinearPrior.of(heavy))
    known, unknown = heavy.facts[:1], np.array([[2.0, 0.1, 10.0]])
    gain = [float((model.predict(facts) / model.hope(facts)).min()) for facts in (known, unknown)]
    assert 1.0 <= gain[0] < 1.2 < gain[1]
    model.learn(np.repeat(unknown, 40, axis=0), np.repeat([0, 1], 20), np.full(40, 3.0))
    assert float((model.predict(unknown) / model.hope(unknown)).max()) < 1.05


class Noting:
    """Notes when each task was given its device."""

    def __init__(self, inner: PredictedDevice) -> None:
        self.inner, self.chosen = inner, {}  # type: PredictedDevice, dict[int, tuple[float, tuple[int, int]]]

    def decide(self, snapshot):  # type: ignore[no-untyped-def]
        decisions = self.inner.decide(snapshot)
        for index, lane in self.inner._lane.items():
            self.chosen.setdefault(index, (snapshot.now, lane))
        return decisions


def choices(workload: Workload, decider: HasDecide) -> dict[int, tuple[float, tuple[int, int]]]:
    """When each task was given its device, and which."""
    noting = Noting(decider)  # type: ignore[arg-type]
    simulation = Simulation(workload, CLUSTER)
    while (snapshot := simulation.advance()) is not None:
        simulation.apply(noting.decide(snapshot))
    return noting.chosen


@pytest.fixture(scope="module")
def forest(heavy: Profile) -> ForestDurations:
    return ForestDurations(fit_forest(heavy.facts, heavy.seconds, 0))


@pytest.mark.parametrize("name", ["forest", "network", "linear", "dqn"])
def test_true_times_of_unfinished_tasks_do_not_influence_a_choice(
    name: str, heavy: Profile, light: Workload, network: NetworkDurations, forest: ForestDurations
):
    schedulers = {
        "forest": predicting("forest", lambda: forest, Exploration(0.1), replan=True),
        "network": predicting("network", lambda: network.fresh(1), Exploration(0.1), replan=True),
        "linear": predicting("linear", lambda: LinearDurations(LinearPrior.of(heavy)), Exploration(0.1), replan=True),
        "dqn": LearnedDevice("dqn", lambda: DqnDevice(network.fresh(1), DqnDevice.untrained(0), DeviceDqnConfig())),
    }
    until, scheduler = 60.0, schedulers[name]
    ends = simulate(light, CLUSTER, scheduler).table["end"]
    slow = replace(light, runtime=np.where(ends > until, 5 * light.runtime, light.runtime))
    submitted = int((light.jobs.submit <= until).sum())
    assert (ends[:submitted] > until).sum() >= 3
    everything = [choices(workload, scheduler.begin()) for workload in (light, slow)]
    first, second = ({task: lane for task, (now, lane) in each.items() if now <= until} for each in everything)
    assert first == second
    assert len(first) == submitted
    lanes = [{task: lane for task, (_, lane) in each.items()} for each in everything]
    assert lanes[0] != lanes[1]  # later the measured times do count


def test_the_whole_machinery_survives_devices_that_fail(heavy: Profile, light: Workload):
    from gpuyard.model.cluster import Outage

    cluster = replace(CLUSTER, outages=(Outage(4, 5.0, 60.0), Outage(0, 20.0, 90.0), Outage(5, 30.0, 1e6)))
    result = simulate(light, cluster, predicting("linear", lambda: LinearDurations(LinearPrior.of(heavy)), Exploration(0.2), replan=True))
    assert np.isfinite(result.table["end"]).all()
    assert result.table["preemptions"].sum() > 0
