"""Write docs/reference/claims.md: claims of five earlier systems beside what the studies say.

    python docs/pages/claims.py RESULTS [--partial]

RESULTS holds a folder for each study (`RESULTS/core` …), as `python benchmarks/studies.py` leaves them. The claims are in claims.toml
beside this file; every number is taken from the folders. A folder that is missing is an error that names it; with `--partial` its claims
are marked.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpuyard.errors import GpuyardError, UsageError
from gpuyard.experiments.judging.statistics import FEWEST, Interval
from gpuyard.experiments.judging.summary import MINIMUM, Comparison, Pivot, Summary, Versus, against, summarise
from gpuyard.experiments.judging.switching import gains
from gpuyard.experiments.judging.text import metric_title, rounded, short
from gpuyard.experiments.judging.words import verdict
from gpuyard.experiments.running.results import load_results
from gpuyard.files import read_toml
from gpuyard.metrics import resolve
from gpuyard.registry import unknown_name
from gpuyard.report.figures.schedulers import latencies
from gpuyard.report.tables import LATENCY, stated

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = Path(__file__).with_suffix(".toml")
PAGE = ROOT / "docs" / "reference" / "claims.md"
HOLDS, PART, FAILS, CANNOT, OPEN = "holds", "holds in part", "does not hold", "cannot be reached", "not run"
COUNTED = {HOLDS: "hold", PART: "hold in part", FAILS: "do not hold", CANNOT: "cannot be reached", OPEN: "were not run"}

INTRODUCTION = """# The five systems, claim by claim

Made by `python docs/pages/claims.py RESULTS` from the folders of the studies; do not edit. `python benchmarks/studies.py` runs the studies.

Five earlier systems each promised a part of what gpuyard does. This page has their claims, what we measure, the command that shows it, and
the verdict. Numbers in brackets are 95 % intervals over seeds. "Better" needs an interval that excludes 0 and, for the comparisons of a
study's own tables, a test that is corrected for all of them. [How to read the numbers](../guides/experiments.md#how-to-read-the-tables);
[all tables](results.md).
"""


class Finding(NamedTuple):
    """What a check found: a sentence, and whether the claim passed it; None decides nothing."""

    text: str
    passed: bool | None


class Studies:
    """Summaries of the studies in a folder, each read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.summary = cache(self._summary)

    def missing(self, claims: Sequence[Mapping[str, Any]]) -> list[Path]:
        """List the folders that the claims need and that are not there."""
        names = dict.fromkeys(check["study"] for claim in claims for check in claim.get("checks", ()))
        return [self.folder / name for name in names if not (self.folder / name / "complete.json").is_file()]

    def _summary(self, name: str) -> Summary:
        return summarise(load_results(self.folder / name))


# ── checks ──


def decide(check: Mapping[str, Any], summary: Summary) -> Finding:
    """Make the finding of one check."""
    kind = next((name for name in CHECKS if name in check), None)
    if kind is None:
        raise UsageError(f"{CLAIMS.name}: a check of {check['study']} asks for nothing", hint=f"one of {', '.join(CHECKS)}")
    return CHECKS[kind](check, summary)


def _compared(check: Mapping[str, Any], summary: Summary) -> tuple[str, Versus, str, bool]:
    """Return the scheduler against another, or against the baseline of the study's own table; and whether a corrected test says more."""
    table = _table(summary, check["objective"])
    name, other = _known(check["scheduler"], summary), check.get("against") or table.baseline
    if other == table.baseline and "workload" not in check:
        found = table.line(name).versus
        assert found is not None, f"{name} is the baseline itself"
        return name, found, other, True
    results, objective = summary.results, check["objective"]
    rows = results.columns["workload"] == check["workload"] if "workload" in check else None
    pivot, sign = Pivot(results, rows), MINIMUM[resolve(objective)[0].better]
    return name, against(pivot, pivot.values(objective, name), pivot.values(objective, _known(other, summary)), sign), other, False


def _better(check: Mapping[str, Any], summary: Summary) -> Finding:
    name, found, other, tested = _compared(check, summary)
    better = verdict(found) == "wins" if tested else found.better is True and found.difference.n >= FEWEST
    return Finding(_difference(check, name, other, found), better)


