"""Preemption by rank on production traces, as a paired comparison with saf + EASY: `python benchmarks/rank.py --traces ../shared/traces`.

Seven logs as pools of P devices; twelve windows of 1,500 jobs, their starts evenly spread over the last 40 % of each log; jobs wider than
P or of no length are left out; arrivals are rescaled so that work / (P × time from the first submit to the last) is 1.0 (HPC) or 1.1 (GPU).
A window begins empty; jobs that had ended in the log before it are history for the estimates (`boosting`), inside it only simulated ends
count. Wait is turnaround − run time, so that stops and restarts count. Tables of run times were fitted on 25–60 % of logs. Every run is
a line of --out; a line that is there is not computed again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from gpuyard import Rules, Workload, load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.experiments.judging.statistics import ratio_of_sums
from gpuyard.model.estimator import EndedLog
from gpuyard.policies.ranks import fit_run_times, write_run_times
from gpuyard.traces import apply, with_estimate
from gpuyard.traces.changes.reshape import stretch
from rank_bars import BASELINE, bars, plain, together

WINDOWS, JOBS, FIRST = 12, 1500, 0.6


@dataclass(frozen=True)
class Log:
    """A trace, the devices of its pool, the load that windows are scaled to, and the shipped table for it."""

    path: str
    devices: int
    load: float
    table: str


LOGS = {
    "KTH": Log("swf/KTH-SP2-1996-2.1-cln.swf.gz", 100, 1.0, "hpc"),
    "SDSC-SP2": Log("swf/SDSC-SP2-easy-resimulated.swf.gz", 128, 1.0, "hpc"),
    "CTC": Log("swf/CTC-SP2-easy-resimulated.swf.gz", 338, 1.0, "hpc"),
    "HPC2N": Log("swf/HPC2N-2002-2.1-cln.swf.gz", 240, 1.0, "hpc"),
    "Philly": Log("philly/philly_jobs_vc.csv.gz", 256, 1.1, "gpu"),
    "Helios": Log("helios/helios_venus_gpu_jobs.csv.gz", 256, 1.1, "gpu"),
    "PAI": Log("alibaba/pai2020_gpu_tasks_sample.csv.gz", 256, 1.1, "gpu"),
}


@dataclass(frozen=True)
class Condition:
    """What is asked: the share of jobs that may be stopped, the price of a stop (s), and the load as a share of the usual one."""

    share: float = 1.0
    restart: float = 60.0
    checkpoint: float = 600.0
    cost: float = 0.0  # s to write a checkpoint
    load: float = 1.0
    estimate: str = "boosting"
    change: str = "preemptible"  # or kill-once: what may be done to that share of the jobs

    @property
    def rules(self) -> Rules:
        return Rules(checkpoint=self.checkpoint, restart_cost=self.restart, checkpoint_cost=self.cost)


USUAL = Condition()
CONDITIONS = {
    "usual": USUAL,
    "share0": replace(USUAL, share=0.0), "share20": replace(USUAL, share=0.2), "share50": replace(USUAL, share=0.5),
    "c300": replace(USUAL, restart=300.0),
    "cost2": replace(USUAL, cost=12.0), "cost5": replace(USUAL, cost=30.0),
    "load60": replace(USUAL, load=0.6), "load70": replace(USUAL, load=0.7), "load80": replace(USUAL, load=0.8),
    "load90": replace(USUAL, load=0.9), "once": replace(USUAL, change="kill-once"),
    "half2": replace(USUAL, share=0.5, cost=12.0),
}  # fmt: skip


# ── windows ──


@lru_cache(maxsize=1)
def prepared(root: Path, name: str, estimate: str) -> tuple[Workload, EndedLog]:
    """Return the jobs of a log that fit and have a length, with a predictor, and the order in which they ended there."""
    log = LOGS[name]
    whole = load_workload(str(root / log.path))
    kept = np.flatnonzero((whole.jobs.gpus >= 1) & (whole.jobs.gpus <= log.devices) & (whole.runtime > 0))
    ready = whole.take(kept)
    table = ready.jobs.table
    for column, value in (("chunk", 1), ("cpus", 0.0), ("memory", 0.0), ("gpu_type", 0)):  # a pool counts devices only
        table[column] = value
    jobs = replace(ready.jobs, gpu_types=("",))  # partitions stay: estimates go by them, a pool has only one
    ready = with_estimate(replace(ready, jobs=jobs, machines=()), estimate)
    return ready, EndedLog.of(ready)


def window(root: Path, name: str, number: int, condition: Condition) -> Workload:
    """Return one window, at the load of the condition, with the jobs that may be stopped."""
    ready, ended = prepared(root, name, condition.estimate)
    n = len(ready)
    first = int(np.linspace(FIRST * n, n - JOBS, WINDOWS)[number])
    cut = ready.take(np.arange(first, first + JOBS))
    origin = float(cut.jobs.submit[0])
    past = ended.before(origin)
    cut.jobs.table["submit"] -= origin
    cut = replace(cut, logged_start=None)
    load = float(cut.jobs.gpus @ cut.runtime) / (LOGS[name].devices * float(np.ptp(cut.jobs.submit)))
    cut = stretch(cut, 0, factor=load / (LOGS[name].load * condition.load))
    if cut.predictor is not None:
        cut = replace(cut, predictor=cut.predictor.after(past))
    return apply(cut, f"{condition.change}:{condition.share:g}", number)


# ── runs ──


def measured(workload: Workload, scheduler: str, devices: int, rules: Rules) -> dict[str, float]:
    """Simulate and return means over the jobs."""
    result = simulate(workload, load_cluster(str(devices)), parse_scheduler(scheduler), rules=rules)
    table, runtime = result.table, workload.runtime
    turnaround = table["end"] - workload.jobs.submit
    wait = np.maximum(turnaround - runtime, 0.0)  # but for rounding it is not negative
    volunteers = workload.jobs.stated["preemptible"] > 0
    needed = float(runtime @ workload.jobs.gpus)
    return {
        "wait": float(wait.mean()), "bsld": float(np.maximum(turnaround / np.maximum(runtime, 10.0), 1.0).mean()),
        "p99": float(np.quantile(wait, 0.99)), "longest": float(wait.max()), "stops": float(table["preemptions"].mean()),
        "most_stops": float(table["preemptions"].max()), "lost": float(table["gpu_seconds"].sum() / needed - 1.0),
        "wait_volunteers": float(wait[volunteers].mean()) if volunteers.any() else float("nan"),
        "wait_others": float(wait[~volunteers].mean()) if (~volunteers).any() else float("nan"),
    }  # fmt: skip


def todo(names: Sequence[str], conditions: Sequence[str], schedulers: Sequence[str], windows: int) -> Iterator[tuple[str, int, str, str]]:
    """Yield (log, window, condition, scheduler); the log varies slowest, since reading it takes longest."""
    for name in names:
        for number in range(0, WINDOWS, WINDOWS // windows):
            for condition in conditions:
                yield name, number, base_of(condition), BASELINE
                yield from ((name, number, condition, scheduler.replace("TABLE", LOGS[name].table)) for scheduler in schedulers)


def base_of(condition: str) -> str:
    """Return the condition whose baseline runs serve this one: without stops only the load matters, and whose waits are told apart."""
    return condition if CONDITIONS[condition].load != 1.0 or CONDITIONS[condition].share != 1.0 else "usual"


def run(root: Path, out: Path, names: Sequence[str], conditions: Sequence[str], schedulers: Sequence[str], windows: int) -> None:
    """Compute what --out does not have."""
    done = {(r["log"], r["window"], r["condition"], r["scheduler"]) for r in rows_of(out)}
    with out.open("a") as lines:
        for name, number, condition, scheduler in todo(names, conditions, schedulers, windows):
            if (name, number, condition, scheduler) in done:
                continue
            done.add((name, number, condition, scheduler))
            asked = CONDITIONS[condition]
            found = measured(window(root, name, number, asked), scheduler, LOGS[name].devices, asked.rules)
            row = {"log": name, "window": number, "condition": condition, "scheduler": scheduler, **found, "asked": asdict(asked)}
            lines.write(json.dumps(row) + "\n")
            lines.flush()


def rows_of(out: Path) -> list[dict[str, object]]:
    """Return the runs that are done."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


