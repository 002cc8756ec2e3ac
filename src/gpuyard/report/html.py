"""One HTML file with everything in it: words, tables, charts and manifest. It needs no network.

Names come from files of others: every text passes through `escape`, and JSON inside a script element cannot end it.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, TypeAlias

import numpy as np

from gpuyard import __version__
from gpuyard.errors import GpuyardError
from gpuyard.experiments.design.spec import USUAL
from gpuyard.experiments.judging.deltas import deltas, hardships
from gpuyard.experiments.judging.statistics import Interval
from gpuyard.experiments.judging.summary import Comparison, Standing, Summary
from gpuyard.experiments.judging.text import count, metric_title, p_text, percent, readable, shown_unit, value_text
from gpuyard.experiments.judging.words import findings, lead, signed_share, verdict
from gpuyard.experiments.running.results import Results
from gpuyard.model.units import format_seconds
from gpuyard.report.charts import Absent, Chart
from gpuyard.report.interactive import figure_of
from gpuyard.report.page.frame import MOST_BYTES, text
from gpuyard.report.page.made import method
from gpuyard.report.study import Study, better_words
from gpuyard.report.tables import by_place, group_label

MOST_COLUMNS = 8  # values of a parameter beside each other


Part: TypeAlias = tuple[Study, Sequence[Chart | Absent]]


def page(parts: Sequence[Part]) -> str:
    """Write the whole file: one study, or several comparisons below each other."""
    experiment = parts[0][0].results.experiment
    drawn = [chart for _, charts in parts for chart in charts if isinstance(chart, Chart)]
    figures = {f"chart-{k + 1}": figure_of(chart) for k, chart in enumerate(drawn)}
    title = parts[0][0].title or experiment.name if len(parts) == 1 else f"{len(parts)} comparisons of schedulers"
    filled = {
        "version": escape(__version__),
        "title": text(readable(title, 200)),
        "question": f'<p class="question">{text(experiment.question)}</p>' if experiment.question else "",
        "body": "\n".join(_body(parts)),
        "charts": embedded(figures),
        "library": packed_library() if figures else "",
    }
    made = files("gpuyard.report").joinpath("template.html").read_text("utf-8")
    whole = re.sub(r"\{\{(\w+)\}\}", lambda hole: filled[hole[1]], made)
    if len(whole.encode()) > MOST_BYTES:
        raise GpuyardError(
            f"the report would be {len(whole) / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:g} MB", hint="name fewer figures or schedulers"
        )
    return whole


def embedded(value: Any) -> str:
    """JSON that can stand in a script element: `<` never occurs in it, so nothing in it can end the element."""
    made = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return made.translate({ord(letter): f"\\u{ord(letter):04x}" for letter in "&<>\u2028\u2029"})


@cache
def packed_library() -> str:
    """Plotly for the browser, packed and as base64; the same bytes at every call."""
    code = files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    return base64.b64encode(gzip.compress(code, 9, mtime=0)).decode()


# ── parts ──


def _body(parts: Sequence[Part]) -> Iterable[str]:
    several = len(parts) > 1
    links = {f"#comparison-{k + 1}": study.title for k, (study, _) in enumerate(parts)} if several else {}
    links |= {} if several else {"#tables": "tables", "#charts-section": "charts"}
    links |= {"#method": "how to read this", "#manifest": "how it was made"}
    yield '<nav aria-label="contents">' + " ".join(f'<a href="{at}">{text(readable(name))}</a>' for at, name in links.items()) + "</nav>"
    yield '<p id="notice" class="notice" hidden></p>'
    yield '<noscript><p class="notice">Charts need JavaScript; the folder figures beside this file has them as PDF.</p></noscript>'
    number = 1
    for k, (study, charts) in enumerate(parts):
        if several:
            yield f'<h2 id="comparison-{k + 1}">{text(readable(study.title, 200))}</h2>'
        yield from _study(study, charts, number, titled=not several)
        number += sum(isinstance(chart, Chart) for chart in charts)
    yield from _by_estimate([study for study, _ in parts])
    first = parts[0][0]
    yield '<h2 id="method">How to read this</h2>' + "".join(f"<p>{text(each)}</p>" for each in method(first.summary))
    yield from _manifest(first)


def _study(study: Study, charts: Sequence[Chart | Absent], number: int, *, titled: bool) -> Iterable[str]:
    """Words, tables and charts; `number` is that of the first chart."""
    summary = study.summary
    yield f'<p class="lead">{text(lead(summary))}</p>'
    yield "<ul>" + "".join(f"<li>{_titled(each)}</li>" for each in findings(summary)) + "</ul>"
    yield '<h2 id="tables">Tables</h2>' if titled else ""
    yield from map(_objective_table, summary.tables)
    yield from _further_metrics(summary)
    yield from _deltas(summary)
    yield '<h2 id="charts-section">Charts</h2>' if titled else ""
    if number == 1:
        yield "<p>Drag to zoom, double-click to zoom out, point at a mark for its values, click a name in the legend to hide it.</p>"
    yield from _figures(charts, number)
    yield from _groups(summary)
    yield from _hardships(summary)
    yield from _degradations(summary)
    if summary.notes:
        yield "<h2>Notes</h2><ul>" + "".join(f"<li>{text(note)}</li>" for note in summary.notes) + "</ul>"


def _titled(sentence: str) -> str:
    """Make the text before the first colon strong."""
    title, colon, rest = sentence.partition(": ")
    return f"<strong>{text(title)}{colon.strip()}</strong> {text(rest)}" if colon else text(sentence)


def _figures(charts: Sequence[Chart | Absent], number: int) -> Iterable[str]:
    for chart in charts:
        if isinstance(chart, Absent):
            yield f'<p class="absent">Figure {text(chart.name)}: {text(chart.reason)}.</p>'
            continue
        yield (
            f'<figure><h3>{text(chart.title)}</h3><figcaption id="caption-{number}">{text(chart.caption)}</figcaption>'
            f'<div class="plot" id="chart-{number}" role="img" aria-label="{text(chart.title)}" aria-describedby="caption-{number}"></div>'
            "</figure>"
        )
        number += 1


def _cell(shown: str, value: float | None = None, kind: str = "") -> str:
    """`value` is what the column sorts by; `shown` is text with an interval after a blank and a bracket."""
    first, bracket, rest = shown.partition(" [")
    small = f"<small>[{text(rest)}</small>" if bracket else ""
    sort = "" if value is None else f' data-v="{value:.9g}"' if math.isfinite(value) else ' data-v=""'
    named = f' class="{kind}"' if kind else ""
    return f"<td{named}{sort}>{text(first)}{small}</td>"


def _wrapped(caption: str, head: Sequence[str], rows: Sequence[str], *, sortable: bool = True, name: str = "") -> str:
    heads = "".join(f'<th scope="col">{text(each)}</th>' for each in head)
    top = f"<thead><tr>{heads}</tr></thead>" if head else ""
    kind = ' class="sortable"' if sortable else ""
    label = text(name or caption)
    return (
        f'<div class="box" tabindex="0" role="region" aria-label="{label}"><table{kind}><caption><span>{text(caption)}</span></caption>'
        f"{top}<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _objective_table(table: Comparison) -> str:
    title = metric_title(table.objective)
    unit, size = shown_unit(table.objective, [line.values[table.objective].mean for line in table.lines])
    has_gap, has_bound = table.oracle is not None, table.bound is not None
    tested = any(line.versus and math.isfinite(line.versus.p) for line in table.lines)  # one sample has no test and no effect size
    head = ["scheduler", f"mean{f', {unit}' if unit else ''}", f"difference to {readable(table.baseline, 24)}", "better / equal / worse"]
    head += ["effect size", "p, corrected"] * tested
    head += ["gap to the oracle"] * has_gap + ["distance to the bound"] * has_bound
    rows = [_line(table, line, size, tested, has_gap, has_bound) for line in table.lines]
    empty = "<td></td>" * (len(head) - 2)
    for name, value in (("oracle: best of each run", table.oracle), ("bound: no scheduler can pass it", table.bound)):
        if value is not None:
            rows.append(f'<tr class="other"><th scope="row">{name}</th>{_cell(value_text(value, size), value.mean)}{empty}</tr>')
    marks = " ◆ marks the challengers;" if any(line.challenger for line in table.lines) else ""
    caption = (
        f"{title[:1].upper()}{title[1:]}, {better_words(table.objective)}: {count(table.runs, 'run')} of each scheduler, intervals over "
        f"{table.n} {table.over}s;{marks} the best mean is shaded, a difference that is sure is coloured."
    )
    return f"<h3>{text(title[:1].upper() + title[1:])}</h3>" + _wrapped(caption, head, rows, name=title)


def _line(table: Comparison, line: Standing, size: float, tested: bool, has_gap: bool, has_bound: bool) -> str:
    found, best = line.versus, table.objective in line.best
    cells = [_value_cell(line, table.objective, size)]
    if found is None:
        cells += ['<td data-v="0">baseline</td>', *['<td data-v=""></td>'] * (1 + 2 * tested)]
    else:
        kind = {"wins": "good", "loses": "bad"}.get(verdict(found), "")
        effect = found.difference.effect
        shown = "–" if math.isnan(effect) else f"{effect:+.1f}" if math.isfinite(effect) else ("+∞" if effect > 0 else "−∞")
        record = f"{found.wins:,} / {found.ties:,} / {found.losses:,}"
        cells += [_cell(signed_share(found), found.share, kind), _cell(record, float(found.wins))]
        cells += [_cell(shown, effect), _cell(p_text(found.p), found.p)] * tested
    cells += [_gap_cell(line.gap)] * has_gap + [_gap_cell(line.above_bound)] * has_bound
    kinds = " ".join(["best"] * best + ["challenger"] * line.challenger)
    return f'<tr class="{kinds}"><th scope="row">{text(line.scheduler)}</th>{"".join(cells)}</tr>'


def _gap_cell(gap: Interval | None) -> str:
    return '<td data-v=""></td>' if gap is None else _cell(percent(gap), gap.mean)


def _further_metrics(summary: Summary) -> Iterable[str]:
    """Means of all other metrics, with intervals."""
    table = summary.table
    names = [name for name in summary.results.experiment.metrics if name not in summary.results.experiment.axes.objectives]
    names = [name for name in names if all(name in line.values for line in table.lines)]
    if not names:
        return
    sizes = {name: shown_unit(name, [line.values[name].mean for line in table.lines]) for name in names}
    head = ["scheduler", *(metric_title(name) + (f", {sizes[name][0]}" if sizes[name][0] else "") for name in names)]
    rows = []
    for line in table.lines:
        cells = "".join(_value_cell(line, name, sizes[name][1]) for name in names)
        rows.append(f'<tr class="{"challenger" if line.challenger else ""}"><th scope="row">{text(line.scheduler)}</th>{cells}</tr>')
    caption = "Other metrics: mean of all runs with its interval; the best mean of a column is bold."
    yield "<h3>Other metrics</h3>" + _wrapped(caption, head, rows)


def _deltas(summary: Summary) -> Iterable[str]:
    """Paired differences to the baseline in the usual metrics, in their own units."""
    found = deltas(summary)
    if not found:
        return
    names = list(next(iter(found.values())))
    sizes = {name: shown_unit(USUAL[name], [each[name].mean for each in found.values()]) for name in names}
    head = ["scheduler", *(f"Δ {metric_title(USUAL[name])}" + (f", {sizes[name][0]}" if sizes[name][0] else "") for name in names)]
    rows = []
    for who, each in found.items():
        shown = {name: Interval(found.mean, found.low, found.high, found.n) for name, found in each.items()}
        cells = "".join(_cell(value_text(shown[name], sizes[name][1]), shown[name].mean) for name in names)
        rows.append(f'<tr><th scope="row">{text(who)}</th>{cells}</tr>')
    caption = f"Difference to {readable(summary.table.baseline)} on the same runs, in the units of the metrics, with its interval."
    yield "<h3>Differences</h3>" + _wrapped(caption, head, rows)


def _hardships(summary: Summary) -> Iterable[str]:
    """Draw up what all changes together do to each scheduler."""
    found = hardships(summary)
    rows = []
    for who in summary.results.schedulers if found else ():
        mine = [each for each in found if each.scheduler == who]
        values = [[each.delta.mean, each.variance, each.variance_unchanged, each.queue_explosions, each.recovery / 60] for each in mine]
        cells = "".join(_cell(f"{value:.3g}", value) for value in np.mean(values, axis=0).tolist())
        rows.append(f'<tr><th scope="row">{text(who)}</th>{cells}</tr>')
    if rows:
        head = ["scheduler", "Δ slowdown", "variance over seeds", "without change", "queue explosions per run", "recovery, min"]
        caption = "Means over all changes: slowdown against the same runs without it, its variance over seeds; robustness.csv has each."
        yield "<h2>Under all changes</h2>" + _wrapped(caption, head, rows)


def _groups(summary: Summary) -> Iterable[str]:
    """A table for each parameter: schedulers down, its values across."""
    names = list(dict.fromkeys(table.group.partition("=")[0] for table in summary.groups))
    if names:
        yield f'<h2 id="groups">By groups of workloads: {text(metric_title(summary.table.objective))}</h2>'
    for name in names:
        tables = [table for table in summary.groups if table.group.partition("=")[0] == name]
        metric = tables[0].objective
        unit, size = shown_unit(metric, [line.values[metric].mean for table in tables for line in table.lines])
        rows, head = _by_scheduler(tables, size) if len(tables) <= MOST_COLUMNS else _by_value(tables, size)
        caption = f"Mean {metric_title(metric)}{f' ({unit})' if unit else ''} by {name}, {better_words(metric)}; the best is bold."
        yield _wrapped(caption, head, rows)


def _by_estimate(studies: Sequence[Study]) -> Iterable[str]:
    """A table for each workload and cluster with several sources of estimates: schedulers down, sources across."""
    for group in by_place([study.summary for study in studies]):
        tables, metric = [summary.table for summary in group], group[0].table.objective
        unit, size = shown_unit(metric, [line.values[metric].mean for table in tables for line in table.lines])
        rows, _ = _by_scheduler(tables, size)
        title = f"{group[0].workload} on {group[0].cluster}: {metric_title(metric)}{f' ({unit})' if unit else ''} by source of estimates"
        yield f"<h2>{text(title)}</h2>" + _wrapped(f"{title}; the best is bold.", ["scheduler", *(each.estimate for each in group)], rows)


def _by_scheduler(tables: Sequence[Comparison], size: float) -> tuple[list[str], list[str]]:
    """(rows, head): schedulers down."""
    rows = []
    for first in tables[0].lines:
        cells = "".join(_value_cell(table.line(first.scheduler), table.objective, size) for table in tables)
        rows.append(f'<tr class="{"challenger" if first.challenger else ""}"><th scope="row">{text(first.scheduler)}</th>{cells}</tr>')
    return rows, ["scheduler", *map(group_label, tables)]


def _by_value(tables: Sequence[Comparison], size: float) -> tuple[list[str], list[str]]:
    """(rows, head): values of the parameter down."""
    rows = []
    for table in tables:
        cells = "".join(_value_cell(line, table.objective, size) for line in table.lines)
        rows.append(f'<tr><th scope="row">{text(group_label(table))}</th>{cells}</tr>')
    return rows, ["", *(readable(line.scheduler) for line in tables[0].lines)]


def _value_cell(line: Standing, metric: str, size: float) -> str:
    value = line.values[metric]
    return _cell(value_text(value, size), value.mean, "best" if metric in line.best else "")


def _degradations(summary: Summary) -> Iterable[str]:
    """Changes down, schedulers across; a table for each objective."""
    for objective in dict.fromkeys(each.objective for each in summary.degradations):
        found = {(each.change, each.scheduler): each.share for each in summary.degradations if each.objective == objective}
        rows = []
        for change in dict.fromkeys(change for change, _ in found):
            shares = [found[change, who] for who in summary.results.schedulers]
            cells = "".join(_cell(percent(share, "+"), share.mean, _hurt(share)) for share in shares)
            rows.append(f'<tr><th scope="row">{text(change)}</th>{cells}</tr>')
        title = metric_title(objective)
        caption = f"How much worse {title} gets under each change, as a share of its value without; what is clear is coloured."
        yield f"<h2>Under changes: {text(title)}</h2>" + _wrapped(caption, ["change", *map(readable, summary.results.schedulers)], rows)


def _hurt(share: Interval) -> str:
    return "bad" if share.low > 0 else "good" if share.high < 0 else ""


# ── method and manifest ──


def _manifest(study: Study) -> Iterable[str]:
    results = study.results
    about, experiment = results.about, results.experiment
    platforms = sorted({str(each.get("platform")) for each in results.manifests})
    command = str(about.get("command") or (f"gpuyard run {experiment.name}" if results.folder else ""))
    rows: dict[str, object] = {"experiment": f"{experiment.name} ({experiment.digest})"} if results.folder else {}
    rows |= {
        "gpuyard": about.get("gpuyard"), "Python": about.get("python"), "platform": "; ".join(platforms) or about.get("platform"),
        "runs": f"{len(results):,}", **_times(results),
    }  # fmt: skip
    yield '<h2 id="manifest">How it was made</h2>'
    yield _facts("What ran, with what, and how long it took", rows)
    if command:
        folder = f"results/{experiment.name}" + ("-quick" if " --quick" in command else "")
        again = f"\ngpuyard report {text(folder)}" if results.folder else ""
        yield f"<h3>To make it again</h3><pre><code>{text(command)}{again}</code></pre>"
    yield "<h3>The experiment</h3>" + _facts("All that decides the numbers", _experiment_rows(experiment.record()))
    raw = json.dumps({**about, "experiment": experiment.record()}, indent=1, ensure_ascii=False)
    yield f"<details><summary>The same as JSON</summary><pre><code>{text(raw)}</code></pre></details>"
    if results.manifests:
        first = json.dumps(results.manifests[0], indent=1, ensure_ascii=False)
        yield "<details><summary>The manifest of the first run; manifests.jsonl has all</summary>"
        yield f"<pre><code>{text(first)}</code></pre></details>"


def _times(results: Results) -> dict[str, str]:
    """How long Runs and trainings took, where that was kept."""
    walls = [float(each.get("wall_s") or 0.0) for each in results.manifests]
    trained = sum(float(each.get("wall_s") or 0.0) for each in results.agents.values())
    rows = {}
    if walls:
        each = f"per run {format_seconds(sum(walls) / len(walls))} on average, {format_seconds(max(walls))} the longest"
        rows["time of all runs"] = f"{format_seconds(sum(walls))}, summed over workers; {each}"
    if results.agents:
        rows["time of training"] = f"{format_seconds(trained)} for {len(results.agents)} agents, summed over workers"
    return rows


def _facts(caption: str, rows: Mapping[str, object]) -> str:
    made = [f'<tr><th scope="row">{text(name)}</th><td class="wide">{text(value)}</td></tr>' for name, value in rows.items()]
    return _wrapped(caption, [], made, sortable=False)


def _experiment_rows(record: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Flatten nested tables to names such as `axes.seeds`; what is empty is left out."""
    rows: dict[str, object] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            rows |= _experiment_rows(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value not in ([], [""]) and not any(isinstance(each, (dict, list)) for each in value):
            rows[prefix + key] = ", ".join(json.dumps(each, ensure_ascii=False) if each == "" else str(each) for each in value)
        elif value not in ("", [], [""], None) and key not in ("title", "question"):
            rows[prefix + key] = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
    return rows
