"""Run whole episodes on several threads, with a network in the place of the open decision: only the outcome counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.compiler.entry import run_step
from gpuyard.engine.compiler.jit import INTERPRETED
from gpuyard.engine.driver import Driver
from gpuyard.engine.kernels.events import FINISHED, PAUSED, PREPARE, RUN
from gpuyard.engine.memory import header_of
from gpuyard.engine.slots import Program
from gpuyard.envs.base import Instance
from gpuyard.envs.kernels import COPY, kernels
from gpuyard.envs.opened import Opened, own_states, plans, pristine_state, scale_of
from gpuyard.envs.threads import map_on_threads
from gpuyard.networks.network import Network


def closed_program(opened: Opened, network: Network) -> Program:
    """Return the program with the network where the decision was left open."""
    networks = (*(each for each in opened.program.keep if isinstance(each, Network)), network)
    program = replace(opened.program, scratch=max(each.state_scratch for each in networks), keep=networks)
    return opened.decision.closed(program, network, opened)


class Rollouts:
    """Episodes that can be run again and again with other networks of one shape."""

    def __init__(self, opened: Opened, episodes: Sequence[Instance], like: Network, *, threads: int = 2) -> None:
        self._opened = opened
        self._program = closed_program(opened, like)
        self._pool = [pristine_state(opened, *episode, closed=self._program) for episode in episodes]
        self._headers = [int(header.ctypes.data) for _, header in self._pool]
        self._ids = [episode[0].jobs.id for episode in episodes]
        self._scales = np.array([scale_of(opened, *episode) for episode in episodes]).reshape(-1, 2)
        self._plans = plans()
        self._plans[st.State._fields.index("slots"), 0] = COPY  # each has another network
        self._threads = max(threads, 1)
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        for state in own_states(self._pool, self._plans, 1, self._threads):
            self._idle.put(_Worker(state))
        self.asked = 0  # how often networks were asked in all

    def __len__(self) -> int:
        return len(self._pool)

    def returns(self, networks: Sequence[Network], episodes: Sequence[int]) -> Array:
        """Return (networks, episodes): what each earns in each episode, without terms that are counted per choice."""
        tasks = [(network, episode) for network in networks for episode in episodes]
        found = map_on_threads(lambda task: self._run(*task), tasks, self._threads)
        self.asked += sum(asked for _, asked in found)
        return np.array([value for value, _ in found]).reshape(len(networks), len(episodes))

    def _run(self, network: Network, episode: int) -> tuple[float, int]:
        worker = self._idle.get()
        try:
            kernels().put_back(worker.address, self._headers[episode], self._plans.ctypes.data, len(self._plans))
            self._opened.decision.use(worker.state, network.address)
            run_step(worker.handle, PREPARE)
            status = PAUSED
            while status == PAUSED:
                status = run_step(worker.handle, RUN)
            if status != FINISHED:
                raise Driver(worker.state, self._program.label, self._ids[episode]).failure(status)
            scale, bonus = self._scales[episode]
            return self._opened.objective.earned(worker.state) * scale + bonus, int(worker.state.control["asked"][0])
        finally:
            self._idle.put(worker)


class _Worker:
    """The memory of one simulation."""

    def __init__(self, state: st.State) -> None:
        self.state = state
        self.header = header_of(state)
        self.address = int(self.header.ctypes.data)
        self.handle: Any = state if INTERPRETED else self.address
