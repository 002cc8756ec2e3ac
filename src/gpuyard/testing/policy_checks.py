"""Checks a user's policy: it compiles, is pure, returns numbers, and the same numbers compiled and interpreted."""

from __future__ import annotations

import ctypes
import inspect
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.compiler.compile import compile_keys, compile_scores, compile_switch, parameters_of
from gpuyard.engine.compiler.jit import INTERPRETED
from gpuyard.engine.compiler.shown import JOBS, NODES, SYSTEM, Shown, header_for, job_parts
from gpuyard.engine.compiler.vetting import try_out
from gpuyard.engine.state import NODE_ROW, PARAMS, SYSTEM_ROW, VISIBLE_NAMES, VISIBLE_ROW
from gpuyard.errors import GpuyardError
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.jobs import COLUMNS
from gpuyard.model.workload import Workload
from gpuyard.policies import ORDERINGS, Meta, Ordering, Scheduler, make_ordering, make_placement, make_switch, parse_slots
from gpuyard.policies.schedulers import make_decider
from gpuyard.policies.slots import reads_clock
from gpuyard.traces import load_workload

Function = Callable[..., Any]
Params = Mapping[str, float]

WORKLOADS = ("demo:jobs=150", "family:horizon=2h,variant=gang", "family:horizon=2h,variant=hetero")
CLUSTER = "hetero-demo"
ROUNDING = 1e-9  # relative: beyond it two answers are different, below it differently rounded
TIMED = 20_000  # jobs whose keys are timed
JOB = 0  # the job for which placements score
LONGEST = 300  # characters of a finding: a compiler's message may fill pages
OK, FAILED, INFO = "ok", "failed", "info"


@dataclass(frozen=True)
class Finding:
    """One check of one policy: `state` is ok, failed or info."""

    policy: str
    check: str
    state: str
    text: str = ""


@dataclass(frozen=True)
class Moment:
    """A moment at which a policy is asked: jobs, nodes, the system, the clock."""

    workload: Workload
    jobs: tuple[Array, ...]  # as gpuyard.engine.compiler.shown.JOB_PARTS
    nodes: Array
    system: Array
    now: float

    @property
    def bytes(self) -> list[bytes]:
        return [array.tobytes() for array in (*self.jobs, self.nodes, self.system)]


@dataclass(frozen=True)
class PolicyKind:
    """How one kind of policy is called, once for every subject (job, node or system) of a moment."""

    name: str
    arguments: tuple[str, ...]
    compile: Callable[..., int]
    subjects: Callable[[Moment], int]
    ask: Callable[[Function, Moment, int], Any]  # interpreted
    ask_all: Callable[[int, Moment, Params], Array]  # compiled: its address, moment, parameters → answers
    what: Callable[[Moment, int], str]  # the subject, for a message
    simulated: Callable[[Function, str], Scheduler | Meta]


def kind_of(function: Function) -> PolicyKind | None:
    """Return the kind of policy by the names of the first arguments; None if it is not a policy."""
    try:
        names = tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None
    return next((kind for kind in KINDS if names[: len(kind.arguments)] == kind.arguments), None)


def check_policy(function: Function, name: str, kind: PolicyKind) -> list[Finding]:
    """Run the checks and return the findings in order; skip checks that a failed one makes meaningless."""
    findings: list[Finding] = []

    def note(check: str, state: str, text: str = "") -> None:
        one_line = " ".join(text.split())
        findings.append(Finding(name, check, state, one_line if len(one_line) <= LONGEST else one_line[: LONGEST - 1] + "…"))

    try:
        params = parameters_of(function, len(kind.arguments))
        address = kind.compile(function, len(params))
    except GpuyardError as error:
        note("compiles", FAILED, str(error))
        return findings
    note("compiles", OK, f"as {kind.name}" + (f" with {', '.join(f'{k}={v:g}' for k, v in params.items())}" if params else ""))
    if kind.name == "ordering or preemption rule":
        like = make_ordering(function, function.__name__)
        note("clock", INFO, f"{'read' if like.reads_clock else 'not read'}: {like.keyed}")
    try:
        try_out(function, len(kind.arguments))
    except GpuyardError as error:
        note("pure" if "asked twice" in str(error) else "answers", FAILED, str(error))
        return findings
    moments = _moments()
    answers, trouble = _interpreted(function, kind, moments)
    for check, text in trouble.items():
        note(check, FAILED if text else OK, text)
    if not any(trouble.values()):
        infinite = sum(int(np.isinf(a).sum()) for a in answers)
        note("finite", INFO if infinite else OK, f"{infinite:,} answers are infinite: their jobs go by submit" if infinite else "")
        note("compiled = interpreted", *_same_compiled(address, kind, moments, answers, params))
        note("simulates", *_simulates(function, name, kind))
        note("speed", INFO, _speed(address, kind, function, params))
    return findings


