"""Says why a job waits, where it stands, and when it may start: the queue played forward with what jobs are estimated to take."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.live.estimator import Guess, kind_of
from gpuyard.live.node.core import Node
from gpuyard.live.node.jobs import NodeJob, RunState
from gpuyard.model.cluster import EPS
from gpuyard.model.site.eligibility import REASONS

_OF_OTHERS = ("array-limit", "making-room")  # reasons that lie in what other jobs do


@dataclass(frozen=True)
class Outlook:
    """The outlook of a job. Times are s since 1970; 0: not known."""

    state: str
    reason: str  # one sentence
    position: int = 0  # in the queue, from 1; 0: it does not stand in it
    start: float = 0.0
    earliest: float = 0.0  # four of five jobs start between earliest and latest
    latest: float = 0.0

    def plain(self) -> dict[str, str | float]:
        return dict(vars(self))


def outlook(node: Node, job: NodeJob) -> Outlook:
    """Return the outlook of a job, also of one that runs or has ended."""
    if job.state.ended:
        return Outlook(job.state.value, job.reason or "it ended with exit code 0")
    if job.state is not RunState.pending:
        return Outlook(job.state.value, _running(job), start=job.start)
    now = node.clock.now()
    if node.draining:
        return Outlook(job.state.value, REASONS["drain"])
    reason = node.why_not(job, now) or (found if (found := node.reasons.get(job.id, "")) in _OF_OTHERS else "")
    if reason:
        return Outlook(job.state.value, _sentence(node, job, reason), start=job.asked.begin if reason == "begin" else 0.0)
    queue = _in_order(node, now)
    position = next((k for k, each in enumerate(queue) if each.id == job.id), len(queue))
    ahead = queue[: position + 1]
    guesses = _guesses(node, [*ahead, *(node.book.jobs[number] for number in node.running)])
    start, earliest, latest = (_start(node, ahead, guesses, which, now) for which in ("expected", "low", "high"))
    return Outlook(job.state.value, _behind(node, job, position), position + 1, start, min(earliest, start), max(latest, start))


def _running(job: NodeJob) -> str:
    if job.stopping:
        return "it was told to stop" if job.stopping == "cancel" else "it was told to write a checkpoint and stop; it will run again"
    return "it is being started" if job.state is RunState.starting else "it runs"


def _sentence(node: Node, job: NodeJob, reason: str) -> str:
    text = REASONS[reason]
    if reason in ("after", "after-failed"):
        ended = {number: node.book.find(number) for number in (*job.asked.after, *job.asked.after_any)}
        others = [f"{number} ({each.state.value})" for number, each in ended.items() if each.state is not RunState.done]
        text += f": job {', '.join(others[:5])}"
    elif reason == "start-failed":
        text += f": {node.runs.troubles[job.id][2]}"
    elif reason == "gpu-memory":
        most = max((node.yard.free_memory(uuid) for uuid in node.yard.place if uuid not in node.yard.blocked), default=0.0)
        text += f": {job.asked.gpu_memory:g} GB; the most that is free is {most:.1f} GB"
    elif reason in ("gpu-foreign", "gpu-lost"):
        text += f": {', '.join(_blocked(node, (reason,)))}"
    return text


def _blocked(node: Node, reasons: Sequence[str]) -> list[str]:
    """Name the GPUs that cannot be used for one of these reasons, with what is known of it."""
    found = []
    for uuid, why in node.yard.blocked.items():
        reading = node.yard.readings.get(uuid)
        if why in reasons and reading is not None:
            pids = ", ".join(map(str, node.yard.strangers.get(uuid, ())))
            found.append(f"GPU {reading.index} ({reading.lost or f'process {pids} of others'})")
    return found


def _behind(node: Node, job: NodeJob, position: int) -> str:
    if position:
        ahead = "1 job is" if position == 1 else f"{position} jobs are"
        return f"{ahead} ahead of it in the order of {node.advisor.now_used}"
    if not (node.advisor.ready or node.advisor.stands_in):
        return f"the scheduler {node.advisor.now_used} is being loaded"
    need, what = node.sizes[job.id], "GPU" if node.yard.has_gpus else "CPU slot"
    off = _blocked(node, ("gpu-foreign", "gpu-lost"))
    left_out = f"; not in use: {', '.join(off)}" if off else ""
    return f"it is next and waits for {need:g} {what}{'s' if need > 1 else ''}; {node.free:g} free{left_out}"


def _in_order(node: Node, now: float) -> list[NodeJob]:
    """Return the waiting jobs that are offered to the scheduler, in its order as far as that is known."""
    place = {number: k for k, number in enumerate(node.order)}
    waiting = [
        node.book.jobs[number] for number in node.pending if number not in node.reasons or not node.why_not(node.book.jobs[number], now)
    ]
    return sorted(waiting, key=lambda job: (place.get(job.id, len(place)), job.submit, job.id))


def _guesses(node: Node, jobs: Sequence[NodeJob]) -> dict[int, Guess]:
    known: dict[tuple[str, str, float, float], Guess] = {}
    found = {}
    for job in jobs:
        asked = job.asked
        key = (job.user, kind_of(asked.job_class, asked.name, asked.command), asked.walltime, asked.estimate)
        if key not in known:
            known[key] = node.estimator.estimate(*key)
        found[job.id] = known[key]
    return found


def _start(node: Node, ahead: Sequence[NodeJob], guesses: dict[int, Guess], which: str, now: float) -> float:
    """Return when the last of these jobs starts if each takes as long as that part of its guess says, one after the other in order."""
    free = float(node.yard.devices - len(node.yard.blocked))
    ends: list[tuple[float, float]] = []
    for number in node.running:
        job = node.book.jobs[number]
        left = getattr(guesses[number], which) - job.ran
        elapsed = now - job.start
        while left <= elapsed:  # it takes longer than was thought: twice as long, then
            left = max(2 * left, 1.0)
        heapq.heappush(ends, (job.start + left, node.sizes[number]))
        free -= node.sizes[number]
    at = now
    for job in ahead:
        need = node.sizes[job.id]
        while free + EPS < need and ends:
            end, size = heapq.heappop(ends)
            at, free = max(at, end), free + size
        free -= need
        heapq.heappush(ends, (at + max(getattr(guesses[job.id], which) - job.ran, 1.0), need))
    return at
