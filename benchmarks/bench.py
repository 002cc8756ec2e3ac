"""How fast gpuyard is here: everything measured in one run, printed beside its target and written to docs/reference/benchmarks.md.

    python benchmarks/bench.py [--quick] [--no-page] [--only PART …] [--out FILE] [--against FILE]

Speeds are medians over interleaved repetitions, warm (the compiled engine is loaded, one run was made before), and cover the whole
call of `simulate`: setting up, the run and its Result. The workload is made or read before the clock starts. Ratios compare what was
measured side by side in this run. A target that is missed is marked. The exit code is 3 if a ratio is more than 15 % lower than in the run
to compare with.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numba
import numpy as np

import experiments
import latency
import learning
import milp
import simpy_fcfs
import targets
from gpuyard import Cluster, Result, Rules, Simulation, Workload, load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.traces import apply
from targets import Line

ROOT = Path(__file__).resolve().parents[1]
TRACE = ROOT.parent / "shared" / "traces" / "swf" / "lublin_256.swf.gz"
PHILLY = ROOT.parent / "shared" / "traces" / "philly" / "philly_jobs_rfold.csv.gz"
ROWS = 1_000_000
PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
PLAIN, RANKED = "saf/fewest/easy", "saf/fewest/easy/gittins"
STOPS = Rules(checkpoint=600.0, restart_cost=60.0)
LUBLIN = "lublin:jobs=10000,requests=exact"  # where the trace is absent
LARGE = "gangs:jobs=1000000,nodes=1000,gpus_per_node=8,load=0.9"
# The cluster holds some 1,600 of these jobs at once: 10,000 are only about six times as many, and long-tailed run times would leave
# it half empty for most of the time of arrivals. A narrower spread and a higher nominal load give the same share of busy GPUs
# over the time of arrivals as the million has (both are printed).
SMALL = "gangs:jobs=10000,nodes=1000,gpus_per_node=8,load=1.03,spread=0.5"
NODES = "1000x8:gpu"
BATCH = 20  # runs of the small workload in a row: a single one would begin with the caches that the large one leaves
WIDE = 67  # characters of the first column

OWN_RULES = '''"""Policies as a user writes them: copies of the built-in sjf, wfp3 and best fit."""


def shortest(jobs, j, now):
    return jobs.estimate[j]


def wfp3(jobs, j, now):
    ratio = (now - jobs.submit[j]) / max(jobs.estimate[j], 1.0)
    return -(ratio * ratio * ratio) * jobs.gpus[j]


def tightest(nodes, n, jobs, j):
    return nodes.free[n]
'''

MEMORY = """
from pathlib import Path
from gpuyard import load_cluster, load_workload, parse_scheduler, simulate
def peak():  # not getrusage: its peak is that of the parent process where that was larger
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
cluster, scheduler = load_cluster({cluster!r}), parse_scheduler({scheduler!r})
simulate(load_workload({small!r}), cluster, scheduler)
before = peak()
workload = load_workload({large!r})
made = peak()
result = simulate(workload, cluster, scheduler)
print((made - before) / len(workload), (peak() - before) / len(workload))
"""

FIRST_TABLE = """
from gpuyard import load_cluster, load_workload, parse_scheduler, simulate
simulate(load_workload("demo"), load_cluster("4x8:a100"), parse_scheduler("fcfs/best/easy"))
"""


@dataclass(frozen=True)
class Settings:
    """How often things are repeated."""

    runs: int = 15  # of what takes milliseconds
    large_runs: int = 5  # of a million jobs
    starts: int = 3  # of processes


@dataclass(frozen=True)
class Speed:
    """Medians over the repetitions of a task that handles `jobs` jobs."""

    jobs: int
    wall: float  # s
    cpu: float  # s, of this process: what other work on the machine takes away is not in it

    @property
    def rate(self) -> str:
        return f"{self.jobs / self.wall:,.0f} jobs/s"

    @property
    def by_cpu(self) -> str:
        return f"{self.jobs / self.cpu:,.0f} jobs per CPU second"

    def times(self, other: Speed) -> float:
        """How many times as many jobs a CPU second as `other`: both use one thread, and what else runs here hardly matters."""
        return (self.jobs / self.cpu) / (other.jobs / other.cpu)


Tasks = Mapping[str, tuple[int, Callable[[], object]]]  # name → (jobs, what is timed)


def interleaved(tasks: Tasks, runs: int) -> dict[str, Speed]:
    """The tasks take turns, so that a busy spell of the machine meets all of them."""
    for _, task in tasks.values():
        task()
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in tasks}
    for _ in range(runs):
        for name, (_, task) in tasks.items():
            began, cpu = time.perf_counter(), time.process_time()
            task()
            seconds[name].append((time.perf_counter() - began, time.process_time() - cpu))
    return {name: Speed(jobs, *(statistics.median(t) for t in zip(*seconds[name], strict=True))) for name, (jobs, _) in tasks.items()}


def simulation(workload: Workload, cluster: Cluster, scheduler: str, rules: Rules | None = None) -> Callable[[], Result]:
    """What is timed: one call of `simulate`."""
    made = parse_scheduler(scheduler)
    return lambda: simulate(workload, cluster, made, rules=rules)


def lublin() -> tuple[Workload, str]:
    """The trace lublin_256, or a generated workload of the same model."""
    if TRACE.is_file():
        return load_workload(str(TRACE)), "lublin_256"
    print(f"bench: ../shared/traces/swf/lublin_256.swf.gz is absent; using {LUBLIN} instead", file=sys.stderr)
    return load_workload(LUBLIN), LUBLIN


def processors(settings: Settings) -> list[Line]:
    """10,000 jobs on 256 processors: gpuyard and SimPy side by side."""
    workload, name = lublin()
    cluster, jobs = load_cluster("256"), simpy_fcfs.plain_jobs(workload)
    n = len(workload)
    tasks: Tasks = {
        "fcfs": (n, simulation(workload, cluster, "fcfs/first/none")),
        "sjf": (n, simulation(workload, cluster, "sjf/first/none")),
        "easy": (n, simulation(workload, cluster, "fcfs/first/easy")),
        "simpy fcfs": (n, lambda: simpy_fcfs.fcfs(jobs, 256)),
        "simpy easy": (n, lambda: simpy_fcfs.easy(jobs, 256)),
    }
    speed = interleaved(tasks, settings.runs)
    where = f"{name}, {n:,} jobs, 256 processors"
    return [
        Line(f"FCFS: {where}", speed["fcfs"].rate, "≥ 1,000,000 jobs/s", speed["fcfs"].by_cpu),
        Line(f"SJF: {where}", speed["sjf"].rate, "≥ 1,000,000 jobs/s", speed["sjf"].by_cpu),
        Line(f"FCFS with EASY: {where}", speed["easy"].rate, "≥ 1,000,000 jobs/s", speed["easy"].by_cpu),
        Line("SimPy FCFS, the same workload", speed["simpy fcfs"].rate, "", speed["simpy fcfs"].by_cpu),
        Line("SimPy EASY, the same workload", speed["simpy easy"].rate, "", speed["simpy easy"].by_cpu),
        Line("gpuyard : SimPy, FCFS", f"{speed['fcfs'].times(speed['simpy fcfs']):.0f} ×"),
        Line("gpuyard : SimPy, EASY", f"{speed['easy'].times(speed['simpy easy']):.0f} ×"),
    ]


def busy_share(result: Result) -> float:
    """Share of the GPUs in use, from the first to the last submission."""
    submit, table = result.workload.jobs.submit, result.table
    held = np.minimum(table["end"], submit[-1]) - np.minimum(table["start"], submit[-1])
    return float(held @ result.workload.jobs.gpus / ((submit[-1] - submit[0]) * result.cluster.gpus))


def gangs(settings: Settings) -> list[Line]:
    """A million gang jobs over 1,000 × 8 GPUs, and 10,000 at the same load."""
    cluster = load_cluster(NODES)
    large, small = load_workload(LARGE), load_workload(SMALL)
    tasks = {"large": simulation(large, cluster, "fcfs"), "small": simulation(small, cluster, "fcfs")}
    timed_tasks: Tasks = {
        "large": (len(large), tasks["large"]),
        "small": (len(small) * BATCH, lambda: [tasks["small"]() for _ in range(BATCH)]),
        "easy": (len(large), simulation(large, cluster, "fcfs/best/easy")),
    }
    speed = interleaved(timed_tasks, settings.large_runs)
    note = {name: f"{speed[name].by_cpu}; {busy_share(task()):.0%} of the GPUs busy while jobs arrive" for name, task in tasks.items()}
    return [
        Line("FCFS: 1 M gang jobs, 1,000 × 8 GPUs", speed["large"].rate, "≥ 2,500,000 jobs/s", note["large"]),
        Line("FCFS: 10 k gang jobs, 1,000 × 8 GPUs", speed["small"].rate, "", note["small"]),
        Line("1 M : 10 k, jobs/s at equal load", f"{speed['large'].times(speed['small']):.2f}", "≥ 0.5"),
        Line("FCFS with EASY, best fit: 1 M gang jobs", speed["easy"].rate, "≥ 1,000,000 jobs/s", speed["easy"].by_cpu),
    ]


USERS = 50


def at_once(jobs: int, users: int = 1) -> Workload:
    """Jobs of 1 to 64 GPUs that all come at once, with requested times up to five times as long as they run."""
    rng = np.random.default_rng(0)
    runtime = np.round(np.exp(rng.normal(7.0, 1.2, jobs))) + 1.0
    sizes = rng.choice([1, 2, 4, 8, 16, 32, 64], jobs, p=[0.4, 0.2, 0.15, 0.1, 0.08, 0.05, 0.02])
    columns = {"submit": np.zeros(jobs), "gpus": sizes, "estimate": runtime * rng.choice([1.0, 1.5, 2.0, 5.0], jobs)}
    columns["user"] = rng.integers(0, users, jobs)
    return Workload.build(columns, runtime, name=f"{jobs} at once", users=tuple(f"user{k}" for k in range(users)))


def deep_queues(settings: Settings) -> list[Line]:
    """Queues of tens of thousands of jobs on 64 × 8 GPUs."""
    cluster = load_cluster("64x8:gpu")
    tasks: dict[str, tuple[int, Callable[[], object]]] = {}
    for jobs, rule in ((40_000, "easy"), (100_000, "easy"), (40_000, "skip"), (20_000, "easy")):
        tasks[f"{jobs} {rule}"] = (jobs, simulation(at_once(jobs), cluster, f"sjf/fewest/{rule}"))
    for ordering in ("wfp3", "multifactor"):
        tasks[ordering] = (20_000, simulation(at_once(20_000), cluster, f"{ordering}/fewest/easy"))
    several = f"multifactor, {USERS} users"
    tasks[several] = (20_000, simulation(at_once(20_000, USERS), cluster, "multifactor/fewest/easy"))
    speed = interleaved(tasks, 1)
    lines = []
    for name, target in (("40000 easy", "< 0.5 s"), ("100000 easy", "< 2 s"), ("40000 skip", "")):
        jobs, rule = name.split()
        what = f"{int(jobs):,} jobs at once, 64 × 8 GPUs, `sjf/fewest/{rule}`"
        lines.append(Line(what, f"{speed[name].wall:.2f} s", target, f"CPU {speed[name].cpu:.2f} s"))
    for ordering in ("wfp3", "multifactor", several):
        ratio = speed["20000 easy"].cpu / speed[ordering].cpu
        note = f"CPU {speed[ordering].cpu:.2f} s; sjf {speed['20000 easy'].cpu:.2f} s"
        name, comma, of = ordering.partition(",")
        lines.append(Line(f"`{name}` : `sjf`, 20,000 jobs at once{comma}{of}, EASY, jobs/s", f"{ratio:.2f}", "≥ 0.2", note))
    return lines


def conservative_decision(settings: Settings) -> list[Line]:
    """One decision of conservative backfilling: 2,000 jobs wait on 1,000 × 8 GPUs, of which 160 are free."""
    nodes, waiting = 1000, 2000
    rng = np.random.default_rng(0)
    held = nodes - 20  # jobs that hold a node each
    sizes = rng.choice([1, 2, 4, 8, 16, 64, 256], waiting, p=[0.3, 0.2, 0.2, 0.15, 0.1, 0.04, 0.01])
    runtime = np.concatenate([rng.integers(1000, 90_000, held), np.round(np.exp(rng.normal(8.0, 1.2, waiting))) + 1])
    columns = {"submit": np.repeat([0.0, 10.0], [held, waiting]), "gpus": np.concatenate([np.full(held, 8), sizes]), "estimate": runtime}
    running = Simulation(Workload.build(columns, runtime, name="blocked"), load_cluster(NODES))
    running.apply(parse_scheduler("fcfs/best").decide(running.advance()))
    snapshot, scheduler = running.advance(), parse_scheduler("sjf/fewest/conservative")
    took = read_line(
        "2,000 jobs wait, 1,000 × 8 GPUs: one decision of `sjf/fewest/conservative`", "< 1 s", settings, partial(scheduler.decide, snapshot)
    )
    return [took]


def ranks(settings: Settings) -> list[Line]:
    """Preemption by rank: 10,000 jobs on 256 processors, and one decision while 10,000 jobs wait."""
    workload, name = lublin()
    cluster = load_cluster("256")
    shares = {"all jobs": 1.0, "half of the jobs": 0.5}
    tasks = {who: simulation(apply(workload, f"preemptible:{share}", 0), cluster, RANKED, STOPS) for who, share in shares.items()}
    plain = {PLAIN: simulation(workload, cluster, PLAIN, STOPS)}
    speed = interleaved({who: (len(workload), task) for who, task in (tasks | plain).items()}, settings.runs)
    lines = []
    for who in shares:
        what = f"`{RANKED}`, {who} may be stopped"
        lines.append(Line(f"{what}: {name}, 256 processors", speed[who].rate, "≥ 200,000 jobs/s", speed[who].by_cpu))
        lines.append(Line(f"{what}, : `{PLAIN}`, jobs/s", f"{speed[who].times(speed[PLAIN]):.3f}"))
    return [*lines, *rank_decisions(settings)]


def rank_decisions(settings: Settings) -> list[Line]:
    """Decisions by rank: 10,000 jobs wait on 64 × 8 GPUs that stoppable jobs hold; first most of these are stopped, then it is as usual."""
    held, waiting = 256, 10_000
    rng = np.random.default_rng(0)
    sizes = np.concatenate([np.full(held, 2), rng.choice([1, 2, 4, 8, 16, 32, 64], waiting, p=[0.4, 0.2, 0.15, 0.1, 0.08, 0.05, 0.02])])
    runtime = np.round(np.exp(rng.normal(8.0, 1.2, held + waiting))) + 3600.0
    columns = {
        "submit": np.repeat([0.0, 3000.0], [held, waiting]),
        "gpus": sizes,
        "estimate": runtime,
        "preemptible": np.ones(held + waiting),
    }
    made = Workload.build(columns, runtime, name="crowd")
    running, scheduler = Simulation(made, load_cluster("64x8:gpu"), rules=STOPS), parse_scheduler(RANKED)
    running.apply(parse_scheduler(PLAIN).decide(running.advance()))
    lines = []
    for when, target in (("when they have just come", ""), ("at the next instant", "≤ 5 ms")):
        snapshot = running.advance()
        decisions, taken = scheduler.decide(snapshot), []
        for _ in range(settings.runs):
            began = time.process_time()
            scheduler.decide(snapshot)
            taken.append(time.process_time() - began)
        what = f"10,000 jobs wait, 64 × 8 GPUs: one decision of `{RANKED}`, {when}"
        lines.append(Line(what, f"{1e3 * statistics.median(taken):.1f} ms CPU", target, f"{len(decisions)} starts and stops"))
        running.apply(decisions)
    return lines


def own_policies(settings: Settings) -> list[Line]:
    """Policies from a user's file against the same ones built in."""
    log, _ = lublin()
    pool = load_cluster("256")
    hall = load_workload("gangs:jobs=20000,nodes=64,gpus_per_node=8,load=0.9")
    pairs = {  # what: workload, cluster, built-in, own
        "ordering that does not read the clock (sjf)": (log, pool, "sjf/first", "{}:shortest/first"),
        "ordering that reads the clock (wfp3)": (log, pool, "wfp3/first", "{}:wfp3/first"),
        "placement (best fit), 64 × 8 GPUs": (hall, load_cluster("64x8:gpu"), "fcfs/best", "fcfs/{}:tightest"),
        "placement (best fit), 1,000 × 8 GPUs": (load_workload(SMALL), load_cluster(NODES), "fcfs/best", "fcfs/{}:tightest"),
    }
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.py"
        path.write_text(OWN_RULES)
        for what, (workload, cluster, ours, theirs) in pairs.items():
            tasks: Tasks = {
                "built-in": (len(workload), simulation(workload, cluster, ours)),
                "own": (len(workload), simulation(workload, cluster, theirs.format(path))),
            }
            speed = interleaved(tasks, settings.runs)
            ratio = speed["own"].times(speed["built-in"])
            lines.append(Line(f"own : built-in {what}, jobs/s", f"{ratio:.2f}", "≥ 0.5", f"own: {speed['own'].by_cpu}"))
    return lines


