"""Step N simulations with one decision left open in one compiled call, on several threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.batch import result_of
from gpuyard.engine.compiler.entry import engine_address
from gpuyard.engine.driver import Driver
from gpuyard.engine.kernels.events import DECIDE, FINISH, FINISHED, GROW_LOG
from gpuyard.engine.memory import header_of
from gpuyard.envs.base import Instance, Judge, Observation, Step, check_actions, no_episode
from gpuyard.envs.kernels import KEEP, SETUP, SHARE, SLOT, kernels
from gpuyard.envs.opened import Opened, own_states, plans, pristine_state, scale_of
from gpuyard.envs.rollout import Rollouts
from gpuyard.envs.threads import HelperThreads
from gpuyard.errors import NoChoiceError, UsageError
from gpuyard.features import system
from gpuyard.features.schema import Schema
from gpuyard.metrics import measure
from gpuyard.model.estimator import fitted_before
from gpuyard.model.result import Result
from gpuyard.networks.network import Network

_NONE = np.empty(0, np.int32)


class EngineEnvs:
    """Step `count` environments over a pool of episodes; (seed, environment, episodes it has had) decide which episode comes next.

    The pool is made once from `source(seed)` for each of `seeds`. Threads work on equal parts; the result does not depend on their number.
    """

    def __init__(self, opened: Opened, source: Callable[[int], Instance], seeds: Sequence[int], count: int, *, threads: int = 2) -> None:
        kernels()  # refuses to be interpreted
        self.opened = opened
        self.count = count
        self._numbers = list(seeds)
        self._made = [(fitted_before(workload), cluster) for workload, cluster in map(source, seeds)]
        self._pool = [pristine_state(opened, *episode) for episode in self._made]
        self._scales = np.array([scale_of(opened, *episode) for episode in self._made]).reshape(-1, 2)
        if not self._pool or count < 1:
            raise UsageError(f"{count} environments over {len(self._pool)} episodes: at least one of each")
        self._headers = np.array([header.ctypes.data for _, header in self._pool], np.int64)
        nodes = {len(s.nodes) for s, _ in self._pool}
        if opened.decision.marks_nodes and len(nodes) > 1:
            raise UsageError(f"episodes have {min(nodes)} to {max(nodes)} hosts: all environments of a batch need the same number")
        self.schema: Schema = opened.decision.schema
        self.rows = opened.decision.rows(opened, max(nodes))  # of an observation; 0: it has none
        self.actions = self.rows or len(opened.program.slots)
        self._plans, self._fork_plans = plans(), plans(midway=True)
        self._states = own_states(self._pool, self._plans, opened.window, count)
        self._own_headers = [header_of(s) for s in self._states]
        self._seed = 0
        self._episodes = np.zeros(count, np.int64)
        self._begun, self._all_open = False, False  # whether there was a reset; whether each is at a choice
        self._make_arrays()
        self._threads = min(threads, count)
        help_out, given = kernels().help_out, (self._slots, self._setup, self._weights, self._actions)
        helping = self._threads > 1
        self._helpers = HelperThreads(self._threads - 1, lambda board: help_out(*given, board)) if helping else None

    def _make_arrays(self) -> None:
        count = self.count
        context = max(len(self.schema.context), system.CONTEXT)  # kernels take the longest for granted
        self._all_context = np.zeros((count, context), np.float32)
        self.observation = Observation(  # what is seen now
            np.zeros((count, self.rows, len(self.schema.rows)), np.float32),
            self._all_context[:, : len(self.schema.context)],
            np.zeros((count, self.actions), bool),
        )
        self._actions = np.zeros(count, np.int32)
        self.reward = np.zeros(count, np.float32)  # of the last choices
        self._done = np.zeros(count, bool)
        self._trails = np.zeros((count, 1024), np.int32)
        self._most_choices = 0  # no episode has had more
        self._slots = np.zeros(count, SLOT)
        self._slots["header"] = [header.ctypes.data for header in self._own_headers]
        for name, array in (("rows", self.observation.rows), ("context", self._all_context), ("mask", self.observation.mask)):
            self._slots[name] = array.ctypes.data + np.arange(count) * array.strides[0]
        self._place_trails()
        self._setup = np.zeros(1, SETUP)
        opened = self.opened
        values = {
            "engine": engine_address(), "open": opened.decision.code, "rows": self.rows, "features": len(self.schema.rows),
            "context": len(self.schema.context), "actions": self.actions, "shaping": opened.shaping, "foresight": opened.foresight,
            "gamma": opened.gamma, "pool": self._headers.ctypes.data,
            "scales": self._scales.ctypes.data, "episodes": len(self._headers),
            "plans": self._plans.ctypes.data, "fields": len(self._plans),
        }  # fmt: skip
        for name, value in values.items():
            self._setup[name] = value
        self._weights = opened.objective.row()

    def _widen_trails(self) -> None:
        """Make room for one choice more than the most that an episode has had, and for the next."""
        if self._most_choices + 2 > self._trails.shape[1]:
            while self._most_choices + 2 > self._trails.shape[1]:
                self._trails = np.concatenate([self._trails, np.zeros_like(self._trails)], axis=1)
            self._place_trails()

    def _place_trails(self) -> None:
        self._slots["trail"] = self._trails.ctypes.data + np.arange(self.count) * self._trails.strides[0]

    # ── episodes ──

    def reset(self, seed: int) -> Observation:
        """Begin the first episode of each environment."""
        if self.opened.objective.tail:
            what = f"objective {self.opened.objective.name}: it is known only when a whole episode has ended, and not by choice"
            raise UsageError(what, hint="take evolution, which runs whole episodes")
        return self._begin_all(seed, 0)

    def skip(self) -> Observation:
        """Abandon the current episodes and begin the next ones."""
        return self._begin_all(self._seed, self._episodes + 1)

    def _begin_all(self, seed: int, numbers: Array | int) -> Observation:
        """Begin the episode with this number in each environment."""
        everyone = np.arange(self.count, dtype=np.int32)
        self._seed = seed
        self._episodes[:] = numbers - 1
        self._draw_next(everyone)
        self._begin(everyone)
        return self.observation

    def episode_of(self, env: int) -> int:
        """Return the number, in the pool, of the episode that an environment is in."""
        return self._drawn(env, int(self._episodes[env]))

    def _drawn(self, env: int, number: int) -> int:
        """Return which of the pool is the episode that an environment has after `number` others."""
        return int(np.random.default_rng([self._seed, env, number]).integers(len(self._pool)))

    def _draw_next(self, which: Array) -> None:
        """Draw the episodes that come next in the environments `which`, so that compiled code can begin them."""
        self._slots["next"][which] = [self._drawn(e, n + 1) for e, n in zip(which.tolist(), self._episodes[which].tolist(), strict=True)]

    def now(self, env: int) -> float:
        """Return the clock of an environment, s."""
        return float(self._states[env].control["now"][0])

    def _begin(self, which: Array) -> None:
        """Begin the next episodes, and those after them, until each has one with a choice in it."""
        self._begun, self._all_open = True, False
        for _ in range(1000 if len(self._pool) > 1 else 1):
            over = self._with_log_space(self._begin_drawn(which))
            self._count_begun(which)
            if over == 0:
                self._all_open = bool((self._slots["status"] == DECIDE).all())
                return
            which = which[self._slots["status"][which] != DECIDE].astype(np.int32)
            self._check(which)
        raise NoChoiceError(
            "episode after episode without a single choice", hint="the workload never keeps two jobs waiting: raise its load"
        )

    def _begin_drawn(self, which: Array) -> int:
        """Begin the episodes that were drawn, up to the first choice; returns how many have none."""
        return kernels().begin(self._slots, self._setup, self._weights, which)

    def _count_begun(self, which: Array) -> None:
        self._episodes[which] += 1
        self._draw_next(which)

    def _check(self, which: Array) -> None:
        for e in which.tolist():
            status = int(self._slots["status"][e])
            if status != FINISHED:
                state, _ = self._pool[self.episode_of(e)]
                raise Driver(self._states[e], self.opened.program.label, state.table["id"]).failure(status)

    def _with_log_space(self, over: int) -> int:
        """Make full logs larger and go on; returns how many of the `over` environments are not at a choice after that."""
        while self.opened.recorded and over:
            which = np.flatnonzero(self._slots["status"] == GROW_LOG).astype(np.int32)
            if not len(which):
                return over
            for e in which.tolist():
                old, at = self._states[e].log, 2 * st.State._fields.index("log")
                log = np.zeros(2 * len(old) + int(self._states[e].control["parts_used"][0]), old.dtype)
                log[: len(old)] = old
                self._states[e] = self._states[e].replace(log=log)
                self._own_headers[e][at : at + 2] = log.ctypes.data, len(log)
            over += kernels().resume(self._slots, self._setup, self._weights, which) - len(which)
        return over

    # ── steps ──

    def step(self, actions: Array) -> Step:
        """Choose; where an episode ends, the next one begins."""
        if self._make_choices(actions, goes_on=not self.opened.recorded):  # where records are kept, full ones are seen to first
            begun = np.flatnonzero(self._slots["ended"])
            self._count_begun(begun)
            self._done[begun] = True
            over = self._without_choice()
            if len(over):
                self._done[over] = True
                self._begin(over)
        return Step(self.observation, self.reward, self._done)

    def begin_next(self, which: Array) -> None:
        """Begin the next episodes of the environments `which`, i4; their observations are then the first of these."""
        self._begin(which)

    def choose(self, actions: Array) -> Array:
        """Choose without beginning new episodes; returns the environments whose episodes ended. Their observations stay as they were."""
        if not self._make_choices(actions, goes_on=False):
            return _NONE
        over = self._without_choice()
        self._done[over] = True
        return over

    def _make_choices(self, actions: Array, *, goes_on: bool) -> int:
        """Choose in all environments, with rewards; returns in how many episodes ended. If it `goes_on`, the next ones have begun."""
        check_actions(actions, self.count)
        if not self._all_open:
            raise self._nothing_open()
        self._actions[:] = actions  # a copy: those of a learner may be read-only
        self._setup["goes_on"] = goes_on
        self._make_room_for_a_choice()
        over = self._with_log_space(self._run())
        self.reward[:] = self._slots["reward"]
        self._done[:] = False
        return over

    def _without_choice(self) -> Array:
        """Return the environments that are not at a choice; raise the error of one that failed."""
        which = np.flatnonzero(self._slots["status"] != DECIDE).astype(np.int32)
        self._all_open = not len(which)
        self._check(which)
        return which

    def _nothing_open(self) -> UsageError:
        """Explain why nothing can be chosen; compiled code does not check it."""
        if not self._begun:
            return no_episode()
        env = int(np.argmax(self._slots["status"] != DECIDE))
        return UsageError(f"environment {env} of {self.count}: the episode is over", hint="call reset, skip or begin_next first")

    def _make_room_for_a_choice(self) -> None:
        self._most_choices += 1
        if self._most_choices + 2 > self._trails.shape[1]:
            self._most_choices = int(self._slots["choices"].max())
        self._widen_trails()

    # ── what is going on ──

    def episode(self, env: int) -> Instance:
        """Return the workload and the cluster that an environment is in."""
        return self._made[self.episode_of(env)]

    def number(self, env: int) -> int:
        """Return the number that the source made the current episode of an environment from."""
        return self._numbers[self.episode_of(env)]

    def facts(self, env: int) -> dict[str, float]:
        """Describe an ended episode: the objective's metric under its name, `jobs`, `number`, `choices`, `illegal` choices, `return`."""
        metric = self.opened.objective.metric
        value = measure(self.result(env), [metric])[metric]
        return {metric: value, "jobs": len(self.episode(env)[0]), "number": self.number(env), **self.counts(env)}

    def exact_reward(self, env: int) -> float:
        """Return the reward of the last choice of an environment, before it was rounded to float32."""
        return float(self._slots["reward"][env])

    def counts(self, env: int) -> dict[str, float]:
        """Count the choices of the current episode of an environment and those that were not legal, and add up its rewards."""
        slot = self._slots[env]
        return {"choices": int(slot["choices"]), "illegal": int(slot["illegal"]), "return": float(slot["total"])}

    @property
    def headers(self) -> Array:
        """Return (envs,) i8: where compiled code finds the simulations."""
        return self._slots["header"].copy()

    def state(self, env: int) -> st.State:
        """Return the state of an environment's simulation; the arrays are those it works on."""
        own, given = self._states[env], self._pool[self.episode_of(env)][0]
        shown = {}
        for (how, _), name in zip(self._plans.tolist(), st.State._fields, strict=True):
            array = getattr(given if how == SHARE else own, name)
            shown[name] = array if how in (SHARE, KEEP) else array[: len(getattr(given, name))]
        return st.State.of(**shown)

    def result(self, env: int) -> Result:
        """Return what has happened in an environment so far; if `recorded`, with the timeline and which job held which devices."""
        workload, cluster = self.episode(env)
        s = self.state(env)
        Driver(s, self.opened.program.label, workload.jobs.id).order(FINISH)
        return result_of(s, workload, cluster, self.opened.program.label, seed=0, manifest={"measured": False})

    def _run(self) -> int:
        if self._helpers is None:
            return kernels().step(self._slots, self._setup, self._weights, self._actions, 0, self.count)
        self._helpers.wake()
        return kernels().step_together(self._slots, self._setup, self._weights, self._actions, self._helpers.board)

    def _step_alone(self, actions: Array, env: int) -> int:
        """Choose in one environment; returns whether it is not at a choice then."""
        return kernels().step(self._slots, self._setup, self._weights, actions, env, env + 1)

    # ── copies, in which every choice can be tried ──

    def branches(self, times: int) -> EngineEnvs:
        """Make a batch of `times` environments in a row for each of these, over the same episodes; see `fork`."""
        made = dict(zip(self._numbers, self._made, strict=True))
        return EngineEnvs(self.opened, made.__getitem__, self._numbers, times * self.count, threads=self._threads)

    def fork(self, given: EngineEnvs) -> None:
        """Bring every environment into the state of the one it is a branch of. Both then go on alike, if the same is chosen."""
        if not given._all_open:
            raise given._nothing_open()
        kernels().fork(self._slots, given._slots, self.actions, self._fork_plans.ctypes.data, len(self._fork_plans))
        self._begun = self._all_open = True

    def rollouts(self, like: Network, *, threads: int = 0) -> Judge:
        """Return the same episodes, to be run as a whole with networks of the shape of `like`; 0 threads: as many as here."""
        return Rollouts(self.opened, self._made, like, threads=threads or self._threads)

    # ── saving: an episode is its number and the choices made in it ──

    def save(self) -> dict[str, Array]:
        """Save the seed, and the episode and the choices of each environment."""
        choices = self._slots["choices"]
        trail = [self._trails[e, : int(n)] for e, n in enumerate(choices)]
        return {
            "envs.seed": np.array([self._seed], np.int64),
            "envs.episodes": self._episodes.copy(),
            "envs.choices": choices.astype(np.int64),
            "envs.trail": np.concatenate(trail).astype(np.int32),
        }

    def restore(self, saved: dict[str, Array]) -> Observation:
        """Restore the episodes by making the same choices again."""
        choices = saved["envs.choices"]
        if len(choices) != self.count:
            raise UsageError(f"saved with {len(choices)} environments, not {self.count}")
        self._most_choices = int(choices.max(initial=0))
        self._widen_trails()
        self._begin_all(int(saved["envs.seed"][0]), saved["envs.episodes"])
        at = np.concatenate([[0], np.cumsum(choices)])
        self._setup["goes_on"] = False
        actions = np.zeros(self.count, np.int32)
        for e in range(self.count):
            for action in saved["envs.trail"][at[e] : at[e + 1]].tolist():
                if self._slots["status"][e] != DECIDE:
                    self._all_open = False
                    raise UsageError(f"environment {e} of {self.count}: more choices were saved than its episode has")
                actions[e] = action
                self._with_log_space(self._step_alone(actions, e))
        self._all_open = bool((self._slots["status"] == DECIDE).all())
        return self.observation
