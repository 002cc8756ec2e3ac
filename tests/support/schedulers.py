"""Schedulers for tests of simulators: every registered policy, and policies such as a user may write that read every column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gpuyard.policies import (
    BACKFILLS,
    ORDERINGS,
    PLACEMENTS,
    PREEMPTIONS,
    SWITCHES,
    Backfill,
    Meta,
    Ordering,
    Placement,
    Preemption,
    Scheduler,
    Switch,
    make_ordering,
    make_placement,
    make_preemption,
    make_switch,
    parse_ordering,
    parse_placement,
    parse_preemption,
    parse_switch,
)
from gpuyard.policies.slots import make_rank

if TYPE_CHECKING:
    from gpuyard.engine.state import JobTable, NodeTable, SystemRow

T = TypeVar("T")
Policy = Ordering | Placement | Backfill | Preemption | Switch


@dataclass(frozen=True)
class Fixed:
    """A slot that is not drawn: its name (a field of Scheduler, or `switch`) and the policy that fills it."""

    slot: str
    policy: Policy


# --- policies such as a user may write -------------------------------------------------------------------------------------------


def ageing(jobs: JobTable, j: int, now: float, weight: float = 0.3) -> Any:
    """Read the clock, the columns and the live state."""
    waited = now - jobs.queued[j] if jobs.queued[j] > jobs.submit[j] else now - jobs.submit[j]
    return jobs.estimate[j] + jobs.transfer[j] - weight * waited - jobs.done[j] + 0.5 * jobs.preemptions[j]


def per_user(jobs: JobTable, j: int, now: float) -> Any:
    """Read labels and hosts but not the clock: keyed once, with many ties."""
    labels = jobs.user[j] + jobs.job_class[j] + jobs.gpu_type[j] + jobs.qos[j] + jobs.account[j]
    return labels % 3 + jobs.partition_factor[j] + 0.1 * jobs.size_factor[j] + 0.01 * jobs.cpus[j] + 0.001 * jobs.memory[j] * jobs.chunk[j]


def infinite(jobs: JobTable, j: int, now: float) -> Any:
    """Return keys that are infinite on purpose."""
    if jobs.deadline[j] > 1e300:
        return np.inf
    return -np.inf if jobs.priority[j] > 1 else jobs.deadline[j]


def used(jobs: JobTable, j: int) -> Any:
    return jobs.usage[j]


def modest(jobs: JobTable, j: int, now: float) -> Any:
    """Read usage but not the clock; it is keyed at every pass all the same."""
    return used(jobs, j) - 0.2 * jobs.qos_factor[j] - 0.1 * jobs.fair_share[j]


def spread(nodes: NodeTable, n: int, jobs: JobTable, j: int) -> Any:
    """Prefer racks and partitions, then the least loaded host."""
    return 10.0 * nodes.rack[n] - min(nodes.free_cpus[n], 64.0) / (min(nodes.cpus[n], 64.0) + 1.0) + 3.0 * nodes.partition[n]


def mixed(nodes: NodeTable, n: int, jobs: JobTable, j: int, tight: float = 2.0) -> Any:
    """Compare free devices and shares, device types and memory with what the job asks for."""
    left = nodes.free[n] - jobs.gpus[j]
    return tight * left + nodes.share[n] - nodes.speed[n] + 0.25 * nodes.gpu_type[n] + (1.0 if nodes.free_memory[n] < 20 else 0.0)


def level(nodes: NodeTable, n: int, jobs: JobTable, j: int) -> Any:
    """Compare what is used of a node, with many ties."""
    return -(nodes.gpus[n] - nodes.free[n]) * (1.0 if jobs.user[j] == 1 else -1.0)


def deserving(jobs: JobTable, j: int, now: float, scale: float = 40.0) -> Any:
    """Put attained service and slack into few classes: scores tie, and two jobs without checkpoints do not stop each other forever."""
    late = 1.0 if jobs.deadline[j] - now - jobs.remaining[j] < 0 else 0.0
    return min(np.floor(jobs.attained[j] / scale), 2.0) - late - jobs.priority[j]


def newest(jobs: JobTable, j: int, now: float) -> Any:
    """Let the latest submitted job stop any other."""
    return -jobs.submit[j] - 0.01 * jobs.gpus[j] + 0.001 * jobs.user[j]


def greedy(jobs: JobTable, j: int, now: float) -> Any:
    """Stop jobs of users above their fair share, at most twice: usage changes, and two jobs would stop each other forever."""
    return np.floor(2.0 * jobs.usage[j] / jobs.fair_share[j]) if jobs.preemptions[j] < 2 else -1.0


def fickle(jobs: JobTable, j: int, now: float) -> Any:
    """Give a running job a long time and a waiting one a short one, by the clock: an adversary for rank passes."""
    return (1.0 + (now * 7.0 + jobs.index[j] * 3.0) % 11.0) * (50.0 if jobs.status[j] == 2 else 1.0)


def by_age_and_work(system: SystemRow, now: float) -> Any:
    if system.oldest > 25.0:
        return 1
    return 2 if system.work > 60.0 * system.gpus else 0


def by_load(system: SystemRow, now: float, busy: float = 0.5) -> Any:
    free_share = system.free / max(system.gpus, 1.0)
    return 1 if free_share < busy and system.running > 1 else 0


def by_arrivals(system: SystemRow, now: float) -> Any:
    if system.urgent > 0 and now > 50.0:
        return 2
    return 1 if system.recent > 5 and system.waiting > 1 else 0


OWN_ORDERINGS = tuple(make_ordering(f, f.__name__) for f in (ageing, per_user, infinite, modest))
OWN_PLACEMENTS = (
    make_placement(spread, "spread"),
    make_placement(mixed, "mixed"),
    make_placement(level, "level", span="fewest"),
    replace(make_placement(mixed, "mixed few", span="fewest"), params=(("tight", -1.0),)),
)
OWN_PREEMPTIONS = (
    make_preemption(deserving, "deserving", every=11.0),
    make_preemption(newest, "newest"),
    make_preemption(greedy, "greedy"),
)
OWN_RANKS = (make_rank(fickle, "fickle", every=3.0),)
OWN_SWITCHES = tuple(make_switch(f, f.__name__) for f in (by_age_and_work, by_load, by_arrivals))


# --- what is drawn ------------------------------------------------------------------------------------------------------

# Parameters that matter in cases that last a few hundred seconds; the defaults are for hours.
_CLOSER = {
    "las": "las:threshold=20,every=7",
    "tiresias": "tiresias:threshold=20,second=60,promote=1.5,every=7",
    "backlog": "backlog:limit=2",
    "srpt-area": "srpt-area:every=7",
    "las-log2": "las-log2:every=7,hysteresis=1.5",
    "gittins": "gittins:every=7",
}
_CLOSER_ORDERINGS = {
    "multifactor": "multifactor:max_age=60,half_life=40,fairshare=2000",
    "tiresias": "tiresias:threshold=20,second=60,promote=1.5",
}

# The policies registered when this module is imported: later ones must not change what a seed draws.
_ORDERINGS = tuple(parse_ordering(_CLOSER_ORDERINGS.get(name, name)) for name in ORDERINGS)
_PLACEMENTS = tuple(parse_placement(name) for name in PLACEMENTS)
_BACKFILLS = tuple(replace(BACKFILLS[name], depth=depth) for name in BACKFILLS for depth in (0, 2))
# Rank rules only go with saf and easy: they are drawn where one is asked for.
_PREEMPTIONS = tuple(parse_preemption(_CLOSER.get(name, name)) for name, rule in PREEMPTIONS.items() if not rule.rank)
_SWITCHES = tuple(parse_switch(_CLOSER.get(name, name)) for name in SWITCHES)


def suit(ordering: str, backfill: str, preemption: str) -> bool:
    """Whether the three may be in one scheduler: a rank rule goes with saf and easy only."""
    return not PREEMPTIONS[preemption].rank or (ordering, backfill) == ("saf", "easy")


def every_policy() -> Iterator[Fixed]:
    """Yield every registered policy (backfill with and without a depth) and the policies above."""
    yield from (Fixed("ordering", parse_ordering(_CLOSER_ORDERINGS.get(name, name))) for name in ORDERINGS)
    yield from (Fixed("placement", PLACEMENTS[name]) for name in PLACEMENTS)
    for name in BACKFILLS:
        yield from (Fixed("backfill", replace(BACKFILLS[name], depth=depth)) for depth in (0, 1, 3))
    yield from (Fixed("preemption", parse_preemption(_CLOSER.get(name, name))) for name in PREEMPTIONS)
    yield from (Fixed("switch", parse_switch(_CLOSER.get(name, name))) for name in SWITCHES)
    yield from (Fixed("ordering", policy) for policy in OWN_ORDERINGS)
    yield from (Fixed("placement", policy) for policy in OWN_PLACEMENTS)
    yield from (Fixed("preemption", policy) for policy in (*OWN_PREEMPTIONS, *OWN_RANKS))
    yield from (Fixed("switch", policy) for policy in OWN_SWITCHES)


def random_scheduler(seed: int, fixed: Fixed | None = None, *, own: bool = True) -> Scheduler | Meta:
    """Draw a scheduler from all policies, with one slot given; the same seed gives the same one.

    `own=False` draws from the registries only.
    """
    rng = np.random.default_rng([seed, 0x736368])
    made = _one(rng, own)
    slot = fixed.slot if fixed else ""
    if fixed and slot != "switch":
        ranked = isinstance(fixed.policy, Preemption) and fixed.policy.rank
        rest = {"ordering": ORDERINGS["saf"], "backfill": BACKFILLS["easy"]} if ranked else {}
        made = replace(made, **rest, **{slot: fixed.policy})  # type: ignore[arg-type]
    if slot != "switch" and rng.random() > 0.1:
        return made
    rule = fixed.policy if fixed and isinstance(fixed.policy, Switch) else _switch(rng, own)
    return _meta(rng, (made, _one(rng, own), _one(rng, own)), rule)


def _meta(rng: np.random.Generator, schedulers: tuple[Scheduler, ...], rule: Switch) -> Meta:
    """Make a meta-scheduler with a timer or with preemption; with both, rules that disagree can stop two jobs in turn forever."""
    every = float(rng.choice([0.0, 0.0, 0.7, 13.0]))
    if every > 0:
        return Meta(tuple(replace(s, preemption=PREEMPTIONS["none"]) for s in schedulers), rule, every)
    return Meta(tuple(replace(s, preemption=replace(s.preemption, every=0.0)) for s in schedulers), rule)


def _one(rng: np.random.Generator, own: bool) -> Scheduler:
    ordering = _draw(rng, _ORDERINGS, OWN_ORDERINGS if own else ())
    placement = _draw(rng, _PLACEMENTS, OWN_PLACEMENTS if own else ())
    preemption = _draw(rng, _PREEMPTIONS, OWN_PREEMPTIONS if own else ()) if rng.random() < 0.5 else PREEMPTIONS["none"]
    if preemption.every == 0 and preemption.function and rng.random() < 0.2:
        preemption = replace(preemption, every=float(rng.choice([0.7, 5.0])))
    return Scheduler(ordering, placement, _draw(rng, _BACKFILLS), preemption)


def _switch(rng: np.random.Generator, own: bool) -> Switch:
    return _draw(rng, _SWITCHES, OWN_SWITCHES if own else ())


def _draw(rng: np.random.Generator, registered: Sequence[T], own: Sequence[T] = ()) -> T:
    return [*registered, *own][rng.integers(len(registered) + len(own))]
