from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpuyard.experiments.design.spec import load_experiment
from gpuyard.experiments.judging.statistics import Interval, paired_difference
from gpuyard.experiments.judging.summary import Comparison, Degradation, Standing, Summary, Versus
from gpuyard.experiments.judging.text import metric_title, p_text, percent, readable, rounded, telling_parts
from gpuyard.experiments.judging.words import findings, lead, verdict
from gpuyard.experiments.running.results import Results


@pytest.fixture(scope="module")
def core() -> Results:
    """The shape of an experiment: what sentences are made of are the summaries below."""
    columns = {"run": np.arange(128), "seed": np.tile([0, 1], 64)}
    return Results(Path("nowhere"), load_experiment("core", quick=True), {}, columns)


BASE = [10.0, 11.0, 9.0, 10.5, 9.5, 10.0]


def against(values: list[float], p: float = 0.001, lower_wins: bool = True) -> Versus:
    difference = paired_difference(values, BASE, better="lower" if lower_wins else "higher")
    size = sum(BASE) / len(BASE)
    return Versus(difference, difference.mean / size, difference.low / size, difference.high / size, 3, 0, 3, p, lower_wins)


BETTER, WORSE = [v - 1 - 0.01 * v for v in BASE], [v + 1 + 0.01 * v for v in BASE]
SAME = [v + d for v, d in zip(BASE, (0.5, -0.5, 0.4, -0.4, 0.3, -0.3), strict=True)]


def summary_of(core: Results, versus: Versus | None, objective: str = "slowdown", **changes: object) -> Summary:
    """One challenger, `meta`, against `srpt`, on one objective."""
    mean = 10.0 + (versus.difference.mean if versus else 0.0)
    value = Interval(mean, mean - 1, mean + 1, 6)
    best, none = frozenset({objective}), frozenset[str]()
    base = Standing("srpt", False, {objective: Interval(10.0, 9.0, 11.0, 6)}, None, None, None, best if mean >= 10.0 else none, 1.0)
    mine = Standing("meta", True, {objective: value}, Interval(0.2, 0.1, 0.3, 6), None, versus, best if mean < 10.0 else none, 1.0)
    table = Comparison(objective, "", "srpt", (base, mine), 60, "seed", 6, Interval(9.0, 8.0, 10.0, 6), None)
    judge = replace(core.experiment.judge, challengers=("meta",), baseline="")
    axes = replace(core.experiment.axes, schedulers=("srpt", "meta"), objectives=(objective,))
    results = replace(core, experiment=replace(core.experiment, judge=judge, axes=axes))
    made = Summary(results, (table,), (), (), 1, ())
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("versus", "expected", "first", "sentence"),
    [
        (against(BETTER), "wins", "meta beats srpt on slowdown", "meta is better than srpt"),
        (against(WORSE), "loses", "meta loses to srpt on slowdown", "meta is worse than srpt"),
        (against(SAME), "unclear", "meta does not clearly differ from srpt", "meta does not clearly differ from srpt"),
        (against(BASE), "equal", "meta is exactly as good as srpt", "meta is exactly as good as srpt"),
        (replace(against(BETTER), share_high=0.001), "unclear", "meta does not clearly differ from srpt", "does not clearly differ"),
        (against(BETTER, p=0.2), "unsure", "meta is not surely different", "the corrected test is not sure (p = 0.2)"),
        (against(BETTER, p=math.nan), "unsure", "meta is not surely different", "not sure"),
    ],
)
def test_a_challenger_wins_loses_or_is_not_told_apart(core: Results, versus: Versus, expected: str, first: str, sentence: str) -> None:
    assert verdict(versus) == expected
    summary = summary_of(core, versus)
    assert first in lead(summary)
    said = " ".join(findings(summary))
    assert sentence in said
    claims = [word for word in ("beats", "loses to", "is better than", "is worse than") if word in lead(summary) + said]
    assert bool(claims) == (expected in ("wins", "loses"))


def test_of_a_metric_of_which_more_is_better_more_wins(core: Results) -> None:
    summary = summary_of(core, against(WORSE, lower_wins=False), "utilization")
    assert "meta beats srpt" in lead(summary)
    assert "has the highest mean" in findings(replace(summary, tables=(summary.table,)))[0]


