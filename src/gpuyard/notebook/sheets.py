"""A sheet is all that a noun shows, as data: `lines` writes it for a terminal, `html` for a notebook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import GpuyardError
from gpuyard.experiments.judging.answering.names import amount, duration, in_sentence, people_name, plain_title
from gpuyard.experiments.judging.answering.plain import against_today, in_order, plain_answer, share_cell, today_of
from gpuyard.experiments.judging.statistics import FEWEST, Interval
from gpuyard.experiments.judging.summary import MINIMUM, Comparison, Standing, Summary
from gpuyard.experiments.judging.text import count, readable, short
from gpuyard.metrics import counts, measure, rejections, resolve
from gpuyard.model.cluster import Cluster
from gpuyard.model.result import Result
from gpuyard.model.snapshot import Snapshot
from gpuyard.model.workload import Workload
from gpuyard.networks.checkpoint import SUFFIX
from gpuyard.policies import Decider, Meta, Scheduler, parse_scheduler
from gpuyard.policies.learned import PROGRAM
from gpuyard.traces.origin import date_of

HEADLINES = ("waiting", "wait.max", "bsld", "utilization")  # of one result
POINTS = 160  # of a curve
MOST_ROWS = 6  # of a table
DAY = 86_400.0  # s


@dataclass(frozen=True)
class Course:
    """Values over time, evenly spaced, drawn as an area; `most` is what fills the height."""

    title: str
    values: Array
    most: float
    note: str
    strong: bool = True


@dataclass(frozen=True)
class Grid:
    """A table of texts. What follows a line feed in a cell is secondary. `tones` maps (row, column) to good or bad."""

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    tones: dict[tuple[int, int], str]
    left: int = 1  # columns of text at the beginning
    more: str = ""  # what is left out


@dataclass(frozen=True)
class Sheet:
    """All that is shown of one noun."""

    kind: str
    title: str
    code: str = ""  # how to write it
    about: str = ""
    figures: tuple[tuple[str, str], ...] = ()  # (value, what it is)
    courses: tuple[Course, ...] = ()
    span: tuple[str, str] = ("", "")  # where courses begin and end
    grid: Grid | None = None
    notes: tuple[str, ...] = ()
    short: bool = False  # one line is enough in a terminal


@singledispatch
def sheet_of(thing: object) -> Sheet:
    """Return what a noun shows of itself."""
    return Sheet(type(thing).__name__, repr(type(thing)))


# ── a result ──


@sheet_of.register
def _of_result(result: Result) -> Sheet:
    ended, measured = counts(result), measure(result, HEADLINES)
    odd = [f"{ended[key]:,} {key}" for key in ("killed", "rejected", "unfinished") if ended[key]]
    odd += [f"{int(result.totals['failures']):,} failures"] if result.totals.get("failures") else []
    stops = int(result.table["preemptions"].sum() - result.totals.get("failures", 0.0))
    odd += [f"{count(stops, 'stop')} of running jobs"] if stops else []
    title = _titled(result.scheduler)
    where = f"{count(ended['jobs'], 'job')} of {readable(result.workload.name)} on {readable(result.cluster.name)}"
    about = ", ".join([where, *(["measured"] if result.manifest.get("measured") else []), *odd])
    notes = tuple(f"{number:,} rejected: {why}" for why, number in rejections(result).items())
    courses, span = courses_of(result)
    return Sheet(
        "Result", title, "" if title == result.scheduler else result.scheduler, about,
        tuple((amount(name, measured[name]), plain_title(name)) for name in HEADLINES), courses, span, notes=notes,
    )  # fmt: skip


def _titled(label: str) -> str:
    """Name a scheduler in words by its label; no program and no file is opened for it."""
    if any(mark in label for mark in (PROGRAM, SUFFIX, "table=")):
        return readable(label)
    try:
        return people_name(parse_scheduler(label))
    except GpuyardError:  # the label of a function that only the caller has
        return readable(label)


def courses_of(result: Result) -> tuple[tuple[Course, ...], tuple[str, str]]:
    """Return the queue and the devices in use over time."""
    bins = result.timeline
    if not len(bins):
        return (), ("", "")
    first, last = float(bins["time"][0]), float(bins["time"][-1] + max(bins["span"][-1], 0.0))
    places = np.linspace(first, last, POINTS + 1)
    number = np.clip(np.searchsorted(bins["time"], places[:-1], side="right") - 1, 0, len(bins) - 1)
    queue, busy = bins["queue"][number], bins["busy"][number]
    peak, gpus = float(result.totals.get("queue_max", bins["queue_max"].max())), max(result.cluster.gpus, 1)
    return (
        Course("jobs waiting", queue, max(float(queue.max()), 1.0), f"up to {peak:,.0f}"),
        Course("GPUs in use", busy, float(gpus), f"of {gpus:,}", strong=False),
    ), _ends(result.workload, first, last)


def _ends(workload: Workload, first: float, last: float) -> tuple[str, str]:
    """Say when a course begins and ends: dates where the trace gives them."""
    begin, end = date_of(workload, first), date_of(workload, last)
    if begin is not None and end is not None:
        return f"{begin:%Y-%m-%d %H:%M}", f"{end:%Y-%m-%d %H:%M}"
    return "0" if first == 0 else duration(first), duration(last)


# ── what a result is made of ──


@sheet_of.register
def _of_workload(workload: Workload) -> Sheet:
    jobs = workload.jobs
    if not len(workload):
        return Sheet("Workload", readable(workload.name), about="no jobs")
    first, last = float(jobs.submit[0]), float(jobs.submit[-1])
    span, work = last - first, float(jobs.gpus @ workload.runtime)
    people = len(np.unique(jobs.user)) if any(jobs.users) else 0
    about = [
        count(len(workload), "job"),
        *([f"{duration(span)} of submissions"] if span else []),
        *([count(people, "user")] if people else []),
    ]
    per_bin = np.histogram(jobs.submit, POINTS // 2, (first, max(last, first + 1.0)))[0].astype(float)
    hourly = per_bin * 3600.0 * (POINTS // 2) / max(span, 1.0)
    figures = [
        (duration(float(np.median(workload.runtime))), "median run time"),
        (duration(float(workload.runtime.max())), "longest"),
        (f"{jobs.gpus.mean():.3g}", "GPUs a job, mean"),
        (f"{work / 3600:,.0f}", "GPU-hours"),
    ]
    figures += [(f"{work / span:,.0f}", "GPUs in use if nobody waited")] if span else []
    notes = [f"estimates: {workload.estimates}", *(f"{number:,} rows dropped: {why}" for why, number in workload.dropped.items())]
    course = Course("submitted per hour", hourly, max(float(hourly.max()), 1.0), f"up to {hourly.max():,.0f}")
    return Sheet(
        "Workload", readable(workload.name), about=", ".join(about), figures=tuple(figures), courses=(course,) if span else (),
        span=_ends(workload, first, last), notes=tuple(notes), grid=_sizes(workload), short=True,
    )  # fmt: skip


_BOUNDS = ((0.0, "none"), (0.999, "a part of one"), (1.0, "1"), (4.0, "2–4"), (8.0, "5–8"), (32.0, "9–32"), (np.inf, "more"))


def _sizes(workload: Workload) -> Grid:
    """Count jobs and work by the number of GPUs."""
    gpus, work = workload.jobs.gpus, workload.jobs.gpus * workload.runtime
    rows, low = [], -1.0
    for high, title in _BOUNDS:
        mine, low = (gpus > low) & (gpus <= high), high
        if mine.any():
            share = work[mine].sum() / max(work.sum(), 1e-9)
            rows.append((title, f"{int(mine.sum()):,}", f"{100 * mine.mean():.0f} %", f"{100 * share:.0f} %"))
    return Grid(("GPUs of a job", "jobs", "of the jobs", "of the work"), rows, {})


@sheet_of.register
def _of_cluster(cluster: Cluster) -> Sheet:
    nodes = cluster.nodes
    keys = np.stack([nodes.partition, nodes.gpu_type, nodes.gpus])
    groups, sizes = np.unique(keys, axis=1, return_counts=True)
    several = len(cluster.partitions) > 1
    rows = []
    for (partition, kind, gpus), number in zip(groups.T.tolist(), sizes.tolist(), strict=True):
        device, place = cluster.types[kind], cluster.partitions[partition]
        quota = f" (at most {place.quota:,.0f} GPUs)" if np.isfinite(place.quota) else ""
        memory = f"{device.memory:.3g} GB" if device.memory else "–"
        first = (readable(place.name) + quota,) if several else ()
        size = (f"{number:,} × {gpus}", f"{number * gpus:,}")
        rows.append((*first, readable(device.name), *size, f"{device.speed:.3g}", memory))
    header = (*(["partition"] if several else []), "GPU", "nodes", "GPUs", "speed", "memory")
    about = f"{count(cluster.gpus, 'GPU')} in {count(len(nodes), 'node')}"
    about += f", {count(len(cluster.partitions), 'partition')}" if several else ""
    about += f", {count(len(cluster.outages), 'outage')}" if cluster.outages else ""
    return Sheet(
        "Cluster", readable(cluster.name), about=about, short=True,
        grid=Grid(header, rows[: 2 * MOST_ROWS], {}, left=2 if several else 1, more=_left_out(len(rows), 2 * MOST_ROWS)),
    )  # fmt: skip


def _left_out(number: int, shown: int) -> str:
    return f"and {number - shown:,} more" if number > shown else ""


@sheet_of.register
def _of_scheduler(scheduler: Scheduler) -> Sheet:
    slots = {name: getattr(scheduler, name) for name in ("ordering", "placement", "backfill", "preemption")}
    rows = [(name, policy.label, _capital(policy.title)) for name, policy in slots.items()]
    return Sheet("Scheduler", people_name(scheduler), scheduler.label, grid=Grid(("slot", "policy", ""), rows, {}, left=3), short=True)


@sheet_of.register
def _of_meta(scheduler: Meta) -> Sheet:
    rows = [(str(k), each.label, people_name(each)) for k, each in enumerate(scheduler.schedulers)]
    often = f"asked every {duration(scheduler.every)}" if scheduler.every else "asked at every pass"
    return Sheet(
        "Meta", _capital(scheduler.rule.title), scheduler.label, f"switches between {len(rows)} schedulers, {often}",
        grid=Grid(("", "scheduler", ""), rows, {}, left=3), short=True,
    )  # fmt: skip


@sheet_of.register
def _of_decider(scheduler: Decider) -> Sheet:
    rows = [(name, short(value)) for name, value in scheduler.params]
    about = f"builds on {scheduler.inner.label}" if scheduler.inner else "decides by itself"
    return Sheet(
        "Decider",
        _capital(scheduler.title),
        scheduler.label,
        about,
        grid=Grid(("parameter", "value"), rows, {}) if rows else None,
        short=True,
    )


@sheet_of.register
def _of_snapshot(snapshot: Snapshot) -> Sheet:
    waiting, free, gpus = snapshot.waiting, int(snapshot.free_gpus().sum()), snapshot.cluster.gpus
    jobs = snapshot.jobs
    rows = []
    for row in waiting[:MOST_ROWS].tolist():
        waited, estimate = snapshot.now - float(jobs.submit[row]), float(jobs.estimate[row])
        rows.append((f"{jobs.id[row]}", f"{jobs.gpus[row]:g}", duration(waited), duration(estimate)))
    figures = ((f"{len(waiting):,}", "waiting"), (f"{len(snapshot.running):,}", "running"), (f"{free:,} of {gpus:,}", "GPUs free"))
    grid = Grid(("waiting job", "GPUs", "waited", "estimate"), rows, {}, more=_left_out(len(waiting), MOST_ROWS)) if rows else None
    return Sheet("Snapshot", f"At {duration(snapshot.now)}", about=readable(snapshot.cluster.name), figures=figures, grid=grid, short=True)


# ── comparisons ──


@sheet_of.register
def _of_summary(summary: Summary) -> Sheet:
    if not summary.single:
        grid = grid_of(in_order(summary), summary.table, summary.results.name)
        return Sheet("Summary", readable(summary.results.experiment.title), notes=summary.notes[:2], grid=grid)
    grid = grid_of(in_order(summary), summary.table, summary.results.name, summary)
    seeds, found = len(summary.seeds), plain_answer(summary)
    place = f"{readable(summary.workload)} on {readable(summary.cluster)}, {'one sample' if seeds == 1 else f'{seeds} seeds'}"
    notes = (" ".join((found.sure, *found.peers)), *found.pays[:1]) if found is not None else ()
    return Sheet("Comparison", found.sentence if found is not None else place, about=place, notes=tuple(filter(None, notes)), grid=grid)


@sheet_of.register
def _of_comparison(table: Comparison) -> Sheet:
    about = f"{table.group}, " * bool(table.group) + f"{count(table.runs, 'run')} each, compared with {table.baseline}"
    return Sheet("Comparison", _capital(plain_title(table.objective)), about=about, grid=grid_of(table.lines, table, str))


def grid_of(lines: Sequence[Standing], table: Comparison, name_of: Callable[[str], str], single: Summary | None = None) -> Grid:
    """Return a row per scheduler: its change of the objective in words, and the mean of every metric.

    Changes are from the baseline or, of one workload on one cluster (`single`), from what the answer compares with.
    """
    shown = list(lines[0].values)[: MOST_ROWS - 2]
    today = today_of(single) if single is not None else None
    base = today.scheduler if today is not None else table.baseline
    shares = [_change(single, line) for line in lines]
    header = ("scheduler", f"against {in_sentence(name_of(base))}", *map(plain_title, shown))
    lower_wins = MINIMUM[resolve(table.objective)[0].better] > 0
    marked = {
        (row, 1): "good" if (share.mean < 0) == lower_wins else "bad"
        for row, share in enumerate(shares)
        if share and share.n >= FEWEST and (share.low > 0 or share.high < 0)
    }
    rows = [
        (
            _named(line.scheduler, name_of),
            share_cell(share, table.objective) if share else "baseline" if line.scheduler == base else "",
            *(amount(metric, line.values[metric].mean) for metric in shown),
        )
        for line, share in zip(lines, shares, strict=True)
    ]
    return Grid(header, rows, marked)


def _change(single: Summary | None, line: Standing) -> Interval | None:
    if single is not None:
        return against_today(single, line)
    return line.versus.share_interval if line.versus is not None else None


def _named(label: str, name_of: Callable[[str], str]) -> str:
    """Return a name for people, with the code below it."""
    name = name_of(label)
    return name if name == label else f"{name}\n{label}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:].removesuffix(".")
