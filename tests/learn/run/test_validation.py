"""Validation: as environments do, and with the figures of the engine."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from gpuyard.engine.simulation import simulate
from gpuyard.envs.kinds.base import find_env
from gpuyard.learn.run.validation import EngineValidation
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
