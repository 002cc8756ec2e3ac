"""The numbers for other programs: one row per Run, all statistics as flat rows, one comparison as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.experiments.design.spec import USUAL
from gpuyard.experiments.judging.answering.fidelity import fidelity
from gpuyard.experiments.judging.answering.plain import plain_answer
from gpuyard.experiments.judging.deltas import deltas, hardships
from gpuyard.experiments.judging.statistics import Difference, Interval
from gpuyard.experiments.judging.summary import MINIMUM, Comparison, Standing, Summary
from gpuyard.experiments.judging.text import csv_text, readable
from gpuyard.experiments.judging.words import answer
from gpuyard.experiments.running.results import PLACE, Results
from gpuyard.metrics import resolve

LATENCY = "decision_latency_us"
ENTROPY = "choice_entropy"
ENDS = ("mean", "low", "high")  # of an interval


def csv_files(summaries: Sequence[Summary]) -> dict[str, str]:
    """Make the CSV files, name → text, with several summaries below each other."""
    rows = {
        "runs.csv": [row for each in summaries for row in run_rows(each.results)],
        "summary.csv": [row for each in summaries for row in summary_rows(each)],
        "groups.csv": [row for each in summaries for row in table_rows(each.groups)],
        "differences.csv": [row for each in summaries for row in _delta_rows(each)],
        "degradation.csv": [row for each in summaries for row in _degradation_rows(each)],
        "robustness.csv": [row for each in summaries for row in _hardship_rows(each)],
    }
    return {name: csv_text(found) for name, found in rows.items() if found}


def by_place(summaries: Sequence[Summary]) -> list[list[Summary]]:
    """Group the summaries by workload and cluster, where these have several sources of estimates."""
    groups: dict[tuple[str, str], list[Summary]] = {}
    for summary in summaries:
        groups.setdefault((summary.workload, summary.cluster), []).append(summary)
    return [group for group in groups.values() if len(group) > 1]


def run_rows(results: Results) -> list[dict[str, Any]]:
    """Make a row per Run: the usual columns under their usual names first, empty where they are not measured; then all others."""
    columns: dict[str, Any] = {"regime": regimes(results), "scheduler": results.columns["scheduler"], "seed": results.columns["seed"]}
    nothing = np.full(len(results), np.nan)
    columns |= {name: results.columns.get(column, nothing) for name, column in USUAL.items()}
    columns["oracle_gap"] = oracle_gaps(results)
    for name in (LATENCY, ENTROPY):
        columns[name] = np.array([stated(manifest, name) for manifest in results.manifests]) if results.manifests else nothing
    used = {*USUAL.values(), "scheduler", "seed"}
    columns |= {name: values for name, values in results.columns.items() if name not in used}
    plain = {name: values.tolist() for name, values in columns.items()}
    return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]


def stated(manifest: Mapping[str, Any], name: str) -> float:
    """Return a number that a Run's manifest states; nan if it states none."""
    value = manifest.get(name)
    return float(value) if isinstance(value, (int, float)) else np.nan


def regimes(results: Results) -> Array:
    """(runs,) texts: workload, and cluster, change and estimate where one workload has several."""
    rows: list[tuple[Any, ...]] = [(value,) for value in results.columns["workload"].tolist()]
    for name in ("change", "estimate", "cluster"):  # a change may change the cluster
        longer = [(*row, value) for row, value in zip(rows, results.columns[name].tolist(), strict=True)]
        if len(set(longer)) > len(set(rows)):
            rows = longer
    return np.array(["; ".join(str(part) for part in row if part) for row in rows], dtype=object)


def oracle_gaps(results: Results) -> Array:
    """(runs,) gap on the first objective to the best of the oracle's schedulers in the same run, as a share of it; positive is worse."""
    oracle, objective = set(results.experiment.judge.oracle), results.experiment.axes.objectives[0]
    sign = MINIMUM[resolve(objective)[0].better]
    values = sign * results.columns[objective].astype(float)
    names = [*PLACE, *results.parameters, "seed"]
    keys = list(zip(*(results.columns[name].tolist() for name in names), strict=True))
    best: dict[Any, float] = {}
    for key, value, scheduler in zip(keys, values.tolist(), results.columns["scheduler"].tolist(), strict=True):
        if scheduler in oracle and not best.get(key, np.inf) <= value:
            best[key] = value
    least = np.array([best.get(key, np.nan) for key in keys])
    gaps: Array = np.divide(values - least, np.abs(least), out=np.full(len(values), np.nan), where=least != 0)
    return gaps


def group_label(table: Comparison) -> str:
    """`shape=bursty`; what has no value is `unchanged`, or as it is given."""
    name, _, value = table.group.partition("=")
    return f"{name}={readable(value, 44)}" if value else "unchanged" if name == "change" else f"{name} as given"


def summary_rows(summary: Summary) -> list[dict[str, Any]]:
    """List all statistics of all objectives; for one workload and cluster, with their names."""
    place = {"workload": summary.workload, "cluster": summary.cluster, "estimate": summary.estimate} if summary.single else {}
    return [place | row for row in table_rows(summary.tables)]


def table_rows(tables: Sequence[Comparison]) -> list[dict[str, Any]]:
    """List all statistics, a row per objective, group and scheduler; shares are of the baseline, the oracle or the bound."""
    rows = [_line_row(table, line) for table in tables for line in table.lines]
    for table in tables:
        for name, value in (("oracle", table.oracle), ("bound", table.bound)):
            if value is not None:
                rows.append(
                    {"objective": table.objective, "group": table.group, "scheduler": f"({name})", **_interval("mean", value), "n": value.n}
                )
    return rows


