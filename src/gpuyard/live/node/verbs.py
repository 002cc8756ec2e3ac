"""The verbs that a client may use, each a function of the node and the request's arguments."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache

import gpuyard
from gpuyard.files import to_plain
from gpuyard.live.node.api import Message
from gpuyard.live.node.core import Node
from gpuyard.live.node.jobs import NodeJob, RunState
from gpuyard.live.node.planning import outlook
from gpuyard.live.node.running.executor import OUTPUT
from gpuyard.live.node.running.shim import descendants
from gpuyard.model.cluster_file import cluster_to_dict
from gpuyard.model.fields import Fields
from gpuyard.registry import Registry

MOST_IDS = 100_000
MOST_LISTED = 100_000
MOST_PAGE = 2000
BRIEF = 200  # characters of a command
Answer = Callable[[Node, Fields], Message]
VERBS: Registry[Answer] = Registry("verb")
CHANGING = frozenset({"submit", "cancel", "hold", "release", "first", "retry", "drain", "resume"})


def verb(name: str) -> Callable[[Answer], Answer]:
    """Register a verb."""
    return VERBS.register(name, lambda function: function)


def ids_of(given: Fields, *, needed: bool = True) -> list[int]:
    """Return the numbers of the jobs that a request names."""
    found = [int(each) for each in given.numbers("ids", whole=True)] if "ids" in given or needed else []
    if len(found) > MOST_IDS or any(not 0 < each < 2**53 for each in found):
        raise given.error("ids", "is not a list of the numbers of jobs")
    return found


@lru_cache(maxsize=1)
def _user() -> str:
    with suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_name
    return str(os.geteuid())


@verb("submit")
def _submit(node: Node, given: Fields) -> Message:
    token = given.text("token", "", limit=100)
    return {"ids": node.submit(given.peek("job") if "job" in given else {}, token, _user())}


@verb("cancel")
def _cancel(node: Node, given: Fields) -> Message:
    return {"ids": node.cancel(ids_of(given))}


@verb("hold")
def _hold(node: Node, given: Fields) -> Message:
    return {"ids": node.hold(ids_of(given), True)}


@verb("release")
def _release(node: Node, given: Fields) -> Message:
    return {"ids": node.hold(ids_of(given), False)}


@verb("first")
def _first(node: Node, given: Fields) -> Message:
    return {"ids": node.put_first(ids_of(given))}


@verb("retry")
def _retry(node: Node, given: Fields) -> Message:
    return {"ids": node.retry(ids_of(given, needed=False))}


@verb("drain")
def _drain(node: Node, given: Fields) -> Message:
    node.drain(True)
    return {"draining": True}


@verb("resume")
def _resume(node: Node, given: Fields) -> Message:
    node.drain(False)
    return {"draining": False}


@verb("jobs")
def _jobs(node: Node, given: Fields) -> Message:
    ids, ended = ids_of(given, needed=False), given.whole("ended", 0, high=MOST_LISTED)
    if ids:
        return {"jobs": [shown(node, node.book.find(number)) for number in ids]}
    found = [*reversed(node.store.ended(ended)), *node.book.jobs.values()] if ended else list(node.book.jobs.values())
    return {"jobs": [shown(node, job) for job in found]}


@verb("page")
def _page(node: Node, given: Fields) -> Message:
    found = node.store.before(given.whole("before", 2**53), given.whole("limit", 500, low=1, high=MOST_PAGE))
    return {"jobs": [brief(node, job) for job in found]}


@verb("watch")
def _watch(node: Node, given: Fields) -> Message:
    log = node.book.log
    answer: Message = {"epoch": log.epoch, "next": log.number, "more": False, "jobs": [], "reasons_at": log.reasons}
    changed = log.since(given.whole("since", 0), given.whole("limit", 1000, low=1, high=MOST_PAGE))
    if given.text("epoch", "") != log.epoch or changed is None:
        return answer | {"whole": True}
    answer |= {"jobs": [brief(node, node.book.find(number)) for number in changed[0]], "next": changed[1], "more": changed[1] < log.number}
    if given.whole("reasons_at", 0) != log.reasons:
        answer["reasons"] = {reason: [each for each, why in node.reasons.items() if why == reason] for reason in set(node.reasons.values())}
    return answer | {"order": list(node.order), "keys": list(node.keys)}


def brief(node: Node, job: NodeJob) -> Message:
    """Return what a list shows of a job."""
    asked = job.asked
    return {
        "id": job.id, "name": asked.name or " ".join(asked.command)[:BRIEF], "user": job.user, "state": job.state.value,
        "reason": job.reason, "gpus": node.sizes.get(job.id) or node.size_of(job), "submit": job.submit, "start": job.start,
        "end": job.end, "expected": job.expected, "priority": asked.priority, "devices": list(job.devices), "held": job.held,
        "array": job.array[1] if job.array[0] else None,
    }  # fmt: skip


def shown(node: Node, job: NodeJob) -> Message:
    """Return a job as clients see it; one that waits says why it is not offered to the scheduler."""
    reason = node.reasons.get(job.id, "") if job.state is RunState.pending else job.reason
    return job.plain() | {"reason": reason or job.reason, "now": node.clock.now()}


@verb("why")
def _why(node: Node, given: Fields) -> Message:
    job = node.book.find(given.whole("id", low=1))
    return {**outlook(node, job).plain(), "now": node.clock.now(), "history": list(job.history)}


@verb("top")
def _top(node: Node, given: Fields) -> Message:
    job = node.book.find(given.whole("id", low=1))
    shim = node.executor.pids.get(job.id, 0)
    processes = [_process(pid) for pid in sorted(descendants({shim}))] if shim else []
    if not job.asked.template:  # what a template forks keeps its command line
        forked = _process(shim).get("command", "") if shim else ""
        processes = [each for each in processes if each.get("command") not in ("", forked)]  # not yet the command that it will be
    readings = [node.yard.readings[uuid] for uuid in job.devices if uuid in node.yard.readings]
    gpus = [
        {"index": r.index, "name": r.name, "utilisation": r.utilisation, "memory": r.memory - r.free, "watts": r.watts} for r in readings
    ]
    return {"job": shown(node, job), "processes": [each for each in processes if each], "gpus": gpus}


def _process(pid: int) -> Message:
    """Return what the kernel says of a process; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            words = file.read().rpartition(b")")[2].split()
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            command = file.read(4000).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return {}
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    return {"pid": pid, "cpu": (int(words[11]) + int(words[12])) / ticks, "memory": int(words[21]) * page / 1e9, "command": command[:200]}