def _worse(check: Mapping[str, Any], summary: Summary) -> Finding:
    name, found, other, tested = _compared(check, summary)
    worse = verdict(found) == "loses" if tested else found.better is False and found.difference.n >= FEWEST
    return Finding(_difference(check, name, other, found), worse)


def _behind(check: Mapping[str, Any], summary: Summary) -> Finding:
    name, found, other, _ = _compared(check, summary)
    behind = found.share if found.lower_wins else -found.share
    return Finding(
        f"{_difference(check, name, other, found)} (at most {_percent(check['behind_at_most'])} behind)", behind <= check["behind_at_most"]
    )


def _gap(check: Mapping[str, Any], summary: Summary) -> Finding:
    gap = _table(summary, check["objective"]).line(_known(check["scheduler"], summary)).gap
    assert gap is not None, f"{check['study']} has no oracle"
    text = f"{check['scheduler']}: {metric_title(check['objective'])} {_share(gap)} behind the best of each run"
    return Finding(f"{text} (at most {_percent(check['gap_at_most'])})", gap.mean <= check["gap_at_most"])


def _tell(check: Mapping[str, Any], summary: Summary) -> Finding:
    line = _table(summary, check["objective"]).line(_known(check["scheduler"], summary))
    value, words = {"gap": (line.gap, "behind the best of each run"), "bound": (line.above_bound, "above what no scheduler can pass")}[
        check["tell"]
    ]
    assert value is not None
    return Finding(f"{check['scheduler']}: {metric_title(check['objective'])} {_share(value)} {words}", None)


def _switch(check: Mapping[str, Any], summary: Summary) -> Finding:
    asked = (check["switch"], check["set"], check["workload"], check["objective"])
    found = [each for each in gains(summary.results) if (each.switch, each.among, each.workload, each.objective) == asked]
    if not found:
        raise UsageError(f"{CLAIMS.name}: {check['study']} compares no {' / '.join(asked)}")
    gain, least = found[0], check.get("gain_at_least", 0.0)
    word = "better" if gain.share.mean > 0 else "worse"
    text = f"{gain.switch} on {gain.workload}: {metric_title(gain.objective)} {_share(_size(gain.share))} {word} than {gain.best} alone"
    return Finding(text + (f" (at least {_percent(least)})" if least else ""), gain.clear and gain.share.mean >= least)


def _runs(check: Mapping[str, Any], summary: Summary) -> Finding:
    return Finding(f"{len(summary.results):,} runs", len(summary.results) == check["runs"])


def _scenarios(check: Mapping[str, Any], summary: Summary) -> Finding:
    axes = summary.results.experiment.axes
    number = len([change for change in axes.changes if change]) * len(axes.seeds)
    workloads = len(set(summary.results.columns["workload"].tolist()))
    return Finding(f"{number} scenarios on each of {workloads} workloads", number >= check["scenarios"])


def _growth(check: Mapping[str, Any], summary: Summary) -> Finding:
    name = _known(check["scheduler"], summary)
    queue, taken = latencies(summary.results, [name])
    first, last = (int(np.flatnonzero(np.isfinite(taken[name]))[k]) for k in (0, -1))
    ends = [f"{short(float(taken[name][k]))} µs with {short(float(queue[k]))} jobs waiting" for k in (first, last)]
    return Finding(f"{name}: {' and '.join(ends)}", bool(taken[name][last] <= check["growth_at_most"] * taken[name][first]))


def _latency(check: Mapping[str, Any], summary: Summary) -> Finding:
    mine = summary.results.columns["scheduler"] == _known(check["scheduler"], summary)
    value = float(np.nanmedian(np.array([stated(each, LATENCY) for each in summary.results.manifests])[mine]))
    return Finding(f"{check['scheduler']}: {short(value)} µs a decision, median of the runs", value <= check["latency_at_most"])


CHECKS: Mapping[str, Callable[[Mapping[str, Any], Summary], Finding]] = {
    "better": _better, "worse": _worse, "behind_at_most": _behind, "gap_at_most": _gap, "tell": _tell, "switch": _switch, "runs": _runs,
    "scenarios": _scenarios, "growth_at_most": _growth, "latency_at_most": _latency,
}  # fmt: skip


def _table(summary: Summary, objective: str) -> Comparison:
    found = [table for table in summary.tables if table.objective == objective]
    if not found:
        raise unknown_name(
            f"objective of {summary.results.experiment.name} in {CLAIMS.name}:", objective, list(summary.results.experiment.axes.objectives)
        )
    return found[0]


