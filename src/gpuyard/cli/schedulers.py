"""Schedulers from the texts of options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from gpuyard.errors import UsageError

if TYPE_CHECKING:
    from gpuyard.policies import Meta, Scheduler

_EMPTY = ("fcfs", "fewest", "none", "none")  # what an empty slot stands for
META = re.compile(r"meta:(?P<rule>[^()]+)\((?P<of>.*)\)(?:@(?P<every>[^@()]+))?")
# The first is the baseline: what a cluster does without any scheduling to speak of.
DEFAULTS = (
    "fcfs",
    "fcfs/fewest/easy",
    "fcfs/fewest/conservative",
    "sjf/fewest/easy",
    "ljf/fewest/easy",
    "saf/fewest/easy",
    "wfp3/fewest/easy",
    "unicep/fewest/easy",
    "f1/fewest/easy",
    "edf/fewest/easy",
    "priority/fewest/easy",
    "dynamic/fewest/easy",
    "srpt/fewest/easy/srpt",
    "las/fewest/easy/las",
    "meta:backlog(fcfs/fewest/easy, sjf/fewest/easy)",
)


def scheduler_from(text: str) -> Scheduler | Meta:
    """`sjf/best/easy`, or several with a switch rule: `meta:backlog:limit=20(fcfs/fewest/easy, sjf/fewest/easy)@10m`."""
    from gpuyard.policies import parse_scheduler

    if not text.startswith("meta:"):
        return parse_scheduler(text)
    match = META.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"scheduler {text!r} is not meta:RULE(SCHEDULER, SCHEDULER …)[@PERIOD]")
    parts = [part.strip() for part in re.split(r";|,\s", match["of"]) if part.strip()]
    return meta_from(match["rule"], parts, match["every"] or "0")


def meta_from(rule: str, schedulers: Sequence[str], every: str) -> Meta:
    """A meta-scheduler from a switch rule's text, the schedulers' texts and a period."""
    from gpuyard.model.units import parse_seconds
    from gpuyard.policies import Meta, parse_scheduler, parse_switch

    if len(schedulers) < 2:
        raise UsageError(
            f"meta {rule!r} switches between {len(schedulers)} schedulers", hint="give at least two: --of fcfs --of sjf/best/easy"
        )
    period = parse_seconds(every)
    if period == float("inf"):
        raise UsageError("a meta-scheduler's period must be finite", hint="0 asks the rule at every pass")
    return Meta(tuple(parse_scheduler(text) for text in schedulers), parse_switch(rule), period)


def one_scheduler(
    scheduler: str | None, slots: Sequence[str | None], meta: str | None, of: Sequence[str] | None, every: str | None
) -> Scheduler | Meta:
    """From either `--scheduler`, or the four slots' options, or `--meta` with `--of`; first come, first served without any."""
    ways = {"--scheduler": scheduler is not None, "--ordering …": any(slots), "--meta": meta is not None}
    given = [way for way, used in ways.items() if used]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} both say which scheduler", hint="use one of them")
    if meta is not None:
        return meta_from(meta, of or (), every or "0")
    if of or every:
        raise UsageError("--of and --every belong to --meta", hint="e.g. --meta backlog --of fcfs --of sjf/best/easy")
    return scheduler_from(scheduler) if scheduler is not None else crossed([[slot] if slot else None for slot in slots])[0]


def crossed(slots: Sequence[Sequence[str] | None]) -> list[Scheduler]:
    """Every combination of the policies given for each slot; fcfs, fewest, none, none where none is given."""
    from gpuyard.policies import Scheduler, parse_backfill, parse_ordering, parse_placement, parse_preemption

    orderings, placements, backfills, preemptions = (given or [default] for given, default in zip(slots, _EMPTY, strict=True))
    parsed = (
        [parse_ordering(text) for text in orderings], [parse_placement(text) for text in placements],
        [parse_backfill(text) for text in backfills], [parse_preemption(text) for text in preemptions],
    )  # fmt: skip
    return [Scheduler(*combination) for combination in product(*parsed)]


def several_schedulers(texts: Sequence[str], slots: Sequence[Sequence[str] | None]) -> list[Scheduler | Meta]:
    """Those of `--scheduler`, then the cross of the slots' options; the defaults without any. Each label once."""
    found: list[Scheduler | Meta] = [scheduler_from(text) for text in texts]
    if any(slots):
        found += crossed(slots)
    if not found:
        found = [scheduler_from(text) for text in DEFAULTS]
    return list({scheduler.label: scheduler for scheduler in found}.values())


def short_label(label: str) -> str:
    """Without the empty slots at the end: `sjf/best/easy/none` is `sjf/best/easy`, `fcfs/fewest/none/none` is `fcfs`."""
    if label.startswith("meta:"):
        head, _, rest = label.partition("(")
        return f"{head}({', '.join(short_label(part) for part in rest.removesuffix(')').split(', '))})"
    for tail in ("/none", "/none", "/fewest"):
        if not label.endswith(tail):
            break
        label = label.removesuffix(tail)
    return label
