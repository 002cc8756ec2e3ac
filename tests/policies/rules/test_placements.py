"""What each built-in placement chooses, on nodes that are partly in use; expected values by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gpuyard import Action, Decision, Part, Simulation, Workload, parse_scheduler
from gpuyard.model.cluster import Cluster, GpuType, Nodes

Held = tuple[int, float, tuple[int, ...]]  # node, GPUs, devices


def cluster_of(gpus: Sequence[int], cpus: Sequence[float] = (), types: Sequence[GpuType] = (GpuType("gpu"),)) -> Cluster:
    """Nodes with these devices; node n has type n where there are several types."""
    count = len(gpus)
    columns = Nodes(
        names=tuple(f"n{i}" for i in range(count)),
        gpus=np.array(gpus, np.int32),
        gpu_type=np.arange(count, dtype=np.int32) % len(types),
        cpus=np.array(cpus or [np.inf] * count, float),
        memory=np.full(count, np.inf),
        rack=np.zeros(count, np.int32),
        partition=np.zeros(count, np.int32),
    )
    return Cluster(columns, tuple(types))


def placed(
    cluster: Cluster, held: Sequence[Held | dict[str, Any]], job: dict[str, Any], placement: str, later: Sequence[float] = (), seed: int = 0
) -> list[tuple[int, float]]:
    """(node, GPUs) of the job, where others already hold what is given; `later` are the GPUs of jobs that are still to come."""
    return [(part.node, part.gpus) for part in parts_of(cluster, held, job, placement, later, seed)]


def parts_of(
    cluster: Cluster, held: Sequence[Held | dict[str, Any]], job: dict[str, Any], placement: str, later: Sequence[float] = (), seed: int = 0
) -> tuple[Part, ...]:
    holders = [{"node": h[0], "gpus": h[1], "devices": h[2]} if isinstance(h, tuple) else h for h in held]
    rows = [*holders, job, *({"gpus": gpus} for gpus in later)]
    columns = {name: [row.get(name, 1 if name == "chunk" else 0.0) for row in rows] for name in ("gpus", "cpus", "chunk")}
    submit = [0.0] * len(held) + [1.0] + [2.0] * len(later)
    simulation = Simulation(Workload.build({"submit": submit, **columns}, [1e6] * len(rows)), cluster, seed=seed)
    if holders:
        simulation.advance()
        starts = [(Part(h["node"], float(h["gpus"]), h.get("devices", ())),) for h in holders]
        simulation.apply([Decision(j, Action.START, parts) for j, parts in enumerate(starts)])
    snapshot = simulation.advance()
    assert snapshot is not None
    (decision,) = parse_scheduler(f"fcfs/{placement}").decide(snapshot)
    assert decision.job == len(held)
    return decision.parts


def test_tier_2_takes_a_node_more_rather_than_break_open_a_whole_one():
    cluster, held = cluster_of([4, 4, 4]), [(0, 2, ()), (1, 3, ())]
    assert placed(cluster, held, {"gpus": 3}, "fewest") == [(2, 3)]
    assert placed(cluster, held, {"gpus": 3}, "tier2") == [(0, 2), (1, 1)]


def test_tier_2_uses_up_whole_nodes():
    assert placed(cluster_of([4, 4, 4]), [(0, 2, ()), (1, 3, ())], {"gpus": 4}, "tier2") == [(2, 4)]
    held = [(0, 3, ()), (1, 3, ())]
    assert placed(cluster_of([4, 4, 4, 4]), held, {"gpus": 6}, "fewest") == [(2, 4), (3, 2)]
    assert placed(cluster_of([4, 4, 4, 4]), held, {"gpus": 6}, "tier2") == [(2, 4), (0, 1), (1, 1)]


def test_tier_2_is_one_node_more_and_not_two():
    held = [(0, 3, ()), (1, 3, ()), (2, 3, ())]
    assert placed(cluster_of([4, 4, 4, 4]), held, {"gpus": 3}, "tier2") == [(3, 3)]


def test_tier_2_leaves_gangs_that_must_sit_together_on_one_node():
    assert placed(cluster_of([4, 4, 4]), [(0, 2, ()), (1, 3, ())], {"gpus": 3, "chunk": 3}, "tier2") == [(2, 3)]


def test_tier_2_with_an_index_of_nodes():
    held = [(3, 6, ()), (17, 7, ())]
    assert placed(cluster_of([8] * 20), held, {"gpus": 3}, "tier2") == [(3, 2), (17, 1)]
    assert placed(cluster_of([8] * 20), held, {"gpus": 2}, "tier2") == [(3, 2)]


def test_lexicographic_compares_free_devices_then_speed_then_price_then_number():
    types = (
        GpuType("slow", 1.0, price=1.0),
        GpuType("dear", 2.0, price=5.0),
        GpuType("cheap", 2.0, price=3.0),
        GpuType("same", 2.0, price=3.0),
    )
    cluster = cluster_of([4, 4, 4, 4], types=types)
    assert placed(cluster, [], {"gpus": 2}, "lexicographic") == [(2, 2)]
    assert placed(cluster, [(0, 2, ())], {"gpus": 2}, "lexicographic") == [(0, 2)]
    assert placed(cluster, [(2, 3, ()), (3, 3, ())], {"gpus": 6}, "lexicographic") == [(1, 4), (0, 2)]


def test_defrag_keeps_a_small_whole_node_whole():
    cluster, held = cluster_of([2, 8]), [(1, 3, ())]
    assert placed(cluster, held, {"gpus": 1}, "best") == [(0, 1)]
    assert placed(cluster, held, {"gpus": 1}, "defrag") == [(1, 1)]


def test_defrag_fills_a_device_that_is_shared_before_it_opens_another():
    cluster, held = cluster_of([4, 4]), [(0, 3, ()), (1, 0.5, (0,))]
    assert placed(cluster, held, {"gpus": 0.5}, "best") == [(0, 0.5)]
    assert placed(cluster, held, {"gpus": 0.5}, "defrag") == [(1, 0.5)]
    assert placed(cluster, held, {"gpus": 0.75}, "defrag") == [(0, 0.75)]


def test_balance_looks_at_the_share_in_use():
    cluster, held = cluster_of([8, 4], cpus=[16, 16]), [(0, 3, ())]
    assert placed(cluster, held, {"gpus": 1}, "worst") == [(0, 1)]
    assert placed(cluster, held, {"gpus": 1}, "balance") == [(1, 1)]
    busy_host = {"node": 1, "gpus": 0.0, "cpus": 8.0}  # half of the cpus: more than 3/8 of the devices
    assert placed(cluster, [*held, busy_host], {"gpus": 1}, "balance") == [(0, 1)]


def test_packing_adds_up_devices_and_cpus():
    """Node 0: 2/4 + 64/64; node 1: 3/4 + 8/64."""
    cluster, held = cluster_of([4, 4], cpus=[64, 64]), [(0, 2, ()), {"node": 1, "gpus": 1, "cpus": 56.0}]
    assert placed(cluster, held, {"gpus": 1}, "best") == [(0, 1)]
    assert placed(cluster, held, {"gpus": 1}, "packing") == [(1, 1)]


def test_fgd_places_where_the_fragment_grows_least():
    """Requests: 0.7 once, 0.5 twice. Node 0 has 0.3 and 1 free, F = 0.3; with the job on the whole device (0.8 + 2·0.3)/3 = 0.467.
    Node 1 has 0.5, 1 and 1 free, F = 0.5/3; with the job on the first device 0."""
    cluster, held = cluster_of([2, 3]), [(0, 0.7, (0,)), (1, 0.5, (0,))]
    assert placed(cluster, held, {"gpus": 0.5}, "best") == [(0, 0.5)]
    (part,) = parts_of(cluster, held, {"gpus": 0.5}, "fgd")
    assert (part.node, part.devices) == (1, (0,))


def test_fgd_chooses_the_device_by_what_others_ask_for():
    """0.6 and 0.5 are free. On the tighter device the job leaves 0.6 and 0.1: F = 0.1. On the other 0.5 and 0.2, of which the seven jobs
    to come can use all: F = 0.3·0.2 = 0.06."""
    held = [(0, 0.4, (0,)), (0, 0.5, (1,))]
    (tight,) = parts_of(cluster_of([2]), held, {"gpus": 0.4}, "best", later=[0.2] * 7)
    (fitting,) = parts_of(cluster_of([2]), held, {"gpus": 0.4}, "fgd", later=[0.2] * 7)
    assert (tight.devices, fitting.devices) == ((1,), (0,))


def test_fgd_keeps_cpu_jobs_off_nodes_whose_devices_would_be_stranded():
    """With 4 of its 8 cpus gone, no job of one device and 6 cpus could use the devices of node 0; node 1 has no device to lose."""
    cluster, held = cluster_of([2, 2, 1], cpus=[8, 8, 6]), [(1, 2, ()), {"node": 2, "gpus": 1, "cpus": 6.0}]
    assert placed(cluster, held, {"gpus": 0, "cpus": 4.0}, "first") == [(0, 0.0)]
    assert placed(cluster, held, {"gpus": 0, "cpus": 4.0}, "fgd") == [(1, 0.0)]


def test_fgd_fills_nodes_where_growth_is_equal():
    """Whole devices only: nothing is ever lost, and the fullest node is taken."""
    assert placed(cluster_of([8, 8, 8]), [(0, 1, ()), (2, 4, ())], {"gpus": 2}, "fgd") == [(2, 2)]


# ── jobs that ask for no GPUs ──

HOSTS = [0, 0, 0, 0]  # GPUs


@pytest.mark.parametrize(
    ("placement", "node"),
    [("first", 0), ("best", 1), ("fewest", 1), ("tier2", 1), ("lexicographic", 1), ("defrag", 1), ("worst", 2)],
)
def test_hosts_without_gpus_are_compared_by_their_free_cores(placement: str, node: int):
    """8, 4 and 20 cores are free, and 2 on the host that is too small."""
    cluster, held = cluster_of(HOSTS, cpus=[8, 16, 32, 2]), [{"node": 1, "gpus": 0, "cpus": 12.0}, {"node": 2, "gpus": 0, "cpus": 12.0}]
    assert placed(cluster, held, {"gpus": 0, "cpus": 3.0}, placement) == [(node, 0.0)]


def test_a_job_without_gpus_looks_at_cores_also_on_nodes_that_have_gpus():
    """Node 0 has the fewest free GPUs, node 1 the fewest free cores."""
    cluster, held = cluster_of([4, 4], cpus=[32, 8]), [(0, 3, ())]
    assert placed(cluster, held, {"gpus": 1}, "best") == [(0, 1.0)]
    assert placed(cluster, held, {"gpus": 0, "cpus": 2.0}, "best") == [(1, 0.0)]
    assert placed(cluster, held, {"gpus": 0, "cpus": 2.0}, "worst") == [(0, 0.0)]


def test_defrag_keeps_a_job_without_gpus_off_whole_nodes_however_many_cores_are_free():
    cluster = cluster_of([4, 4], cpus=[128, 1024])
    assert placed(cluster, [(1, 1, ())], {"gpus": 0, "cpus": 2.0}, "defrag") == [(1, 0.0)]


def test_a_node_whose_cores_are_not_limited_has_the_most():
    cluster = cluster_of(HOSTS, cpus=[np.inf, 64, np.inf, 8])
    assert placed(cluster, [], {"gpus": 0, "cpus": 2.0}, "best") == [(3, 0.0)]
    assert placed(cluster, [], {"gpus": 0, "cpus": 2.0}, "worst") == [(0, 0.0)]


def test_amounts_of_cores_that_differ_by_rounding_are_equal():
    """0.3 − 0.1 − 0.1 − 0.1 is not 0 in floating point; both hosts have 1 core left."""
    held = [{"node": 1, "gpus": 0, "cpus": 0.1}] * 3
    assert placed(cluster_of([0, 0], cpus=[1.0, 1.3]), held, {"gpus": 0, "cpus": 0.5}, "best") == [(0, 0.0)]
    assert placed(cluster_of([0, 0], cpus=[1.0, 1.3]), held, {"gpus": 0, "cpus": 0.5}, "worst") == [(0, 0.0)]


@pytest.mark.parametrize("placement", ["random", "fgd"])
def test_the_same_seed_places_alike(placement: str):
    cluster, held = cluster_of([4, 4, 4]), [(0, 0.5, (1,)), (1, 0.25, (3,))]
    first, second = (parts_of(cluster, held, {"gpus": 0.5}, placement, seed=5) for _ in range(2))
    assert first == second


def test_random_draws_the_device_of_a_share_as_well():
    chosen = {parts_of(cluster_of([4]), [(0, 0.5, (1,))], {"gpus": 0.5}, "random", seed=seed)[0].devices[0] for seed in range(40)}
    assert chosen == {0, 1, 2, 3}
    full = {parts_of(cluster_of([4]), [(0, 0.75, (1,))], {"gpus": 0.5}, "random", seed=seed)[0].devices[0] for seed in range(40)}
    assert full == {0, 2, 3}
