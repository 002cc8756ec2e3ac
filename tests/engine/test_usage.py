"""Users' usage decays as it should, reaches the policies that read it, and costs nobody else anything."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard import Decision, Meta, Simulation, Workload, simulate
from gpuyard.engine.decide import SnapshotDecider
from gpuyard.engine.kernels.events import PREPARE
from gpuyard.errors import UsageError
from gpuyard.model.cluster import Cluster, Outage
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.snapshot import HALF_LIFE, Snapshot
from gpuyard.policies import Decider, make_ordering, make_preemption, parse_ordering, parse_scheduler, parse_switch
from gpuyard.policies.slots import reads_clock, reads_usage

LN2 = math.log(2.0)
USERS = ("ann", "bob", "cy")
SITE = """
[[nodes]]
gpus = 4
partition = "main"

[[nodes]]
gpus = 4
partition = "side"

[partitions.main]
priority = 10

[partitions.side]
priority = 4

[qos]
high = 100
normal = 25
"""


def workload(jobs: list[tuple[float, float, str, float]], **more: Any) -> Workload:
    """Jobs as (submit, gpus, user, run time)."""
    submit, gpus, user, runtime = zip(*jobs, strict=True)
    labels = {name: more.pop(name) for name in ("qoses", "partitions") if name in more}
    columns = {"submit": submit, "gpus": gpus, "user": [USERS.index(name) for name in user], **more}
    return Workload.build(columns, runtime, users=USERS, **labels)


def snapshots(work: Workload, cluster: Cluster, half_life: float) -> dict[float, Snapshot]:
    """What is seen at every decision point when everything starts that came; it must fit."""
    simulation = Simulation(work, cluster, half_life=half_life)
    seen = {}
    while (snapshot := simulation.advance()) is not None:
        seen[snapshot.now] = snapshot
        simulation.apply([Decision(int(snapshot.jobs.index[row])) for row in snapshot.waiting])
    return seen


def test_usage_grows_with_what_is_held_and_halves_in_a_half_life():
    work = workload([(0, 4, "ann", 100), (100, 2, "bob", 100), (150, 0.5, "ann", 1), (200, 1, "cy", 1), (400, 1, "cy", 1)])
    seen = snapshots(work, Cluster.uniform(1, 4), 100.0)
    assert seen[0.0].usage.tolist() == [0.0, 0.0, 0.0]
    assert seen[100.0].usage == pytest.approx([4 * 100 / LN2 / 2, 0, 0], rel=1e-12)
    assert seen[150.0].usage == pytest.approx([200 / LN2 / math.sqrt(2), 2 * 100 / LN2 * (1 - math.sqrt(0.5)), 0], rel=1e-12)
    half_share = 0.5 * 100 / LN2 * (1 - 2**-0.01) * 2**-0.49
    assert seen[200.0].usage == pytest.approx([100 / LN2 + half_share, 100 / LN2, 0], rel=1e-12)
    later = 100 / LN2 * (1 - 2**-0.01) * 2**-1.99
    assert seen[400.0].usage == pytest.approx([25 / LN2 + half_share / 4, 25 / LN2, later], rel=1e-12)


def test_usage_against_an_integral_in_small_steps():
    """A run that is stopped by an outage and starts again, a share that binary numbers cannot hold, a CPU job."""
    cluster = replace(Cluster.uniform(2, 2), outages=(Outage(0, 40.0, 60.0),))
    work = workload([(0, 2, "ann", 100), (10, 0.3, "ann", 20), (15, 0, "bob", 30), (300, 1, "cy", 1)], cpus=[0, 0, 4, 0])
    usage = snapshots(work, cluster, 50.0)[300.0].usage
    held = np.zeros(300_000)
    for begin, end, gpus in ((0, 40, 2), (40, 100, 2), (10, 30, 0.3)):
        held[begin * 1000 : end * 1000] += gpus
    middle = (np.arange(300_000) + 0.5) / 1000
    expected = float((held * 2.0 ** (-(300 - middle) / 50)).sum() / 1000)
    assert usage == pytest.approx([expected, 0, 0], rel=1e-6)


def test_a_worked_example_of_multifactor(tmp_path: Path):
    """At 200 s: ann used 4 GPUs for 100 s a half-life ago, bob 2 GPUs for the last 100 s: half of all usage each, cy nothing."""
    path = tmp_path / "site.toml"
    path.write_text(SITE, encoding="utf-8")
    work = workload(
        [(0, 4, "ann", 100), (100, 2, "bob", 100), (150, 4, "ann", 9), (180, 2, "bob", 9), (200, 1, "cy", 9), (200, 1, "ann", 9)],
        qos=[0, 0, 1, 2, 0, 2], qoses=("", "high", "normal"), partition=[0, 0, 0, 0, 0, 1], partitions=("main", "side"),
    )  # fmt: skip
    simulation = Simulation(work, load_cluster(str(path)), half_life=100.0)
    snapshot = simulation.advance()
    while snapshot is not None and snapshot.now < 200.0:
        simulation.apply([Decision(int(j)) for j in snapshot.jobs.index[snapshot.waiting] if j < 2])
        snapshot = simulation.advance()
    assert snapshot is not None
    program = parse_scheduler("multifactor:max_age=400,half_life=100/fewest/skip").program()
    driver = SnapshotDecider(program).load(snapshot)
    driver.order(PREPARE)
    s = driver.state
    keys = {
        int(s.table["index"][j]): float(s.queue_keys[i])
        for i, j in enumerate(s.queue_jobs[: len(snapshot.jobs)])
        if s.rows["status"][j] == 1
    }
    heavy = 10_000 * 2**-1.5  # half of all usage where a third is fair
    expected = {
        2: 1000 * 50 / 400 + 1000 * 4 / 8 + 1000 + 1000 + heavy,
        3: 1000 * 20 / 400 + 1000 * 2 / 8 + 1000 + 250 + heavy,
        4: 1000 * 1 / 8 + 1000 + 10_000,
        5: 1000 * 1 / 8 + 400 + 250 + heavy,
    }
    assert keys == pytest.approx({j: -priority for j, priority in expected.items()}, rel=1e-12)


def order_of_starts(work: Workload, scheduler: str, cluster: Cluster | None = None) -> list[int]:
    result = simulate(work, cluster or Cluster.uniform(1, 1), parse_scheduler(scheduler))
    return np.argsort(result.table["start"], kind="stable").tolist()


def test_who_used_less_goes_first_and_use_is_forgotten():
    """One GPU. Ann has used it for 100 s, bob for 10 s since; both wait at 110 s. Ann's first use counts 2^(−10/H) of itself."""
    work = workload([(0, 1, "ann", 100), (50, 1, "bob", 10), (105, 1, "ann", 10), (106, 1, "bob", 10)])
    assert order_of_starts(work, "multifactor:age=0") == [0, 1, 3, 2]
    assert order_of_starts(work, "multifactor:age=0,half_life=1") == [0, 1, 2, 3]
    assert order_of_starts(work, "multifactor:age=0,fairshare=0") == [0, 1, 2, 3]