# ── tables of one log on another ──


def fitted(root: Path, folder: Path, name: str) -> Path:
    """Count the run times of 25–60 % of a log, by requested time where jobs have one, and return the file of the table."""
    path = folder / f"{name}.safetensors"
    if not path.exists():
        ready, _ = prepared(root, name, "boosting")
        n = len(ready)
        part = ready.take(np.arange(int(0.25 * n), int(FIRST * n)))
        asked = part.jobs.walltime
        by_walltime = bool(np.isfinite(asked).mean() > 0.5)
        pool = load_cluster(str(LOGS[name].devices))
        key = asked if by_walltime else simulate(part, pool, parse_scheduler(BASELINE)).workload.jobs.estimate
        folder.mkdir(parents=True, exist_ok=True)
        write_run_times(path, fit_run_times(key, part.runtime, name=name, by_walltime=by_walltime))
    return path


def exchange(root: Path, out: Path, names: Sequence[str], windows: int) -> None:
    """Run every log with the tables of all logs of its kind."""
    for name in names:
        same = [other for other in LOGS if LOGS[other].table == LOGS[name].table]
        rules = [f"{BASELINE}/gittins:table={fitted(root, out.parent / 'tables', other)}" for other in same]
        run(root, out, [name], ["usual"], rules, windows)


