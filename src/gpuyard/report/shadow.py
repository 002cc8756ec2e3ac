"""The report of a shadow log: what a scheduler would have done with the jobs of days or weeks, and how that is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from gpuyard.experiments.compare import Plan, Source
from gpuyard.experiments.compare import compare as compared_runs
from gpuyard.experiments.judging.answering.names import duration, in_sentence, people_name
from gpuyard.experiments.judging.summary import Summary
from gpuyard.experiments.judging.text import count
from gpuyard.experiments.usual import TODAY, usual_metrics
from gpuyard.live.shadow import ShadowLog, read_shadow
from gpuyard.policies import AnyScheduler, parse_scheduler
from gpuyard.report.page.compared import compared
from gpuyard.report.page.frame import ReportPage, document
from gpuyard.report.page.parts import card, grid, sentences
from gpuyard.report.writing import write_page

THREADS = 2


def write_shadow(log: Path, out: Path, scheduler: str = "", command: str = "") -> tuple[Path, Summary, ShadowLog]:
    """Write the report of a log; the scheduler is the log's own unless another is named. Returns the path of the HTML file."""
    found = read_shadow(log)
    found.workload()  # a log that is too short is refused before anything is made of it
    made = parse_scheduler(scheduler or found.scheduler)
    summary = shadow_summary(found, made)
    summary = replace(summary, results=replace(summary.results, about={**summary.results.about, "command": command}))
    return write_page(document(shadow_page(found, summary, made)), out), summary, found


def shadow_summary(found: ShadowLog, scheduler: AnyScheduler) -> Summary:
    """Simulate the logged jobs under the scheduler, and under what sites run today, beside what actually happened."""
    named, cluster = found.workload()
    workload = named.with_users(named.pseudonyms())
    today = parse_scheduler(TODAY)
    schedulers = (scheduler,) if scheduler.label == today.label else (today, scheduler)
    source = Source("shadow log", lambda _: workload, False, (cluster,), why="as the batch system reported it", pseudonyms=True)
    return compared_runs(Plan((source,), schedulers, usual_metrics([workload]), seeds=(0,)), threads=THREADS)[0]


def shadow_page(found: ShadowLog, summary: Summary, scheduler: AnyScheduler) -> ReportPage:
    """Lay out the page: the comparison of the logged jobs, and what the shadow itself counted."""
    page = compared(summary)
    name = in_sentence(people_name(scheduler))
    cards = (
        card("What the shadow saw", sentences(seen_sentences(found)), sub="Counted from the log: nothing here is simulated."),
        card("How this is known", sentences(known_sentences(found))),
    )
    seen = f'<div class="screen">{grid(cards, "tell")}</div>'  # on paper the sheets have no room for it
    first, *others = page.manager
    places = [f"shadow log of {_span(found.days)}", count(found.cycles, "cycle"), *page.place[1:]]
    return replace(
        page, place=places, question=f"Would {name} serve this cluster better than its own scheduler?", manager=[first, seen, *others]
    )


def seen_sentences(found: ShadowLog) -> list[str]:
    """Return what was counted while the scheduler looked on."""
    lines = [f"Cycles: {found.cycles:,} in {_span(found.days)}, {found.errors:,} of them failed."]
    if found.disorder:
        lines.append(
            f"Order: in a usual cycle {100 * float(np.median(found.disorder)):.0f} % of the waiting jobs stood elsewhere than it wanted."
        )
    if found.waits:
        lines.append(
            f"Waits: the {len(found.waits):,} jobs that were seen to start had waited {duration(float(np.mean(found.waits)))} on average."
        )
    sooner = np.array([lead for lead in found.leads if lead > 0])
    if len(sooner):
        share = 100 * len(sooner) / len(found.leads)
        half = duration(float(np.median(sooner)))
        lines.append(f"Starts: {share:.0f} % of them it would have started before, half of these by {half} or more.")
    return lines


def known_sentences(found: ShadowLog) -> list[str]:
    """Return how the answer came about."""
    lines = [
        f"Measured: when the {len(found.jobs):,} jobs that ended were submitted, started and ended.",
        "Simulated: the same jobs with their measured run times, from an empty cluster, under this scheduler and what sites run today.",
        "Sure: intervals come from blocks of time; a week has few, so a second one tells more.",
        "Not seen: jobs that ran across the ends of the log, and how users would have answered to other waits.",
    ]
    if found.acted:
        lines.append(f"Careful: in {100 * found.acted / found.cycles:.0f} % of the cycles the scheduler was not a shadow, but acted.")
    if found.broken:
        lines.append(f"Left out: {count(found.broken, 'part')} of the log that could not be read.")
    return lines


def _span(days: float) -> str:
    return f"{days:.1f} days" if days >= 1 else f"{24 * days:.1f} hours"