def check_decider(make: type, name: str) -> list[Finding]:
    """Run a class with `decide(snapshot)` through the generated workloads, twice: it must not fail, and do the same again."""
    from gpuyard.engine.simulation import simulate

    try:
        decider, cluster, total = make_decider(make, name), load_cluster(CLUSTER), 0
        results = []
        for text in WORKLOADS:
            workload = load_workload(text, 0)
            results = [simulate(workload, cluster, decider, segments=True) for _ in range(2)]
            total += len(workload)
            if not results[0].same_bytes(results[1]):
                return [Finding(name, "repeatable", FAILED, f"{text}: two runs of the same workload differ")]
    except GpuyardError as error:
        return [Finding(name, "simulates", FAILED, " ".join(str(error).split())[:LONGEST])]
    done = f"as a decider: {total:,} jobs of {len(WORKLOADS)} generated workloads"
    return [Finding(name, "simulates", OK, done), Finding(name, "repeatable", OK, "the same again, byte for byte")]


def _moments() -> list[Moment]:
    """Make two moments of each workload: before anything ran, and later with made-up progress."""
    cluster = load_cluster(CLUSTER)
    found = []
    for text in WORKLOADS:
        workload = load_workload(text, 0)
        for late in (False, True):
            now = float(workload.jobs.submit[-1]) * (2.0 if late else 1.0)
            system = np.zeros(1, SYSTEM_ROW)
            for k, field in enumerate(SYSTEM_ROW.names or ()):
                system[field] = (k + 1.0) * (50.0 if late else 1.0)
            found.append(Moment(workload, _job_rows(workload, now, late), _node_rows(cluster), system, now))
    return found


def _job_rows(workload: Workload, now: float, late: bool) -> tuple[Array, ...]:
    """Return the jobs as policies see them: just submitted, or `late` with made-up progress. Hidden columns are 0."""
    rows = np.zeros(len(workload), VISIBLE_ROW)
    for name in set(COLUMNS) & set(VISIBLE_NAMES):
        rows[name] = getattr(workload.jobs, name)
    rows["remaining"] = rows["estimate"]
    rows["queued"] = rows["submit"]
    rows["start"] = -1.0
    rows["fair_share"] = 1.0 / len(workload.jobs.users)
    rows["size_factor"] = rows["gpus"] / max(float(rows["gpus"].max()), 1.0)
    if late:
        draw = np.random.default_rng(7)
        share = draw.random(len(rows))
        rows["done"] = rows["estimate"] * share
        rows["ran"] = rows["done"]
        rows["attained"] = rows["ran"] * rows["gpus"]
        rows["remaining"] = rows["estimate"] * (1 - share)
        rows["start"] = rows["run_start"] = rows["submit"] + share * np.maximum(now - rows["submit"], 0)
        rows["est_end"] = rows["run_start"] + rows["remaining"]
        rows["rate"] = 1.0
        rows["preemptions"] = draw.integers(0, 3, len(rows))
        for name in ("usage", "partition_factor", "qos_factor"):
            rows[name] = draw.random(len(rows))
    return job_parts(rows)