def python(code: str, **environment: str) -> str:
    """Run a program in a process of its own; what it prints."""
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=True)
    return done.stdout


def memory(settings: Settings) -> list[Line]:
    """Peak memory of a fresh process, less what it had after a run of 10,000 jobs."""
    if not Path("/proc/self/status").is_file():
        return [Line("memory: 1 M gang jobs, workload and simulation", "not measured", "≤ 350 bytes a job", "needs Linux")]
    code = MEMORY.format(cluster=NODES, scheduler="fcfs", small=SMALL, large=LARGE)
    made, peak = (float(word) for word in python(code).split())
    note = f"peak while the workload is made: {made:.0f}"
    return [Line("memory: 1 M gang jobs, workload and simulation", f"{peak:.0f} bytes a job", "≤ 350 bytes a job", note)]


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds of a task that is done by child processes."""
    before, began = os.times(), time.perf_counter()
    run()
    wall, after = time.perf_counter() - began, os.times()
    return wall, after.children_user + after.children_system - before.children_user - before.children_system


def start_line(what: str, target: str, times: Sequence[tuple[float, float]]) -> Line:
    wall, cpu = (statistics.median(values) for values in zip(*times, strict=True))
    return Line(what, f"{wall:.2f} s", target, f"CPU {cpu:.2f} s")


def starts(settings: Settings) -> list[Line]:
    """Processes from their start to their end: with nothing compiled, from the disk cache, and the command.

    Python keeps its bytecode, as it does of an installed package, also where the shell tells it not to.
    """
    kept = {"PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-c", "import sys; from gpuyard.cli.main import run; sys.exit(run(sys.argv[1:]))"]

    def call(*arguments: str) -> list[tuple[float, float]]:
        once = partial(subprocess.run, [*command, *arguments], env=os.environ | kept, capture_output=True, check=True)
        once()
        return [timed(once) for _ in range(settings.starts)]

    with tempfile.TemporaryDirectory() as folder:
        first = partial(python, FIRST_TABLE, NUMBA_CACHE_DIR=folder, **kept)
        cold, warm = [timed(first)], [timed(first) for _ in range(settings.starts)]
    return [
        start_line("first run ever, compilation included: one EASY simulation", "≤ 15 s", cold),
        start_line("the same with a warm cache", "", warm),
        start_line("`gpuyard simulate demo`, warm", "≤ 1.0 s", call("simulate", "demo")),
        start_line("`gpuyard --help`", "< 0.3 s", call("--help")),
    ]


def reading(settings: Settings) -> list[Line]:
    """Tables read, in this process, warm: a million rows, and Philly where it is at hand, there with a simulation of all of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "million.csv"
        rng = np.random.default_rng(0)
        submit, runtime, user = np.cumsum(rng.integers(0, 10, ROWS)), rng.integers(1, 100_000, ROWS), rng.integers(0, 500, ROWS)
        columns = (submit, runtime, rng.choice([1, 2, 4, 8], ROWS), user)
        rows = (f"{a},{b},{c},u{d}" for a, b, c, d in zip(*(column.tolist() for column in columns), strict=True))
        path.write_text("submit,runtime,gpus,user\n" + "\n".join(rows) + "\n")
        lines = [read_line(f"a CSV table of {ROWS:,} rows read", "< 3 s", settings, lambda: load_workload(str(path)))]
    if PHILLY.is_file():
        scheduler = parse_scheduler("sjf/best/easy")

        def replay() -> None:
            workload = load_workload(str(PHILLY))
            simulate(workload, load_cluster(workload.preset), scheduler)

        lines.append(read_line("Philly, 111,549 jobs, read and simulated (`sjf/best/easy`)", "< 2 s", settings, replay))
    return lines


