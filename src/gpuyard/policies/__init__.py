"""Policies: what fills the slots of a scheduler. Importing this package registers the built-in ones."""

from gpuyard.policies.deciders import devices as _devices
from gpuyard.policies.deciders import gavel as _gavel
from gpuyard.policies.deciders import guard as _guard
from gpuyard.policies.deciders import migrate as _migrate
from gpuyard.policies.deciders import online as _online
from gpuyard.policies.deciders.learning import strategies as _strategies
from gpuyard.policies.milp import decider as _milp
from gpuyard.policies.schedulers import (
    DECIDERS,
    SWITCHES,
    AnyScheduler,
    Decider,
    Meta,
    Scheduler,
    Several,
    Switch,
    decider,
    make_decider,
    make_switch,
    switch,
)
from gpuyard.policies.slots import (
    BACKFILLS,
    ORDERINGS,
    PLACEMENTS,
    PREEMPTIONS,
    Backfill,
    Ordering,
    Placement,
    Preemption,
    make_ordering,
    make_placement,
    make_preemption,
    ordering,
    placement,
    preemption,
)
from gpuyard.policies.text import (
    as_scheduler,
    fill_slots,
    make_meta,
    parse_backfill,
    parse_filled,
    parse_ordering,
    parse_placement,
    parse_preemption,
    parse_scheduler,
    parse_slots,
    parse_switch,
)

__all__ = [
    "BACKFILLS", "DECIDERS", "ORDERINGS", "PLACEMENTS", "PREEMPTIONS", "SWITCHES", "AnyScheduler", "Backfill", "Decider", "Meta",
    "Ordering", "Placement", "Preemption", "Scheduler", "Several", "Switch", "as_scheduler", "decider", "fill_slots", "make_decider",
    "make_meta", "make_ordering", "make_placement", "make_preemption", "make_switch", "ordering", "parse_backfill", "parse_filled",
    "parse_ordering", "parse_placement", "parse_preemption", "parse_scheduler", "parse_slots", "parse_switch", "placement",
    "preemption", "switch",
]  # fmt: skip
del _devices, _gavel, _guard, _migrate, _milp, _online, _strategies
