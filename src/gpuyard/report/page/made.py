"""How a comparison was made: where the jobs come from, what was dropped, the cluster, the estimates, the statistics, the command."""

from __future__ import annotations

import json
import math
import platform
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuyard import __version__
from gpuyard.experiments.judging.answering.names import duration
from gpuyard.experiments.judging.answering.provenance import Provenance
from gpuyard.experiments.judging.summary import Summary
from gpuyard.experiments.judging.text import count, readable, short
from gpuyard.report.page.frame import folded, text
from gpuyard.report.page.parts import facts, sentences
from gpuyard.traces.estimates.sources import described

MOST_NOTES = 4
PSEUDONYMS = "Called user-1, user-2 … in the order of their first jobs; --show-names shows their names."
NOTICED = 0.005  # share of jobs that are worth a number
MUCH = 0.01  # share of the rows whose loss is felt
_SOURCES = {
    "requested": "the times that users asked for",
    "exact": "the run times themselves, which nobody knows in advance",
    "given": "as the log gives them",
}


def places_of(summary: Summary) -> list[str]:
    """Say what a comparison is about: file, jobs and users, dates, cluster."""
    found = summary.results.provenance
    if found is None:
        jobs = summary.results.counts(summary.lines[-1].scheduler)["jobs"]
        return [readable(summary.workload), f"{jobs:,} jobs", readable(summary.cluster, 40)]
    return place_words(summary.workload, summary.cluster, found, len(summary.seeds))


def place_words(workload: str, cluster: str, found: Provenance, seeds: int) -> list[str]:
    """Name the file, its jobs and users, its dates and the cluster."""
    who = f" of {count(found.users, 'user')}" if found.users else ""
    times = f" in each of {seeds} seeds" if seeds > 1 else ""
    dates = [f"{found.first} to {found.last}"] if found.first else []
    name = workload if found.generated else workload.rpartition("/")[2]
    return [readable(name), f"{found.jobs:,} jobs{who}{times}", *dates, f"on {_machine(found) if found.why else readable(cluster, 40)}"]


def made_parts(summaries: Sequence[Summary]) -> list[str]:
    """The section that says how the numbers were made, for the screen and for paper."""
    summary = summaries[0]
    command = str(summary.results.about.get("command") or "")
    rows = provenance_facts(summary) if len(summaries) == 1 else {}
    rows |= {"statistics": text(_statistics(summary))} | made_by(command)
    raw = json.dumps(_readable_all(summary.results.experiment.record()), indent=1, ensure_ascii=False)
    return [
        f"<h2>How this was made</h2>{facts(rows)}",
        folded("How the statistics work", sentences(method(summary))),
        folded("All settings", f'<pre class="wrap"><code>{text(raw)}</code></pre>'),
    ]