def read_line(what: str, target: str, settings: Settings, run: Callable[[], object]) -> Line:
    run()
    times = []
    for _ in range(settings.starts):
        cpu, began = time.process_time(), time.perf_counter()
        run()
        times.append((time.perf_counter() - began, time.process_time() - cpu))
    return start_line(what, target, times)


def joint_placement(settings: Settings) -> list[Line]:
    """Decisions of `milp` in random states of 50 nodes × 8 GPUs of three types."""
    lines = []
    for k, target in ((16, "< 25 ms at a gap ≤ 1 %"), (32, "< 100 ms")):
        found = milp.measure(k, "fcfs/fewest/easy", 4 * settings.runs, seed=0)
        report = found.report
        note = f"CPU {found.cpu:.1f} ms; gap {100 * report['gap_mean']:.2f} % on average; limit struck {report['limit_struck']:.0f} times"
        lines.append(Line(f"`milp`: {k} jobs placed jointly on 50 × 8 GPUs, median", f"{report['ms_median']:.1f} ms", target, note))
    return lines


def environments(settings: Settings) -> list[Line]:
    """Steps of environments, learning end to end, choices of networks inside the engine; benchmarks/learning.py."""
    return [Line(*found) for found in learning.lines(settings.large_runs)]


def decisions(settings: Settings) -> list[Line]:
    """Learned decisions one at a time; benchmarks/latency.py."""
    return [Line(*found) for found in latency.lines(1_000 * settings.runs)]


