"""The perturbations against their definitions: by hand on few jobs, by their laws on many (4 sigma, fixed seeds)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuyard.engine.simulation import simulate
from gpuyard.errors import DataError, UsageError
from gpuyard.metrics import measure
from gpuyard.model.cluster import Cluster, Outage
from gpuyard.model.cluster_file import cluster_from_dict, cluster_to_dict, load_cluster
from gpuyard.model.workload import Workload
from gpuyard.policies import parse_scheduler
from gpuyard.traces import apply, apply_to_cluster, load_workload
from gpuyard.traces.changes.transform import apply_all, apply_all_to_cluster

N = 20_000


def many() -> Workload:
    """Jobs every 10 s, each due 1,000 s after its submit."""
    submit = np.arange(N) * 10.0
    return Workload.build({"submit": submit, "deadline": submit + 1000, "walltime": np.full(N, 900.0)}, np.full(N, 600.0), name="many")


def at(*submit: float) -> Workload:
    return Workload.build({"submit": submit, "deadline": [t + 5 for t in submit]}, [1.0] * len(submit), name="few")


def counts(workload: Workload, width: float, windows: int) -> np.ndarray:
    return np.bincount(np.minimum(workload.jobs.submit // width, windows - 1).astype(int), minlength=windows)


@pytest.mark.parametrize(("severity", "share"), [(1, 0.05), (2, 0.10), (3, 0.15), (4, 0.20)])
def test_arrival_noise_acts_on_the_number_of_jobs_in_each_window(severity: int, share: float) -> None:
    width, windows = 1000.0, N // 100
    made = apply(many(), f"arrival-noise:severity={severity},window=1000", 1)
    factor = counts(made, width, windows) / 100
    assert abs(factor.mean() - 1) < 4 * share / np.sqrt(windows)
    assert factor.std() == pytest.approx(np.hypot(share, np.sqrt(1 / 12) / 100), rel=4 / np.sqrt(2 * windows))  # rounded to whole jobs
    np.testing.assert_allclose(made.jobs.deadline - made.jobs.submit, 1000, rtol=1e-9)
    assert made.jobs == apply(many(), f"arrival-noise:share={share},window=1000", 1).jobs


def test_arrival_noise_leaves_out_some_jobs_and_copies_others() -> None:
    before = Workload(many().jobs, np.arange(N, dtype=float))  # a run time that tells which job it was
    made = apply(before, "arrival-noise:share=0.5,window=1000", 1)
    old = made.jobs.id <= N
    np.testing.assert_array_equal(made.runtime[old], made.jobs.id[old] - 1)  # who stays has its time and its submit
    np.testing.assert_array_equal(made.jobs.submit[old], (made.jobs.id[old] - 1) * 10.0)
    assert 0 < old.sum() < N
    copies = made.runtime[~old]
    assert len(copies) > 0
    assert len(set(made.jobs.id.tolist())) == len(made)
    assert (made.jobs.submit[~old] // 1000 == copies * 10 // 1000).all()  # a copy comes in the window of its original
    assert set(copies.tolist()) <= set(made.runtime[old].tolist())


def test_the_window_is_an_hour_or_a_twelfth_of_the_time() -> None:
    for text in ("arrival-noise", "burst"):
        day = apply(load_workload("demo:jobs=400", 1), f"{text}:window=1h", 1)
        assert day.jobs == apply(load_workload("demo:jobs=400", 1), text, 1).jobs
        assert apply(at(0, 1, 5, 120), text, 1).jobs == apply(at(0, 1, 5, 120), f"{text}:window=10s", 1).jobs


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


def test_burst_adds_jobs_to_the_busiest_windows() -> None:
    workload = at(100, 101, 108, 110, 111, 112, 118, 125, 131, 139)  # windows of 10 s from 100: 3, 4, 1, 2 jobs
    made = apply(workload, "burst:factor=2,window=10,share=0.25", 1)
    assert np.bincount((made.jobs.submit // 10).astype(int))[10:].tolist() == [3, 8, 1, 2]
    half = apply(workload, "burst:factor=3,window=10,share=0.5", 1)
    assert np.bincount((half.jobs.submit // 10).astype(int))[10:].tolist() == [9, 12, 1, 2]
    assert (half.jobs.deadline - half.jobs.submit).tolist() == pytest.approx([5] * 24)
    for changed in (made, half):
        assert set(zip(workload.jobs.id, workload.jobs.submit, strict=True)) <= set(zip(changed.jobs.id, changed.jobs.submit, strict=True))


@pytest.mark.parametrize(("severity", "factor"), [(1, 1.5), (2, 2.0), (3, 2.5), (4, 3.0)])
@pytest.mark.parametrize("shape", ["base", "bursty", "diurnal"])
def test_burst_severities_raise_the_rate_by_their_factor(severity: int, factor: float, shape: str) -> None:
    workload = load_workload(f"family:shape={shape}", 3)
    made = apply(workload, f"burst:{severity}", 3)
    first, width = workload.jobs.submit[0], np.ptp(workload.jobs.submit) / 12
    edges = first + width * np.arange(13)
    before, after = (np.histogram(each.jobs.submit, edges)[0] for each in (workload, made))
    busiest = sorted(range(12), key=lambda k: (-before[k], k))[:3]
    expected = [round(factor * n) if k in busiest else n for k, n in enumerate(before)]
    assert after.tolist() == expected
    assert made.jobs == apply(workload, f"burst:factor={factor}", 3).jobs


def test_a_stronger_burst_has_the_jobs_of_a_weaker_one() -> None:
    made = [apply(load_workload("family", 3), f"burst:{severity}", 3) for severity in (1, 2, 3, 4)]
    kept = [set(zip(each.jobs.submit.tolist(), each.runtime.tolist(), strict=True)) for each in made]
    assert kept[0] < kept[1] < kept[2] < kept[3]


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


@pytest.mark.parametrize("gpus", [2, 4, 8, 16])
def test_capacity_dips_take_the_device_time_that_their_severity_says(gpus: int) -> None:
    for severity, depth in enumerate((1 / 8, 1 / 4, 3 / 8, 1 / 2), 1):
        cluster = apply_to_cluster(load_cluster(f"1x{gpus}:a100"), f"capacity-dips:{severity}", at(0, 400), 7)
        lost = sum((outage.end - outage.start) * (outage.gpus or gpus) for outage in cluster.outages)
        assert lost == pytest.approx(4 * 25 * depth * gpus)


def test_capacity_dips_leave_earlier_outages() -> None:
    once = apply_to_cluster(load_cluster("4x8:a100"), "capacity-dips", at(0, 100), 1)
    twice = apply_to_cluster(once, "capacity-dips", at(0, 100), 2)
    assert twice.outages[: len(once.outages)] == once.outages


@pytest.mark.parametrize(("severity", "factor"), [(1, 1.25), (2, 1.5), (3, 2.0), (4, 3.0)])
def test_slow_nodes_divide_the_speed_of_a_quarter_of_the_gpus(severity: int, factor: float) -> None:
    cluster = apply_to_cluster(load_cluster("8x4:a100"), f"slow-nodes:{severity}", at(0, 100), 7)
    fast, slow = cluster.types
    assert fast.speed / slow.speed == pytest.approx(factor)
    assert (fast.name, slow.name, slow.busy_watts) == ("a100", "a100-slow", fast.busy_watts)
    assert sorted(cluster.nodes.gpu_type.tolist()) == [0] * 6 + [1] * 2  # whole nodes
    assert cluster.gpus == 32


def test_slow_nodes_split_a_node_of_which_only_some_devices_are_slow() -> None:
    plain = cluster_from_dict({"nodes": [{"gpus": 8, "type": "v100", "cpus": 32, "memory": 64}], "speed": {"lm": {"v100": 2.0}}}, where="c")
    plain = replace(plain, outages=(Outage(0, 1.0, 2.0), Outage(0, 5.0, 6.0, 7)))
    cluster = apply_to_cluster(plain, "slow-nodes:factor=4", at(0, 100), 1)
    nodes = cluster.nodes
    assert (nodes.names, nodes.gpus.tolist(), nodes.gpu_type.tolist()) == (("n0", "n0-slow"), [6, 2], [0, 1])
    assert (nodes.cpus.tolist(), nodes.memory.tolist()) == ([24, 8], [48, 16])
    assert [cluster.speed_of("lm", kind) for kind in cluster.types] == [2.0, 0.5]
    assert cluster.outages == (Outage(0, 1.0, 2.0), Outage(1, 1.0, 2.0), Outage(0, 5.0, 6.0, 6), Outage(1, 5.0, 6.0, 1))
    assert cluster_from_dict(cluster_to_dict(cluster), where="again") == cluster


def test_slow_nodes_again_slow_others_or_the_same_further() -> None:
    once = apply_to_cluster(load_cluster("1x2:a100"), "slow-nodes:factor=2", at(0, 100), 1)
    twice = apply_to_cluster(once, "slow-nodes:factor=2,share=1", at(0, 100), 1)
    assert sorted(kind.speed for kind in (twice.types[t] for t in twice.nodes.gpu_type)) == pytest.approx(
        [once.types[0].speed / 4, once.types[0].speed / 2]
    )
    assert len({kind.name for kind in twice.types}) == len(twice.types)


def test_slow_nodes_refuse_jobs_that_ask_for_a_type_and_clusters_without_gpus() -> None:
    with pytest.raises(DataError, match="jobs ask for the GPU type 'p100|v100'"):
        apply_to_cluster(load_cluster("2x4:v100"), "slow-nodes", load_workload("family:variant=hetero", 1), 1)
    for text in ("256", "hosts:count=10"):
        with pytest.raises(UsageError, match="has no GPUs"):
            apply_to_cluster(load_cluster(text), "slow-nodes", at(0, 100), 1)


KINDS = ("arrival-noise", "runtime-distortion", "phase-shift", "burst", "capacity-dips", "slow-nodes")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gpus", [2, 16])
def test_each_perturbation_moves_the_slowdown_of_some_scheduler(kind: str, gpus: int) -> None:
    """By more than 1 % in the mean of the distances over 8 seeds, at its second severity, on few GPUs and on many."""
    moved = []
    for seed in range(8):
        cluster, workload = load_cluster(f"1x{gpus}:a100"), load_workload("family:intensity=medium", seed)
        changes = [f"{kind}:severity=2"]
        other = apply_all(workload, changes, seed)
        pairs = ((workload, cluster), (other, apply_all_to_cluster(cluster, changes, other, seed)))
        clean, rough = (measure(simulate(*pair, parse_scheduler("srpt")), ["slowdown"])["slowdown"] for pair in pairs)
        moved.append(abs(rough / clean - 1))
    assert np.mean(moved) > 0.01
