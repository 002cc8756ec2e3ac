"""Guards that every deployment has, whichever batch system it stands beside."""

from __future__ import annotations

import math
import random

import pytest

from gpuyard.live.deciding import decide_now
from gpuyard.live.guards import GuardSettings, Watch, checked_starts, near_own
from gpuyard.live.state.site import SiteJob, SiteNode, SiteState, site_snapshot
from gpuyard.model.decision import Action, Decision, Part
from gpuyard.policies import parse_scheduler


def job(number, gpus=1, nodes=1, *, runs=(), user="ann", partition="gpu", cpus=1.0, kind="", memory=0.0) -> SiteJob:
    return SiteJob(
        number, 0, -1, str(number), not runs, bool(runs), "", "Priority", (partition,), user, "", "", f"j{number}", 100.0, float(number),
        math.nan, 50.0 if runs else math.nan, 600.0, tuple(runs), nodes, cpus, memory, gpus, max(gpus // nodes, 1), kind,
    )  # fmt: skip


def site(*jobs: SiteJob, sizes=(8, 8, 4), closed=()) -> SiteState:
    nodes = [SiteNode(f"n{k}", f"n{k}" not in closed, 16.0, 64.0, {"a100": size}, ("gpu",), 0) for k, size in enumerate(sizes)]
    return SiteState(100.0, jobs, nodes)


def starts(state, decisions=None, **settings):
    saved = site_snapshot(state)
    made = decide_now(saved, parse_scheduler("fcfs/fewest/skip")) if decisions is None else decisions
    good, refused = checked_starts(saved, made, {each.name: each for each in state.jobs}, GuardSettings(**settings))
    return {each.name: each.nodes for each in good}, refused


# ── starts ──


def test_a_gang_gets_exactly_as_many_nodes_as_it_asks_for():
    """The policy would put both halves on one node of 8; Slurm would then add any node."""
    good, refused = starts(site(job(1, gpus=8, nodes=2)))
    assert len(set(good["1"])) == 2
    assert refused == {}


def test_nodes_that_are_added_are_the_fullest_that_have_room():
    good, _ = starts(site(job(1, gpus=2, runs=("n1",)), job(2, gpus=8, nodes=2)))
    assert good["2"] == ("n0", "n2")


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (Decision(0, parts=(Part(0, 8),)), "it does not fit"),  # 5 of 8 GPUs are taken
        (Decision(1, parts=(Part(1, 1),)), "it does not wait"),
        (Decision(2, parts=(Part(1, 1),)), "it does not fit"),  # more cores than a node has
    ],
)
def test_a_decision_that_does_not_fit_is_refused(wanted, why):
    state = site(job(1, gpus=8), job(2, gpus=5, runs=("n0",)), job(3, cpus=17.0))
    good, refused = starts(state, [wanted])
    assert good == {}
    assert list(refused.values()) == [why]


def test_a_closed_node_takes_nothing():
    assert starts(site(job(1), closed=("n0",)), [Decision(0, parts=(Part(0, 1),))])[1] == {"1": "it does not fit"}


def test_decisions_are_checked_one_after_the_other():
    state = site(job(1, gpus=8), job(2, gpus=8), job(3, gpus=8))
    good, refused = starts(state, [Decision(k, parts=(Part(0, 8),)) for k in range(2)])
    assert list(good) == ["1"]
    assert refused == {"2": "it does not fit"}


def test_users_and_partitions_that_are_left_to_the_site_are_never_started():
    state = site(job(1, user="eve"), job(2))
    good, refused = starts(state, users=frozenset({"eve"}))
    assert list(good) == ["2"]
    assert refused == {"1": "its user or partition is left to the site"}
    assert starts(state, partitions=frozenset({"gpu"}))[0] == {}


def test_the_rate_is_limited_and_other_actions_do_nothing():
    state = site(*(job(k) for k in range(1, 9)))
    good, refused = starts(state, starts=3)
    assert (len(good), len(refused)) == (3, 5)
    assert starts(state, [Decision(0, Action.HOLD), Decision(99, parts=(Part(0, 1),))]) == ({}, {})


def test_every_accepted_start_fits_whatever_is_decided():
    """Random decisions, also mad ones: what is accepted never takes more of a node than it has."""
    draw = random.Random(5)
    for _ in range(200):
        jobs = [job(k, gpus=draw.choice([1, 2, 4, 8]), nodes=draw.choice([1, 1, 2])) for k in range(1, 8)]
        made = [Decision(k, parts=tuple(Part(draw.randrange(3), 1) for _ in range(draw.randint(1, 3)))) for k in range(7)]
        good, refused = starts(site(*jobs), made)
        assert len(good) + len(refused) == 7
        used = dict.fromkeys(("n0", "n1", "n2"), 0)
        for each in jobs:
            for node in good.get(each.name, ()):
                used[node] += -(-each.gpus // each.node_count)
            assert len(set(good.get(each.name, ()))) in (0, each.node_count)
        assert used["n0"] <= 8
        assert used["n1"] <= 8
        assert used["n2"] <= 4


# ── the order ──


def test_nobody_falls_further_behind_than_allowed():
    draw = random.Random(3)
    for size in (1, 2, 5, 30):
        for behind in (0, 1, 3, 100):
            own = list(range(size))
            wanted = draw.sample(own, size)
            found = near_own(wanted, own, behind)
            assert sorted(found) == own
            assert all(found.index(each) - own.index(each) <= behind for each in own)
            assert behind > 0 or found == own
            assert behind < size or found == wanted
    assert near_own([2, 1], [1, 2], None) == [2, 1]


# ── the watch ──


def cycle(seconds=0.1, started=(), **more):
    return {"t": 0.0, "seconds": {"read": seconds}, "started": [(str(k), wait) for k, wait in enumerate(started)], **more}


def test_errors_and_slow_cycles_in_a_row_bring_the_sites_policy_back():
    watch = Watch(GuardSettings(strikes=3, slow=1.0))
    failed = {"t": 0.0, "error": "x"}
    assert [watch.see(each) for each in (cycle(), failed, cycle(2.0), cycle(), failed, cycle(2.0))] == [""] * 6
    assert watch.see({"t": 0.0, "error": "squeue: no answer"}) == "3 cycles in a row were slow or failed; the last: squeue: no answer"
    assert watch.see(cycle()) == watch.tripped != ""  # it stays


def test_longer_waits_than_in_shadow_mode_bring_the_sites_policy_back():
    watch = Watch(GuardSettings(usual_wait=100.0, worse=1.5, least=10))
    assert watch.see(cycle(started=[400.0] * 9)) == ""  # too few
    assert watch.mean_wait is None
    assert watch.see(cycle(started=[100.0])) == "jobs waited 370 s on average, 3.7 times as long as in shadow mode"
    calm = Watch(GuardSettings(usual_wait=100.0, worse=1.5, least=10))
    assert calm.see(cycle(started=[140.0] * 50)) == ""


def test_the_kill_switch(tmp_path):
    settings = GuardSettings(stop_file=tmp_path / "stop")
    assert not settings.stopped
    (tmp_path / "stop").symlink_to("nowhere")
    assert settings.stopped
    assert not GuardSettings().stopped
    (tmp_path / "file").write_text("")
    assert GuardSettings(stop_file=tmp_path / "file" / "stop").stopped  # it cannot be looked at
