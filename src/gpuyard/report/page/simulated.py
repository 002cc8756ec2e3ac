"""The page of `simulate`: how one scheduler serves the jobs, and who waits how long."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np

from gpuyard.experiments.judging.answering.names import amount, duration, in_sentence, plain_title
from gpuyard.experiments.judging.answering.provenance import Provenance
from gpuyard.experiments.judging.answering.waits import LENGTH, PARTITION, SIZE, USER, WaitSums, groups_of, wait_sums
from gpuyard.experiments.judging.text import count, metric_title, readable, short
from gpuyard.metrics import measure, rejections, resolve
from gpuyard.model.result import Result
from gpuyard.report.page.courses import AreaCourse, course_chart
from gpuyard.report.page.frame import ReportPage, document, text
from gpuyard.report.page.made import estimates_words, made_by, origin_facts, place_words
from gpuyard.report.page.parts import TableCell, TableRow, card, facts, grid, level_bars, sentences, table

MOST_GROUPS = 6
MOST_USERS = 5
MOST_ROWS = 16  # metrics on paper
WAIT = "waiting"  # jobs that never started have no other
HEADLINES = ("wait", "wait.max", "bsld", "utilization")
_STEPS = (60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400, 14 * 86400, 30 * 86400, 91 * 86400, 365 * 86400)


def simulation_page(result: Result, name: str, measured: Mapping[str, float], origin: Provenance, command: str) -> str:
    """Write the page of a result; `name` is that of its scheduler for people, `measured` the metrics to list."""
    sums = wait_sums(result, WAIT, groups_of(result.workload), np.zeros(len(result), np.int64), None)
    values = measure(result, HEADLINES)
    by_length = card("Who waits how long", _levels(sums, LENGTH), sub="Mean wait by length of the job")
    return document(ReportPage(
        place_words(result.workload.name, result.cluster.name, origin, 1), f"How does {in_sentence(name)} serve these jobs?",
        text(_answer(name, values, origin.device)),
        [
            grid([_hero(result, origin.device), by_length], "hero"), _strip(values), _groups(sums, origin),
            grid([_trust(result), _next_steps(result)], "tell"),
        ],
        [f'<div class="print"><h2>What was measured</h2>{metrics_table(measured, codes=False)}</div>', _users(sums)],
        [("All that was measured", metrics_table(measured, codes=True))], [_made(result, origin, command)],
    ))  # fmt: skip


def _answer(name: str, values: Mapping[str, float], device: str) -> str:
    wait, longest, busy = (amount(each, values[each]) for each in ("wait", "wait.max", "utilization"))
    return f"Under {in_sentence(name)} jobs wait {wait} on average and {longest} at most, and {busy} of the {device} are busy."


def _hero(result: Result, device: str) -> str:
    """How many jobs wait and how many devices are busy, over time."""
    bins = result.timeline
    if not len(bins):
        return ""
    edges = np.append(bins["time"], bins["time"][-1] + max(float(bins["span"][-1]), 1e-9))
    up = float(bins["up"].max(initial=0.0)) or 1.0
    most = float(bins["queue_max"].max(initial=0.0))
    when = duration(float(bins["time"][int(np.argmax(bins["queue_max"]))] - edges[0]))
    title = f"At most {count(round(most), 'job')} wait at once, after {when}" if most > 0 else "No job ever waits"
    courses = [
        AreaCourse(
            "jobs waiting", bins["queue"], float(bins["queue"].max(initial=0.0)), short(float(bins["queue"].max(initial=0.0))), "bad"
        ),
        AreaCourse(f"{device} busy", bins["busy"], up, short(up), "accent"),
    ]
    span = float(edges[-1] - edges[0])
    step = next((each for each in _STEPS if span / each <= 7), span)
    ticks = [(float(edges[0] + k * step), re.sub(r"\.0 ", " ", duration(k * step)) if k else "0") for k in range(int(span / step) + 1)]
    return card(title, course_chart(edges, courses, ticks, title), sub="Means over short stretches of time; time since the first job.")


def _strip(values: Mapping[str, float]) -> str:
    shown = "".join(
        f"<div><b>{text(amount(name, value))}</b><span>{text(plain_title(name))}</span></div>" for name, value in values.items()
    )
    return card("In four numbers", f'<div class="figures">{shown}</div>', kind="strip")


def _means(sums: WaitSums, grouping: str) -> list[tuple[str, int, float]]:
    """(group, jobs, mean wait in s) of the groups that have jobs."""
    if grouping not in sums.labels:
        return []
    jobs, seconds = (each[grouping].sum(axis=0).tolist() for each in (sums.jobs, sums.seconds))
    return [(label, int(n), total / n) for label, n, total in zip(sums.labels[grouping], jobs, seconds, strict=True) if n]


def _levels(sums: WaitSums, grouping: str) -> str:
    found = _means(sums, grouping)
    most = sorted((jobs for _, jobs, _ in found), reverse=True)[:MOST_GROUPS]
    return level_bars([(label, jobs, mean) for label, jobs, mean in found if jobs >= min(most, default=0)][:MOST_GROUPS])


def _groups(sums: WaitSums, origin: Provenance) -> str:
    cards = [card("By size of the job", _levels(sums, SIZE), sub=origin.device)]
    if PARTITION in sums.labels:
        cards.append(card("By partition", _levels(sums, PARTITION), sub=f"the {MOST_GROUPS} with most jobs"))
    users = sorted(mean for _, _, mean in _means(sums, USER))
    if users:
        middle, last = users[len(users) // 2], users[-1]
        cards.append(
            card(
                "By user", f"<p>Half of {count(len(users), 'user')} wait at least {duration(middle)} on average, one {duration(last)}.</p>"
            )
        )
    return f"<h2>Who waits how long</h2>{grid(cards)}"


def _users(sums: WaitSums) -> str:
    found = sorted(_means(sums, USER), key=lambda each: -each[1] * each[2])[:MOST_USERS]
    if not found:
        return ""
    rows = [TableRow(readable(user, 24), [TableCell(f"{jobs:,}"), TableCell(duration(mean))]) for user, jobs, mean in found]
    return f"<h2>Users who wait most in all</h2>{table(['user', 'jobs', 'mean wait'], rows)}"


def metrics_table(measured: Mapping[str, float], *, codes: bool) -> str:
    """Metrics with their values in words, and with the names by which they are asked for."""
    words = {"lower": "lower is better", "higher": "higher is better", "neither": ""}
    known = {name: value for name, value in measured.items() if codes or math.isfinite(value)}
    rows = [
        TableRow(
            _capital(readable(metric_title(name), 60)), [TableCell(amount(name, value)), TableCell(words[resolve(name)[0].better])],
            name if codes else "",
        )
        for name, value in list(known.items())[: None if codes else MOST_ROWS]
    ]  # fmt: skip
    return table(["metric", "value", ""], rows)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _trust(result: Result) -> str:
    lines = ["One simulation cannot say what is chance: only a comparison over seeds, or over blocks of a log, has ranges."]
    lines += [f"{number:,} jobs rejected: {reason}." for reason, number in rejections(result).items()]
    lines += [f"{readable(note, 200)}." for note in result.workload.all_notes if not note.startswith("time 0 is")][:3]
    return card("How far to trust it", sentences(lines))


def _next_steps(result: Result) -> str:
    name = readable(result.workload.name.rpartition("/")[2], 60)
    return card("What to do next", sentences([
        f"Compare it with what you have: gpuyard compare {name} --scheduler fcfs/fewest/easy --scheduler {result.scheduler}",
    ], ordered=True))  # fmt: skip


def _made(result: Result, origin: Provenance, command: str) -> str:
    rows = origin_facts(origin, result.cluster.name, 1)
    rows |= {"estimates": text(estimates_words(result.workload.estimates, {})), "scheduler": f"<code>{text(result.scheduler)}</code>"}
    rows |= {"seed": text(result.seed)} | made_by(command)
    return f"<h2>How this was made</h2>{facts(rows)}"
