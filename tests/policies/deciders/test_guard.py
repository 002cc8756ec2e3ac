"""The guard: whatever arrives, nobody is passed over for longer than its time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard import Simulation, Workload, simulate
from gpuyard.errors import UsageError
from gpuyard.model.cluster import Cluster
from gpuyard.policies import parse_scheduler
from gpuyard.testing.strategies import random_case

AFTER = 1000.0
TEXT = f"guard:after={AFTER:g}(sjf/fewest/easy)"


def stream(count: int, gang: int = 8, short: float = 60.0, limit: float = 60.0) -> Workload:
    """A gang that needs all GPUs, and then an endless stream of small short jobs that keeps three quarters of them busy."""
    submit = [0.0, 0.5, *np.arange(1, count + 1) * short / 6.0]
    gpus, runtime = [6, gang, *[1] * count], [100.0, 600.0, *[short] * count]
    return Workload.build({"submit": submit, "gpus": gpus, "estimate": runtime, "walltime": [100.0, 600.0, *[limit] * count]}, runtime)


def wait_of_gang(text: str, count: int) -> float:
    result = simulate(stream(count), Cluster.uniform(1, 8), parse_scheduler(text))
    return float(result.table["start"][1] - 0.5)


def test_without_it_a_stream_of_short_jobs_starves_a_gang_and_with_it_not():
    """Under skip-backfilling the wait grows with the stream; the guarded one is the time set and what ran then."""
    plain, guarded = "sjf/fewest/skip", f"guard:after={AFTER:g}(sjf/fewest/skip)"
    assert wait_of_gang(plain, 300) > 2 * AFTER
    assert wait_of_gang(plain, 600) > 1.8 * wait_of_gang(plain, 300)
    for count in (300, 600):
        assert AFTER < wait_of_gang(guarded, count) <= AFTER + 60.0


@st.composite
def adversaries(draw):
    """Arrivals meant to starve: large and small jobs on small clusters, limits that are kept, true run times at most as long."""
    count = draw(st.integers(5, 60))
    numbers = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    nodes, width = draw(st.integers(1, 3)), 4
    gpus = numbers.choice([1, 1, 1, 2, 4, nodes * width], count)
    limit = numbers.choice([50.0, 100.0, 400.0], count)
    runtime = limit * numbers.uniform(0.05, 1.0, count)
    submit = np.sort(numbers.uniform(0, draw(st.sampled_from([10.0, 1000.0, 4000.0])), count))
    inner = draw(st.sampled_from(["sjf/fewest/skip", "sjf/fewest/easy", "smallest/best/skip", "lcfs/fewest/none", "largest/first/skip"]))
    columns = {"submit": submit, "gpus": gpus, "chunk": np.where(gpus > width, width, gpus), "estimate": runtime, "walltime": limit}
    return Workload.build(columns, runtime), Cluster.uniform(nodes, width), inner


@given(adversaries(), st.sampled_from([0.0, 200.0, 1000.0]))
@settings(max_examples=60)
def test_the_bound_on_adversarial_arrivals(case, after):
    """Job j starts at most `after` + (1 + jobs before it that wait when it is overdue) × the longest limit after its submission."""
    workload, cluster, inner = case
    result = simulate(workload, cluster, parse_scheduler(f"guard:after={after!r}({inner})"))
    start, submit = result.table["start"], workload.jobs.submit
    assert not np.isnan(start).any()
    longest = float(workload.jobs.walltime.max())
    for j in range(len(submit)):
        overdue = submit[j] + after
        ahead = int((start[:j] > overdue).sum())
        assert start[j] <= overdue + (1 + ahead) * longest + 1e-6, j


def test_a_time_that_never_comes_changes_nothing_and_zero_is_first_come():
    for number in range(12):
        case = random_case(number)
        if case.rules.checkpoint_cost:
            continue
        texts = ("sjf/fewest/easy", "guard:after=1e11")
        plain, far = (simulate(case.workload, case.cluster, parse_scheduler(text), rules=case.rules) for text in texts)
        assert np.array_equal(plain.table["start"], far.table["start"], equal_nan=True)
    runtime = [9.0, 5.0, 1.0, 50.0]
    strict = Workload.build({"submit": [0, 1, 2, 3], "gpus": [4, 8, 8, 1], "estimate": runtime, "walltime": runtime}, runtime)
    result = simulate(strict, Cluster.uniform(1, 8), parse_scheduler("guard:after=0(sjf/fewest/skip)"))
    assert result.table["start"].tolist() == [0.0, 9.0, 14.0, 15.0]


def test_a_job_that_can_never_start_holds_nobody_up():
    """All nodes that it could use are down: the others go on as if it were not there."""
    ten = [10.0] * 3
    workload = Workload.build({"submit": [0, 5, 6], "gpus": [8, 1, 1], "chunk": [4, 1, 1], "estimate": ten, "walltime": ten}, ten)
    sim = Simulation(workload, Cluster.uniform(2, 4))
    snapshot = sim.advance()
    while len(snapshot.waiting) < 1 or snapshot.now < 5:
        snapshot = sim.advance()
    snapshot.nodes["down"][0] = 1
    guard = parse_scheduler("guard:after=1(sjf/fewest/skip)").begin()
    assert [each.job for each in guard.decide(snapshot)] == [1]
    order, _ = guard.decide_in_order(snapshot)
    assert order.tolist() == [0, 1]
    assert guard.report() == {"passes": 2, "guarded": 2, "held_back": 0}


@pytest.mark.parametrize("text", ["guard:after=-1", "guard(sjf/fewest/easy/srpt)"])
def test_what_is_refused(text):
    with pytest.raises(UsageError):
        parse_scheduler(text).begin()