def _known(name: str, summary: Summary) -> str:
    if name not in summary.results.schedulers:
        raise unknown_name(f"scheduler of {summary.results.experiment.name} in {CLAIMS.name}:", name, list(summary.results.schedulers))
    return name


def _difference(check: Mapping[str, Any], name: str, other: str, found: Versus) -> str:
    """`meta: slowdown 0.41 % [0.26, 0.60] worse than srpt`."""
    worse = (found.share > 0) == found.lower_wins
    place = f" on {check['workload']}" if "workload" in check else ""
    size = _share(_size(found.share_interval))
    return f"{name}{place}: {metric_title(check['objective'])} {size} {'worse' if worse else 'better'} than {other}"


def _size(share: Interval) -> Interval:
    """Turn a share so that its mean is positive."""
    return share if share.mean >= 0 else Interval(-share.mean, -share.high, -share.low, share.n, share.missing, share.of)


def _share(value: Interval) -> str:
    ends = [100 * each for each in (value.mean, value.low, value.high)]
    if not all(map(math.isfinite, ends)):
        return f"{short(ends[0])} %"
    mean, low, high = (rounded(each, ends[2] - ends[1], most=3) for each in ends)
    return f"{mean} % [{low}, {high}]".replace("-", "−")


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


# ── the page ──


class Row(NamedTuple):
    """A line of the page."""

    row: str
    claim: str
    measured: str
    command: str
    verdict: str
    why: str


def row_of(claim: Mapping[str, Any], studies: Studies, missing: Sequence[Path]) -> Row:
    """Judge one claim."""
    checks = claim.get("checks", ())
    absent = [path.name for path in missing if any(path.name == check["study"] for check in checks)]
    if absent:
        return Row(claim["row"], claim["claim"], "", claim.get("command", ""), OPEN, f"There is no folder of {', '.join(absent)}.")
    found = [decide(check, studies.summary(check["study"])) for check in checks]
    measured = "; ".join([*([claim["measured"]] if "measured" in claim else []), *(each.text for each in found)])
    said = _verdict(claim, found)
    why = "" if said == HOLDS else next((claim[key] for key in ("cannot", "lacks", "part", "why") if key in claim), "")
    return Row(claim["row"], claim["claim"], measured, claim.get("command", ""), said, why)


def _verdict(claim: Mapping[str, Any], found: Sequence[Finding]) -> str:
    passed = [each.passed for each in found if each.passed is not None]
    if claim.get("lacks") or (passed and not any(passed)):
        return CANNOT if claim.get("cannot") else FAILS
    return PART if claim.get("part") or not all(passed) else HOLDS


def page(folder: Path, *, partial: bool = False) -> str:
    """Make the text of the page."""
    table = read_toml(CLAIMS, "the claims")
    studies = Studies(folder)
    missing = studies.missing(table["claims"])
    if missing and not partial:
        names = ", ".join(str(path) for path in missing)
        raise UsageError(f"no results in {names}", hint="python benchmarks/studies.py runs what is missing; --partial marks it")
    rows = [row_of(claim, studies, missing) for claim in table["claims"]]
    counts = Counter(each.verdict for each in rows)
    summed = ", ".join(f"{counts[name]} {words}" for name, words in COUNTED.items() if counts[name])
    sections = [f"## {letter}. {title}\n\n{_lines(rows, letter)}" for letter, title in table["systems"].items()]
    return "\n".join([INTRODUCTION, f"Of {len(rows)} claims: {summed}.\n", *sections])


def _lines(rows: Sequence[Row], letter: str) -> str:
    head = "| | claim | what we measure | command | verdict |\n|---|---|---|---|---|\n"
    lines = []
    for each in (each for each in rows if each.row.startswith(letter)):
        said = f"**{each.verdict}**" + (f". {each.why}" if each.why else "")
        command = f"`{_cell(each.command)}`" if each.command else ""
        lines.append(f"| {each.row} | {each.claim} | {_cell(each.measured)} | {command} | {said} |")
    return head + "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--partial", action="store_true")
    given = parser.parse_args()
    try:
        text = page(given.results, partial=given.partial)
    except GpuyardError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    sys.stdout.write(f"written: {PAGE.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