def exchanged(out: Path) -> str:
    """Write what the table of one log is worth on another."""
    rows = [row for row in rows_of(out) if row["condition"] == "usual"]
    lines = ["| table counted on | " + " | ".join(LOGS) + " |", "|---" * (len(LOGS) + 1) + "|"]
    for source in LOGS:
        mine = [{**row, "scheduler": "own"} for row in rows if str(row["scheduler"]).endswith(f"/{source}.safetensors")]
        base = [row for row in rows if row["scheduler"] == BASELINE]
        if mine:
            lines.append(f"| {source} | " + " | ".join(cell([*mine, *base], name, "own") for name in LOGS) + " |")
    return "\n".join(lines) if len(lines) > 2 else ""


# ── the table ──


def known(out: Path) -> list[dict[str, object]]:
    """Return the runs with tables that ship, not with those of one log."""
    return [row for row in rows_of(out) if not str(row["scheduler"]).endswith(".safetensors")]


def change(ours: np.ndarray, base: np.ndarray) -> tuple[float, float, float]:
    """Return the change of the mean over windows against the baseline, and its 95 % interval, paired by window."""
    base = np.maximum(base, 0.0)
    found = ratio_of_sums(ours - base, base)
    return found.mean, found.low, found.high


def table(out: Path, condition: str) -> str:
    """Write the runs of a condition as a table in Markdown: wait % / bounded slowdown % against saf + EASY; *: the interval excludes 0."""
    rows = [row for row in known(out) if row["condition"] == (base_of(condition) if row["scheduler"] == BASELINE else condition)]
    names = [name for name in LOGS if any(row["log"] == name for row in rows)]
    schedulers = list(dict.fromkeys([BASELINE, *(plain(row["scheduler"]) for row in rows)]))
    windows = len({row["window"] for row in rows if row["scheduler"] != BASELINE})
    head = f"{ASKED.get(condition, 'Usual')}, {windows} windows"
    lines = [f"| {head} | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for scheduler in schedulers:
        cells = [cell(rows, name, scheduler) for name in names]
        lines.append(f"| `{scheduler}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(rows: list[dict[str, object]], name: str, scheduler: str) -> str:
    """Write one cell: the level of the baseline, or the change against it over the windows that both have."""

    def of(which: str) -> dict[int, dict[str, object]]:
        return {int(str(row["window"])): row for row in rows if row["log"] == name and plain(row["scheduler"]) == which}

    base, ours = of(BASELINE), of(scheduler)
    both = sorted(set(base) & set(ours))
    if not both:
        return ""
    values = {what: np.array([[float(str(of_one[w][what])) for w in both] for of_one in (ours, base)]) for what in ("wait", "bsld")}
    if scheduler == BASELINE:
        return f"{values['wait'][1].mean() / 3600:.2f} h / {values['bsld'][1].mean():.1f}"
    found = {what: change(*pair) for what, pair in values.items()}
    return " / ".join(f"{100 * mean:+.0f}{'*' if low > 0 or high < 0 else ''}" for mean, low, high in found.values())


# ── the page ──

# Wait % / bounded slowdown % of prototypes on a counter of devices, with the log's clock for estimates (saf + EASY: hours / slowdown).
PROTOTYPES = {
    BASELINE: "2.28 h / 63.4 | 7.76 h / 48.1 | 1.18 h / 10.1 | 2.47 h / 54.1 | 0.50 h / 6.4 | 1.41 h / 62.0 | 0.25 h / 2.7",
    "LAS, log₂ levels": "+44* / -97* | +83* / -93* | -10 / -86* | -22* / -98* | -43 / -83* | -85* / -98* | -35* / -62*",
    "SRPT by area": "-33* / -68* | -12* / -55* | -37* / -66* | -44* / -84* | -48 / -67* | -84* / -98* | -42* / -60*",
    "Gittins": "-27* / -97* | -13 / -94* | -38* / -79* | -43* / -97* | -47 / -75* | -85* / -98* | -38* / -60*",
}
INTRODUCTION = """\
# Preemption by rank

Made by `python benchmarks/rank.py --traces FOLDER --page docs/reference/preemption.md`; do not edit.

What is it worth to stop jobs in the order of a [Gittins rank](../concepts/semantics.md#ranks)? A cell is the change of mean wait and of
mean bounded slowdown against `saf/fewest/easy` on the same windows of a log, in per cent; `*`: the 95 % interval, paired by window,
excludes 0. The row of the baseline has its mean wait and slowdown. Wait is turnaround − run time, so that stops and restarts count.
All jobs may be stopped, checkpoints are written every 600 s and cost nothing, a restart costs 60 s, unless a table says otherwise.

The first row of `gittins` is as shipped; the second is without ageing, and without the limit on what jobs that may be stopped pay.

Seven logs as pools of devices, windows of 1,500 jobs from the last 40 % of each log, scaled to a load of 1.0 (HPC) or 1.1 (GPU);
estimates by `boosting`, which knows what has ended in that simulation and, before the window, in the log. The tables of run
times are those that come with gpuyard, counted on 25–60 % of these logs (HPC by requested time, GPU by
estimate). In short logs the windows overlap.
"""
TOGETHER = """\
`gittins` as shipped: geometric means over the seven logs, with 95 % bootstrap intervals over the logs.
"""
BARS = """\
A log counts if the mean is as low as asked; by intervals, if the interval also excludes 0. A bar is met by the intervals of this page,
paired by window ([how well they hold](coverage.md)). The protocol had bootstraps over the windows, which are too narrow for twelve;
they stand beside (10,000 draws). The settings were chosen on other windows ([record 34](../decisions/0034-stops-that-pay.md),
[37](../decisions/0037-when-a-table-does-not-fit.md)). These windows were seen before with earlier rules, at least four times; with the
present ones they were run once.
"""
ASKED = {
    "share0": "No job may be stopped", "share20": "20 % of the jobs may be stopped", "share50": "Half of the jobs may be stopped",
    "c300": "A restart costs 300 s", "cost2": "Writing checkpoints costs 2 %", "cost5": "Writing checkpoints costs 5 %",
    "half2": "Half of the jobs may be stopped, and writing checkpoints costs 2 %",
    "once": "No checkpoints: every job may be killed once",
    "load60": "Load × 0.6", "load70": "Load × 0.7", "load80": "Load × 0.8", "load90": "Load × 0.9",
}  # fmt: skip


def page(out: Path) -> str:
    """Write all tables that --out has runs for, beside those of the prototypes."""
    lines = [INTRODUCTION, table(out, "usual"), "", "The same protocol with prototypes on a counter of devices, for comparison:", ""]
    lines += ["| prototypes | " + " | ".join(LOGS) + " |", "|---" * (len(LOGS) + 1) + "|"]
    lines += [f"| {name} | {cells} |" for name, cells in PROTOTYPES.items()]
    lines += ["", "## The bars", "", BARS, bars(known(out), list(LOGS), base_of), ""]
    lines += ["## All logs together", "", TOGETHER, together(known(out), list(LOGS), base_of), ""]
    lines += ["## What it costs", "", details(out), ""]
    lines += [
        "Where a part of the jobs may be stopped, these and the others do not gain alike. Change of their mean waits:",
        "",
        who_pays(out),
        "",
    ]
    if exchanged(out):
        lines += [
            "## Tables of other logs",
            "",
            "Tables counted on 25–60 % of one log, used on another, and on itself:",
            "",
            exchanged(out),
            "",
        ]
    done = {str(row["condition"]) for row in rows_of(out) if row["scheduler"] != BASELINE}
    lines += (
        [
            "## Other conditions",
            "",
            "`gittins` as shipped. The time that a job spends on writing checkpoints counts as wait. Runs of the baseline write none.",
            "",
            verdict(out),
            "",
        ]
        if done & set(ASKED)
        else []
    )
    for condition in (each for each in ASKED if each in done):
        lines += [table(out, condition), ""]
    return "\n".join(lines)


def verdict(out: Path) -> str:
    """Say in how many of the cells of the other conditions wait or slowdown is worse than under the baseline."""
    rows = [row for row in rows_of(out) if row["condition"] in ASKED and row["scheduler"] != BASELINE]
    cells = sorted({(str(row["condition"]), str(row["log"]), plain(row["scheduler"])) for row in rows})
    worse, counted = [], 0
    for condition, log, scheduler in cells:
        part = [row for row in rows_of(out) if row["condition"] == (base_of(condition) if row["scheduler"] == BASELINE else condition)]
        text = cell(part, log, scheduler)
        counted += 2 * (text != "")
        worse += [f"{condition} on {log}" for each in text.split(" / ") if each.startswith("+") and each.endswith("*")]
    found = f"{len(worse)}: {', '.join(worse)}" if worse else "none"
    return f"Of {counted} changes of wait and slowdown below, those worse than the baseline with an interval that excludes 0: {found}."


def who_pays(out: Path) -> str:
    """Write the change of the mean wait of jobs that may be stopped and of the others, against the same jobs under the baseline."""
    lines = ["| may be stopped | whose wait | " + " | ".join(LOGS) + " |", "|---" * (len(LOGS) + 2) + "|"]
    for condition in ("share20", "share50", "half2"):
        every = [row for row in rows_of(out) if row["condition"] == condition]
        base = {(row["log"], row["window"]): row for row in every if row["scheduler"] == BASELINE}
        rows = [row for row in every if row["scheduler"] != BASELINE]
        for whose, what in (("wait_volunteers", "may be stopped"), ("wait_others", "may not")):
            found = []
            for log in LOGS:
                pairs = [(row, base[log, row["window"]]) for row in rows if row["log"] == log and (log, row["window"]) in base]
                if pairs:
                    ours, theirs = (np.array([float(str(pair[k][whose])) for pair in pairs]) for k in (0, 1))
                    mean, low, high = change(ours, theirs)
                    found.append(f"{100 * mean:+.0f}{'*' if low > 0 or high < 0 else ''}")
                else:
                    found.append("")
            lines.append(
                f"| {ASKED[condition].split(' of')[0]}{', cost 2 %' if condition == 'half2' else ''} | {what} | " + " | ".join(found) + " |"
            )
    return "\n".join(lines)


def details(out: Path) -> str:
    """Write what means hide: p99 and longest wait (h), stops per job and of the most stopped job, GPU time lost; means over windows."""
    rows = [row for row in known(out) if row["condition"] == "usual"]
    schedulers = list(dict.fromkeys(plain(row["scheduler"]) for row in rows))
    lines = [
        "| log | scheduler | p99 wait (h) | longest wait (h) | stops per job | most stopped job | GPU time lost |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, scheduler in ((name, scheduler) for name in LOGS for scheduler in schedulers):
        found = [row for row in rows if row["log"] == name and plain(row["scheduler"]) == scheduler]
        if found:
            p99, longest, stops, lost = (np.mean([float(str(row[what])) for row in found]) for what in ("p99", "longest", "stops", "lost"))
            most = max(float(str(row["most_stops"])) for row in found)
            told = f"{p99 / 3600:.1f} | {longest / 3600:.0f} | {stops:.2f} | {most:.0f} | {100 * lost:.1f} %"
            lines.append(f"| {name} | `{scheduler}` | {told} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True, help="folder with swf, philly, helios and alibaba")
    parser.add_argument("--out", type=Path, default=Path("rank.jsonl"))
    parser.add_argument("--log", action="append", choices=list(LOGS), help="repeatable; all unless given")
    parser.add_argument("--condition", action="append", choices=list(CONDITIONS), help="repeatable; usual unless given")
    parser.add_argument("--rule", action="append", help="in the preemption slot; repeatable; TABLE stands for the log's shipped table")
    parser.add_argument("--exchange", action="store_true", help="run every log with the tables of the other logs of its kind instead")
    parser.add_argument("--windows", type=int, default=WINDOWS, choices=[1, 2, 3, 4, 6, 12])
    parser.add_argument("--page", type=Path, help="write all runs of --out as a page there")
    given = parser.parse_args()
    conditions = given.condition or ["usual"]
    rules = given.rule or ["gittins:table=TABLE", "gittins:table=TABLE,ageing=0,burden=inf", "las-log2", "srpt-area"]
    names = given.log or list(LOGS)
    if given.exchange:
        exchange(given.traces, given.out, names, given.windows)
    else:
        run(given.traces, given.out, names, conditions, [f"{BASELINE}/{rule}" for rule in rules], given.windows)
    for condition in conditions:
        print(table(given.out, condition), end="\n\n")
    if given.page:
        given.page.write_text(page(given.out))


if __name__ == "__main__":
    main()
