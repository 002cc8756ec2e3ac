"""A simulation that can be run to its end or stopped at every decision."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.batch import Ran, checked_seed, run_together
from gpuyard.engine.build import build, takes_bounds
from gpuyard.engine.compiler.jit import INTERPRETED
from gpuyard.engine.driver import Driver
from gpuyard.engine.estimating import EstimatesOutside
from gpuyard.engine.interrupts import interrupts
from gpuyard.engine.kernels.events import DECIDE, FINISH, FINISHED, PREEMPT, PREPARE, RUN, START
from gpuyard.engine.mix import request_mix
from gpuyard.engine.site import has_site
from gpuyard.engine.slots import SCORES, SPANS, Program, Slot, check_half_life
from gpuyard.engine.snapshots import ended_since, snapshot_of
from gpuyard.errors import SimulationError, WrongTypeError
from gpuyard.model.cluster import EPS, Cluster
from gpuyard.model.decision import Action, Decision, Part
from gpuyard.model.result import Result
from gpuyard.model.rules import MAY_STOP_ONCE, MUST_RUN, Rules
from gpuyard.model.snapshot import HALF_LIFE, Snapshot
from gpuyard.model.workload import Workload

# For decisions from outside; a start that names no nodes is placed on the fewest.
_OUTSIDE = Program((Slot(ordering=0, reads_clock=False, score=SCORES["free"], span=SPANS["fewest"]),), "outside", accounts=True)


class HasProgram(Protocol):
    """A scheduler made of compiled policies."""

    def program(self) -> Program: ...


class HasDecide(Protocol):
    """A scheduler that is asked at every decision."""

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]: ...


class Begins(Protocol):
    """Makes a new scheduler of that kind for each simulation."""

    def begin(self) -> HasDecide: ...


AnyScheduler = HasProgram | HasDecide | Begins


class Simulation:
    """A simulation that can stop: `run()` to the end, or `while (snapshot := sim.advance()): sim.apply(decisions)`; then `result()`.

    Where decisions come from outside: `every`, seconds between timers at which they are also asked for; `half_life`, seconds in which the
    users' usage in the snapshots halves. `tallying`: sums of what happened are kept, for rewards.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        program: Program | None = None,
        *,
        label: str = "",
        seed: int = 0,
        rules: Rules | None = None,
        segments: bool = False,
        every: float = 0.0,
        half_life: float = HALF_LIFE,
        tallying: bool = False,
    ) -> None:
        if not isinstance(workload, Workload):
            raise WrongTypeError("workload", "a Workload", workload, hint="load_workload('demo') makes one")
        if not isinstance(cluster, Cluster):
            raise WrongTypeError("cluster", "a Cluster", cluster, hint="load_cluster('16x8:a100') makes one")
        self.workload = workload
        self.cluster = cluster
        self.seed = checked_seed(seed)
        self.rules = rules or Rules()
        self._external = program is None
        self._program = program or replace(_OUTSIDE, timer=every, half_life=check_half_life(half_life))
        self.label = label or self._program.label
        self._began = time.perf_counter()
        self._over = False
        self._asked = 0.0  # when a snapshot was last handed out
        self._deciding = 0.0  # s spent on decisions
        predictor = workload.predictor
        state, header = build(
            workload.jobs, workload.runtime, cluster, self._program, seed, self.rules,
            segments=segments, timeline=True, predictor=predictor, bounds=True,
        )  # fmt: skip
        state.control["external"] = self._external
        state.control["tallying"] = tallying
        state.control["attention"] = 0 if INTERPRETED else interrupts().address
        outside = None if predictor is None or state.control["rolling"][0] else EstimatesOutside(workload.jobs, predictor)
        self._driver = Driver(state, self.label, workload.jobs.id, outside, header)
        self._driver.order(PREPARE)

    @property
    def now(self) -> float:
        """Seconds from the workload's origin."""
        return self._driver.now

    @property
    def state(self) -> st.State:
        """Return the arrays that the simulation works on."""
        return self._driver.state

    @property
    def address(self) -> int:
        """Return where compiled code finds the simulation now."""
        return int(self._driver.header.ctypes.data)

    @cached_property
    def _visible_cluster(self) -> Cluster:
        """Return the cluster without its outages: those to come are not to be seen."""
        return replace(self.cluster, outages=())

    @cached_property
    def _reported(self) -> Array:
        """Return (jobs,) bool: the job's end was in a snapshot."""
        return np.zeros(len(self.workload), bool)

    @cached_property
    def _mix(self) -> Array:
        """Return the mix of the workload's requests, which is the same in every snapshot."""
        return request_mix(self.workload.jobs, self.cluster)

    def run(self) -> None:
        """Run to the end with the program given."""
        began = time.perf_counter()
        while (status := self._driver.order(RUN)) != FINISHED:
            if status == DECIDE:
                raise SimulationError("this simulation has no scheduler of its own: use advance() and apply()")
        self._over = True
        self._deciding += time.perf_counter() - began

    def advance(self) -> Snapshot | None:
        """Go on to the next decision: an instant with at least one waiting job. None: the simulation is over."""
        if not self._external:
            raise SimulationError("this simulation has a scheduler of its own: use run()")
        self._over = self._driver.order(RUN) == FINISHED
        if self._over:
            return None
        snapshot = snapshot_of(self.state, self.workload.jobs, self._visible_cluster, self.rules, self.seed, self._mix)
        snapshot = replace(snapshot, ended=ended_since(self.state, self._reported))
        self._asked = time.perf_counter()
        return snapshot

    def apply(self, decisions: Sequence[Decision]) -> None:
        """Carry out decisions at the present instant, in order. A decision that cannot be carried out is an error."""
        if self._asked:
            self._deciding += time.perf_counter() - self._asked
            self._asked = 0.0
        for decision in decisions:
            _ACTIONS[decision.action](self, decision)

    # ── the actions ──

    def _start(self, decision: Decision) -> None:
        row = self._row(decision, st.WAITING)
        self.state.pick_units[:] = 0
        self.state.pick_device[0] = -1
        if row["gpus"] < 1 and len(decision.parts) > 1:
            raise self._refused(decision, f"it is one unit and cannot be in {len(decision.parts)} parts")
        total = 0.0
        for i, part in enumerate(decision.parts):
            n = self._node(decision, part.node, row)
            if n in self.state.pick_node[:i]:
                raise self._refused(decision, f"node {part.node} is named twice")
            self.state.pick_node[i] = n
            self.state.pick_units[i] = self._units(decision, part, row)
            if 0 < row["gpus"] < 1 and part.devices:
                self.state.pick_device[0] = self._device(decision, part, n, float(row["gpus"]))
            total += part.gpus
        if decision.parts and abs(total - row["gpus"]) > EPS:
            raise self._refused(decision, f"the parts have {total:g} GPUs, the job asks for {row['gpus']:g}")
        if row["benched"] != 0:
            raise self._refused(decision, "it is over a limit")
        row["silent"] = decision.silent
        self.state.control["given"] = 1 + decision.partition
        if self._driver.order(START, decision.job) != 1:
            raise self._refused(decision, "it does not fit now")

    def _node(self, decision: Decision, number: int, row: Any) -> int:
        """Where the kernels keep node `number`, which must be of the job's partition."""
        found = np.flatnonzero((self.state.nodes["number"] == number) & (self.state.nodes["partition"] == row["partition"]))
        if len(found) == 0:
            raise self._refused(decision, f"node {number} is not of its partition")
        return int(found[0])

    def _units(self, decision: Decision, part: Part, row: Any) -> int:
        if row["gpus"] < 1:
            return 1
        chunk = int(row["gpus"]) // int(row["units"])
        units, rest = divmod(part.gpus, chunk)
        if units < 1 or rest != 0:
            raise self._refused(decision, f"{part.gpus:g} GPUs on node {part.node} are not a multiple of its chunk, {chunk}")
        return int(units)

    def _device(self, decision: Decision, part: Part, n: int, share: float) -> int:
        """The device that a share asks for by number, if there is that much of it."""
        device, node = part.devices[0], self.state.nodes[n]
        free = 0.0
        if 0 <= device < node["gpus"] and node["first_device"] >= 0:
            if int(node["mask"]) >> device & 1:
                free = 1.0
            elif int(node["shared"]) >> device & 1:
                free = float(self.state.devices[node["first_device"] + device])
        if share > free + EPS:
            raise self._refused(decision, f"device {device} of node {part.node} has {free:g} of a GPU free")
        return device

    def _preempt(self, decision: Decision) -> None:
        row = self._row(decision, st.RUNNING)
        stops = self.state.terms["stops"][row["terms"]]
        if stops == MUST_RUN or (stops == MAY_STOP_ONCE and row["preemptions"] > 0):
            raise self._refused(decision, "its terms say that it may not be stopped")
        self._driver.make_log_space()
        self._driver.order(PREEMPT, decision.job)

    def _migrate(self, decision: Decision) -> None:
        self._preempt(decision)
        self._start(decision)
        self.state.control["migrations"] += 1

    def _hold(self, decision: Decision) -> None:
        self._row(decision, st.WAITING)

    def _row(self, decision: Decision, status: int) -> Any:
        if not 0 <= decision.job < len(self.state.rows):
            raise self._refused(decision, "the job does not exist")
        row = self.state.rows[decision.job]
        submitted = decision.job < self.state.control["next_job"][0]  # later rows are not filled yet
        if not submitted or row["status"] != status:
            raise self._refused(decision, "it is not waiting" if status == st.WAITING else "it is not running")
        return row

    def _refused(self, decision: Decision, why: str) -> SimulationError:
        return SimulationError(f"cannot {decision.action.value} job {decision.job} at {self.now:g} s: {why}")

    # ── the result ──

    def result(self) -> Result:
        """Return what has happened so far; it is complete after the end."""
        self._driver.order(FINISH)
        seconds = time.perf_counter() - self._began, self._deciding
        about = Ran(self.workload, self.cluster, self.seed, self.rules)
        return about.result(self.state, self.label, seconds, over=self._over)