def runs(settings: Settings) -> list[Line]:
    """Runs of an experiment, and the same in plain Python; benchmarks/experiments.py."""
    return [Line(*found) for found in experiments.lines()]


def machine() -> str:
    """What the numbers depend on; nothing that identifies the machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parts = (
        f"{cores} cores",
        platform.machine(),
        f"Python {platform.python_version()}",
        f"numpy {np.__version__}",
        f"numba {numba.__version__}",
        f"load average {os.getloadavg()[0]:.1f} at the start",
    )
    return ", ".join(parts)


def newest_source() -> float:
    """When the package was last edited: an edit during the run would be compiled in the middle of it."""
    return max(path.stat().st_mtime for path in (ROOT / "src").rglob("*.py"))


def show(lines: list[Line]) -> None:
    for line in lines:
        missed = "MISSED  " if targets.is_met(line) is False else ""
        print(f"{line.what:<{WIDE}}  {line.measured:>20}  {line.target:<20} {missed}{line.note}".rstrip(), flush=True)


def page(facts: str, lines: list[Line]) -> str:
    """The reference page, in Markdown."""
    marks = {True: "met", False: "**missed**", None: ""}
    rows = "\n".join(f"| {x.what} | {x.measured} | {x.target} | {marks[targets.is_met(x)]} | {x.note} |" for x in lines)
    count, missed = (sum(targets.is_met(x) is met for x in lines) for met in (True, False))
    return f"""# Benchmarks

