"""The demonstration workload: some days on a GPU cluster shared by a few groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.workload import Workload
from gpuyard.traces.base import generator
from gpuyard.traces.generators.sampling import pick, require, require_jobs, require_load, stream, user_names, usual_walltime, zipf

GPUS = 128  # 16 nodes of 8
USERS = 24
DAY = 86400.0  # s


@dataclass(frozen=True)
class JobKind:
    """A kind of jobs that people submit together."""

    name: str
    share: float  # of the campaigns
    batch: float  # jobs of a campaign, mean of a geometric law
    median: float  # s, run time
    spread: float  # of ln run time, between campaigns
    sizes: tuple[float, ...]  # weights of 1, 2, 4, 8, 16, 32 GPUs
    priority: float
    preemptible: bool = False  # it writes checkpoints and may be stopped


KINDS = (
    JobKind("debug", 0.45, 1.5, 420.0, 0.9, (0.60, 0.25, 0.10, 0.05, 0.0, 0.0), 3.0),
    JobKind("sweep", 0.15, 8.0, 3600.0, 0.7, (0.70, 0.20, 0.10, 0.0, 0.0, 0.0), 0.0, preemptible=True),
    JobKind("training", 0.32, 1.6, 9000.0, 0.8, (0.10, 0.10, 0.25, 0.35, 0.15, 0.05), 1.0, preemptible=True),
    JobKind("evaluation", 0.08, 3.0, 1500.0, 0.6, (0.30, 0.30, 0.30, 0.10, 0.0, 0.0), 2.0),
)
SIZES = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])


@generator("demo", title="Five busy days on 16 x 8 GPUs: sweeps, training gangs, debugging, deadlines")
def demo(seed: int, *, jobs: int = 2000, days: float = 5.0, load: float = 0.9) -> Workload:
    """Generate about what a research group's cluster of 16 nodes with 8 GPUs sees; invented, not a log.

    Users (Zipf) submit campaigns of one kind: debugging, parameter sweeps, training gangs, evaluation. Campaigns follow the working day
    (most at 15:00, a tenth of it at 03:00), so that the queue builds up by day and drains by night. Run times are lognormal, then all
    scaled by one factor so that the work is `load` × 128 GPUs × `days`. Walltimes are too long by a factor that differs between
    users. Deadline = submit + walltime × U(1.2, 4). A gang sits on one node, or fills whole ones.
    Sweeps and training jobs say that they may be stopped.
    """
    require_jobs("generator demo", jobs)
    require_load("generator demo", load)
    require(0 < days <= 3650, f"generator demo: days = {days} does not lie in (0, 3650]")
    kind, campaign = _campaigns(seed, jobs)
    count = int(campaign[-1]) + 1
    gpus = _sizes(seed, kind, count)[campaign]
    median = np.array([k.median for k in KINDS])[kind[campaign]]
    spread = np.array([k.spread for k in KINDS])[kind[campaign]]
    between = stream(seed, "demo/runtime").standard_normal(count)[campaign]
    within = stream(seed, "demo/runtime of each").standard_normal(jobs)
    runtime = median * np.exp(spread * between + 0.3 * within)
    runtime *= load * GPUS * days * DAY / float(gpus @ runtime)
    user = pick(stream(seed, "demo/users"), zipf(USERS), count)
    walltime = usual_walltime(runtime * _overestimate(seed, user[campaign], jobs))
    start = _daily_times(stream(seed, "demo/arrivals"), count, days)
    submit = start[campaign] + stream(seed, "demo/typing").uniform(0.0, 600.0, jobs)  # a campaign is submitted within ten minutes
    submit -= submit.min()
    columns = {
        "submit": submit, "gpus": gpus, "walltime": walltime, "chunk": np.minimum(gpus, 8.0), "user": user[campaign],
        "deadline": submit + walltime * stream(seed, "demo/deadline").uniform(1.2, 4.0, jobs),
        "priority": np.array([k.priority for k in KINDS])[kind[campaign]], "job_class": kind[campaign],
        "preemptible": np.where(np.array([k.preemptible for k in KINDS])[kind[campaign]], 1.0, np.nan),
    }  # fmt: skip
    return Workload.build(columns, runtime, name="demo", users=user_names(USERS), classes=[k.name for k in KINDS], preset="16x8:a100")


def _campaigns(seed: int, jobs: int) -> tuple[Array, Array]:
    """Draw the kind of each campaign, and the campaign of each job."""
    kind = pick(stream(seed, "demo/kinds"), np.array([k.share for k in KINDS]), jobs)  # never more campaigns than jobs
    size = stream(seed, "demo/batches").geometric(1.0 / np.array([k.batch for k in KINDS])[kind])
    campaign = np.repeat(np.arange(jobs), size)[:jobs]
    return kind[: int(campaign[-1]) + 1], campaign


def _sizes(seed: int, kind: Array, count: int) -> Array:
    edges = np.cumsum([k.sizes for k in KINDS], axis=1)[kind]  # (campaigns, sizes)
    drawn = stream(seed, "demo/gpus").random((count, 1)) * edges[:, -1:]
    sizes: Array = SIZES[(drawn >= edges).sum(axis=1)]
    return sizes


def _overestimate(seed: int, user: Array, jobs: int) -> Array:
    """Draw walltime / run time: each user's habit, from careful (1.2) to careless (6), times a part of each job's own."""
    habit = stream(seed, "demo/habits").uniform(0.2, 5.0, USERS)[user]
    return 1.05 + habit * stream(seed, "demo/walltime").random(jobs)


def _daily_times(generator: np.random.Generator, count: int, days: float) -> Array:
    """Draw `count` instants over `days` with density 1 + 0.82 cos around 15:00, by rejection: a Poisson process given its count."""
    found = np.empty(0)
    while len(found) < count:
        t, height = generator.random((2, 2 * count))
        hour = 2 * np.pi * (t * days - 15 / 24)
        found = np.concatenate((found, t[height * 1.82 < 1 + 0.82 * np.cos(hour)] * days * DAY))
    return found[:count]
