"""The numbers as CSV: one row per Run, and all statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.experiments.judging.statistics import Interval
from gpuyard.experiments.judging.summary import MINIMUM, Line, Summary, Table
from gpuyard.experiments.running.results import PLACE, Results
from gpuyard.metrics import resolve
from gpuyard.report.text import csv_text, readable

# usual names → columns of Runs; times in s, energy in kWh
NAMES: Mapping[str, str] = {
    "avg_jct": "turnaround", "p95_jct": "turnaround.p95", "p99_jct": "turnaround.p99", "slowdown": "slowdown", "makespan": "makespan",
    "queue_len_mean": "queue_mean", "queue_len_max": "queue_max", "fairness_jain": "fairness", "utilization": "utilization",
    "energy": "energy", "sla": "deadline_met",
}  # fmt: skip
LATENCY = "decision_latency_us"


def csv_files(summary: Summary) -> dict[str, str]:
    """File name → text."""
    made = {"runs.csv": csv_text(run_rows(summary.results)), "summary.csv": csv_text(table_rows(summary.tables))}
    if summary.groups:
        made["groups.csv"] = csv_text(table_rows(summary.groups))
    if summary.degradations:
        made["degradation.csv"] = csv_text(_degradation_rows(summary))
    return made


def run_rows(results: Results) -> list[dict[str, Any]]:
    """The usual columns under their usual names first, empty where the experiment does not measure them; then all others."""
    columns: dict[str, Any] = {"regime": regimes(results), "scheduler": results.columns["scheduler"], "seed": results.columns["seed"]}
    nothing = np.full(len(results), np.nan)
    columns |= {name: results.columns.get(column, nothing) for name, column in NAMES.items()}
    columns["oracle_gap"] = oracle_gaps(results)
    columns[LATENCY] = np.array([_latency(manifest) for manifest in results.manifests])
    used = {*NAMES.values(), "scheduler", "seed"}
    columns |= {name: values for name, values in results.columns.items() if name not in used}
    plain = {name: values.tolist() for name, values in columns.items()}
    return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]


def _latency(manifest: Mapping[str, Any]) -> float:
    value = manifest.get(LATENCY)
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


def group_label(table: Table) -> str:
    """`shape=bursty`; what has no value is `unchanged`, or as it is given."""
    name, _, value = table.group.partition("=")
    return f"{name}={readable(value, 44)}" if value else "unchanged" if name == "change" else f"{name} as given"


def table_rows(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """All statistics, a row per objective, group and scheduler; shares are of the baseline, the oracle or the bound."""
    rows = [_line_row(table, line) for table in tables for line in table.lines]
    for table in tables:
        for name, value in (("oracle", table.oracle), ("bound", table.bound)):
            if value is not None:
                rows.append(
                    {"objective": table.objective, "group": table.group, "scheduler": f"({name})", **_interval("mean", value), "n": value.n}
                )
    return rows


def _line_row(table: Table, line: Line) -> dict[str, Any]:
    value = line.values[table.objective]
    row = {
        "objective": table.objective, "group": table.group, "scheduler": line.scheduler, "challenger": line.challenger, "best": line.best,
        "runs": table.runs, "resampled": value.of, "n": value.n, **_interval("mean", value), "spread": line.spread,
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


def _interval(name: str, value: Interval | None) -> dict[str, Any]:
    return {} if value is None else {name: value.mean, f"{name}_low": value.low, f"{name}_high": value.high}


def _degradation_rows(summary: Summary) -> list[dict[str, Any]]:
    return [
        {
            "objective": each.objective,
            "change": each.change,
            "kind": each.kind,
            "scheduler": each.scheduler,
            **_interval("share", each.share),
        }
        for each in summary.degradations
    ]