@verb("logs")
def _logs(node: Node, given: Fields) -> Message:
    job = node.book.find(given.whole("id", low=1))
    return {"path": str(node.executor.folder / str(job.id) / OUTPUT), "state": job.state.value}


@verb("history")
def _history(node: Node, given: Fields) -> Message:
    since, limit = given.number("since", 0.0), given.whole("limit", 1000, high=MOST_LISTED)
    jobs = node.store.ended(limit, since)
    answer: Message = {"jobs": [job.plain() | {"size": node.size_of(job)} for job in jobs], "now": node.clock.now()}
    if not given.flag("runs", False):
        return answer
    runs = [[each.job, each.began, each.ended, each.devices] for each in node.store.attempts([job.id for job in jobs])]
    cluster = to_plain(cluster_to_dict(node.yard.cluster), "cluster")
    about = {"scheduler": node.settings.scheduler, "version": gpuyard.__version__, "places": node.yard.place}
    return answer | {"runs": runs, "cluster": cluster} | about


@verb("decisions")
def _decisions(node: Node, given: Fields) -> Message:
    limit = given.whole("limit", 20, high=MOST_LISTED)
    return {"decisions": [list(each) for each in node.store.decisions(limit)]}


@verb("status")
def _status(node: Node, given: Fields) -> Message:
    counts: dict[str, int] = {}
    for job in node.book.jobs.values():
        counts[job.state.value] = counts.get(job.state.value, 0) + 1
    advisor = node.advisor
    return {
        "version": gpuyard.__version__, "pid": os.getpid(), "folder": str(node.folder), "draining": node.draining, "jobs": counts,
        "scheduler": advisor.text, "used": advisor.now_used, "ready": advisor.ready, "trouble": advisor.trouble, "took": advisor.took,
        "gpus": node.yard.has_gpus, "share": node.yard.slots, "cgroup": bool(node.executor.cgroup), "now": node.clock.now(),
        "templates": node.executor.warm, "gpu_problem": node.gpus.problem,
        "devices": _devices(node), "slots": node.yard.devices, "busy": sum(node.sizes[number] for number in node.running),
    }  # fmt: skip


def _devices(node: Node) -> list[Message]:
    """Return every GPU with what it does."""
    found = []
    for reading in node.yard.readings.values():
        jobs = [number for number in sorted(node.running) if reading.uuid in node.book.jobs[number].devices]
        state = node.yard.blocked.get(reading.uuid, "busy" if jobs else "free")
        found.append(
            {
                "index": reading.index, "uuid": reading.uuid, "name": reading.name, "state": state, "jobs": jobs, "memory": reading.memory,
                "free": reading.free, "utilisation": reading.utilisation, "watts": reading.watts, "celsius": reading.celsius,
                "processes": [each.pid for each in reading.processes], "strangers": node.yard.strangers.get(reading.uuid, []),
                "lost": reading.lost,
            }
        )  # fmt: skip
    return found
