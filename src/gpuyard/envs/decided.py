"""Environments in which a decider, such as a solver, places the jobs that an agent orders.

A decider builds on a scheduler that it asks who starts. Here that scheduler's ordering is left open. Each episode is a simulation in a
thread of its own, which stops wherever the ordering is asked, so that a decider decides as in any simulation. An agent that chooses as a
network does gets the result of `DECIDER(NETWORK/PLACEMENT/BACKFILL)`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numba import from_dtype, types

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.build import as_seen_by_kernels
from gpuyard.engine.compiler.jit import entry
from gpuyard.engine.compiler.pointer import state_at
from gpuyard.engine.compiler.sources import source_hash
from gpuyard.engine.compiler.vectors import ints_at
from gpuyard.engine.decide import SnapshotDecider
from gpuyard.engine.kernels.events import DECIDE, FINISHED, PASS
from gpuyard.engine.kernels.open import LEGAL
from gpuyard.engine.simulation import Simulation
from gpuyard.envs.base import Instance
from gpuyard.envs.kernels import SETUP, SLOT, WEIGHT_ROW, choose, clear_sums, observe, pay, potential_of
from gpuyard.envs.opened import Opened, scale_of
from gpuyard.envs.threads import map_on_threads
from gpuyard.envs.vector import EngineEnvs
from gpuyard.model.decision import Decision
from gpuyard.model.result import Result
from gpuyard.model.snapshot import Snapshot
from gpuyard.networks.network import Network
from gpuyard.policies import Decider, Scheduler
from gpuyard.policies.learned import network_ordering

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Ints, Vector
    from gpuyard.envs.kernels import EnvRow, SetupRow, WeightRow

Ask = Callable[["AskingDecider"], None]


class AskingDecider(SnapshotDecider):
    """Runs passes in which `ask` is called wherever a job is to be chosen; the choice is then in `control`."""

    def __init__(self, opened: Opened, ask: Ask) -> None:
        super().__init__(opened.program)
        self._opened, self._ask = opened, ask
        self._walks_on = False
        self._asked: dict[int, int] = {}  # partition → the job chosen last while none was passed

    @property
    def address(self) -> int:
        """Return where compiled code finds the state now."""
        return int(self._driver.header.ctypes.data)

    def _build(self, snapshot: Snapshot) -> None:
        super()._build(snapshot)
        s = self.state.replace(
            legal=np.zeros(self._opened.window, np.int32), shadow_nodes=np.zeros(len(self.state.nodes), st.NODE_ROW),
            shadow_devices=np.zeros(len(self.state.devices)),
        )  # fmt: skip
        s.control["open"], s.control["window"] = self._opened.decision.code, self._opened.window
        self._opened.decision.prepare(s.control, self._opened)
        self._driver.adopt(as_seen_by_kernels(s))

    def _make_pass(self) -> None:
        self._asked.clear()
        while self._driver.order(PASS) == DECIDE:
            self._ask(self)
            control = self.state.control[0]
            if control["open_head"] < 0:
                self._asked[int(control["open_part"])] = int(control["choice"])

    def _head_of(self, p: int) -> list[int]:
        """Return the job that was chosen and did not fit. Where the pass ended because no job fits, ask which of them comes first."""
        chosen = self._asked.get(p, -1)
        if chosen >= 0 and self.state.rows["status"][chosen] == st.WAITING:
            return [chosen]
        part, control = self.state.partitions[p], self.state.control
        waiting = min(int(part["tail"] - part["head"]), self._opened.window)
        if waiting < 2:
            return super()._head_of(p)
        control["open_part"], control["open_head"] = p, -1
        self.state.legal[:waiting] = LEGAL
        self._ask(self)
        chosen, control["choice"] = int(control["choice"][0]), -1
        return [chosen]


@dataclass(frozen=True)
class AskingScheduler(Scheduler):
    """A scheduler whose ordering is left open, as a decider may build on it."""

    opened: Opened = field(kw_only=True)
    ask: Ask = field(kw_only=True)

    def begin(self) -> SnapshotDecider:
        return AskingDecider(self.opened, self.ask)

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        return self.begin().decide(snapshot)


class _AbandonedError(BaseException):
    """Ends the thread of an episode that nobody goes on with."""


def _simulation(decider: Decider, opened: Opened, instance: Instance) -> Simulation:
    every, half_life = decider.every, decider.half_life
    return Simulation(
        *instance, label=decider.label, rules=opened.rules, segments=opened.recorded, every=every, half_life=half_life, tallying=True
    )


class _Episode:
    """A simulation in a thread of its own, which waits wherever its decider wants a job chosen. `turns` limits how many work at a time."""

    def __init__(self, decider: Decider, opened: Opened, instance: Instance, turns: threading.Semaphore) -> None:
        assert isinstance(decider.inner, Scheduler)
        slots = {name: getattr(decider.inner, name) for name in ("ordering", "placement", "backfill", "preemption")}
        self._decider = replace(decider, inner=AskingScheduler(**slots, opened=opened, ask=self._ask))
        self.simulation = _simulation(decider, opened, instance)
        self.asking: AskingDecider | None = None  # at a choice: whose state is seen; None: the episode is over
        self._error: BaseException | None = None
        self._abandoned = False
        self._turns, self._go, self._stopped = turns, threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, name=f"episode of {decider.label}", daemon=True).start()

    def go_on(self) -> None:
        """Let it run to its next choice or its end; `await_choice` waits for that."""
        self._go.release()

    def await_choice(self) -> None:
        self._stopped.acquire()
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """End the thread, which waits or has ended."""
        self._abandoned = True
        self._go.release()

    def _run(self) -> None:
        try:
            self._wait_for_turn()
            decider = self._decider.begin()
            while (snapshot := self.simulation.advance()) is not None:
                self.simulation.apply(decider.decide(snapshot))
        except _AbandonedError:
            return
        except BaseException as error:  # raised again where it is waited for
            self._error = error
        self.asking = None
        self._turns.release()
        self._stopped.release()

    def _wait_for_turn(self) -> None:
        self._go.acquire()
        if self._abandoned:
            raise _AbandonedError
        self._turns.acquire()

    def _ask(self, asking: AskingDecider) -> None:
        self.asking = asking
        self._turns.release()
        self._stopped.release()
        self._wait_for_turn()


class DecidedEnvs(EngineEnvs):
    """Environments with an open ordering whose jobs a decider places. A step takes as long as the decider does: milliseconds of a solver.

    Where a decider has a time limit, and strikes it, results depend on the machine.
    """

    def __init__(
        self, opened: Opened, source: Callable[[int], Instance], seeds: Sequence[int], count: int, decider: Decider, *, threads: int = 2
    ) -> None:
        super().__init__(opened, source, seeds, count, threads=1)
        self._decider, self._at_a_time = decider, threads
        self._turns = threading.Semaphore(threads)
        self._running: dict[int, _Episode] = {}  # by environment
        weakref.finalize(self, _abandon, self._running)

    def _begin_drawn(self, which: Array) -> int:
        for e in which.tolist():
            if e in self._running:
                self._running[e].abandon()
            drawn = int(self._slots["next"][e])
            self._running[e] = _Episode(self._decider, self.opened, self._made[drawn], self._turns)
            self._slots["scale"][e], self._slots["bonus"][e] = self._scales[drawn]
            for name in ("choices", "total", "illegal", "potential"):
                self._slots[name][e] = 0
        return self._go_on(which.tolist(), first=True)

    def _run(self) -> int:
        return self._choose_in(range(self.count), self._actions)

    def _step_alone(self, actions: Array, env: int) -> int:
        return self._choose_in([env], actions)

    def _choose_in(self, which: Sequence[int], actions: Array) -> int:
        for e in which:
            asking = self._running[e].asking
            assert asking is not None
            _compiled()[0](self._slots, self._setup, e, asking.address, int(actions[e]))
        return self._go_on(which, first=False)

    def _go_on(self, which: Sequence[int], *, first: bool) -> int:
        """Run to the next choices, with their observations and rewards; returns in how many environments there is none."""
        for e in which:
            self._running[e].go_on()
        for e in which:
            self._running[e].await_choice()
        over = 0
        for e in which:
            episode = self._running[e]
            seen = 0 if episode.asking is None else episode.asking.address
            _compiled()[1](self._slots, self._setup, self._weights, e, seen, episode.simulation.address, first)
            over += seen == 0
        return over

    def now(self, env: int) -> float:
        return self._running[env].simulation.now

    def state(self, env: int) -> st.State:
        asking = self._running[env].asking
        return self._running[env].simulation.state if asking is None else asking.state

    def result(self, env: int) -> Result:
        return self._running[env].simulation.result()

    def rollouts(self, like: Network, *, threads: int = 0) -> DecidedRollouts:
        """Return the same episodes, to be run as a whole with networks of the shape of `like`; 0 threads: as many as here."""
        return DecidedRollouts(self.opened, self._made, self._decider, threads=threads or self._at_a_time)


def _abandon(episodes: dict[int, _Episode]) -> None:
    for episode in episodes.values():
        episode.abandon()


class DecidedRollouts:
    """Episodes in which a decider builds on a scheduler whose ordering is a network."""

    def __init__(self, opened: Opened, episodes: Sequence[Instance], decider: Decider, *, threads: int) -> None:
        self._opened, self._episodes, self._decider, self._threads = opened, list(episodes), decider, max(threads, 1)
        self._scales = [scale_of(opened, *episode) for episode in episodes]
        self.asked = 0  # decisions of the decider in all

    def __len__(self) -> int:
        return len(self._episodes)

    def returns(self, networks: Sequence[Network], episodes: Sequence[int]) -> Array:
        """Return (networks, episodes): what each earns in each episode, without terms that are counted per choice."""
        assert isinstance(self._decider.inner, Scheduler)
        inner = [replace(self._decider.inner, ordering=network_ordering(network, "learned")) for network in networks]
        tasks = [(replace(self._decider, inner=each), episode) for each in inner for episode in episodes]
        found = map_on_threads(lambda task: self._run(*task), tasks, self._threads)
        self.asked += sum(asked for _, asked in found)
        return np.array([value for value, _ in found]).reshape(len(networks), len(episodes))

    def _run(self, decider: Decider, episode: int) -> tuple[float, int]:
        simulation = _simulation(decider, self._opened, self._episodes[episode])
        begun, asked = decider.begin(), 0
        while (snapshot := simulation.advance()) is not None:
            asked += 1
            simulation.apply(begun.decide(snapshot))
        scale, bonus = self._scales[episode]
        return self._opened.objective.earned(simulation.state) * scale + bonus, asked


@lru_cache(maxsize=1)
def _compiled() -> tuple[Callable[..., None], Callable[..., None]]:
    """Compile what is done with the states of a decider and of its simulation; the result is cached on disk."""
    source = source_hash(__name__)
    slots, setup, weights = from_dtype(SLOT)[::1], from_dtype(SETUP)[::1], from_dtype(WEIGHT_ROW)[::1]

    @entry(types.void(slots, setup, types.int64, types.int64, types.int64))
    def choose_at(slots: Vector[EnvRow], setups: Vector[SetupRow], e: Int, seen: Int, action: Int) -> None:
        """Make an action the choice of the state at the address `seen`."""
        if source != 0:  # never 0; part of the cache's key
            slot = slots[e]
            trail: Ints = ints_at(slot.trail, slot.choices + 1)
            trail[slot.choices] = choose(state_at(seen), slot, setups[0], action)
            slot.choices += 1
            slot.ended = 0

    @entry(types.void(slots, setup, weights, types.int64, types.int64, types.int64, types.boolean))
    def arrive_at(
        slots: Vector[EnvRow], setups: Vector[SetupRow], weights: Vector[WeightRow], e: Int, seen: Int, run: Int, first: bool
    ) -> None:
        """Observe the state at the address `seen` (0: the episode is over), and pay what happened in the simulation at `run`."""
        if source != 0:
            slot, s = slots[e], state_at(run)
            slot.status = DECIDE if seen != 0 else FINISHED
            if seen != 0:
                observe(state_at(seen), slot, setups[0])
            if not first:
                pay(s, slot, setups[0], weights[0], seen == 0)
            else:
                clear_sums(s.tally[0])
                if setups[0].shaping != 0.0 and seen != 0:
                    slot.potential = setups[0].shaping * potential_of(s, setups[0], weights[0])

    return choose_at, arrive_at