def _line_row(table: Comparison, line: Standing) -> dict[str, Any]:
    value = line.values[table.objective]
    row = {
        "objective": table.objective, "group": table.group, "scheduler": line.scheduler, "challenger": line.challenger,
        "best": table.objective in line.best,
        "runs": table.runs, "over": value.of, "n": value.n, **_interval("mean", value), "spread": line.spread,
        "baseline": table.baseline,
    }  # fmt: skip
    if line.versus is not None:
        found = line.versus
        row |= {
            "difference": found.difference.mean, "difference_low": found.difference.low, "difference_high": found.difference.high,
            "share": found.share, "share_low": found.share_low, "share_high": found.share_high, "effect_size": found.difference.effect,
            "better_runs": found.wins, "equal_runs": found.ties, "worse_runs": found.losses, "p" if table.group else "p_corrected": found.p,
        }  # fmt: skip
    row |= _interval("oracle_gap", line.gap) | _interval("above_bound", line.above_bound)
    return row | {f"mean.{name}": each.mean for name, each in line.values.items() if name != table.objective}


def _interval(name: str, value: Interval | Difference | None) -> dict[str, Any]:
    return {} if value is None else {name: value.mean, f"{name}_low": value.low, f"{name}_high": value.high}


def _values(thing: object, *names: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names}


def _delta_rows(summary: Summary) -> list[dict[str, Any]]:
    """List for each scheduler the paired differences to the baseline in the usual columns, as `delta_avg_jct` and so on."""
    rows = []
    for name, found in deltas(summary).items():
        row: dict[str, Any] = {"scheduler": name, "baseline": summary.table.baseline}
        for usual, difference in found.items():
            row |= _interval(f"delta_{usual}", difference)
        rows.append(row)
    return rows


def _hardship_rows(summary: Summary) -> list[dict[str, Any]]:
    """List for each change and scheduler what it did: slowdown, its variance over seeds, queue explosions and recovery."""
    return [
        _values(each, "change", "scheduler", "slowdown") | _interval("delta_slowdown", each.delta)
        | _values(each, "variance", "variance_unchanged", "queue_explosions", "recovery")
        for each in hardships(summary)
    ]  # fmt: skip


def _degradation_rows(summary: Summary) -> list[dict[str, Any]]:
    return [_values(each, "objective", "change", "kind", "scheduler") | _interval("share", each.share) for each in summary.degradations]


# ── one workload on one cluster ──


def as_record(summary: Summary, line: Standing) -> dict[str, Any]:
    """Flatten the standing of one scheduler to a row, for csv; units are those of the metrics."""
    table, found = summary.table, line.versus
    row: dict[str, Any] = {
        "workload": summary.workload, "cluster": summary.cluster, "estimate": summary.estimate, "seeds": len(summary.seeds),
        "scheduler": line.scheduler,
    }  # fmt: skip
    for name in summary.metrics:
        row |= _interval(name, line.values[name]) | {f"{name}_best": name in line.best}
    row |= {"baseline": table.baseline, "difference_of": table.objective}
    row |= _interval("difference", line.change) or dict.fromkeys(("difference", "difference_low", "difference_high"))
    row |= {name: getattr(found, name) if found else None for name in ("wins", "ties", "losses", "p")}
    if table.stand_in:
        row["stand_in"] = table.stand_in
        row |= _interval("to_stand_in", line.to_stand_in) or dict.fromkeys(("to_stand_in", "to_stand_in_low", "to_stand_in_high"))
    return row | summary.results.counts(line.scheduler)


def as_data(summary: Summary) -> dict[str, Any]:
    """Turn the summary of one workload on one cluster into plain values, for json."""
    table, metrics = summary.table, summary.metrics
    return {
        "workload": summary.workload, "cluster": summary.cluster, "estimate": summary.estimate, "seeds": list(summary.seeds),
        "primary": metrics[0], "baseline": table.baseline, "units": {name: resolve(name)[0].unit for name in metrics},
        "better": {name: resolve(name)[0].better for name in metrics}, "notes": list(summary.notes), "answer": answer(summary),
        "in_short": plain.lines if (plain := plain_answer(summary)) else [],
        "estimate_accuracy": dict(summary.results.accuracy), "stand_in": table.stand_in or None,
        "fidelity": [asdict(each) for each in fidelity(summary.results.waits, table.stand_in)],
        "calibration": summary.results.calibration.words if summary.results.calibration else None,
        "stability": asdict(summary.results.stability) if summary.results.stability else None,
        "schedulers": [
            {
                "scheduler": line.scheduler,
                "may_stop_jobs": line.preempts,
                "metrics": {name: _values(line.values[name], *ENDS, "n", "of") | {"best": name in line.best} for name in metrics},
                "difference": _difference_data(line.change, line.versus.p) if line.change and line.versus else None,
                "to_stand_in": _difference_data(line.to_stand_in, math.nan) if line.to_stand_in else None,
                "counts": summary.results.counts(line.scheduler),
            }
            for line in table.lines
        ],
    }  # fmt: skip


def _difference_data(found: Difference, p: float) -> dict[str, Any]:
    return _values(found, *ENDS, "wins", "ties", "losses", "n", "of") | {"p": p}
