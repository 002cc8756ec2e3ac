"""The perturbations against their definitions: by hand on few jobs, by their laws on many (4 sigma, fixed seeds)."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.workload import Workload
from gpuyard.traces import apply, apply_to_cluster, load_workload

N = 20_000


def many() -> Workload:
    """Jobs every 10 s, each due 1,000 s after its submit."""
    submit = np.arange(N) * 10.0
    return Workload.build({"submit": submit, "deadline": submit + 1000, "walltime": np.full(N, 900.0)}, np.full(N, 600.0), name="many")


def at(*submit: float) -> Workload:
    return Workload.build({"submit": submit, "deadline": [t + 5 for t in submit]}, [1.0] * len(submit), name="few")


@pytest.mark.parametrize(("severity", "share"), [(1, 0.05), (2, 0.10), (3, 0.15), (4, 0.20)])
def test_arrival_noise(severity: int, share: float) -> None:
    made = apply(many(), f"arrival-noise:{severity}", 1)
    moved = made.jobs.submit - (made.jobs.id - 1) * 10.0
    inner = moved[1:]  # the first cannot move below 0
    assert abs(inner.mean()) < 4 * share * 10 / np.sqrt(N)
    assert inner.std() == pytest.approx(share * 10, rel=4 / np.sqrt(2 * N))
    np.testing.assert_allclose(made.jobs.deadline - made.jobs.submit, 1000, rtol=1e-9)
    assert made.jobs == apply(many(), f"arrival-noise:share={share}", 1).jobs


def test_strong_arrival_noise_takes_jobs_past_each_other() -> None:
    workload = many()
    runtime = np.arange(N, dtype=float)
    made = apply(Workload(workload.jobs, runtime), "arrival-noise:share=5", 1)
    assert made.jobs.id.tolist() != list(range(1, N + 1))
    np.testing.assert_array_equal(made.runtime, made.jobs.id - 1)  # every job keeps its own hidden run time


@pytest.mark.parametrize(("severity", "spread"), [(1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8)])
def test_runtime_distortion(severity: int, spread: float) -> None:
    before = many()
    made = apply(before, f"runtime-distortion:{severity}", 1)
    log = np.log(made.runtime / 600)
    assert abs(log.mean() + spread**2 / 2) < 4 * spread / np.sqrt(N)
    assert log.std() == pytest.approx(spread, rel=4 / np.sqrt(2 * N))
    assert made.jobs == before.jobs  # what users and schedulers believe stays


def test_phase_shift_rotates_each_day() -> None:
    hour = 3600.0
    made = apply(at(0, 5 * hour, 20 * hour, 30 * hour, 47 * hour), "phase-shift:2")  # 6 h
    assert made.jobs.id.tolist() == [3, 1, 2, 5, 4]
    assert (made.jobs.submit / hour).tolist() == [2, 6, 11, 29, 36]
    assert (made.jobs.deadline - made.jobs.submit).tolist() == [5] * 5
    again = apply(at(0, 5 * hour, 20 * hour, 30 * hour, 47 * hour), "phase-shift:shift=6h,period=24h")
    assert again.jobs == made.jobs


def test_phase_shift_of_less_than_a_day_takes_the_span_as_period() -> None:
    made = apply(at(0, 10, 20, 30, 39.999999), "phase-shift:severity=4,period=40s")
    assert made.jobs.submit.tolist() == pytest.approx([0, 10, 19.999999, 20, 30])
    default = apply(at(0, 10, 21, 30, 40), "phase-shift:4")  # the period ends just after 40
    assert default.jobs.submit.tolist() == pytest.approx([1, 10, 20, 20, 30])
    assert sorted(default.jobs.id.tolist()) == [1, 2, 3, 4, 5]


def test_burst_presses_the_busiest_windows_together() -> None:
    workload = at(100, 101, 108, 110, 111, 112, 118, 125, 131, 139)  # windows of 10 s from 100: 3, 4, 1, 2 jobs
    made = apply(workload, "burst:factor=2,window=10,share=0.25")
    assert made.jobs.submit.tolist() == [100, 101, 108, 110, 110.5, 111, 114, 125, 131, 139]
    half = apply(workload, "burst:factor=2,window=10,share=0.5")
    assert half.jobs.submit.tolist() == [100, 100.5, 104, 110, 110.5, 111, 114, 125, 131, 139]
    assert (half.jobs.deadline - half.jobs.submit).tolist() == [5] * 10


@pytest.mark.parametrize(("severity", "factor"), [(1, 1.5), (2, 2.0), (3, 2.5), (4, 3.0)])
def test_burst_severities(severity: int, factor: float) -> None:
    workload = load_workload("family:shape=bursty", 3)
    made, same = apply(workload, f"burst:{severity}"), apply(workload, f"burst:factor={factor}")
    assert made.jobs == same.jobs
    assert len(made) == len(workload)
    assert sorted(made.jobs.submit.tolist()) == pytest.approx(slow_burst(workload.jobs.submit.tolist(), factor))


def slow_burst(submit: list[float], factor: float) -> list[float]:
    """The definition, job by job."""
    width = (submit[-1] - submit[0]) / 24
    groups: dict[int, list[float]] = {k: [] for k in range(25)}
    for t in submit:
        groups[int((t - submit[0]) // width)].append(t)
    last = max(k for k in groups if groups[k])
    busiest = sorted(groups, key=lambda k: (-len(groups[k]), k))[: round(0.25 * (last + 1))]
    return sorted(
        submit[0] + k * width + (t - submit[0] - k * width) / (factor if k in busiest else 1) for k, group in groups.items() for t in group
    )


@pytest.mark.parametrize(("severity", "spread"), [(1, 0.25), (2, 0.5), (3, 1.0), (4, 1.5)])
def test_estimate_noise(severity: int, spread: float) -> None:
    before = many()
    made = apply(before, f"estimate-noise:severity={severity},bias=2", 1)
    log = np.log(made.jobs.estimate / 900)
    assert abs(log.mean() - np.log(2)) < 4 * spread / np.sqrt(N)
    assert log.std() == pytest.approx(spread, rel=4 / np.sqrt(2 * N))
    assert made.jobs.replace(estimate=before.jobs.estimate) == before.jobs
    assert made.runtime.tobytes() == before.runtime.tobytes()
    assert made.estimate_source == "requested with noise"


@pytest.mark.parametrize(("severity", "down"), [(1, 4), (2, 8), (3, 12), (4, 16)])
def test_capacity_dips(severity: int, down: int) -> None:
    workload = at(100, 500)
    cluster = apply_to_cluster(load_cluster("4x8:a100"), f"capacity-dips:{severity}", workload, 7)
    parts: dict[float, int] = {}
    for outage in cluster.outages:
        assert outage.end - outage.start == pytest.approx(25)  # a quarter of a part of 100 s
        assert (outage.gpus is None) or 0 < outage.gpus < 8
        parts[outage.start] = parts.get(outage.start, 0) + (outage.gpus or 8)
    assert set(parts.values()) == {down}
    starts = sorted(parts)
    assert len(starts) == 4
    assert all(100 + 100 * k <= start and start + 25 <= 200 + 100 * k + 1e-9 for k, start in enumerate(starts))
    assert {outage.node for outage in cluster.outages} != {outage.node for outage in cluster.outages if outage.start == starts[0]}


def test_capacity_dips_of_pools_and_of_hosts() -> None:
    pool = apply_to_cluster(load_cluster("256"), "capacity-dips:dips=1,depth=0.1,duration=10", at(0, 100), 1)
    assert [(outage.node, outage.gpus) for outage in pool.outages] == [(0, 26)]
    hosts = apply_to_cluster(load_cluster("hosts:count=10"), "capacity-dips:dips=1,depth=0.3", at(0, 100), 1)
    assert len({outage.node for outage in hosts.outages}) == 3
    assert {outage.gpus for outage in hosts.outages} == {None}
    whole = apply_to_cluster(Cluster.uniform(2, 4), "capacity-dips:dips=1,depth=1", at(0, 100), 1)
    assert {(outage.node, outage.gpus) for outage in whole.outages} == {(0, None), (1, None)}


def test_capacity_dips_leave_earlier_outages() -> None:
    once = apply_to_cluster(load_cluster("4x8:a100"), "capacity-dips", at(0, 100), 1)
    twice = apply_to_cluster(once, "capacity-dips", at(0, 100), 2)
    assert twice.outages[: len(once.outages)] == once.outages
