"""The verbs of the service, protocol 1. A request is a JSON object, `{"verb": …, argument: value, …}`; over HTTP the path is the verb.

| verb | arguments | answer |
|---|---|---|
| status | | version, protocol, scheduler; how many hosts and jobs are registered |
| register | cluster: as in a cluster file; or snapshot: what a snapshot file holds | hosts, jobs |
| update | changes: see `changes` | applied: how many |
| pick | job: a name; request: what it asks for, if it is not registered yet; take: also start it there | parts, reason, taken |
| order | jobs: names, or none for all that wait | order |
| decide | snapshot, or none for what is registered; explain: also why, job by job | decisions, order |
| snapshot | | what is registered, as a snapshot file holds it |
| forget | | |
| health, metrics | | whether it works; counts for Prometheus |
| filter, prioritize | of a Kubernetes scheduler extender, see `kubernetes` | |

`now`, a time in s, may stand in every request about what is registered; `protocol` in each.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gpuyard import __version__
from gpuyard.arrays import Array
from gpuyard.errors import GpuyardError, UsageError
from gpuyard.live.clients import refusal
from gpuyard.live.deciding import Asked, outlook, outlook_records
from gpuyard.live.service.changes import add_request, apply_change, clock_of, job_name
from gpuyard.live.service.counting import Counts, resident_bytes
from gpuyard.live.service.http import PlainText
from gpuyard.live.service.kubernetes import answer_filter, answer_prioritize
from gpuyard.live.service.registered import RegisteredSite, empty_site
from gpuyard.live.state.file import SavedSnapshot, snapshot_bytes, snapshot_from
from gpuyard.model.cluster_file import cluster_from_dict
from gpuyard.model.decision import Action, Decision
from gpuyard.model.fields import Fields
from gpuyard.model.snapshot import Snapshot
from gpuyard.policies import AnyScheduler

PROTOCOL = 1
MOST_HOSTS = 100_000
MOST_CHANGES = 10_000  # they take up to a second, in which nothing interrupts them
_ASKED = "\0asked"  # the job of a question that names none; no client can give a job that name


class Desk:
    """The scheduler of a service, and what it was told."""

    def __init__(self, scheduler: AnyScheduler) -> None:
        self.scheduler, self.counts = scheduler, Counts()
        self.site: RegisteredSite | None = None
        self.forget()

    def forget(self) -> None:
        """Begin again with deciders that may have been interrupted."""
        self.asked, self._picker = Asked(self.scheduler), self.scheduler.begin()

    @property
    def registered(self) -> RegisteredSite:
        if self.site is None:
            raise UsageError("no hosts are registered", hint='{"verb": "register", "cluster": …}')
        return self.site

    def pick(self, site: RegisteredSite, row: int) -> Decision:
        """Return where the job in a row starts, if it would start now and were next."""
        made = self._chosen(site.snapshot(), row)
        self.counts.decisions += 1
        return made

    def pick_among(self, site: RegisteredSite, row: int, allowed: Array) -> int:
        """Return the host that a job gets if it may use only those, (nodes,) bool; -1: none has room."""
        s = site.snapshot()
        nodes = s.nodes.copy()
        nodes["down"][~allowed] = 1
        made = self._chosen(replace(s, nodes=nodes), row)
        self.counts.decisions += 1
        return made.parts[0].node if made.action is Action.START else -1

    def _chosen(self, snapshot: Snapshot, row: int) -> Decision:
        if not hasattr(self._picker, "choose_first"):
            hint = "serve slots such as fcfs/best/easy, or learned:hosts"
            raise UsageError(f"{self.scheduler.label}: decides about the whole queue, and picks no host for one job", hint=hint)
        made: Decision = self._picker.choose_first(snapshot, row=row)
        return made


def decided(saved: SavedSnapshot, decisions: Sequence[Decision], order: Sequence[int]) -> dict[str, Any]:
    """Return decisions for other programs: jobs and nodes by their names."""
    rows = saved.snapshot.rows()
    made = [
        {"job": saved.name(rows[each.job]), "action": each.action.value, "parts": _parts(saved, each), "reason": each.reason}
        for each in decisions
    ]
    return {"now": saved.snapshot.now, "decisions": made, "order": [saved.name(row) for row in order]}


def _parts(saved: SavedSnapshot | RegisteredSite, made: Decision) -> list[dict[str, Any]]:
    nodes = (saved.snapshot.cluster if isinstance(saved, SavedSnapshot) else saved.cluster).nodes.names
    return [{"node": nodes[part.node], "gpus": part.gpus, "devices": list(part.devices)} for part in made.parts]


# ── what is registered ──


def _status(desk: Desk, given: Fields) -> dict[str, Any]:
    _take(given)
    return {"ok": True, "version": __version__, "protocol": PROTOCOL, "scheduler": desk.scheduler.label, **_registered(desk.site)}


def _registered(site: RegisteredSite | None) -> dict[str, int]:
    if site is None:
        return {"hosts": 0, "running": 0, "waiting": 0}
    return {"hosts": len(site.cluster.nodes), "running": site.running, "waiting": len(site) - site.running}


def _register(desk: Desk, given: Fields) -> dict[str, Any]:
    now = clock_of(given)
    if "snapshot" in given:
        saved = snapshot_from(given.value("snapshot"), "snapshot")
    else:
        table = given.mapping("cluster")
        if sum(each.whole("count", 1, high=MOST_HOSTS) for each in Fields(table, "cluster").rows("nodes")) > MOST_HOSTS:
            raise UsageError(f"more than {MOST_HOSTS:,} hosts")
        saved = empty_site(cluster_from_dict(table))
    _take(given)
    site = RegisteredSite(saved)
    if now is not None:
        site.set_clock(now)
    desk.site = site
    desk.forget()
    return {"ok": True, **_registered(site)}


def _update(desk: Desk, given: Fields) -> dict[str, Any]:
    site = _site_now(desk, given)
    changes = given.rows("changes")
    _take(given)
    if len(changes) > MOST_CHANGES:
        raise UsageError(f"more than {MOST_CHANGES:,} changes at once")
    with uninterrupted():
        for applied, change in enumerate(changes):
            try:
                apply_change(site, change)
            except GpuyardError as error:
                return {**refusal(error), "hint": "the changes before it stand", "applied": applied}
    return {"ok": True, "applied": len(changes)}


def _forget(desk: Desk, given: Fields) -> dict[str, Any]:
    _take(given)
    desk.site = None
    return {"ok": True}


def _snapshot(desk: Desk, given: Fields) -> dict[str, Any]:
    site = _site_now(desk, given)
    _take(given)
    return {"ok": True, "snapshot": json.loads(snapshot_bytes(site.saved()))}


# ── decisions ──


def _pick(desk: Desk, given: Fields) -> dict[str, Any]:
    site, take = _site_now(desk, given), given.flag("take", False)
    request = given.table("request") if "request" in given else None
    name = job_name(given) if request is None or "job" in given else _ASKED
    _take(given)
    if take and name == _ASKED:
        raise UsageError("take needs the name of the job", hint='"job": "17"')
    known = name in site
    row = add_request(site, name, request) if request is not None and not known else site.row(name)
    try:
        made = desk.pick(site, row)
        taken = take and made.action is Action.START
        if taken:
            with uninterrupted():
                site.start(name, made.parts)
    finally:
        if name == _ASKED:
            site.withdraw(name)
    answer = {"ok": True, "parts": _parts(site, made), "reason": made.reason, "taken": taken}
    return answer if name == _ASKED else {"job": name, **answer}


def _order(desk: Desk, given: Fields) -> dict[str, Any]:
    site = _site_now(desk, given)
    asked = given.texts("jobs") if "jobs" in given else None
    _take(given)
    if not desk.asked.has_order:
        hint = "serve slots such as sjf/fewest/easy, or a checkpoint that chooses jobs"
        raise UsageError(f"{desk.scheduler.label}: decides what starts, not in which order jobs stand", hint=hint)
    saved = site.saved()
    wanted = None if asked is None else {site.row(name) for name in asked}
    _, order, _ = desk.asked.decide(saved)
    desk.counts.decisions += len(order)
    return {"ok": True, "order": [saved.name(row) for row in order if wanted is None or row in wanted]}


def _decide(desk: Desk, given: Fields) -> dict[str, Any]:
    explain = given.flag("explain", False)
    fresh = "snapshot" in given
    saved = snapshot_from(given.value("snapshot"), "snapshot") if fresh else _site_now(desk, given).saved()
    _take(given)
    asked = Asked(desk.scheduler) if fresh else desk.asked
    decisions, order, _ = asked.decide(saved)
    desk.counts.decisions += len(decisions)
    answer = {"ok": True, "scheduler": desk.scheduler.label, **decided(saved, decisions, order)}
    if explain:
        answer["jobs"] = outlook_records(saved, outlook(saved, desk.scheduler))
        answer["ineligible"] = dict(saved.ineligible)
    return answer


# ── for Kubernetes, and for who watches ──


def _filter(desk: Desk, given: Fields) -> dict[str, Any]:
    return answer_filter(desk.registered, _whole(given))


def _prioritize(desk: Desk, given: Fields) -> list[dict[str, Any]]:
    return answer_prioritize(desk.registered, _whole(given), desk.pick_among)


def _whole(given: Fields) -> Mapping[str, Any]:
    """Return the request as it is: whatever else Kubernetes sends is ignored."""
    return {name: given.peek(name) for name in given.names}


def _health(desk: Desk, given: Fields) -> dict[str, Any]:
    _take(given)
    up = time.monotonic() - desk.counts.began
    return {"ok": True, "protocol": PROTOCOL, "up": round(up, 1), "requests": desk.counts.total, "memory": resident_bytes(),
            **_registered(desk.site)}  # fmt: skip


def _metrics(desk: Desk, given: Fields) -> PlainText:
    _take(given)
    jobs = _registered(desk.site)
    gauges = [
        ("service_up_seconds", "Time since the service began.", time.monotonic() - desk.counts.began),
        ("service_resident_bytes", "Memory of the service.", float(resident_bytes())),
        ("hosts", "Registered hosts.", float(jobs["hosts"])),
        ("jobs_running", "Registered jobs that run.", float(jobs["running"])),
        ("jobs_waiting", "Registered jobs that wait.", float(jobs["waiting"])),
    ]
    return PlainText(desk.counts.prometheus(gauges))


def _site_now(desk: Desk, given: Fields) -> RegisteredSite:
    """Return what is registered, at the time that the client says it is."""
    site, now = desk.registered, clock_of(given)
    if now is not None:
        site.set_clock(now)
    return site


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let no alarm end the block half-way."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})


def _take(given: Fields) -> None:
    """Refuse what was not taken, and other protocols; over HTTP the verb is not among it."""
    given.value("verb", "")
    if "protocol" in given and given.whole("protocol") != PROTOCOL:
        raise given.error("protocol", f"is not {PROTOCOL}, which this gpuyard speaks")
    given.done()


VERBS: Mapping[str, Callable[[Desk, Fields], Any]] = {
    "status": _status, "register": _register, "update": _update, "forget": _forget, "snapshot": _snapshot, "pick": _pick,
    "order": _order, "decide": _decide, "filter": _filter, "prioritize": _prioritize, "health": _health, "metrics": _metrics,
}  # fmt: skip