Generated by `make bench` (`benchmarks/bench.py`); do not edit. Measured in one run on: {facts}.
Other work may have shared the cores: wall time, which the targets are about, suffers from it; CPU time less.
{count} targets are met, {missed} are missed. `gpuyard bench --out FILE` keeps a run, and `--against FILE` compares one with it:
the exit code is 3 if a ratio is lower by more than {targets.LOSS:.0%}.

| what | measured | target | | |
|---|---|---|---|---|
{rows}

- Speeds are medians over interleaved repetitions of the whole call of `simulate` (set-up, run, Result), warm. Reading or generating the
  workload is not in them.
- The workload of a million jobs is `{LARGE}`, that of ten thousand
  `{SMALL}`. About 1,600 of these jobs run at once, so that ten thousand with
  long-tailed run times would leave the cluster half empty while they arrive; the narrower spread and the higher nominal load
  make up for it.
- Memory is the peak resident size of a fresh process that generates and simulates the million jobs, less its peak after a run of ten
  thousand.
- Of a job's bytes 112 are the workload's table, 8 its run time, 144 the row that kernels work on, 56 its result and 12 its place in the
  queue. Columns of the row that are moved elsewhere cost every start a read of cold memory
  ([record 30](../decisions/0030-columns-of-a-job.md)).
