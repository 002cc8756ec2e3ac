"""The bars for preemption by rank: which are met, by the intervals of this package and by the bootstrap that the protocol had."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.experiments.judging.statistics import holm, paired_difference, ratio_of_sums

Row = Mapping[str, object]
BASELINE = "saf/fewest/easy"
RANKED = f"{BASELINE}/gittins"
BARE = f"{BASELINE}/gittins:ageing=0,burden=inf"
DRAWS = 10_000
HPC = ("KTH", "SDSC-SP2", "CTC", "HPC2N")
WORDS = {"wait": "wait", "bsld": "slowdown"}
SURE = 0.05


@dataclass(frozen=True)
class Change:
    """A change of a mean over windows, as a share, with two 95 % intervals and the p value of no change."""

    mean: float
    ours: tuple[float, float]
    bootstrap: tuple[float, float]
    p: float

    @property
    def text(self) -> str:
        return f"{100 * self.mean:+.0f} ({_span(self.ours)}; {_span(self.bootstrap)})"


def _span(interval: tuple[float, float]) -> str:
    return " to ".join(f"{100 * end:+.0f}" for end in interval)


def plain(scheduler: object) -> str:
    """Return a scheduler without the name of its table, which differs between kinds of logs."""
    return re.sub(r"table=\w+,?", "", str(scheduler)).removesuffix(":")


class Runs:
    """The runs of all logs, windows, conditions and schedulers."""

    def __init__(self, rows: Sequence[Row], base_of: Callable[[str], str]) -> None:
        self._base_of = base_of
        self._values = {(str(r["condition"]), str(r["log"]), plain(r["scheduler"]), int(str(r["window"]))): r for r in rows}
        self.cells = sorted({key[:3] for key in self._values if key[2] != BASELINE})

    def change(self, what: str, log: str, scheduler: str, against: str = BASELINE, condition: str = "usual") -> Change | None:
        """Return the change of the mean of `wait` or `bsld`, paired by window; None where there are no runs."""
        other = self._base_of(condition) if against == BASELINE else condition
        pairs = [
            (float(str(row[what])), float(str(self._values[other, log, against, window][what])))
            for (cond, name, made, window), row in sorted(self._values.items())
            if (cond, name, made) == (condition, log, scheduler) and (other, log, against, window) in self._values
        ]
        if len(pairs) < 2:
            return None
        ours, base = np.maximum(np.array(pairs), 0.0).T
        found = ratio_of_sums(ours - base, base)
        at = np.random.default_rng(0).integers(0, len(pairs), (DRAWS, len(pairs)))
        low, high = np.quantile(ours[at].sum(axis=1) / base[at].sum(axis=1) - 1.0, [0.025, 0.975])
        return Change(found.mean, (found.low, found.high), (float(low), float(high)), paired_difference(ours, base).p)


def bars(rows: Sequence[Row], logs: Sequence[str], base_of: Callable[[str], str]) -> str:
    """Write which bars are met, and the intervals that say so."""
    runs = Runs(rows, base_of)
    lines = ["| bar | reached, by means / by intervals / by the bootstrap | |", "|---|---|---|"]
    for scheduler, words in ((BARE, "ageing and limit off"), (RANKED, "as shipped")):
        for what, limit, least in (("bsld", -0.55, 7), ("wait", -0.20, 5)):
            found = [change for log in logs if (change := runs.change(what, log, scheduler))]
            lines.append(_bar(f"{words}: {WORDS[what]} ≤ {100 * limit:.0f} % on {least} of 7 logs", found, limit, least))
    for what, against, words in (("wait", "las-log2", "log₂-LAS"), ("bsld", "srpt-area", "area-SRPT")):
        found = [change for log in HPC if (change := runs.change(what, log, BARE, f"{BASELINE}/{against}"))]
        lines.append(_bar(f"ageing and limit off: {WORDS[what]} below that of {words} on the {len(HPC)} HPC logs", found, 0.0, len(HPC)))
    lines += [_harm(runs), "", "Change in per cent (this page's interval; bootstrap):", ""]
    lines += [f"| | {' | '.join(logs)} |", "|---" * (len(logs) + 1) + "|"]
    for scheduler, words in ((BARE, "ageing and limit off"), (RANKED, "as shipped")):
        for what in WORDS:
            cells = [runs.change(what, log, scheduler) for log in logs]
            lines.append(f"| {words}, {WORDS[what]} | " + " | ".join(cell.text if cell else "" for cell in cells) + " |")
    return "\n".join(lines)


def _bar(what: str, found: Sequence[Change], limit: float, least: int) -> str:
    good = [change for change in found if change.mean <= limit]
    counts = [len(good), *(sum(interval[1] < 0 for interval in each) for each in zip(*((c.ours, c.bootstrap) for c in good), strict=True))]
    counts += [0] * (3 - len(counts))
    return f"| {what} | {' / '.join(map(str, counts))} | {'met' if counts[1] >= least else '**missed**'} |"


def _harm(runs: Runs) -> str:
    """Say in how many cells of the other conditions something is worse."""
    found = [
        change
        for condition, log, scheduler in runs.cells
        if condition != "usual" and scheduler == RANKED
        for what in WORDS
        if (change := runs.change(what, log, scheduler, condition=condition))
    ]
    p = holm([change.p for change in found])
    counts = [
        sum(change.mean > 0 for change in found), sum(change.ours[0] > 0 for change in found),
        sum(change.bootstrap[0] > 0 for change in found), sum(c.mean > 0 and q < SURE for c, q in zip(found, p, strict=True)),
    ]  # fmt: skip
    met = "met" if counts[3] == 0 else "**missed**"
    asked = f"as shipped, other conditions: none of {len(found)} changes worse after Holm's correction"
    return f"| {asked} | worse: {' / '.join(map(str, counts[:3]))}; corrected: {counts[3]} | {met} |"


# ── all logs together ──

QUANTITIES = {
    "wait": "mean wait", "bsld": "mean bounded slowdown", "p99": "99th percentile of the wait", "longest": "longest wait",
    "wait_volunteers": "mean wait of jobs that may be stopped", "wait_others": "mean wait of the others",
}  # fmt: skip
SHARES = {"usual": "all jobs", "share50": "half", "half2": "half, cost 2 %", "share20": "20 %"}


def together(rows: Sequence[Row], logs: Sequence[str], base_of: Callable[[str], str]) -> str:
    """Write geometric means over the logs of the changes under `gittins` as shipped, with 95 % bootstrap intervals over the logs."""
    known = {(str(r["condition"]), str(r["log"]), plain(r["scheduler"]), int(str(r["window"]))): r for r in rows}
    at = np.random.default_rng(0).integers(0, len(logs), (DRAWS, len(logs)))
    lines = ["| may be stopped | " + " | ".join(SHARES.values()) + " |", "|---" * (len(SHARES) + 1) + "|"]
    for what, title in QUANTITIES.items():
        cells = []
        for condition in SHARES:
            ratios = np.array([_ratio(known, what, log, condition, base_of(condition)) for log in logs])
            if np.isnan(ratios).any():
                cells.append("")
                continue
            logarithms = np.log(ratios)
            low, high = np.quantile(np.exp(logarithms[at].mean(axis=1)) - 1.0, [0.025, 0.975])
            cells.append(f"{100 * np.expm1(logarithms.mean()):+.0f} % ({_span((float(low), float(high)))})")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _ratio(known: Mapping[tuple[str, str, str, int], Row], what: str, log: str, condition: str, base: str) -> float:
    """Return the mean over windows under `gittins` over that under the baseline; NaN where there are no runs."""
    windows = [w for (c, name, made, w) in known if (c, name, made) == (condition, log, RANKED) and (base, log, BASELINE, w) in known]
    if not windows:
        return float("nan")
    ours, theirs = (
        float(np.mean([float(str(known[of, log, made, w][what])) for w in windows])) for of, made in ((condition, RANKED), (base, BASELINE))
    )
    return ours / theirs
