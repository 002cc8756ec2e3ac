"""Policies: what fills the slots of a scheduler. Importing this package registers the built-in ones."""

from gpuyard.policies import devices as _devices
from gpuyard.policies import gavel as _gavel
from gpuyard.policies import milp as _milp
from gpuyard.policies import online as _online
from gpuyard.policies import orderings as _orderings
from gpuyard.policies import placements as _placements
from gpuyard.policies import preemptions as _preemptions
from gpuyard.policies import switches as _switches
from gpuyard.policies.base import (
    BACKFILLS,
    DECIDERS,
    ORDERINGS,
    PLACEMENTS,
    PREEMPTIONS,
    SWITCHES,
    AnyScheduler,
    Backfill,
    Decider,
    Meta,
    Ordering,
    Placement,
    Preemption,
    Scheduler,
    Several,
    Switch,
    decider,
    make_decider,
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
    "DECIDERS",
    "ORDERINGS",
    "PLACEMENTS",
    "PREEMPTIONS",
    "SWITCHES",
    "AnyScheduler",
    "Backfill",
    "Decider",
    "Meta",
    "Ordering",
    "Placement",
    "Preemption",
    "Scheduler",
    "Several",
    "Switch",
    "decider",
    "make_decider",
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
del _devices, _gavel, _milp, _online, _orderings, _placements, _preemptions, _switches
