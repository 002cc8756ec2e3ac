"""Policies: what fills the slots of a scheduler. Importing this package registers the built-in ones."""

from gpuyard.policies import orderings as _orderings
from gpuyard.policies import placements as _placements
from gpuyard.policies import preemptions as _preemptions
from gpuyard.policies import switches as _switches
from gpuyard.policies.base import (
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
    ordering,
    placement,
    preemption,
    switch,
)
from gpuyard.policies.text import (
    make_meta,
    parse_backfill,
    parse_ordering,
    parse_placement,
    parse_preemption,
    parse_scheduler,
    parse_slots,
    parse_switch,
)

__all__ = [
    "BACKFILLS",
    "ORDERINGS",
    "PLACEMENTS",
    "PREEMPTIONS",
    "SWITCHES",
    "Backfill",
    "Meta",
    "Ordering",
    "Placement",
    "Preemption",
    "Scheduler",
    "Switch",
    "make_meta",
    "make_ordering",
    "make_placement",
    "make_preemption",
    "make_switch",
    "ordering",
    "parse_backfill",
    "parse_ordering",
    "parse_placement",
    "parse_preemption",
    "parse_scheduler",
    "parse_slots",
    "parse_switch",
    "placement",
    "preemption",
    "switch",
]
del _orderings, _placements, _preemptions, _switches
