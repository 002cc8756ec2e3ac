"""A line of status for each strategy of an experiment that follows its ratio to the optimum from task to task: did it adapt?"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.experiments.judging.curves import RECENT
from gpuyard.experiments.judging.statistics import paired_difference
from gpuyard.experiments.running.results import Results

CURVE = "ratio"  # time of the last tasks over that of the optimum


def status_lines(results: Results) -> list[str]:
    """`online: adapted, 1.62 → 1.10 times the optimum's time from the first 50 tasks to the last 50; …`; none without the curve."""
    curves = results.curves(CURVE)
    reports = {int(each["run"]): each.get("decider", {}) for each in results.manifests} if curves else {}
    lines = []
    for name in results.schedulers:
        runs = [run for run in results.columns["run"][results.where(scheduler=name)].tolist() if run in curves]
        if runs:
            lines.append(f"{name}: {_status([curves[run].y for run in runs], [reports.get(run, {}) for run in runs])}")
    return lines


def _status(ratios: list[Array], reports: list[dict[str, Any]]) -> str:
    width = min(RECENT, len(ratios[0]))
    early, late = (np.array([ratio[at] for ratio in ratios]) for at in (width - 1, -1))
    if np.allclose(early, 1.0) and np.allclose(late, 1.0):
        return "the optimum that the others are compared with"
    change = paired_difference(late, early)
    word = "not clear whether it changed"
    if change.clear:
        word = "adapted" if change.mean < 0 else "fell behind"
    text = f"{word}, {early.mean():.3g} → {late.mean():.3g} times the optimum's time from the first {width} tasks to the last {width}"
    learned = [float(report["learned from"]) for report in reports if "learned from" in report]
    if not learned:
        return text
    mean = np.mean(learned)
    return f"{text}; " + (f"went on learning, from {mean:,.0f} tasks a run" if mean else "stayed as it was trained")