def test_one_seed_gives_no_claim(core: Results) -> None:
    difference = paired_difference([9.0], [10.0])
    versus = Versus(difference, -0.1, math.nan, math.nan, 1, 0, 0, math.nan, True)
    assert verdict(versus) == "untested"
    summary = summary_of(core, versus)
    summary = replace(summary, tables=(replace(summary.table, n=1),))
    said = lead(summary) + " ".join(findings(summary))
    assert "too few values to tell" in said and "nothing here is more than a hint" in said and "beats" not in said


def test_the_oracle_is_named_with_its_gap(core: Results) -> None:
    assert "Behind the oracle, the best of 5 for each run in hindsight, lie meta 20 % [10, 30]" in " ".join(
        findings(summary_of(core, against(WORSE)))
    )


def test_a_bound_is_named_with_the_distance(core: Results) -> None:
    summary = summary_of(core, against(WORSE))
    best = replace(summary.table.lines[0], above_bound=Interval(1.5, 1.4, 1.6, 6))
    table = replace(summary.table, bound=Interval(4.0, 3.5, 4.5, 6), lines=(best, summary.table.lines[1]))
    assert "below 4.00; srpt lies 150 % [140, 160] from that bound" in " ".join(findings(replace(summary, tables=(table,))))


def test_degradation_is_claimed_only_where_it_is_clear(core: Results) -> None:
    clear = Degradation("slowdown", "burst:severity=4", "burst", "meta", Interval(0.5, 0.4, 0.6, 6))
    vague = Degradation("slowdown", "phase-shift", "phase-shift", "meta", Interval(0.1, -0.1, 0.3, 6))
    said = findings(summary_of(core, against(WORSE), degradations=(clear, vague)))[-1]
    assert (
        "meta got worse under 1 of 2 changes, by their intervals and without a correction, most under burst:severity=4 (+50 % [+40, +60])"
        in said
    )
    said = findings(summary_of(core, against(WORSE), degradations=(vague,)))[-1]
    assert "under 0 of 1 changes, by their intervals and without a correction, nothing surely" in said


def test_many_challengers_are_summed_up(core: Results) -> None:
    summary = summary_of(core, against(WORSE))
    first, mine = summary.table.lines
    lines = (
        first,
        *(replace(mine, scheduler=name, versus=versus) for name, versus in zip("abc", map(against, (BETTER, WORSE, SAME)), strict=True)),
    )
    experiment = summary.results.experiment
    judge = replace(experiment.judge, challengers=("a", "b", "c"))
    results = replace(summary.results, experiment=replace(experiment, judge=judge))
    said = lead(replace(summary, tables=(replace(summary.table, lines=lines),), results=results))
    assert "On slowdown, against srpt, better: a (" in said and "worse: b (" in said and "no clear difference: c (" in said


def test_without_challengers_the_best_are_named(core: Results) -> None:
    summary = summary_of(core, None)
    experiment = summary.results.experiment
    results = replace(summary.results, experiment=replace(experiment, judge=replace(experiment.judge, challengers=())))
    assert "The best mean has srpt on slowdown." in lead(replace(summary, results=results))


def test_digits_that_mean_something() -> None:
    assert percent(Interval(0.00456, 0.0028, 0.0068, 8), "+") == "+0.46 % [+0.28, +0.68]"
    assert percent(Interval(1e-9, 0.0, 2e-9, 8)) == "0.000 % [0.000, 0.000]"
    assert percent(Interval(0.5, math.nan, math.nan, 1)) == "50.0 %"
    assert rounded(5339.3, 650.0) == "5,339" and rounded(-0.0001, 0.5) == "0.00"
    assert p_text(0.0004) == "< 0.001" and p_text(0.0312) == "0.031" and p_text(1.0) == "1" and p_text(math.nan) == "–"


def test_names_for_people() -> None:
    assert metric_title("turnaround.p95") == "95th percentile of turnaround (JCT)"
    assert readable("/home/someone/data/philly.csv[3]") == "philly.csv[3]"
    assert readable("fcfs/first/easy") == "fcfs/first/easy"
    assert len(readable("x" * 500)) == 60
    assert telling_parts(["f:a=1,b=2", "f:a=2,b=2; burst"]) == ["f:a=1", "f:a=2, burst"]