def test_a_higher_qos_goes_first():
    cluster = replace(Cluster.uniform(1, 1), qos={"high": 10.0, "low": 1.0})
    work = workload(
        [(0, 1, "ann", 10), (1, 1, "bob", 10), (2, 1, "bob", 10), (3, 1, "bob", 10)], qos=[0, 0, 1, 2], qoses=("", "low", "high")
    )
    assert order_of_starts(work, "multifactor", cluster) == [0, 3, 2, 1]
    assert order_of_starts(work, "multifactor:qos=0", cluster) == [0, 1, 2, 3]


def helper(jobs: Any, j: int) -> Any:
    return jobs.usage[j]


def through_a_helper(jobs: Any, j: int, now: float) -> Any:
    return helper(jobs, j)


def by_size(jobs: Any, j: int, now: float) -> Any:
    return jobs.size_factor[j]


def own_half_life(jobs: Any, j: int, now: float, half_life: float = 50.0) -> Any:
    return jobs.usage[j] / half_life


def test_what_reads_usage_is_keyed_at_every_pass():
    assert reads_usage(through_a_helper)
    assert reads_clock(through_a_helper)
    assert not reads_usage(by_size)
    assert not reads_clock(by_size)


def test_usage_is_kept_only_if_it_is_read():
    plain = parse_scheduler("fcfs/fewest/easy")
    assert plain.program().half_life == 0.0
    assert replace(plain, ordering=make_ordering(through_a_helper, "own")).program().half_life == HALF_LIFE
    assert replace(plain, preemption=make_preemption(own_half_life, "own")).program().half_life == 50.0
    assert parse_scheduler("multifactor:half_life=2d").program().half_life == 172_800.0
    assert Decider("d", "", lambda inner: inner, (), parse_scheduler("multifactor:half_life=2d")).half_life == 172_800.0