- `multifactor` with many users keys many jobs at each pass, because every start changes the shares of all users
  ([record 27](../decisions/0027-keys-that-only-fall.md)).
- The start times are wall time; where other work shares the cores, the CPU time beside them says more.
- SimPy runs a counter of processors without nodes, devices or timeline; FCFS gives the same starts.
- `milp` decides in random states under a limit of {milp.LIMIT:g} s; `benchmarks/milp.py` prints gaps, objective and its terms.
- Steps of environments and of learners are medians over repetitions, compiling not included; choosing at random is part of the former.
- Decisions are timed one at a time, the collector of Python off; the CPU time is that of as many calls made once more.
- The numbers of the RLScheduler paper are compared by `benchmarks/rlscheduler.py`, digit by digit; those of the FGD
  paper by `benchmarks/openb.py`, to one percentage point.
"""


PARTS: Mapping[str, Callable[[Settings], list[Line]]] = {
    part.__name__: part
    for part in (
        processors,
        deep_queues,
        conservative_decision,
        ranks,
        own_policies,
        gangs,
        memory,
        reading,
        joint_placement,
        starts,
        decisions,
        environments,
        runs,
    )
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure gpuyard's speed and memory.")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--no-page", action="store_true", help="do not write docs/reference/benchmarks.md")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), help="these parts alone, and no page")
    parser.add_argument("--out", type=Path, help="keep this run, to compare later ones with")
    parser.add_argument("--against", type=Path, help="an earlier run on this machine; exit code 3 if a ratio is more than 15 %% lower")
    arguments = parser.parse_args()
    settings = Settings(5, 3, 1) if arguments.quick else Settings()
    before = targets.load(arguments.against) if arguments.against else {}
    facts, version = machine(), newest_source()
    print(f"{facts}\n", flush=True)
    lines: list[Line] = []
    for name in arguments.only or PARTS:
        found = PARTS[name](settings)
        show(found)
        lines += found
    if newest_source() != version:
        print("error: the sources changed during the run: these numbers are of no one version; hint: run it again", file=sys.stderr)
        return 1
    if not arguments.no_page and not arguments.only:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(page(facts, lines), encoding="utf-8")
        print(f"\nwritten: {PAGE.relative_to(ROOT)}", file=sys.stderr)
    if arguments.out:
        targets.save(arguments.out, facts, lines)
    lost = targets.losses(before, lines)
    for text in lost:
        print(f"lost: {text}", file=sys.stderr)
    return 3 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
