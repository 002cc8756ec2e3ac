"""A simulation with one decision left open: which decision it is, and the states of the engine that wait at it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.build import build_state
from gpuyard.engine.driver import Driver
from gpuyard.engine.kernels.events import FINISHED, PREPARE, RUN
from gpuyard.engine.memory import DTYPES, header_of
from gpuyard.engine.site import has_site
from gpuyard.engine.slots import BACKFILLS, Program, Slot
from gpuyard.envs.kernels import COPY, KEEP, LENGTH, SHARE
from gpuyard.envs.reward import OBJECTIVES, Objective
from gpuyard.errors import UsageError
from gpuyard.features.schema import Schema
from gpuyard.model.cluster import Cluster
from gpuyard.model.rules import Rules
from gpuyard.model.workload import Workload
from gpuyard.networks.network import Network
from gpuyard.policies import Meta, Scheduler

# How the fields of a state are brought back for a new episode; those not named have contents that last no longer than a pass.
_SHARED = (
    "table", "runtime", "speed", "type_rank", "allowed", "mix", "mix_at", "partition_of", "qos_factor", "slots", "params", "terms",
    "partition_factor", "pair_at", "pairs", "members",
)  # fmt: skip
_COPIED = (
    "control", "nodes", "partitions", "parts", "devices", "types", "fragment", "users", "recent_work", "outages", "free_index", "history",
    "tally", "rank_table", "burden",
)  # fmt: skip
_KEPT = (
    "bins", "timeline", "log", "system", "legal", "scratch", "notes", "plan_time", "plan_used", "plan_free", "plan_cells",
    "host_sums", "outputs",
)  # fmt: skip

CACHE_LINE = 64  # bytes


class OpenDecision(ABC):
    """A place at which the engine stops for a choice. Each kind of environment on the engine has one, in its folder."""

    code: int  # of gpuyard.engine.state.OPEN_*
    schema: Schema  # what is seen before a choice
    marks_nodes = False  # whether actions are nodes, which a picture then marks

    @abstractmethod
    def rows(self, opened: Opened, nodes: int) -> int:
        """Return how many rows an observation has; 0: the actions are the program's schedulers."""

    def check(self, slots: Sequence[Slot]) -> None:  # noqa: B027 - most things can be done
        """Refuse what the engine cannot do while this decision is open."""

    def prepare(self, control: Array, opened: Opened) -> None:  # noqa: B027 - nothing, unless overridden
        """Set up a state that will stop here."""

    @abstractmethod
    def closed(self, program: Program, network: Network, opened: Opened) -> Program:
        """Return the program in which a network makes the decision."""

    @abstractmethod
    def use(self, state: st.State, address: int) -> None:
        """Let a state of such a program use the network at another address."""

    @abstractmethod
    def question(self, legal: int, active: str) -> str:
        """Say in a picture what can be chosen: `legal` actions; `active` is the scheduler in use."""

    def first_shown(self, s: st.State, queue: Array) -> int:
        """Return the position in the queue at which a picture begins."""
        return 0

    def offers(self, s: st.State, position: int, job: int) -> bool:
        """Return whether the job at this position of the queue is up for choice."""
        return False


def refuse_depth(slots: Sequence[Slot]) -> None:
    """Refuse a limit to how far backfilling looks."""
    if any(slot.depth for slot in slots):
        raise UsageError("with the ordering or the placement left open backfill has no depth", hint="a trained policy runs with one")


