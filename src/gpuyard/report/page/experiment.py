"""The page of an experiment (`gpuyard run`, `gpuyard report`): its question, what was found, figures and tables."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.experiments.judging.answering.plain import by_how_much
from gpuyard.experiments.judging.headlines import against_baseline, best_mean
from gpuyard.experiments.judging.statistics import FEWEST
from gpuyard.experiments.judging.stopping import is_about_stopping, stopping_lead
from gpuyard.experiments.judging.summary import MINIMUM, Comparison, Standing, Summary
from gpuyard.experiments.judging.switching import switch_findings
from gpuyard.experiments.judging.text import count, metric_title, readable, short, shown_unit, value_text
from gpuyard.experiments.judging.words import findings, lead, verdict
from gpuyard.experiments.running.results import Results
from gpuyard.metrics import resolve
from gpuyard.model.units import format_seconds
from gpuyard.report.charts import Absent, Chart
from gpuyard.report.page.dots import Dot, Kind, dot_chart, round_scale
from gpuyard.report.page.frame import ReportPage, document, folded, text
from gpuyard.report.page.made import method
from gpuyard.report.page.numbers import every_table, objective_table
from gpuyard.report.page.parts import card, facts, grid, sentences
from gpuyard.report.study import Study, better_words

MOST_SERIES = 6
MOST_FINDINGS = 4  # on the first sheet
MOST_NOTES = 3  # on how far to trust it
LONGEST_FINDING = 260  # characters of one there
_KINDS: Mapping[str, Kind] = {"wins": "good", "loses": "bad"}


def experiment_page(study: Study, figures: Sequence[tuple[Chart | Absent, bytes]]) -> str:
    """Write the page of an experiment with its figures, each as PNG."""
    summary, experiment = study.summary, study.results.experiment
    told = findings(summary)
    fold = [(title, made) for title, made in every_table(summary)]
    fold += [("All that was found", f"<p>{text(lead(summary))}</p>{sentences(told)}")]
    fold += [("Notes", f"<ul>{''.join(f'<li>{text(note)}</li>' for note in summary.notes)}</ul>")] * bool(summary.notes)
    return document(ReportPage(
        [readable(study.title or experiment.name, 90), f"{len(study.results):,} runs", count(len(study.results.schedulers), "scheduler")],
        experiment.question or readable(study.title or experiment.name, 200), text(short_answer(summary)),
        [
            grid([_hero(summary), card("What was found", sentences(_beginning(each) for each in told[:MOST_FINDINGS]))], "hero"),
            grid([_trust(summary), _next_steps(study)], "tell"),
        ],
        [f'<div class="print"><h2>The main table</h2>{objective_table(summary.table, short=True)}</div>'],
        [("Figures", "".join(_figures(figures))), *fold], _made(study),
    ))  # fmt: skip


def _beginning(finding: str) -> str:
    """Cut a finding after as many sentences as there is room for."""
    first, *others = finding.split(". ")
    for each in others:
        if len(first) + len(each) > LONGEST_FINDING:
            break
        first += f". {each}"
    return first if first.endswith(".") else f"{first}."


def short_answer(summary: Summary) -> str:
    """One sentence on the first objective: how the challengers do against the baseline, or who is best."""
    results, table = summary.results, summary.table
    if results.experiment.sets:
        return next(iter(switch_findings(summary)), best_mean(table))
    if is_about_stopping(results):
        return stopping_lead(summary)[0].partition(". ")[0].removesuffix(".") + "."
    challengers = [line for line in table.lines if line.challenger and line.versus is not None]
    if not challengers:
        return f"{best_mean(table)}; {_small(against_baseline(table).partition(': ')[2])}."
    groups: dict[str, list[Standing]] = {}
    for line in challengers:
        groups.setdefault(_KINDS.get(verdict(line.versus), "unclear") if line.versus else "unclear", []).append(line)
    parts = [
        f"{_who(lines)} {_WORDS[kind][len(lines) > 1]} {readable(table.baseline, 40)}{_share(table, lines)}"
        for kind, lines in groups.items()
    ]
    return f"On {metric_title(table.objective)}, {'; '.join(parts)}."


_WORDS = {
    "good": ("is clearly better than", "are clearly better than"), "bad": ("is clearly worse than", "are clearly worse than"),
    "unclear": ("does not surely differ from", "do not surely differ from"),
}  # fmt: skip


def _who(lines: Sequence[Standing]) -> str:
    names = [readable(line.scheduler, 40) for line in lines]
    return f"{len(names)} challengers" if len(names) > 3 else " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _share(table: Comparison, lines: Sequence[Standing]) -> str:
    versus = lines[0].versus
    return f" ({by_how_much(versus.share_interval, table.objective)})" if len(lines) == 1 and versus is not None else ""


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _small(words: str) -> str:
    return words[:1].lower() + words[1:]


def _hero(summary: Summary) -> str:
    """Means of the first objective: challengers, the baseline, and the best of the others."""
    table = summary.table
    sign = MINIMUM[resolve(table.objective)[0].better]
    order = sorted(table.lines, key=lambda line: sign * line.values[table.objective].mean)
    first = [line for line in order if line.challenger or line.versus is None]
    chosen = [*first, *(line for line in order if line not in first)][:MOST_SERIES]
    unit, size = shown_unit(table.objective, [line.values[table.objective].mean for line in table.lines])
    dots = []
    for line in (line for line in order if line in chosen):
        value = line.values[table.objective]
        kind: Kind = "base" if line.versus is None else _KINDS.get(verdict(line.versus), "unclear")
        shown = f"{short(value.mean / size)}{f' {unit}' if unit else ''}"
        name = f"{readable(line.scheduler, 32)}{' ◆' if line.challenger else ''}"
        dots.append(Dot(name, "", value.mean / size, value.low / size, value.high / size, kind, shown, value_text(value, size, unit)))
    scale = round_scale(dots, table.line(table.baseline).values[table.objective].mean / size, "baseline")
    marks = " ◆: a challenger." if any(line.challenger for line in table.lines) else ""
    left = len(table.lines) - len(dots)
    more = f" {left} more are in the tables." if left else ""
    what = f"{metric_title(table.objective)}{f', {unit}' if unit else ''}, {better_words(table.objective)}"
    sub = f"{_capital(what)}, with its 95 % range. Disc: surely better than the baseline; ring: not sure; diamond: surely worse."
    return card(against_baseline(table), dot_chart(dots, scale, against_baseline(table)), sub=sub + marks + more)


def _trust(summary: Summary) -> str:
    table = summary.table
    rests = "too few to tell, so nothing here is more than a hint" if table.n < FEWEST else "what is called sure excludes chance at 95 %"
    lines = [f"Ranges rest on {count(table.n, table.over)}: {rests}."]
    if summary.comparisons:
        lines.append(f"All schedulers ran the same jobs, and tests are corrected for all {count(summary.comparisons, 'comparison')}.")
    lines += summary.notes[:MOST_NOTES]
    return card("How far to trust it", sentences(readable(line, 260) for line in lines))


def _next_steps(study: Study) -> str:
    command = _command(study.results)
    steps = ["Run it in full: the same command without --quick."] if " --quick" in command else []
    steps += ["Open the figures and tables below; csv/ beside this file has every number.", f"Make it again: {command}"]
    return card("What to do next", sentences(steps, ordered=True))


def _figures(figures: Sequence[tuple[Chart | Absent, bytes]]) -> list[str]:
    made = []
    for chart, data in figures:
        if isinstance(chart, Absent):
            made.append(f'<p class="sub">Figure {text(chart.name)}: {text(chart.reason)}.</p>')
            continue
        picture = f'<img alt="{text(chart.title)}" src="data:image/png;base64,{base64.b64encode(data).decode()}">'
        made.append(f'<figure><div class="box picture">{picture}</div><figcaption>{text(chart.caption)}</figcaption></figure>')
    return made


# ── how it was made ──


def _command(results: Results) -> str:
    return str(results.about.get("command") or f"gpuyard run {results.experiment.name}")


def _made(study: Study) -> list[str]:
    results, experiment = study.results, study.results.experiment
    platforms = sorted({str(each.get("platform")) for each in results.manifests})
    command = _command(results)
    folder = f"results/{experiment.name}" + ("-quick" if " --quick" in command else "")
    rows = {
        "experiment": text(f"{experiment.name} ({experiment.digest})"),
        "runs": text(f"{len(results):,}"), **{name: text(value) for name, value in _times(results).items()},
        "estimates": text(results.estimates),
        "made by": text(f"gpuyard {results.about.get('gpuyard')}, Python {results.about.get('python')}"),
        "platform": text("; ".join(platforms) or results.about.get("platform")),
        "command": f"<code>{text(command)}</code>; <code>gpuyard report {text(folder)}</code>",
    }  # fmt: skip
    settings = {name: text(readable(str(value), 4000)) for name, value in _flat(experiment.record()).items()}
    manifest = json.dumps(results.manifests[0], indent=1, ensure_ascii=False) if results.manifests else ""
    raw = f'<p>The first of {len(results.manifests):,}; manifests.jsonl has all.</p><pre class="wrap"><code>{text(manifest)}</code></pre>'
    return [
        f"<h2>How this was made</h2>{facts(rows)}", folded("How the statistics work", sentences(method(study.summary))),
        folded("All settings", facts(settings)), folded("The manifest of a run", raw) if manifest else "",
    ]  # fmt: skip


def _times(results: Results) -> dict[str, str]:
    """How long Runs and trainings took, where that was kept."""
    walls = [float(each.get("wall_s") or 0.0) for each in results.manifests]
    trained = sum(float(each.get("wall_s") or 0.0) for each in results.agents.values())
    rows = {}
    if walls:
        each = f"{format_seconds(sum(walls) / len(walls))} a run on average, {format_seconds(max(walls))} the longest"
        rows["time"] = f"{format_seconds(sum(walls))}, summed over workers; {each}"
    if results.agents:
        rows["training"] = f"{format_seconds(trained)} for {len(results.agents)} agents, summed over workers"
    return rows


def _flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Flatten nested tables to names such as `axes.seeds`; what is empty is left out."""
    rows: dict[str, object] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            rows |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value not in ([], [""]) and not any(isinstance(each, (dict, list)) for each in value):
            rows[prefix + key] = ", ".join(json.dumps(each, ensure_ascii=False) if each == "" else str(each) for each in value)
        elif value not in ("", [], [""], None) and key not in ("title", "question"):
            rows[prefix + key] = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
    return rows
