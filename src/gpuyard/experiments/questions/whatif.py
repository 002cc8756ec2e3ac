"""Compares a site with what it might be: the same jobs under the same scheduler, before and after each change, job by job."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuyard.errors import UsageError
from gpuyard.experiments.judging.answering.names import duration, in_sentence, people_name
from gpuyard.experiments.judging.answering.plain import by_how_much
from gpuyard.experiments.judging.answering.provenance import device_of
from gpuyard.experiments.judging.statistics import FEWEST, Interval
from gpuyard.experiments.judging.text import count
from gpuyard.experiments.questions.service import Service, served
from gpuyard.experiments.questions.sites import change_in_words, changed_site, check_change, has_pools
from gpuyard.experiments.usual import TODAY
from gpuyard.model.cluster import Cluster
from gpuyard.model.rules import Rules
from gpuyard.model.workload import Workload
from gpuyard.policies import AnyScheduler, parse_scheduler


@dataclass(frozen=True, eq=False)
class Consequence:
    """One change of the site and what it does to the jobs."""

    change: str  # as it was written
    after: Service
    before: Service
    share: Interval  # of the wait, as a share of that before
    jobs: int  # that both have served

    @property
    def words(self) -> str:
        """The change as people say it."""
        words = change_in_words(self.change)
        return re.sub(r"\bnode(s?)\b", r"processor\1", words) if has_pools(self.before.cluster) else words

    def _size(self) -> str:
        """Say how many devices there are then: nodes are whole, so a tenth more of two is a half more."""
        after, before = self.after.cluster, self.before.cluster
        device = "" if has_pools(before) else f" {device_of(after)}"
        return f" ({after.gpus:,}{device} instead of {before.gpus:,})" if after.gpus != before.gpus else ""

    @property
    def better(self) -> bool | None:
        """Whether waits surely fall, surely rise, or neither."""
        sure = self.share.n >= FEWEST and (self.share.low > 0 or self.share.high < 0)
        return self.share.mean < 0 if sure else None

    @property
    def sentence(self) -> str:
        """Say what happens, how sure it is, and to how many jobs."""
        what = self.words[:1].upper() + self.words[1:] + self._size()
        was, now = self._means()
        tail = self._refused()
        longest = f"the longest goes from {duration(self.before.longest)} to {duration(self.after.longest)}{tail}."
        if not self.before.mean > 0 or not np.isfinite(self.share.mean):
            return f"{what}: the mean wait goes from {was} to {now}; {longest}"
        if np.array_equal(self.before.wait, self.after.wait, equal_nan=True):
            return f"{what}: no job waits longer or shorter{tail}."
        if self.better is None:
            return f"{what}: the mean wait goes from {was} to {now}, which may be chance ({by_how_much(self.share, 'wait')}); {longest}"
        verb = "falls" if self.better else "rises"
        return f"{what}: the mean wait {verb} from {was} to {now} ({by_how_much(self.share, 'wait')}); {longest}"

    def _means(self) -> tuple[str, str]:
        """Write the mean waits before and after: those of the jobs that both have served, so that nobody gains by being turned away."""
        was, now, _ = self.after.paired(self.before)
        pair = (was.mean(), now.mean()) if len(was) else (self.before.mean, self.after.mean)
        return duration(float(pair[0])), duration(float(pair[1]))

    def _refused(self) -> str:
        """Say how many jobs fit no longer, or fit then."""
        more = self.after.rejected - self.before.rejected
        if more == 0:
            return ""
        number, fit = count(abs(more), "more job"), "fits" if abs(more) == 1 else "fit"
        return f"; {number} no longer {fit}, and {'is' if more == 1 else 'are'} left out of both means" if more > 0 else f"; {number} {fit}"

    @property
    def record(self) -> dict[str, Any]:
        """The numbers as plain values; times in s."""
        return {"change": self.change, **numbers_of(self.after), "share": self.share.mean, "share_low": self.share.low,
                "share_high": self.share.high, "jobs_compared": self.jobs, "sentence": self.sentence}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Consequences:
    """A site as it is and what each change would do."""

    scheduler: str  # its label
    name: str  # for people
    present: Service
    changes: tuple[Consequence, ...]

    @property
    def sentences(self) -> list[str]:
        """Say what is compared, then a sentence for each change."""
        now = self.present
        first = (
            f"As it is, with {in_sentence(self.name)} on {now.cluster.gpus:,} {device_of(now.cluster)}: {duration(now.mean)} mean wait,"
            f" 99 % wait less than {duration(now.percentile(99))}, the longest {duration(now.longest)}, {100 * now.busy:.0f} % busy."
        )
        return [first, *(each.sentence for each in self.changes)]


def numbers_of(service: Service) -> dict[str, Any]:
    """The numbers of a service as plain values; times in s."""
    return {
        "cluster": service.cluster.name, "gpus": service.cluster.gpus, "wait": service.mean, "wait_p99": service.percentile(99),
        "wait_max": service.longest, "utilization": service.busy, "cost": service.cost, "rejected": service.rejected,
    }  # fmt: skip


def whatif(
    workload: Workload, cluster: Cluster, changes: Sequence[str] = (), *, scheduler: AnyScheduler | str = TODAY, rules: Rules | None = None,
    progress: Callable[[int], None] | None = None,
) -> Consequences:  # fmt: skip
    """Simulate a site as it is and after each change, such as `nodes:add=4`, `merge`, `demand:1.2`; without any, the usual ones.

    A change that cannot be made on this site is refused before anything is simulated.
    """
    chosen = parse_scheduler(scheduler) if isinstance(scheduler, str) else scheduler
    texts = tuple(dict.fromkeys(changes)) or usual_changes(cluster)
    for text in texts:
        check_change(text)
    sites = [changed_site(text, workload, cluster) for text in texts]
    if len(workload) == 0:
        raise UsageError(f"{workload.name}: no jobs")
    told = progress or (lambda _: None)
    present = served(workload, cluster, chosen, rules or Rules())
    told(1)
    found = []
    for k, (text, (jobs, machine)) in enumerate(zip(texts, sites, strict=True), 2):
        after = served(jobs, machine, chosen, rules or Rules())
        found.append(Consequence(text, after, present, *after.change_from(present)))
        told(k)
    return Consequences(chosen.label, people_name(chosen), present, tuple(found))


def usual_changes(cluster: Cluster) -> tuple[str, ...]:
    """Return what is asked most: a tenth more or less of everything, one node more, partitions merged, a fifth more and less demand."""
    one = () if has_pools(cluster) or len(cluster.nodes) < 2 else ("nodes:add=1", "nodes:add=-1")
    merged = ("merge",) if len(cluster.partitions) > 1 else ()
    return ("scale:factor=1.1", "scale:factor=0.9", *one, *merged, "demand:factor=1.2", "demand:factor=0.8")