def _readable_all(value: object) -> object:
    """Make every text in a value readable."""
    if isinstance(value, Mapping):
        return {key: _readable_all(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_readable_all(each) for each in value]
    return readable(value, 400) if isinstance(value, str) else value


def _without_folders(command: str) -> str:
    """The command as it was typed, but for folders, which name machines and people."""
    parts = (Path(part).name if part.startswith(("/", "~", "..")) else part for part in shlex.split(command))
    return readable(shlex.join(parts), 400)


def made_by(command: str) -> dict[str, str]:
    """Name the versions, and the command that makes the same again."""
    made = {"made by": text(f"gpuyard {__version__}, Python {platform.python_version()}")}
    return made | {"command": f"<code>{text(_without_folders(command))}</code>" if command else ""}


def provenance_facts(summary: Summary) -> dict[str, str]:
    """Log, rows, cluster, estimates and notes, each with what it means."""
    found = summary.results.provenance
    rows = origin_facts(found, summary.cluster, len(summary.seeds)) if found is not None else {}
    rows["estimates"] = text(estimates_words(summary.estimate, summary.results.accuracy))
    known = [note for note in summary.notes if not note.startswith("time 0 is") and " dropped: " not in note]
    more = f" And {len(known) - MOST_NOTES} more." if len(known) > MOST_NOTES else ""
    rows["notes"] = ".<br>".join(text(readable(each, 180)) for each in known[:MOST_NOTES]) + ("." if known else "") + more
    return rows


def origin_facts(found: Provenance, cluster: str, seeds: int) -> dict[str, str]:
    """Jobs, rows that were dropped, cluster and names of users, each with what it means."""
    span = f" over {duration(found.span)}" if found.span else ""
    dates = f", from {found.first} to {found.last}" if found.first else ""
    times = f" in each of {seeds} seeds" if seeds > 1 else ""
    machine = f"{_machine(found)}: {found.why}" if found.why else f"{_machine(found)}, as asked for: {cluster}"
    return {
        "jobs": text(f"{found.jobs:,} jobs{'' if found.generated else ' of a log'}{times}{span}{dates}"),
        "rows dropped": text(_dropped(found)), "cluster": text(machine), "users": text(PSEUDONYMS) if found.pseudonyms else "",
    }  # fmt: skip


def _machine(found: Provenance) -> str:
    return f"{found.devices:,} {found.device}" + (f" in {count(found.nodes, 'node')}" if found.nodes > 1 else "")


def _dropped(found: Provenance) -> str:
    """Say which rows were left out, and what this does to the answer."""
    if not found.dropped:
        return "" if found.generated else "None: every row of the log is simulated."
    lost = sum(found.dropped.values())
    why = "; ".join(f"{reason} ({number:,})" for reason, number in found.dropped.items())
    share = lost / found.rows
    meaning = "too few to matter" if share < MUCH else "they took no room here, so the simulated cluster is emptier than the real one was"
    return f"{lost:,} of {found.rows:,} ({short(100 * share)} %): {readable(why, 200)}. This means: {meaning}."


def estimates_words(estimate: str, accuracy: Mapping[str, float]) -> str:
    """Say what schedulers believe about run times, and how wrong it is."""
    name = estimate.partition(";")[0]
    told = f"{described(estimate)}: {_SOURCES[name]}" if name in _SOURCES else described(estimate)
    if not accuracy or not math.isfinite(accuracy["ratio"]) or name == "exact":
        return f"{told}."
    longer = f"{short(100 * accuracy['below'])} % of" if accuracy["below"] >= NOTICED else "hardly any"
    return f"{told}; half of them are more than {short(accuracy['ratio'])} × the run time, and {longer} jobs ran longer."


def _statistics(summary: Summary) -> str:
    table = summary.table
    if table.over == "time block":
        return "One log is one sample: ranges are 95 % intervals over blocks of time, and pairs are jobs."
    return f"Every scheduler ran the same jobs; ranges are 95 % intervals over {count(table.n, table.over)}."


def method(summary: Summary) -> list[str]:
    """Explain how the numbers were computed."""
    table, oracle = summary.table, summary.results.experiment.judge.oracle
    summed = "" if table.over in ("workload", "time block") else ", each summed up over all workloads"
    both = "; there is also an interval over the seeds of the workloads; the wider one is shown, of differences the one with the larger p"
    both = both if table.over == "training seed" else ""
    shared = "jobs close in time share a queue" if table.over == "time block" else "runs that share one are not independent"
    test = (
        "A p value is below 0.05 exactly where the interval of the difference excludes 0; p values are corrected by Holm's method for all "
        f"{summary.comparisons} comparisons, and a difference is called sure only where the corrected p is below 0.05 too."
        if summary.comparisons
        else "One sample allows no test: a difference is called sure where its interval excludes 0."
    )
    sentences = [
        "Every scheduler ran on exactly the same workloads with the same seeds, so all comparisons are paired: they compare differences on "
        "the same runs, not means of different ones.",
        f"A mean is taken over all runs; its interval rests on the {table.n} {table.over}s{summed}, because {shared}: an interval "
        f"never rests on more values than that{both}.",
        "Intervals are 95 % intervals of Student's t, corrected for skewness and widened for few values; the effect size is the mean "
        "difference over the standard deviation of the differences.",
        test,
    ]
    if oracle:
        of = (
            f"the best of {', '.join(map(readable, oracle))} for each run, chosen" if len(oracle) > 1 else f"{readable(oracle[0])}, planned"
        )
        sentences.append(f"The oracle is {of} after the fact; it knows what no scheduler could know, and yet one may pass it.")
    if any(each.bound is not None for each in summary.tables):
        sentences.append("The bound is a value that no scheduler at all can pass on the same jobs; how close one can come is not known.")
    return sentences
