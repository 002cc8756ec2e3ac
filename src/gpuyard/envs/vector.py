"""N simulations with one decision left open, stepped in one compiled call on several threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.build import build_state
from gpuyard.engine.compiler.entry import engine_address
from gpuyard.engine.compiler.pointer import header_of
from gpuyard.engine.driver import Driver
from gpuyard.engine.kernels.events import DECIDE, FINISH, FINISHED, GROW_LOG, PREPARE, RUN
from gpuyard.engine.simulation import result_of
from gpuyard.engine.slots import BACKFILLS, Program
from gpuyard.envs.base import Observation, Step, check_actions, no_episode
from gpuyard.envs.crew import Crew
from gpuyard.envs.kernels import COPY, KEEP, LENGTH, SETUP, SHARE, SLOT, kernels
from gpuyard.envs.reward import OBJECTIVES, Objective
from gpuyard.errors import NoChoiceError, UsageError
from gpuyard.features import hosts, jobs, system
from gpuyard.features.schema import Schema
from gpuyard.metrics import measure
from gpuyard.model.cluster import Cluster
from gpuyard.model.result import Result
from gpuyard.model.rules import Rules
from gpuyard.model.workload import Workload
from gpuyard.networks.network import Network
from gpuyard.policies import Meta, Scheduler

if TYPE_CHECKING:
    from gpuyard.envs.rollout import Rollouts

Episode = tuple[Workload, Cluster]

# How the fields of a state are brought back for a new episode; those not named have contents that last no longer than a pass.
_SHARED = ("table", "runtime", "speed", "type_rank", "allowed", "mix", "mix_at", "partition_of", "qos_factor", "slots", "params")
_COPIED = (
    "control", "nodes", "partitions", "parts", "devices", "types", "fragment", "users", "outages", "free_index", "history", "tally",
)  # fmt: skip
_KEPT = (
    "bins",
    "log",
    "system",
    "legal",
    "scratch",
    "notes",
    "plan_time",
    "plan_used",
    "plan_free",
    "plan_cpus",
    "plan_memory",
    "host_sums",
    "outputs",
)
_SCHEMAS = {st.OPEN_ORDERING: jobs.JOB, st.OPEN_PLACEMENT: hosts.HOST, st.OPEN_SWITCH: system.SWITCH}

CACHE_LINE = 64  # bytes
_NONE = np.empty(0, np.int32)


@dataclass(frozen=True)
class Opened:
    """Which decision is left open, in what."""

    decision: int  # of gpuyard.engine.state.OPEN_*
    program: Program  # what decides about everything else
    window: int = 128  # waiting jobs that an open ordering chooses from
    every: float = 0.0  # s between the choices of an open switch; 0: at every pass
    objective: Objective = field(default_factory=lambda: OBJECTIVES["bsld"])
    shaping: float = 0.0  # weight of the potential that spreads the reward over time; 0: none
    gamma: float = 1.0  # of the learner; the potential's part needs it
    baseline: Scheduler | Meta | None = None  # rewards are shares of what it pays in the same episode
    bonus: bool = True  # with a baseline: its share is added at the end. It comes as a surprise where the end cannot be foreseen
    rules: Rules = field(default_factory=Rules)
    recorded: bool = False  # the timeline and who held which devices are kept, for results and pictures

    def __post_init__(self) -> None:
        if not 1 <= self.window <= 100_000:
            raise UsageError(f"window = {self.window} does not lie in 1..100,000")
        if not 0 < self.gamma <= 1:
            raise UsageError(f"gamma = {self.gamma} does not lie in (0, 1]")
        if any(slot.backfill == BACKFILLS["conservative"] for slot in self.program.slots):
            raise UsageError("environments have no conservative backfilling", hint="none, skip or easy")
        if self.decision == st.OPEN_PLACEMENT and any(slot.backfill == BACKFILLS["easy"] for slot in self.program.slots):
            raise UsageError("with the placement left open backfill is none or skip", hint="a trained placement runs with all of them")
        if self.decision == st.OPEN_ORDERING and any(slot.preemption for slot in self.program.slots):
            raise UsageError("with the ordering left open there is no preemption")
        if self.decision != st.OPEN_SWITCH and any(slot.depth for slot in self.program.slots):
            raise UsageError("with the ordering or the placement left open backfill has no depth", hint="a trained policy runs with one")


class EngineEnvs:
    """`count` environments over a pool of episodes; which episode comes next depends on (seed, environment, how many it has had).

    The pool is made once from `source(seed)` for each of `seeds`. Threads work on equal parts; the result does not depend on their number.
    """

    def __init__(self, opened: Opened, source: Callable[[int], Episode], seeds: Sequence[int], count: int, *, threads: int = 2) -> None:
        kernels()  # refuses to be interpreted
        self.opened = opened
        self.count = count
        self._numbers = list(seeds)
        self._made = [source(seed) for seed in seeds]
        self._pool = [pristine_state(opened, *episode) for episode in self._made]
        self._scales = np.array([scale_of(opened, *episode) for episode in self._made]).reshape(-1, 2)
        if not self._pool or count < 1:
            raise UsageError(f"{count} environments over {len(self._pool)} episodes: at least one of each")
        self._headers = np.array([header.ctypes.data for _, header in self._pool], np.int64)
        nodes = {len(s.nodes) for s, _ in self._pool}
        if opened.decision == st.OPEN_PLACEMENT and len(nodes) > 1:
            raise UsageError(f"episodes have {min(nodes)} to {max(nodes)} hosts: all environments of a batch need the same number")
        self.schema = self.schema_of(opened.decision)
        self._rows = {st.OPEN_ORDERING: opened.window, st.OPEN_PLACEMENT: max(nodes), st.OPEN_SWITCH: 0}[opened.decision]
        self.actions = self._rows or len(opened.program.slots)
        self._plans = plans()
        self._states = own_states(self._pool, self._plans, opened.window, count)
        self._own_headers = [header_of(s) for s in self._states]
        self._seed = 0
        self._episodes = np.zeros(count, np.int64)
        self._begun, self._all_open = False, False  # whether there was a reset; whether each is at a choice
        self._make_arrays()
        self._threads = min(threads, count)
        self._crew = self._make_crew() if self._threads > 1 else None

    @staticmethod
    def schema_of(decision: int) -> Schema:
        """What is seen before choices of that kind."""
        return _SCHEMAS[decision]

    def _make_arrays(self) -> None:
        count = self.count
        context = max(len(self.schema.context), system.CONTEXT)  # kernels take the longest for granted
        self._all_context = np.zeros((count, context), np.float32)
        self._observation = Observation(
            np.zeros((count, self._rows, len(self.schema.rows)), np.float32),
            self._all_context[:, : len(self.schema.context)],
            np.zeros((count, self.actions), bool),
        )
        self._actions = np.zeros(count, np.int32)
        self._reward = np.zeros(count, np.float32)
        self._done = np.zeros(count, bool)
        self._trails = np.zeros((count, 1024), np.int32)
        self._most_choices = 0  # no episode has had more
        self._slots = np.zeros(count, SLOT)
        self._slots["header"] = [header.ctypes.data for header in self._own_headers]
        for name, array in (("rows", self._observation.rows), ("context", self._all_context), ("mask", self._observation.mask)):
            self._slots[name] = array.ctypes.data + np.arange(count) * array.strides[0]
        self._point_to_trails()
        self._setup = np.zeros(1, SETUP)
        opened = self.opened
        values = {
            "engine": engine_address(), "open": opened.decision, "rows": self._rows, "actions": self.actions,
            "shaping": opened.shaping, "gamma": opened.gamma,
        }  # fmt: skip
        for name, value in values.items():
            self._setup[name] = value
        self._weights = opened.objective.vector()

    def _make_crew(self) -> Crew:
        help_out, given = kernels().help_out, (self._slots, self._setup, self._weights, self._actions)
        return Crew(self._threads - 1, lambda board: help_out(*given, board))

    def _point_to_trails(self) -> None:
        self._slots["trail"] = self._trails.ctypes.data + np.arange(self.count) * self._trails.strides[0]

    # ── episodes ──

    def reset(self, seed: int) -> Observation:
        """Begin the first episode of each."""
        self._seed = seed
        self._episodes[:] = 0
        self._begin(np.arange(self.count, dtype=np.int32))
        return self._observation

    def skip(self) -> Observation:
        """Leave the episodes as they are and begin the next ones."""
        self._episodes += 1
        self._begin(np.arange(self.count, dtype=np.int32))
        return self._observation

    def episode_of(self, env: int) -> int:
        """The number, in the pool, of the episode that an environment is in."""
        return int(np.random.default_rng([self._seed, env, int(self._episodes[env])]).integers(len(self._pool)))

    def now(self, env: int) -> float:
        """The clock of an environment, s."""
        return float(self._states[env].control["now"][0])

    def _begin(self, which: Array) -> None:
        """Begin episodes until each has one with a choice in it."""
        self._begun, self._all_open = True, False
        for _ in range(1000 if len(self._pool) > 1 else 1):
            episodes = [self.episode_of(int(e)) for e in which]
            pristine = self._headers[episodes]
            self._slots["scale"][which], self._slots["bonus"][which] = self._scales[episodes].T
            kernels().put_back(self._slots, which, pristine, self._plans)
            if self.opened.recorded:
                for e in which.tolist():
                    self._states[e].bins[:] = 0
            over = kernels().begin(self._slots, self._setup, self._weights, which)
            if over == 0 or self._with_log_space(over) == 0:
                self._all_open = bool((self._slots["status"] == DECIDE).all())
                return
            which = which[self._slots["status"][which] != DECIDE].astype(np.int32)
            self._check(which)
            self._episodes[which] += 1
        raise NoChoiceError(
            "episode after episode without a single choice", hint="the workload never keeps two jobs waiting: raise its load"
        )

    def _check(self, which: Array) -> None:
        for e in which.tolist():
            status = int(self._slots["status"][e])
            if status != FINISHED:
                state, _ = self._pool[self.episode_of(e)]
                raise Driver(self._states[e], self.opened.program.label, state.table["id"]).failure(status)

    def _with_log_space(self, over: int) -> int:
        """Where a log is full, make it larger and go on; returns how many environments, of `over`, are at no choice after that."""
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
        """Choose; where an episode is over, the next one has begun."""
        over = self.choose(actions)
        if len(over):
            self.begin_next(over)
        return Step(self._observation, self._reward, self._done)

    def begin_next(self, which: Array) -> None:
        """Begin the next episodes of the environments `which`, i4; their observations are then the first of these."""
        self._episodes[which] += 1
        self._begin(which)

    def choose(self, actions: Array) -> Array:
        """Choose, and begin no new episode: returns the environments that are at their ends. Their observations stay as they were."""
        check_actions(actions, self.count)
        if not self._all_open:
            raise self._nothing_open()
        self._actions[:] = actions  # a copy: those of a learner may be read-only
        self._make_room_for_a_choice()
        over = self._with_log_space(self._run())
        self._reward[:] = self._slots["reward"]
        self._done[:] = False
        if not over:
            return _NONE
        self._all_open = False
        which = np.flatnonzero(self._slots["status"] != DECIDE).astype(np.int32)
        self._check(which)
        self._done[which] = True
        return which

    def _nothing_open(self) -> UsageError:
        """Compiled code does not look whether there is something to choose."""
        if not self._begun:
            return no_episode()
        env = int(np.argmax(self._slots["status"] != DECIDE))
        return UsageError(f"environment {env} of {self.count}: the episode is over", hint="call reset, skip or begin_next first")

    def _make_room_for_a_choice(self) -> None:
        self._most_choices += 1
        if self._most_choices + 2 > self._trails.shape[1]:
            self._most_choices = int(self._slots["choices"].max())
        if self._most_choices + 2 > self._trails.shape[1]:
            self._trails = np.concatenate([self._trails, np.zeros_like(self._trails)], axis=1)
            self._point_to_trails()

    @property
    def reward(self) -> Array:
        """(envs,) f4, of the last choices."""
        return self._reward

    @property
    def observation(self) -> Observation:
        """What is seen now."""
        return self._observation

    @property
    def rows(self) -> int:
        """Of an observation; 0: it has none."""
        return self._rows

    # ── what is going on ──

    def episode(self, env: int) -> Episode:
        """The workload and the cluster that an environment is in."""
        return self._made[self.episode_of(env)]

    def number(self, env: int) -> int:
        """That of the episode that an environment is in, as it was given to the source."""
        return self._numbers[self.episode_of(env)]

    def facts(self, env: int) -> dict[str, float]:
        """At the end of an episode: the objective's metric under its name, `jobs`, `number`, `choices`, `illegal` choices, `return`."""
        metric = self.opened.objective.metric
        value = measure(self.result(env), [metric])[metric]
        return {metric: value, "jobs": len(self.episode(env)[0]), "number": self.number(env), **self.counts(env)}

    def exact_reward(self, env: int) -> float:
        """Of the last choice of an environment, before it was rounded to float32."""
        return float(self._slots["reward"][env])

    def counts(self, env: int) -> dict[str, float]:
        """Choices made in the episode that an environment is in, those that were not legal, and the rewards' sum."""
        slot = self._slots[env]
        return {"choices": int(slot["choices"]), "illegal": int(slot["illegal"]), "return": float(slot["total"])}

    @property
    def headers(self) -> Array:
        """(envs,) i8: where compiled code finds the simulations."""
        return self._slots["header"].copy()

    def state(self, env: int) -> st.State:
        """The simulation of an environment; the arrays are those it works on."""
        own, given = self._states[env], self._pool[self.episode_of(env)][0]
        shown = {}
        for (how, _), name in zip(self._plans.tolist(), st.State._fields, strict=True):
            array = getattr(given if how == SHARE else own, name)
            shown[name] = array if how in (SHARE, KEEP) else array[: len(getattr(given, name))]
        return st.State(**shown)

    def result(self, env: int) -> Result:
        """What has happened in an environment so far; with `recorded` also the timeline and who held which devices."""
        workload, cluster = self.episode(env)
        s = self.state(env)
        Driver(s, self.opened.program.label, workload.jobs.id).order(FINISH)
        return result_of(s, workload, cluster, self.opened.program.label, seed=0, manifest={"measured": False})

    def _run(self) -> int:
        if self._crew is None:
            return kernels().step(self._slots, self._setup, self._weights, self._actions, 0, self.count)
        self._crew.wake()
        return kernels().step_together(self._slots, self._setup, self._weights, self._actions, self._crew.board)

    def rollouts(self, like: Network, *, threads: int = 0) -> Rollouts:
        """The same episodes, to be run as a whole with networks of the shape of `like`; 0 threads: as many as here."""
        from gpuyard.envs.rollout import Rollouts

        return Rollouts(self.opened, self._made, like, threads=threads or self._threads)

    # ── saving: an episode is its number and the choices made in it ──

    def save(self) -> dict[str, Array]:
        """The seed, and for each environment its episode and its choices."""
        choices = self._slots["choices"]
        trail = [self._trails[e, : int(n)] for e, n in enumerate(choices)]
        return {
            "envs.seed": np.array([self._seed], np.int64),
            "envs.episodes": self._episodes.copy(),
            "envs.choices": choices.astype(np.int64),
            "envs.trail": np.concatenate(trail).astype(np.int32),
        }

    def restore(self, saved: dict[str, Array]) -> Observation:
        """Make the same choices again."""
        choices = saved["envs.choices"]
        if len(choices) != self.count:
            raise UsageError(f"saved with {len(choices)} environments, not {self.count}")
        self._seed = int(saved["envs.seed"][0])
        self._episodes[:] = saved["envs.episodes"]
        while self._trails.shape[1] < int(choices.max(initial=0)) + 2:
            self._trails = np.concatenate([self._trails, np.zeros_like(self._trails)], axis=1)
        self._point_to_trails()
        self._begin(np.arange(self.count, dtype=np.int32))
        self._most_choices = int(choices.max(initial=0))
        at = np.concatenate([[0], np.cumsum(choices)])
        actions = np.zeros(self.count, np.int32)
        for e in range(self.count):
            for action in saved["envs.trail"][at[e] : at[e + 1]].tolist():
                if self._slots["status"][e] != DECIDE:
                    self._all_open = False
                    raise UsageError(f"environment {e} of {self.count}: more choices were saved than its episode has")
                actions[e] = action
                self._with_log_space(kernels().step(self._slots, self._setup, self._weights, actions, e, e + 1))
        self._all_open = bool((self._slots["status"] == DECIDE).all())
        return self._observation