_ACTIONS = {
    Action.START: Simulation._start,
    Action.PREEMPT: Simulation._preempt,
    Action.MIGRATE: Simulation._migrate,
    Action.HOLD: Simulation._hold,
}


def simulate(
    workload: Workload,
    cluster: Cluster,
    scheduler: AnyScheduler,
    seed: int = 0,
    *,
    rules: Rules | None = None,
    segments: bool = False,
) -> Result:
    """Run `workload` on `cluster` under `scheduler` to the end. `segments` keeps who held which devices when."""
    return simulate_many(workload, cluster, [scheduler], seed, rules=rules, segments=segments)[0]


def simulate_many(
    workload: Workload,
    cluster: Cluster,
    schedulers: Iterable[AnyScheduler],
    seed: int = 0,
    *,
    rules: Rules | None = None,
    segments: bool = False,
) -> list[Result]:
    """Return what `simulate` returns for each scheduler, with the same bytes; runs of some hundred jobs take about two thirds of the time.

    Schedulers that are asked at every decision, simulations that make their own estimates, and those that bound keys run one by one.
    """
    given = list(schedulers)
    about = Ran(workload, cluster, checked_seed(seed), rules or Rules())
    ready = (
        {}
        if workload.predictor is not None or has_site(workload.jobs, cluster)
        else {k: each.program() for k, each in enumerate(given) if hasattr(each, "program")}
    )
    programs = {k: program for k, program in ready.items() if not takes_bounds(program, workload.jobs)}
    results = dict(zip(programs, run_together(about, list(programs.values()), segments=segments), strict=True))
    return [results[k] if k in results else _simulate_alone(about, each, segments=segments) for k, each in enumerate(given)]


def _simulate_alone(about: Ran, scheduler: AnyScheduler, *, segments: bool) -> Result:
    workload, cluster, seed, rules = about.workload, about.cluster, about.seed, about.rules
    if hasattr(scheduler, "program"):
        simulation = Simulation(workload, cluster, scheduler.program(), seed=seed, rules=rules, segments=segments)
        simulation.run()
        return simulation.result()
    label = str(getattr(scheduler, "label", type(scheduler).__name__))
    decider: HasDecide = scheduler.begin() if hasattr(scheduler, "begin") else scheduler
    every = float(getattr(scheduler, "every", 0.0))
    half_life = float(getattr(scheduler, "half_life", HALF_LIFE))
    simulation = Simulation(
        workload, cluster, label=label, seed=seed, rules=rules, segments=segments, every=every, half_life=half_life,
    )  # fmt: skip
    while (snapshot := simulation.advance()) is not None:
        simulation.apply(decider.decide(snapshot))
    result = simulation.result()
    told: dict[str, Any] = {"decider": dict(decider.report())} if hasattr(decider, "report") else {}
    told |= {"chosen": list(decider.chosen)} if hasattr(decider, "chosen") else {}
    return replace(result, manifest=MappingProxyType({**result.manifest, **told})) if told else result