@dataclass(frozen=True)
class Opened:
    """A decision, the program it is left open in, and how choices are rewarded."""

    decision: OpenDecision
    program: Program  # what decides about everything else
    window: int = 128  # waiting jobs that an open ordering chooses from
    every: float = 0.0  # s between the choices of an open switch; 0: at every pass
    objective: Objective = field(default_factory=lambda: OBJECTIVES["bsld"])
    shaping: float = 0.0  # weight of the potential that spreads the reward over time; 0: none
    foresight: bool = False  # the potential is what can no longer be avoided, not what has happened
    gamma: float = 1.0  # of the learner; the potential's part needs it
    baseline: Scheduler | Meta | None = None  # rewards are shares of what it pays in the same episode
    bonus: bool = True  # with a baseline: its share is added at the episode's end, which the agent may not see coming
    rules: Rules = field(default_factory=Rules)
    recorded: bool = False  # the timeline and who held which devices are kept, for results and pictures

    def __post_init__(self) -> None:
        if not 1 <= self.window <= 100_000:
            raise UsageError(f"window = {self.window} does not lie in 1..100,000")
        if not 0 < self.gamma <= 1:
            raise UsageError(f"gamma = {self.gamma} does not lie in (0, 1]")
        if any(slot.backfill == BACKFILLS["conservative"] for slot in self.program.slots):
            raise UsageError("environments have no conservative backfilling", hint="none, skip or easy")
        self.decision.check(self.program.slots)


def pristine_state(opened: Opened, workload: Workload, cluster: Cluster, closed: Program | None = None) -> tuple[st.State, Array]:
    """Build a state at its beginning, and its header. `closed`: the program of a state in which nothing is left open."""
    s = build_state(
        workload.jobs, workload.runtime, cluster, closed or opened.program, 0, opened.rules,
        segments=opened.recorded, timeline=opened.recorded, predictor=workload.predictor,
    )  # fmt: skip
    if has_site(workload.jobs, cluster):
        raise UsageError(f"{workload.name}: environments know no limits, and no conditions of jobs")
    if s.partitions["shared"].any():
        raise UsageError(f"cluster {cluster.name}: environments know no partitions that share nodes or jobs")
    control = s.control
    control["open"] = st.OPEN_NONE
    control["window"] = opened.window
    control["tallying"] = 1
    if closed is None:
        control["open"] = opened.decision.code
        opened.decision.prepare(control, opened)
    s = s.replace(
        running_jobs=np.empty(len(s.rows), np.int32),
        running_ends=np.empty(len(s.rows)),
        shadow_nodes=np.zeros(len(s.nodes), st.NODE_ROW),
        shadow_devices=np.zeros(len(s.devices)),
    )
    return s, header_of(s)


def scale_of(opened: Opened, workload: Workload, cluster: Cluster) -> tuple[float, float]:
    """Return what rewards of an episode are multiplied by, and what is added at its end."""
    if opened.baseline is None:
        return (1.0 / max(len(workload), 1) if opened.objective.per_job else 1.0), 0.0
    s = build_state(
        workload.jobs, workload.runtime, cluster, opened.baseline.program(), 0, opened.rules,
        segments=False, timeline=False, predictor=workload.predictor,
    )  # fmt: skip
    s.control["tallying"] = 1
    driver = Driver(s, opened.baseline.label, workload.jobs.id)
    driver.order(PREPARE)
    while driver.order(RUN) != FINISHED:
        pass
    paid = opened.objective.earned(s)
    share = float(opened.bonus) * (1.0 if paid < 0 else -1.0)
    return (1.0 / abs(paid), share) if paid else (1.0, 0.0)


def plans(*, midway: bool = False) -> Array:
    """Return (fields, 2): how each field of a state is brought back, and the bytes of an item; see gpuyard.envs.kernels.

    `midway`: brought into a state between two choices, not to the beginning of an episode; both have the same room.
    """
    found = np.zeros((len(st.State._fields), 2), np.int64)
    for f, name in enumerate(st.State._fields):
        how = SHARE if name in _SHARED else COPY if midway or name in _COPIED else KEEP if name in _KEPT else LENGTH
        found[f] = how, np.dtype(DTYPES[name]).itemsize
    return found


def own_states(pool: Sequence[tuple[st.State, Array]], plans: Array, window: int, count: int) -> list[st.State]:
    """Make states with room for every episode of the pool, in one piece of memory: the system backs it with few, large pages."""
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
    """Lay out one state. Arrays begin at cache lines, so that a waiting job is read from one line, not two."""
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
