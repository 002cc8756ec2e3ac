"""Makes schedulers from the texts of options."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from gpuyard.errors import UsageError

if TYPE_CHECKING:
    from gpuyard.model.cluster import Cluster
    from gpuyard.model.site.slurm_conf import SlurmSite
    from gpuyard.model.workload import Workload
    from gpuyard.policies import AnyScheduler


def one_scheduler(
    scheduler: str | None, slots: Sequence[str | None], meta: str | None, of: Sequence[str] | None, every: str | None,
    *, site: SlurmSite | None = None,
) -> AnyScheduler:  # fmt: skip
    """Make the scheduler of `--scheduler`, of the four slots' options, or of `--meta` with `--of`; by default the site's, or FCFS."""
    from gpuyard.policies import make_meta, parse_scheduler

    ways = {"--scheduler": scheduler is not None, "--ordering …": any(slots), "--meta": meta is not None}
    given = [way for way, used in ways.items() if used]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} both say which scheduler", hint="use one of them")
    if meta is not None:
        return make_meta(meta, of or (), every or "0")
    if of or every:
        raise UsageError("--of and --every belong to --meta", hint="e.g. --meta backlog --of fcfs --of sjf/best/easy")
    if site is not None and not given:
        return parse_scheduler(site.scheduler)
    return parse_scheduler(scheduler) if scheduler is not None else crossed([[slot] if slot else None for slot in slots])[0]


def crossed(slots: Sequence[Sequence[str] | None]) -> list[AnyScheduler]:
    """Return every combination of the policies given for the slots; an empty slot has its default, fcfs, fewest, none, none."""
    from gpuyard.policies import fill_slots
    from gpuyard.policies.slots import DEFAULT_SLOTS

    return [fill_slots(each) for each in product(*(given or [default] for given, default in zip(slots, DEFAULT_SLOTS, strict=True)))]


def several_schedulers(
    texts: Sequence[str], slots: Sequence[Sequence[str] | None], workloads: Sequence[Workload], logs: Sequence[Workload] = (), *,
    clusters: Sequence[Cluster] = (), learned: bool = False, everything: bool = False, site: SlurmSite | None = None,
) -> list[AnyScheduler]:  # fmt: skip
    """Return the schedulers of `--scheduler`, then all combinations of the slots' options; without any, the usual ones.

    `learned` adds those that are shipped, `everything` all built-in ones as well, and that of the site comes first.
    """
    from gpuyard.experiments.usual import all_schedulers, shipped, usual_schedulers
    from gpuyard.policies import parse_scheduler

    found: list[AnyScheduler] = [parse_scheduler(text) for text in texts]
    if any(slots):
        found += crossed(slots)
    if everything:
        found += all_schedulers(workloads, clusters)
    elif not found:
        found = usual_schedulers(workloads, logs, clusters)
    if learned:
        found += shipped()
    if site is not None:
        found = [parse_scheduler(site.scheduler), *found]
    return list({scheduler.label: scheduler for scheduler in found}.values())