def _node_rows(cluster: Cluster) -> Array:
    """Return the nodes as placements see them, with some devices taken."""
    nodes, rows = cluster.nodes, np.zeros(len(cluster.nodes), NODE_ROW)
    for name in ("gpus", "gpu_type", "rack", "partition", "cpus", "memory"):
        rows[name] = getattr(nodes, name)
    rows["number"] = np.arange(len(rows))
    rows["free"] = rows["gpus"] - rows["number"] % (rows["gpus"] + 1)
    rows["free_cpus"], rows["free_memory"] = nodes.cpus, nodes.memory
    rows["speed"] = [cluster.types[kind].speed for kind in nodes.gpu_type]
    rows["share"] = rows["free"] > 0
    return rows


def _interpreted(function: Function, kind: PolicyKind, moments: list[Moment]) -> tuple[list[Array], dict[str, str]]:
    """The answers moment by moment, and what is wrong with them by check (empty: nothing)."""
    trouble = {"answers": "", "pure": ""}
    answers: list[Array] = []
    for moment in moments:
        before = moment.bytes
        given, trouble["answers"] = _ask_each(function, kind, moment, range(kind.subjects(moment)))
        if trouble["answers"]:
            return answers, {"answers": trouble["answers"]}
        again, _ = _ask_each(function, kind, moment, range(kind.subjects(moment))[::-1])
        if moment.bytes != before:
            trouble["pure"] = f"it changes the {'jobs or nodes' if kind.name == 'placement' else 'jobs'} that it is shown"
            return answers, trouble
        other = np.flatnonzero(given != again)
        if len(other):
            k = int(other[0])
            trouble["pure"] = f"asked twice about {kind.what(moment, k)} it says {given[k]:g} and {again[k]:g}"
            return answers, trouble
        answers.append(given)
    return answers, trouble


def _ask_each(function: Function, kind: PolicyKind, moment: Moment, order: range) -> tuple[Array, str]:
    out = np.full(kind.subjects(moment), np.nan)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in order:
            try:
                out[k] = kind.ask(function, moment, k)
            except Exception as error:
                return out, f"raises {type(error).__name__}: {error}, for {kind.what(moment, k)} at {moment.now:g} s"
            if np.isnan(out[k]):
                return out, f"returns NaN for {kind.what(moment, k)} at {moment.now:g} s"
    return out, ""


def _same_compiled(address: int, kind: PolicyKind, moments: list[Moment], answers: list[Array], params: Params) -> tuple[str, str]:
    if INTERPRETED:
        return INFO, "not compared: compilation is switched off"
    rounded = 0.0
    for moment, expected in zip(moments, answers, strict=True):
        compiled = kind.ask_all(address, moment, params)
        for k in np.flatnonzero(compiled.view(np.int64) != expected.view(np.int64)).tolist():
            a, b = float(compiled[k]), float(expected[k])
            apart = abs(a - b) / max(abs(a), abs(b), 1e-300)
            if not (a == b or apart <= ROUNDING):
                return FAILED, f"for {kind.what(moment, k)} at {moment.now:g} s: compiled {a!r}, interpreted {b!r}"
            rounded = max(rounded, apart)
    return OK, f"but for rounding, at most {rounded:.0e} of the value" if rounded else "bit for bit"


def _simulates(function: Function, name: str, kind: PolicyKind) -> tuple[str, str]:
    from gpuyard.engine.simulation import simulate

    cluster = load_cluster(CLUSTER)
    total = 0
    for text in WORKLOADS:
        try:
            total += len(simulate(load_workload(text, 0), cluster, kind.simulated(function, name)))
        except GpuyardError as error:
            return FAILED, f"{text}: {error}"
    return OK, f"{total:,} jobs of {len(WORKLOADS)} generated workloads"


def _speed(address: int, kind: PolicyKind, function: Function, params: Params) -> str:
    """Time the policy relative to the nearest built-in of its kind."""
    if INTERPRETED or kind.name == "switch rule":
        return "not measured"
    other, other_address = _nearest(kind, function)
    moment = _large_moment()
    mine = _seconds(lambda: kind.ask_all(address, moment, params))
    return f"{mine / _seconds(lambda: kind.ask_all(other_address, moment, {})):.2f} × the time of {other}"


def _seconds(call: Callable[[], Any]) -> float:
    """Return the median time of seven calls."""
    times = []
    for _ in range(7):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return max(float(np.median(times)), 1e-9)