def pristine_state(opened: Opened, workload: Workload, cluster: Cluster) -> tuple[st.State, Array]:
    """A state at its beginning, and its header."""
    s = build_state(workload.jobs, workload.runtime, cluster, opened.program, 0, opened.rules, segments=opened.recorded)
    control = s.control
    control["open"] = opened.decision
    control["window"] = opened.window
    control["timeline"] = opened.recorded
    control["tallying"] = 1
    if opened.decision == st.OPEN_ORDERING:  # as where a network orders; with the others believed ends are revised as the program has it
        control["tracking"] = 1
    if opened.decision == st.OPEN_SWITCH:
        control["switch"] = 0
        control["switch_every"] = opened.every
        control["timer"] = opened.every or float(control["timer"][0])
    s = s.replace(
        running_jobs=np.empty(len(s.rows), np.int32),
        shadow_nodes=np.zeros(len(s.nodes), st.NODE_ROW),
        shadow_devices=np.zeros(len(s.devices)),
    )
    return s, header_of(s)


def scale_of(opened: Opened, workload: Workload, cluster: Cluster) -> tuple[float, float]:
    """What rewards of an episode are multiplied by, and what is added at its end."""
    if opened.baseline is None:
        return (1.0 / max(len(workload), 1) if opened.objective.per_job else 1.0), 0.0
    s = build_state(workload.jobs, workload.runtime, cluster, opened.baseline.program(), 0, opened.rules, segments=False)
    s.control["timeline"] = 0
    s.control["tallying"] = 1
    driver = Driver(s, opened.baseline.label, workload.jobs.id)
    driver.order(PREPARE)
    while driver.order(RUN) != FINISHED:
        pass
    paid = float(sum(opened.objective.weights.get(name, 0.0) * float(s.tally[name][0]) for name in s.tally.dtype.names or ()))
    share = float(opened.bonus) * (1.0 if paid < 0 else -1.0)
    return (1.0 / abs(paid), share) if paid else (1.0, 0.0)


