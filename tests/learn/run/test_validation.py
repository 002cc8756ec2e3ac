"""Validation: as environments do, and with the figures of the engine."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest

from gpuyard.engine.simulation import simulate
from gpuyard.envs.kinds.base import find_env
from gpuyard.learn.parts import networks
from gpuyard.learn.parts.presets import network_for
from gpuyard.learn.run.validation import EngineValidation
from gpuyard.metrics import measure
from gpuyard.model.estimator import EndedLog, Past
from gpuyard.policies import parse_scheduler
from gpuyard.traces.recipes import Workloads


@dataclass(frozen=True)
class Guess:
    """A predictor that may be asked once, for all jobs: it guesses from the GPUs that they ask for."""

    past: Past | None = None

    def begin(self, jobs):
        return self

    def period(self, jobs):
        return 10.0

    def after(self, past):
        return Guess(past)

    def observe(self, now, jobs, end, work):
        raise AssertionError("a validation stopped for a model to learn")

    def estimate(self, now, jobs):
        return 100.0 * jobs.gpus


def test_estimates_are_those_that_environments_have():
    """The model is fitted before the episode: the simulation never stops for it, and the order is that of its estimates."""
    episode = Workloads(["lublin:jobs=80,nodes=16,load=1.2 on 2x8:gpu"]).part("validation").episode(0)
    past = EndedLog.of(episode.workload).before(1e9)
    given = replace(episode, workload=replace(episode.workload, estimate_source="guess", predictor=Guess(past)))
    kind = find_env("PickJob")
    options = kind.options(backfill="none")
    found = EngineValidation(kind, options, "wait", [given]).baselines
    guessed = episode.workload.with_made_estimates(100.0 * episode.workload.jobs.gpus)
    for text in ("sjf/fewest/none", "saf/fewest/none"):
        expected = simulate(guessed, episode.cluster, parse_scheduler(text))
        assert found[text] == pytest.approx(np.mean(expected.table["start"] - guessed.jobs.submit))
    assert found["sjf/fewest/none"] != pytest.approx(EngineValidation(kind, options, "wait", [episode]).baselines["sjf/fewest/none"])


def test_the_environments_own_metrics_are_those_of_the_same_simulations():
    """Wait, completion, use and imbalance of cores: of the network and of every baseline."""
    episodes = [Workloads(["eda:jobs=80,arrivals=1:3 on hosts:count=6,seed=1"]).part("validation").episode(k) for k in range(2)]
    kind = find_env("PickHost")
    options = kind.options()
    validation = EngineValidation(kind, options, "wait", episodes)
    made = kind.make(Workloads(["eda:jobs=80,arrivals=1:3 on hosts:count=6,seed=1"]).part("train"), options, 2, 0)
    spec = network_for(made.schema, made.actions, "", 4, 0)
    score = validation(spec, {name: np.asarray(each) for name, each in networks.init(spec, jax.random.key(0)).items()})
    facts = validation.facts
    assert facts["wait"] == score
    assert {"wait", "completed", "core_utilization", "core_imbalance"} <= set(facts)
    assert set(facts) == {name for metric in kind.metrics for name in (metric, *(f"{metric}/{text}" for text in validation.baselines))}
    for text in ("fcfs/first", "fcfs/worst"):
        results = [simulate(each.workload, each.cluster, parse_scheduler(text)) for each in episodes]
        for metric in ("wait", "completed", "core_utilization", "core_imbalance"):
            assert facts[f"{metric}/{text}"] == pytest.approx(np.mean([measure(result, [metric])[metric] for result in results]))


@pytest.mark.parametrize(
    ("objective", "metric"),
    [
        ("hosts", "wait"),
        ("utilisation", "utilization"),
        ("utilization", "utilization"),
        ("fragmentation", "fragmentation"),
        ("wait.p95", "wait.p95"),
    ],
)
def test_an_objective_of_rewards_is_validated_by_the_metric_that_judges_it(objective: str, metric: str):
    text, kind = "lublin:jobs=40,nodes=16,load=1.2 on 2x8:gpu", find_env("PickHost")
    validation = EngineValidation(kind, kind.options(), objective, [Workloads([text]).part("validation").episode(0)])
    assert validation.objective == metric
    assert np.isfinite(list(validation.baselines.values())).all()
