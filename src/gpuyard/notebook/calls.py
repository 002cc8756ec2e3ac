"""The calls of `import gpuyard` that take texts, names and plain functions wherever the engine takes objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from os import PathLike, fspath

from gpuyard.engine import simulation as engine
from gpuyard.engine.batch import checked_seed
from gpuyard.errors import UsageError, WrongTypeError
from gpuyard.experiments import compare as comparing
from gpuyard.experiments.judging.logged import has_log
from gpuyard.experiments.judging.summary import Summary
from gpuyard.experiments.usual import usual_metrics, usual_schedulers
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.result import Result
from gpuyard.model.rules import Rules
from gpuyard.model.workload import Workload
from gpuyard.policies import AnyScheduler, Scheduler, as_scheduler, parse_scheduler
from gpuyard.policies.slots import Function
from gpuyard.traces import GENERATORS, guess_cluster, load_workload

WorkloadLike = Workload | str | PathLike[str]
ClusterLike = Cluster | str | PathLike[str]
SchedulerLike = engine.AnyScheduler | Function | str | PathLike[str]
SEEDS = 8
MOST_DRAWN = 100_000  # jobs up to which a run keeps what `result.gantt()` draws unless it is told otherwise
MOST_THREADS = 8


def simulate(
    workload: WorkloadLike, cluster: ClusterLike | None, scheduler: SchedulerLike, seed: int = 0, *, rules: Rules | None = None,
    segments: bool | None = None,
) -> Result:  # fmt: skip
    """Run a workload on a cluster under a scheduler to the end: `simulate("demo", "16x8:a100", "sjf/fewest/easy")`.

    Each may be an object or the text that names it; a cluster may be None where one goes with the workload. A scheduler may also be a plain
    ordering function, or anything with `decide(snapshot)`. The seed makes a generated workload and the engine's own draws. `segments` keeps
    which job held which devices when, for `result.gantt()`: about 100 bytes a job, so by default only up to 100,000 jobs.
    """
    return simulate_many(workload, cluster, [scheduler], seed, rules=rules, segments=segments)[0]


def simulate_many(
    workload: WorkloadLike, cluster: ClusterLike | None, schedulers: Iterable[SchedulerLike], seed: int = 0, *,
    rules: Rules | None = None, segments: bool | None = None,
) -> list[Result]:  # fmt: skip
    """Return what `simulate` returns for each scheduler, with the same bytes; runs of some hundred jobs take two thirds of the time."""
    made = [_runnable(each) for each in listed(schedulers)]
    jobs = workload_of(workload, checked_seed(seed))
    machine = cluster_of(cluster, jobs, generated=is_generator(workload))
    kept = len(jobs) <= MOST_DRAWN if segments is None else segments
    return engine.simulate_many(jobs, machine, made, seed, rules=_rules(rules), segments=kept)


def compare(
    schedulers: Iterable[SchedulerLike] = (),
    workload: WorkloadLike = "demo",
    cluster: ClusterLike | None = None,
    *,
    metrics: str | Sequence[str] = (), seeds: int | Sequence[int] = SEEDS, estimate: str | None = None, baseline: str = "",
    rules: Rules | None = None, threads: int = 0, progress: Callable[[int], None] | None = None,
) -> Summary:  # fmt: skip
    """Compare schedulers on the same jobs: `compare(["fcfs/fewest/easy", "sjf/fewest/easy", my_ordering], "demo", "16x8:a100")`.

    Without a list it is the usual schedulers and metrics, as with `gpuyard compare`. Generated workloads are made for every seed (a number
    of them, or a list), a log is one sample. Differences are those of the first metric, paired, with 95 % intervals, to the baseline: the
    scheduler of that name, or else the log or first come, first served with EASY where it is there. `estimate` is a source of run-time
    estimates, such as `exact` or `noisy:0.3`. `threads`: simulations at a time; 0 is one per core. `progress` is told how many are done.
    """
    given = tuple(as_scheduler(each) for each in listed(schedulers))
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(checked_seed(seed) for seed in seeds)
    first = workload_of(workload, chosen[0] if chosen else 0)
    generated = is_generator(workload)
    machine = cluster_of(cluster, first, generated=generated)
    source = comparing.Source(
        first.name, load=lambda seed: workload_of(workload, seed) if generated else first, seeded=generated, clusters=(machine,)
    )
    made = given or tuple(usual_schedulers([first], clusters=[machine]))
    known = [each.label for each in made]
    plan = comparing.Plan(
        sources=(source,),
        schedulers=made,
        metrics=(metrics,) if isinstance(metrics, str) else tuple(metrics) or usual_metrics([first]),
        seeds=chosen,
        estimates=(estimate,),
        baseline=baseline if baseline in known or not baseline or has_log(first) else parse_scheduler(baseline).label,
        rules=_rules(rules),
    )
    (summary,) = comparing.compare(plan, threads=threads or min(os.cpu_count() or 1, MOST_THREADS), progress=progress)
    return summary


def listed(schedulers: Iterable[SchedulerLike]) -> list[SchedulerLike]:
    """List schedulers; refuse a single one, which is more often a slip than a list of letters."""
    if isinstance(schedulers, str) or not isinstance(schedulers, Iterable):
        raise WrongTypeError("schedulers", "a list of them", schedulers, hint="put it in brackets: [scheduler]")
    return list(schedulers)


def _runnable(given: SchedulerLike) -> engine.AnyScheduler:
    """Return a scheduler as the engine takes it; an object that decides stays the one that the caller holds."""
    if not isinstance(given, str | type) and (hasattr(given, "decide") or hasattr(given, "begin")):
        decider: engine.AnyScheduler = given  # type: ignore[assignment]
        return decider
    found: AnyScheduler | Scheduler = as_scheduler(given)
    return found


def _rules(rules: Rules | None) -> Rules:
    if rules is not None and not isinstance(rules, Rules):
        raise WrongTypeError("rules", "Rules(…)", rules)
    return rules or Rules()


# ── what may stand for a workload or a cluster ──


def is_generator(given: object) -> bool:
    """Return whether it is another workload at every seed."""
    return isinstance(given, str) and given.partition(":")[0] in GENERATORS


def workload_of(given: object, seed: int = 0) -> Workload:
    """Return a workload, or load the one that a text (`demo`, `family:shape=bursty`) or a path names."""
    if isinstance(given, Workload):
        return given
    if isinstance(given, str | PathLike):
        return load_workload(fspath(given), seed)
    frame = isinstance(given, dict) or hasattr(given, "columns")
    raise WrongTypeError(
        "workload", "a Workload, or a text such as 'demo' or 'log.swf.gz'", given, hint="Workload.from_frame(…) reads it" if frame else ""
    )


def cluster_of(given: object, workload: Workload, *, generated: bool) -> Cluster:
    """Return a cluster, the one that a text (`16x8:a100`, a preset, a file) names, or for None the one that goes with the workload."""
    if isinstance(given, Cluster):
        return given
    if isinstance(given, str | PathLike):
        return load_cluster(fspath(given))
    if given is not None:
        raise WrongTypeError("cluster", "a Cluster, or a text such as '16x8:a100', a preset or a .toml file", given)
    if generated and not workload.preset:
        raise UsageError(f"{workload.name}: no cluster to run it on", hint="give one, such as '16x8:a100'")
    return guess_cluster(workload)[0]
