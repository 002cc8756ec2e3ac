"""Replay a trace on a node of this machine: a daemon of its own, jobs submitted at their times, and everything that was measured.

One replay is one file. A replay that is there is not done again, so that the same call goes on after an interruption.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError
from gpuyard.experiments.real.measuring import Rates
from gpuyard.experiments.real.traces import RealJob, RealTrace, read_record, write_record
from gpuyard.files import is_file
from gpuyard.live.node.client import NodeClient, NodeError
from gpuyard.live.node.jobs import NodeJob, RunState, Submission
from gpuyard.model.fields import Fields

STARTING = 300.0  # s that a daemon, its scheduler and its template may take to begin: the engine may have to be compiled
SPARE_CORES = 6  # beside one for each slot, so that the next daemon may load while jobs run
STEP = 0.02  # s between looks while a trace is submitted
WARM_MODULES = {
    "torch": ("numpy.random", "torch", "gpuyard.workbench.on_torch", "gpuyard.workbench.work"),
    "jax": ("numpy.random", "gpuyard.workbench.on_numpy", "gpuyard.workbench.work"),  # JAX starts threads, and does not survive a fork
    "numpy": ("numpy.random", "gpuyard.workbench.on_numpy", "gpuyard.workbench.work"),
}
_KEPT = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "FAKE_NVML")


@dataclass(frozen=True)
class ReplayMachine:
    """The slots that the jobs of a replay run on."""

    slots: int  # jobs at once: shares of one GPU, or CPU slots
    gpu: bool
    library: str = "auto"
    scale: str = "auto"


@dataclass(frozen=True)
class ReplayedJob:
    """One job as it was measured; times in s from the first submission of the trace."""

    kind: str
    submit: float
    start: float
    end: float
    state: str
    steps: int
    priority: float
    deadline: float
    work: float  # s of steps alone, as planned
    loop: float  # s of steps, as it ran
    setup: float  # s until its first step was done, by its own clock
    joules: float


@dataclass(frozen=True)
class TraceReplay:
    """One trace under one scheduler."""

    trace: str
    scheduler: str
    slots: int
    made: float  # s since 1970
    gpu: bool
    jobs: tuple[ReplayedJob, ...]
    device_name: str
    library: str
    decisions: tuple[float, ...] = ()  # s that the scheduler took, as far as they were seen
    trouble: str = ""  # why another scheduler took over

    @property
    def lost(self) -> int:
        """The jobs that did not end with exit code 0."""
        return sum(job.state != RunState.done.value for job in self.jobs)

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        write_record(path, "replay", asdict(self))

    @classmethod
    def load(cls, path: Path) -> TraceReplay:
        """Read what `save` wrote."""
        root = read_record(path, "replay")
        jobs = [_replayed(row) for row in root.rows("jobs")]
        made = cls(
            root.text("trace"), root.text("scheduler"), root.whole("slots"), root.number("made"), root.flag("gpu"), tuple(jobs),
            root.text("device_name"), root.text("library"), root.numbers("decisions"), root.text("trouble", "", limit=5000),
        )  # fmt: skip
        root.done()
        return made


def _replayed(row: Fields) -> ReplayedJob:
    about: dict[str, Any] = {name: row.text(name) for name in ("kind", "state")} | {"steps": row.whole("steps")}
    for name in ("submit", "start", "end", "priority", "deadline", "work", "loop", "setup", "joules"):
        about[name] = row.number(name, low=-1e12)
    row.done()
    return ReplayedJob(**about)


def replay_file(folder: Path, trace: str, scheduler: str, slots: int) -> Path:
    """Return where a replay is kept."""
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in scheduler)
    return folder / f"{trace}--{plain}--{slots}.json"


@dataclass
class Budget:
    """The time that is left for replays."""

    seconds: float
    began: float = field(default_factory=time.monotonic)
    last: float = 0.0  # s that the last replay took

    def allows_one_more(self) -> bool:
        """Return whether one that takes half as long again as the last would end in time."""
        return time.monotonic() - self.began + 1.5 * self.last + 5.0 < self.seconds


def replay_all(
    traces: Sequence[RealTrace], schedulers: Sequence[str], machine: ReplayMachine, rates: Rates, folder: Path, budget: Budget,
    on_progress: Callable[[str], None] = lambda text: None,
) -> int:  # fmt: skip
    """Replay every trace under every scheduler, as far as the time allows; return how many are missing.

    Where cores are left over, the daemon of the next replay loads while the present one goes on.
    """
    wanted = [(trace, scheduler) for trace in traces for scheduler in schedulers]
    todo = [each for each in wanted if not is_file(replay_file(folder, each[0].name, each[1], machine.slots))]
    following: ReplayNode | None = None
    try:
        while todo and budget.allows_one_more():
            began = time.monotonic()
            trace, scheduler = todo.pop(0)
            node, following = following or ReplayNode(scheduler, machine, rates.library), None
            with closing(node):
                node.await_ready()
                _warm_up(node.client, machine, rates)
                ready = time.monotonic() - began
                if todo and len(os.sched_getaffinity(0)) >= machine.slots + SPARE_CORES:
                    following = ReplayNode(todo[0][1], machine, rates.library)
                made = _replayed_on(node, trace, scheduler, machine, rates)
            made.save(replay_file(folder, trace.name, scheduler, machine.slots))
            budget.last = time.monotonic() - began
            mean = sum(job.end - job.submit for job in made.jobs) / len(made.jobs)
            said = f"{budget.last:.0f} s ({ready:.0f} s to begin), mean JCT {mean:.2f} s, {made.lost} lost"
            on_progress(f"{trace.name} under {scheduler}: {said}{f'; TROUBLE: {made.trouble}' if made.trouble else ''}")
    finally:
        if following is not None:
            following.close()
    return len(todo)


def _replayed_on(node: ReplayNode, trace: RealTrace, scheduler: str, machine: ReplayMachine, rates: Rates) -> TraceReplay:
    """Replay one trace on a node that is ready."""
    seen = _Seen(node.client)
    origin = time.time() + 0.2
    numbers = [_submit_at(node.client, origin, job, machine, rates, number, seen) for number, job in enumerate(trace.jobs)]
    last = {job.id: job for job in seen.until_ended(numbers)}
    jobs = tuple(
        _measured(node.folder, last[number], job, origin, _steps(job, rates)) for number, job in zip(numbers, trace.jobs, strict=True)
    )
    status = node.client.call("status")
    device = rates.device_name
    return TraceReplay(
        trace.name, scheduler, machine.slots, origin, machine.gpu, jobs, device, rates.library, tuple(seen.decisions),
        str(status.get("trouble", "")),
    )  # fmt: skip


class _Seen:
    """How long the decisions took that were seen while jobs ran."""

    def __init__(self, node: NodeClient) -> None:
        self._node = node
        self.decisions: list[float] = []

    def look(self) -> Mapping[str, Any]:
        """Note the time of the last decision, unless it was noted before."""
        status = self._node.call("status")
        took = float(status.get("took", 0.0))
        if took and (not self.decisions or took != self.decisions[-1]):
            self.decisions.append(took)
        return status

    def until_ended(self, numbers: Sequence[int]) -> list[NodeJob]:
        """Wait until these jobs have ended, and return them."""
        while True:
            jobs = self._node.wait(numbers, timeout=4 * STEP)
            self.look()
            if all(job.state.ended for job in jobs):
                return jobs


def _submit_at(node: NodeClient, origin: float, job: RealJob, machine: ReplayMachine, rates: Rates, number: int, seen: _Seen) -> int:
    while (left := origin + job.submit - time.time()) > 0:
        if left > 2 * STEP:
            seen.look()
        time.sleep(min(max(origin + job.submit - time.time(), 0.0), STEP))
    return node.submit(_submission(job, machine, rates, number, origin))[0]


def _steps(job: RealJob, rates: Rates) -> int:
    """Return the steps that take so long alone, and the first one, which belongs to what a job takes beside them."""
    return max(round(job.seconds * rates.alone(job.kind)), 1) + 1


def _submission(job: RealJob, machine: ReplayMachine, rates: Rates, number: int, origin: float) -> Submission:
    return Submission(
        work_command(job.kind, _steps(job, rates), machine, number), cwd="/tmp", env=_environment(), name=f"{job.kind}-{number}",
        gpus=1 / machine.slots if machine.gpu and machine.slots > 1 else float(machine.gpu), cpus=1.0, estimate=max(job.seconds, 0.001),
        deadline=origin + job.deadline, priority=job.priority, job_class=f"{job.kind}-{number}", template=rates.library,
    )  # fmt: skip


def work_command(kind: str, steps: int, machine: ReplayMachine, seed: int) -> tuple[str, ...]:
    """Return the command of a job of the workbench."""
    device = "gpu" if machine.gpu else "cpu"
    words = (sys.executable, "-m", "gpuyard.workbench", kind, "--steps", str(steps), "--device", device, "--scale", machine.scale)
    library = "auto" if kind == "etl" else machine.library
    return (*words, "--library", library, "--seed", str(seed))


def _environment() -> dict[str, str]:
    source = str(Path(__file__).resolve().parents[3])
    found = {name: os.environ[name] for name in _KEPT if name in os.environ}
    found["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([source, *filter(None, found.get("PYTHONPATH", "").split(os.pathsep))]))
    return found | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _measured(place: Path, job: NodeJob, planned: RealJob, origin: float, steps: int) -> ReplayedJob:
    said = _said(place / "jobs" / str(job.id) / "output.log")
    return ReplayedJob(
        planned.kind, planned.submit, job.start - origin, job.end - origin, job.state.value, int(said.get("steps", steps)),
        planned.priority, planned.deadline, planned.seconds, float(said.get("seconds", 0.0)), float(said.get("setup_seconds", 0.0)),
        job.energy,
    )  # fmt: skip


def _said(path: Path) -> Mapping[str, Any]:
    """Return the line of JSON that a job wrote at its end; empty if there is none."""
    with suppress(OSError, ValueError, IndexError):
        found = json.loads(path.read_text(encoding="utf-8", errors="replace").splitlines()[-1])
        if isinstance(found, dict):
            return found
    return {}


# ── the daemon ──


class ReplayNode:
    """A daemon in a temporary folder, for one replay. It begins to load at once; `close` ends it and all of its jobs."""

    def __init__(self, scheduler: str, machine: ReplayMachine, library: str) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="gpuyard-real-")
        self.folder = Path(self._place.name)
        settings = {
            "scheduler": scheduler, "share": machine.slots if machine.gpu else 1, "cpus": 0 if machine.gpu else machine.slots,
            "templates": {library: list(WARM_MODULES[library])},
        }  # fmt: skip
        command = [sys.executable, "-m", "gpuyard.live.node.daemon", str(self.folder), json.dumps(settings)]
        with (self.folder / "daemon.log").open("ab") as log:
            variables = {**os.environ, **_environment()}
            self._daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables)
        self.client = NodeClient(self.folder)

    def await_ready(self) -> None:
        """Wait until the daemon answers, its template is warm, and its scheduler is loaded."""
        _await(self.client, self._daemon, self.folder / "daemon.log")

    def close(self) -> None:
        """End it, whatever state it is in."""
        try:
            left = [job.id for job in self.client.jobs()]
            if left:
                self.client.call("cancel", ids=left)
                self.client.wait(left, timeout=30.0)
            self.client.call("stop")
        except GpuyardError:
            self._daemon.terminate()
        self.client.close()
        with suppress(subprocess.TimeoutExpired):
            self._daemon.wait(15.0)
        self._daemon.kill()
        self._daemon.wait()
        self._place.cleanup()


def _await(node: NodeClient, daemon: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the daemon answers and its template is warm."""
    until = time.monotonic() + STARTING
    while time.monotonic() < until and daemon.poll() is None:
        with suppress(NodeError):
            if all(node.call("status").get("templates", {}).values()):
                return
        time.sleep(0.05)
    said = log.read_text(encoding="utf-8", errors="replace")[-1000:]
    raise NodeError(f"the node did not begin: {' '.join(said.split()) or 'no answer'}")


def _warm_up(node: NodeClient, machine: ReplayMachine, rates: Rates) -> None:
    """Let the scheduler decide once and every kind of work run once, so that nothing is loaded for the first time during the trace."""
    kinds = {kind for crowd in rates.crowds for kind in crowd}
    jobs = [RealJob(0.0, kind, 0.05, 1e9, 0.0) for kind in sorted(kinds)]
    until = time.monotonic() + STARTING
    while True:  # a node that starts jobs while its scheduler is still loading has not asked it yet
        _try(node, [_submission(job, machine, rates, 0, time.time()) for job in jobs])
        if node.call("status").get("ready") or time.monotonic() > until:
            return
        time.sleep(0.5)


def _try(node: NodeClient, jobs: Sequence[Submission]) -> None:
    ended = node.wait([node.submit(each)[0] for each in jobs], timeout=STARTING)
    bad = next((job for job in ended if job.state is not RunState.done), None)
    if bad is not None:
        output = (node.folder / "jobs" / str(bad.id) / "output.log").read_text(encoding="utf-8", errors="replace")[-500:]
        raise NodeError(f"a first {bad.asked.job_class} job is {bad.state.value}: {' '.join(output.split())}")
