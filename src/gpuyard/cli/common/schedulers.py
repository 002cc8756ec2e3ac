"""Makes schedulers from the texts of options."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from gpuyard.errors import UsageError

if TYPE_CHECKING:
    from gpuyard.model.workload import Workload
    from gpuyard.policies import AnyScheduler

LONG = 5_000  # jobs; for longer workloads conservative, 50 times slower than EASY on many nodes, is not a default
# The first is the baseline: what a cluster does without a real scheduler.
DEFAULTS = (
    "fcfs", "fcfs/fewest/easy", "fcfs/fewest/conservative:depth=100", "multifactor/fewest/easy", "sjf/fewest/easy", "ljf/fewest/easy",
    "saf/fewest/easy", "wfp3/fewest/easy", "unicep/fewest/easy", "f1/fewest/easy", "edf/fewest/easy", "priority/fewest/easy",
    "dynamic/fewest/easy", "srpt/fewest/easy/srpt", "las/fewest/easy/las", "tiresias/fewest/easy/tiresias",
    "meta:backlog(fcfs/fewest/easy, sjf/fewest/easy)",
)  # fmt: skip


def one_scheduler(
    scheduler: str | None, slots: Sequence[str | None], meta: str | None, of: Sequence[str] | None, every: str | None
) -> AnyScheduler:
    """Make the scheduler of `--scheduler`, of the four slots' options, or of `--meta` with `--of`; first come, first served by default."""
    from gpuyard.policies import make_meta, parse_scheduler

    ways = {"--scheduler": scheduler is not None, "--ordering …": any(slots), "--meta": meta is not None}
    given = [way for way, used in ways.items() if used]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} both say which scheduler", hint="use one of them")
    if meta is not None:
        return make_meta(meta, of or (), every or "0")
    if of or every:
        raise UsageError("--of and --every belong to --meta", hint="e.g. --meta backlog --of fcfs --of sjf/best/easy")
    return parse_scheduler(scheduler) if scheduler is not None else crossed([[slot] if slot else None for slot in slots])[0]


def crossed(slots: Sequence[Sequence[str] | None]) -> list[AnyScheduler]:
    """Return every combination of the policies given for the slots; an empty slot has its default, fcfs, fewest, none, none."""
    from gpuyard.policies import fill_slots
    from gpuyard.policies.slots import DEFAULT_SLOTS

    return [fill_slots(each) for each in product(*(given or [default] for given, default in zip(slots, DEFAULT_SLOTS, strict=True)))]


def several_schedulers(
    texts: Sequence[str], slots: Sequence[Sequence[str] | None], workloads: Sequence[Workload], *, learned: bool = False
) -> list[AnyScheduler]:
    """Return the schedulers of `--scheduler`, then all combinations of the slots' options; else the defaults. `learned` adds those shipped.

    Defaults that read deadlines or priorities are left out where no job has any, and conservative for long workloads.
    """
    from gpuyard.networks.checkpoint import PREFIX, shipped_names
    from gpuyard.policies import parse_scheduler

    found: list[AnyScheduler] = [parse_scheduler(text) for text in texts]
    if any(slots):
        found += crossed(slots)
    if not found:
        idle = _idle_orderings(workloads)
        long = any(len(workload) > LONG for workload in workloads)
        found = [
            parse_scheduler(text) for text in DEFAULTS if text.partition("/")[0] not in idle and not (long and "/conservative" in text)
        ]
    if learned:
        found += [parse_scheduler(f"{PREFIX}{name}") for name in shipped_names()]
    return list({scheduler.label: scheduler for scheduler in found}.values())


def _idle_orderings(workloads: Sequence[Workload]) -> set[str]:
    """Return the orderings that read what no workload has."""
    import numpy as np

    deadlines = any(np.isfinite(workload.jobs.deadline).any() for workload in workloads)
    priorities = any(np.ptp(workload.jobs.priority) > 0 for workload in workloads if len(workload))
    return (set() if deadlines else {"edf", "dynamic"}) | (set() if priorities else {"priority"})