def plans() -> Array:
    """(fields, 2) how each field of a state is brought back, and the bytes of an item: see gpuyard.envs.kernels."""
    found = np.zeros((len(st.State._fields), 2), np.int64)
    for f, name in enumerate(st.State._fields):
        how = SHARE if name in _SHARED else COPY if name in _COPIED else KEEP if name in _KEPT else LENGTH
        found[f] = how, np.dtype(st.DTYPES[name]).itemsize
    return found


def own_states(pool: Sequence[tuple[st.State, Array]], plans: Array, window: int, count: int) -> list[st.State]:
    """States with room for every episode of the pool, in one piece of memory: of large ones the system makes few, large pages."""
    given = {name: (int(how), getattr(pool[0][0], name)) for (how, _), name in zip(plans.tolist(), st.State._fields, strict=True)}
    given["legal"] = (KEEP, np.zeros(window, np.int32))
    sizes = {}
    for name, (how, array) in given.items():
        longest = len(array) if how == KEEP else max(len(getattr(s, name)) for s, _ in pool)
        sizes[name] = 0 if how == SHARE else -(-(longest * array.itemsize + 8) // CACHE_LINE) * CACHE_LINE  # copied in words of 8 bytes
    memory = np.empty((count, sum(sizes.values()) + CACHE_LINE), np.uint8)
    memory[:] = 0
    return [_own_state(given, sizes, memory[e]) for e in range(count)]


def _own_state(given: Mapping[str, tuple[int, Array]], sizes: Mapping[str, int], memory: Array) -> st.State:
    """Its arrays begin where cache lines do: what is looked at of a waiting job is one line then, not two."""
    arrays = {}
    at = -memory.ctypes.data % CACHE_LINE
    for name, (how, array) in given.items():
        own = memory[at : at + sizes[name] // array.itemsize * array.itemsize].view(array.dtype)
        at += sizes[name]
        if how == KEEP:
            own = own[: len(array)]
            own[:] = array
        arrays[name] = array if how == SHARE else own
    return st.State.of(**arrays)