def test_one_simulation_has_one_half_life():
    one, other = parse_scheduler("multifactor:half_life=1d"), parse_scheduler("multifactor:half_life=2d")
    with pytest.raises(UsageError, match="half_life = 86400 s and half_life = 172800 s"):
        Meta((one, other), parse_switch("backlog"))
    assert Meta((one, parse_scheduler("sjf")), parse_switch("backlog")).half_life == 86_400.0
    assert parse_ordering("multifactor:half_life=1d").params[6] == ("half_life", 86_400.0)


@pytest.mark.parametrize("value", ["0", "-5", "inf"])
def test_a_half_life_that_is_none_is_refused(value: str):
    with pytest.raises(UsageError, match="is not a half-life"):
        parse_scheduler(f"multifactor:half_life={value}")


def test_a_snapshot_with_another_half_life_is_refused():
    seen = snapshots(workload([(0, 1, "ann", 1)]), Cluster.uniform(1, 1), 100.0)[0.0]
    with pytest.raises(UsageError, match="half_life = 604800 s, but usage in the snapshot decays with 100 s"):
        parse_scheduler("multifactor").decide(seen)
    assert len(parse_scheduler("fcfs").decide(seen)) == 1
    assert len(parse_scheduler("multifactor").decide(replace(seen, usage=np.zeros(0)))) == 1  # nothing known of usage


# --- Tiresias: one GPU, queues at 30 GPU-seconds, promotion after waiting twice as long as having run, a timer every 10 s ----------

TIRESIAS = "tiresias:threshold=30,promote=2/first/none/tiresias:threshold=30,promote=2,every=10"


def test_a_worked_example_of_tiresias():
    """0 leaves the first queue at 30 s and gives way to 1, which does at 60 s. At 90 s job 0 has waited 60 s for 30 s of service: it is
    promoted and stops 1. Job 2 comes at 95 s and must wait: 0 counts anew, and is in the first queue until 120 s. Then 2 runs; after it,
    at 130 s, both are in the second queue, and 0 goes first."""
    work = workload([(0, 1, "ann", 100), (10, 1, "bob", 100), (95, 1, "cy", 10)])
    table = simulate(work, Cluster.uniform(1, 1), parse_scheduler(TIRESIAS)).table
    assert table["start"].tolist() == [0.0, 30.0, 120.0]
    assert table["end"].tolist() == [170.0, 210.0, 130.0]
    assert table["preemptions"].tolist() == [2, 1, 0]


def test_without_promotion_the_second_queue_is_first_come_first_served():
    """1 gives way to nobody from 60 s on, but 2, which is new, stops it at 95 s; then 0, then 1."""
    work = workload([(0, 1, "ann", 100), (10, 1, "bob", 100), (95, 1, "cy", 10)])
    table = simulate(work, Cluster.uniform(1, 1), parse_scheduler(TIRESIAS.replace("promote=2", "promote=inf"))).table
    assert table["start"].tolist() == [0.0, 30.0, 95.0]
    assert table["end"].tolist() == [175.0, 210.0, 105.0]
    assert table["preemptions"].tolist() == [1, 1, 0]
