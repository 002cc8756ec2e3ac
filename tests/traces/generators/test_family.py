"""The family's distributions: exact thinning, pairing across variants, the stated laws. Fixed seeds; bounds are 4 sigma or p < 0.001."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpuyard import load_cluster, parse_scheduler, simulate
from gpuyard.model.workload import Workload
from gpuyard.traces import load_workload
from gpuyard.traces.generators.family import CEILING, HETERO_SPEED, INTENSITY, SHAPES
from gpuyard.traces.generators.sampling import usual_walltime

Array = np.ndarray[Any, Any]
H = 3600.0


def kolmogorov(values: Array, cdf: Callable[[Array], Array]) -> float:
    """√n × the largest distance to the law; above 1.95 with probability 0.001."""
    x, n = cdf(np.sort(values)), len(values)
    distance = max(float((np.arange(1, n + 1) / n - x).max()), float((x - np.arange(n) / n).max()))
    return distance * float(np.sqrt(n))


def long_run(shape: str = "base", **more: Any) -> Workload:
    return load_workload("family", 11, shape=shape, horizon=300_000.0, **more)


@pytest.mark.parametrize("intensity", list(INTENSITY))
@pytest.mark.parametrize("shape", list(SHAPES))
def test_counts_are_poisson(shape: str, intensity: str) -> None:
    counts = np.array([len(load_workload("family", seed, shape=shape, intensity=intensity)) for seed in range(300)])
    mean = H / 60 * INTENSITY[intensity] * (1.65 if shape == "bursty" else 1.0)
    assert abs(counts.mean() - mean) < 4 * np.sqrt(mean / 300)
    dispersion = counts.var(ddof=1) / mean  # 1 for a Poisson law, sigma √(2/299)
    assert abs(dispersion - 1) < 4 * np.sqrt(2 / 299)


def test_base_gaps_are_exponential() -> None:
    gaps = np.diff(long_run().jobs.submit)
    assert len(gaps) > 19_000
    assert kolmogorov(gaps, lambda x: 1 - np.exp(-x / 15)) < 1.95
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 4 / np.sqrt(len(gaps))


def test_bursts_alternate_and_are_flat_inside() -> None:
    submit = long_run("bursty").jobs.submit
    phase = (submit // 300).astype(int)
    burst = submit[phase % 2 == 0]
    for times, factor in ((burst, 3.0), (submit[phase % 2 == 1], 0.3)):
        expected = 150_000 * factor / 15
        assert abs(len(times) - expected) < 4 * np.sqrt(expected)
        assert kolmogorov(times % 300, lambda x: x / 300) < 1.95
    first = load_workload("family:shape=bursty", 1).jobs.submit
    assert (first < 300).sum() > 5 * ((first >= 300) & (first < 600)).sum()


@pytest.mark.parametrize(("shape", "shift"), [("diurnal", 0.0), ("shifted_diurnal", 0.25)])
def test_diurnal_follows_its_rate(shape: str, shift: float) -> None:
    horizon = 300_000.0
    submit = long_run(shape).jobs.submit

    def cumulative(t: Array) -> Array:
        wave = np.cos(2 * np.pi * shift) - np.cos(2 * np.pi * (t / horizon + shift))
        return np.asarray(t / horizon + 0.5 * wave / (2 * np.pi))

    assert kolmogorov(submit, cumulative) < 1.95
    assert kolmogorov(submit, lambda t: t / horizon) > 5  # the test would see a constant rate


def test_the_ceiling_is_above_every_rate() -> None:
    t = np.linspace(0, H, 10_001)
    for factor in SHAPES.values():
        assert (factor(t, H) / 60 * max(INTENSITY.values()) <= CEILING + 1e-12).all()


def test_runtime_slack_and_priority() -> None:
    workload = long_run()
    jobs, runtime = workload.jobs, workload.runtime
    assert kolmogorov(runtime, lambda x: (x - 30) / 870) < 1.95
    slack = (jobs.deadline - jobs.submit) / runtime
    assert kolmogorov(slack, lambda x: np.clip((x - 1.2) / 0.8, 0, 1)) < 1.95
    counts = np.bincount(jobs.priority.astype(int), minlength=4)
    expected = len(workload) / 4
    assert ((counts - expected) ** 2 / expected).sum() < 16.3  # chi², 3 degrees, p = 0.001
    assert set(jobs.gpus) == {1.0}
    for a, b in ((runtime, slack), (runtime, jobs.priority), (jobs.submit, runtime)):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(len(workload))


def test_intensities_are_nested_and_variants_paired() -> None:
    by_intensity = [load_workload("family", 4, intensity=name) for name in INTENSITY]
    for less, more in itertools.pairwise(by_intensity):
        rows = np.flatnonzero(np.isin(more.jobs.submit, less.jobs.submit))
        assert len(rows) == len(less) < len(more)
        np.testing.assert_array_equal(more.runtime[rows], less.runtime)
        np.testing.assert_array_equal(more.jobs.deadline[rows], less.jobs.deadline)
    plain, gang, hetero, estimate = (load_workload("family", 4, variant=v) for v in ("plain", "gang", "hetero", "estimate"))
    for same in (hetero, estimate):
        np.testing.assert_array_equal(same.jobs.submit, plain.jobs.submit)
        np.testing.assert_array_equal(same.runtime, plain.runtime)
        np.testing.assert_array_equal(same.jobs.priority, plain.jobs.priority)
    rows = np.flatnonzero(np.isin(plain.jobs.submit, gang.jobs.submit))
    assert len(rows) == len(gang)
    np.testing.assert_array_equal(plain.runtime[rows], gang.runtime)


@pytest.mark.parametrize(("gpus", "mean"), [(16, 2.5), (8, 2.5), (4, 2.1), (2, 1.5), (1, 1.0)])
def test_gangs_offer_the_load_of_plain(gpus: int, mean: float) -> None:
    gang = long_run(variant="gang", gpus=gpus)
    size = gang.jobs.gpus
    assert size.max() == min(gpus, 8)
    assert abs(size.mean() - mean) < 4 * size.std() / np.sqrt(len(size)) + 1e-12
    load = float(size @ gang.runtime) / 300_000
    sigma = np.sqrt(float((size * gang.runtime) @ (size * gang.runtime))) / 300_000  # of a compound Poisson sum
    assert abs(load - 465 / 15) < 4 * sigma


def test_hetero_labels() -> None:
    jobs = long_run(variant="hetero").jobs
    assert jobs.classes == tuple(HETERO_SPEED)
    counts = np.bincount(jobs.job_class)
    assert (np.abs(counts - len(jobs) / 5) < 4 * np.sqrt(len(jobs) * 0.16)).all()
    shares = np.bincount(jobs.gpu_type) / len(jobs)
    assert jobs.gpu_types == ("", "p100|v100", "v100")
    assert (np.abs(shares - [0.7, 0.15, 0.15]) < 4 * np.sqrt(0.21 / len(jobs))).all()


def test_on_its_cluster_a_class_runs_as_fast_as_was_measured() -> None:
    workload, cluster = load_workload("family:variant=hetero,intensity=low", 3), load_cluster("family-hetero")
    result = simulate(workload, cluster, parse_scheduler("fcfs/fewest/skip"))
    kinds = [cluster.types[kind].name for kind in cluster.nodes.gpu_type.tolist()]
    classes = [workload.jobs.classes[number] for number in workload.jobs.job_class.tolist()]
    where = [kinds[node] for node in result.table["node"].tolist()]
    assert set(where) == {"v100", "p100", "k80"}
    assert result.table["rate"].tolist() == [HETERO_SPEED[name][kind] for name, kind in zip(classes, where, strict=True)]


def test_estimates_are_what_people_ask_for() -> None:
    workload = long_run(variant="estimate")
    asked, runtime = workload.jobs.walltime, workload.runtime
    assert set(asked) <= {60, 120, 300, 600, 900, 1200, 1800, 2700, 3600, 5400, 7200, 10800, 14400, 21600, 28800, 43200, 86400}
    np.testing.assert_array_equal(workload.jobs.estimate, asked)
    assert 0.05 < (asked < runtime).mean() < 0.2
    exact = long_run(variant="estimate", error=0.0)
    np.testing.assert_array_equal(exact.jobs.walltime, usual_walltime(exact.runtime * 1.5))


def test_usual_walltimes_round_up() -> None:
    given = np.array([0.0, 1.0, 60.0, 60.1, 86400.0, 86401.0, 200_000.0])
    assert usual_walltime(given).tolist() == [60, 60, 60, 120, 86400, 172_800, 259_200]


def test_the_stream_is_pinned() -> None:
    """Published results name seeds: the same seed must give these jobs in every later version and on every machine."""
    jobs = load_workload("family:shape=bursty,intensity=low", 42).jobs
    assert len(jobs) == 98
    np.testing.assert_allclose(jobs.submit[:3], [8.481927998364558, 30.876733145264133, 32.138120185961895], rtol=1e-12)
    np.testing.assert_allclose(jobs.estimate[:3], [806.4801930300077, 443.235192230846, 874.7361441450699], rtol=1e-12)