def _nearest(kind: PolicyKind, function: Function) -> tuple[str, int]:
    if kind.name == "placement":
        return "a plain best fit", compile_scores(_best_fit, 0)
    like: Ordering = ORDERINGS["wfp3" if reads_clock(function) else "saf"]
    return like.name, compile_keys(cast("Function", like.function), 0)


def _best_fit(nodes: Any, n: int, jobs: Any, j: int) -> float:
    return float(nodes.free[n])


def _large_moment() -> Moment:
    workload = load_workload(f"gangs:jobs={TIMED}", 0)
    cluster = load_cluster(f"{TIMED}x8:a100")
    return Moment(workload, _job_rows(workload, 1e6, late=True), _node_rows(cluster), np.zeros(1, SYSTEM_ROW), 1e6)


# ── the compiled functions, called as the engine calls them ──


def _pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _call(address: int, *arguments: Any) -> int:
    kinds: dict[type, Any] = {int: ctypes.c_int64, float: ctypes.c_double}
    signature = [kinds.get(type(a), ctypes.c_void_p) for a in arguments]
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, *signature)(address)(*arguments))


def _values(params: Params) -> Array:
    """Return a policy's parameters as the engine holds them."""
    values = np.zeros(PARAMS)
    values[: len(params)] = list(params.values())
    return values


def _keys(address: int, moment: Moment, params: Params) -> Array:
    count = len(moment.workload)
    ids, out, values = np.arange(count, dtype=np.int32), np.full(count, np.nan), _values(params)
    header = header_for(moment.jobs)
    _call(address, _pointer(header), _pointer(ids), _pointer(out), len(ids), moment.now, _pointer(values))
    return out


def _scores(address: int, moment: Moment, params: Params) -> Array:
    ids, out, values = np.arange(len(moment.nodes), dtype=np.int32), np.full(len(moment.nodes), np.nan), _values(params)
    header = header_for(moment.jobs)
    nodes = _pointer(moment.nodes), len(moment.nodes)
    _call(address, *nodes, _pointer(ids), _pointer(out), len(ids), _pointer(header), JOB, _pointer(values))
    return out


def _choice(address: int, moment: Moment, params: Params) -> Array:
    values = _values(params)
    return np.array([float(_call(address, _pointer(moment.system), moment.now, _pointer(values)))])


def _job(moment: Moment, k: int) -> str:
    return f"job {int(moment.workload.jobs.id[k])} of {moment.workload.name}"


RULE = PolicyKind(
    "ordering or preemption rule", ("jobs", "j", "now"), compile_keys,
    subjects=lambda moment: len(moment.workload), ask=lambda f, moment, k: f(Shown(JOBS, *moment.jobs), k, moment.now), ask_all=_keys,
    what=_job, simulated=lambda f, name: replace(parse_slots("fcfs/fewest/easy"), ordering=make_ordering(f, name)),
)  # fmt: skip
PLACEMENT = PolicyKind(
    "placement", ("nodes", "n", "jobs", "j"), compile_scores,
    subjects=lambda moment: len(moment.nodes), ask=lambda f, moment, k: f(Shown(NODES, moment.nodes), k, Shown(JOBS, *moment.jobs), JOB),
    ask_all=_scores,
    what=lambda moment, k: f"node {int(moment.nodes['number'][k])} and {_job(moment, JOB)}",
    simulated=lambda f, name: replace(parse_slots("fcfs/fewest/easy"), placement=make_placement(f, name)),
)  # fmt: skip
SWITCH = PolicyKind(
    "switch rule", ("system", "now"), compile_switch,
    subjects=lambda moment: 1, ask=lambda f, moment, k: int(f(Shown(SYSTEM, moment.system), moment.now)), ask_all=_choice,
    what=lambda moment, k: f"a system with {moment.system['waiting'][0]:g} waiting jobs",
    simulated=lambda f, name: Meta((parse_slots("fcfs/fewest/easy"), parse_slots("sjf/fewest/easy")), make_switch(f, name)),
)  # fmt: skip
KINDS = (RULE, PLACEMENT, SWITCH)
