"""What is fitted on the first half of a log, and that the second half has the last word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuyard.engine.simulation import simulate
from gpuyard.experiments.questions.calibration import calibrate, stood_still
from gpuyard.model.cluster import Cluster, Outage
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.workload import Workload
from gpuyard.policies import parse_scheduler

TRUE = 64  # processors
EASY = "fcfs/fewest/easy"


def made(cluster: Cluster, seed: int = 2, jobs: int = 3000) -> Workload:
    """A log of first come, first served with EASY on that cluster."""
    draws = np.random.default_rng(seed)
    gpus = 2.0 ** draws.integers(0, 5, jobs)
    run = draws.lognormal(7.0, 1.0, jobs).round() + 1
    span = (gpus * run).sum() / TRUE / 0.85
    columns = {"submit": np.sort(draws.uniform(0, span, jobs)).round(), "gpus": gpus, "walltime": 2 * run}
    plain = Workload.build(columns, run)
    return replace(plain, logged_start=simulate(plain, cluster, parse_scheduler(EASY)).table["start"])


@pytest.fixture(scope="module")
def log() -> Workload:
    return made(load_cluster(str(TRUE)))


def test_a_size_that_was_guessed_wrong_is_found_and_confirmed(log: Workload) -> None:
    found = calibrate(log, load_cluster("80"), size_known=False)
    assert found is not None and found.taken
    assert found.cluster.gpus == TRUE
    assert found.after == pytest.approx(found.log)
    assert found.gain == pytest.approx(1.0)
    assert "64 devices instead of 80" in found.words and found.words.endswith("100 % less error: taken.")


def test_what_is_right_or_known_is_left_alone(log: Workload) -> None:
    for cluster, known in (("64", False), ("80", True)):
        found = calibrate(log, load_cluster(cluster), size_known=known)
        assert found is not None and not found.fitted and not found.taken
        assert found.cluster.name == cluster
        assert found.words.endswith("so the cluster stays as it is.")
        assert ("no other size" in found.words) == (not known)


def test_outages_are_seen_and_confirmed(log: Workload) -> None:
    """What ran was drained away, and nothing began for two days, once in each half."""
    whole, length = load_cluster(str(TRUE)), 2 * 86_400.0
    ends = log.jobs.submit[[0, -1]]
    begins = ends[0] + np.array([0.3, 0.7]) * np.ptp(ends)
    late = replace(log, logged_start=log.known_start + length * (log.known_start[:, None] > begins).sum(axis=1))
    assert not stood_still(log, whole)
    spells = stood_still(late, whole)
    assert len(spells) == 2
    assert all(length / 2 < end - begin <= length + 1 for begin, end in spells)
    found = calibrate(late, whole, size_known=True)
    assert found is not None and found.taken
    assert found.cluster.outages == tuple(Outage(0, begin, end) for begin, end in spells)
    assert abs(found.after[1] - found.log[1]) < 0.6 * abs(found.before[1] - found.log[1])
    assert "2 outages of " in found.words


def test_the_second_half_can_refuse(log: Workload) -> None:
    """In the first half of this log everybody waits ten times as long, in the second nobody does: no size explains both."""
    half = log.jobs.submit < (log.jobs.submit[0] + log.jobs.submit[-1]) / 2
    wait = log.known_start - log.jobs.submit
    odd = replace(log, logged_start=log.jobs.submit + np.where(half, 10 * wait, 0.0))
    whole = load_cluster(str(TRUE))
    found = calibrate(odd, whole, size_known=False)
    assert found is not None and found.fitted and not found.taken
    assert found.gain < 0
    assert found.cluster is whole
    assert "not taken, the cluster stays as it was" in found.words


def test_a_short_log_is_not_calibrated(log: Workload) -> None:
    assert calibrate(log.head(300), load_cluster("80"), size_known=False) is None
    assert calibrate(replace(log, logged_start=None), load_cluster("80"), size_known=False) is None
