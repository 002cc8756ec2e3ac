"""The plan of site factors: the right order, the fewest updates, and offsets within their limit."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpuyard.live.deployment.ordering import HIGHEST, LOWEST, QueuedJob, out_of_order, plan_offsets, plan_priorities

WIDE = 10**9


def standings(most: int, high: int):
    """Jobs with bases from 1 and site factors that leave them above the lowest priority."""
    pair = st.tuples(st.integers(1, high), st.integers(-3, high))
    made = st.lists(pair, min_size=1, max_size=most)
    return made.map(
        lambda pairs: [QueuedJob(k, max(base + site, LOWEST), site) for k, (base, site) in enumerate(pairs) if base + site >= LOWEST]
    )


def after(order, changes):
    """The priorities in the given order once changes are made, as Slurm works them out."""
    site = {each.job: each.site for each in order} | dict(changes)
    return [max(each.base + site[each.job], LOWEST) for each in order]


def falls(values):
    return all(a > b for a, b in pairwise(values))


@given(standings(40, 500))
def test_priorities_fall_along_the_order(order):
    changes = plan_offsets(order, WIDE)
    assert falls(after(order, changes))
    settled = [
        QueuedJob(each.job, priority, dict(changes).get(each.job, each.site))
        for each, priority in zip(order, after(order, changes), strict=True)
    ]
    assert plan_offsets(settled, WIDE) == []
    assert len({job for job, _ in changes}) == len(changes)


@given(standings(9, 12))
def test_no_smaller_set_of_updates_does(order):
    """By trying: the jobs that stay must fall, with a whole number for each job between them and below them."""
    size = len(order)

    def room(kept):
        value = {k: order[k].priority for k in kept}
        return all(value[a] - value[b] >= b - a for a, b in pairwise(kept)) and (
            not kept or value[kept[-1]] - (size - 1 - kept[-1]) >= LOWEST
        )

    most = max(count for count in range(size + 1) if any(room(kept) for kept in combinations(range(size), count)))
    assert len(plan_offsets(order, WIDE)) == size - most


@given(standings(30, 5000), st.integers(0, 300))
def test_offsets_stay_within(order, within):
    changes = plan_offsets(order, within)
    assert all(abs(site) <= within for _, site in changes)
    kept = {each.job: each.site for each in order} | dict(changes)
    assert all(abs(site) <= within for site in kept.values())


@given(standings(25, 300))
def test_on_the_way_the_order_is_never_worse_than_before(order):
    """Pairs in the wrong order only become fewer, whichever update is the last that is sent in a cycle."""

    def wrong(priorities):
        return sum(a <= b for k, a in enumerate(priorities) for b in priorities[k + 1 :])

    changes = plan_offsets(order, WIDE)
    counts = [wrong(after(order, changes[:sent])) for sent in range(len(changes) + 1)]
    assert counts[-1] == 0
    assert max(counts) <= counts[0]


def test_offsets_that_have_grown_are_numbered_again():
    order = [QueuedJob(1, 10, 0), QueuedJob(2, 1001, 991), QueuedJob(3, 900, 890)]
    assert after(order, plan_offsets(order, 1000)) == [210, 110, 10]
    assert out_of_order(order) == 1
    assert plan_offsets([], 10) == []


def test_priorities_without_site_factors_fall_along_any_order():
    """Under priority/basic: whatever the order and the priorities, the plan makes them fall, with as few changes as need be."""
    draw = random.Random(11)
    for _ in range(300):
        size = draw.randint(1, 8)
        top = draw.choice([10_000, HIGHEST])
        priorities = [max(LOWEST, top - draw.randrange(5000)) for _ in range(size)]
        order = [QueuedJob(k, priority) for k, priority in enumerate(priorities)]
        changes = dict(plan_priorities(order))
        found = [changes.get(each.job, each.priority) for each in order]
        assert falls(found)
        assert all(LOWEST <= each <= 2**32 - 3 for each in found)
        assert plan_priorities([QueuedJob(k, priority) for k, priority in enumerate(found)]) == []
