"""What is said of schedulers, against numbers computed by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from gpuyard.experiments.design.spec import AgentSpec, Axes, Experiment, Judging
from gpuyard.experiments.judging.choice import gain_of_choice
from gpuyard.experiments.judging.statistics import holm, mean_interval, paired_difference
from gpuyard.experiments.judging.summary import Pivot, Summary, summarise, units
from gpuyard.experiments.running.results import Results, has_windows

NAN, INF = math.nan, math.inf
SLOW = {"fcfs": [[2, 4, 6], [4, 6, 8]], "sjf": [[1, 2, 3], [4, 7, 8]]}  # cells × seeds, lower is better
BALANCED = {"fcfs": [[-10, -20, -30], [-10, -20, -30]], "sjf": [[-5, -10, -15], [-20, -20, -30]]}  # higher is better


def results_of(
    columns: Mapping[str, Mapping[str, npt.ArrayLike]],
    *,
    judge: Judging | None = None,
    agents: Mapping[str, AgentSpec] | None = None,
    changes: Sequence[str] = ("",),
    clusters: Sequence[Sequence[str]] | None = None,
    text: str = "demo on 8",
) -> Results:
    """Column → scheduler → values (cells, seeds), of an agent (training seeds, cells, seeds); the cells of a workload are its changes."""
    first = next(iter(columns.values()))
    names = tuple(first)
    shape = np.shape(first[names[0]])[-2:]
    objectives = tuple(name for name in columns if not name.startswith("bound.") and name != "wait")
    workloads = tuple(f"w{k}" for k in range(shape[0] // len(changes)))
    axes = Axes(workloads, ("",), tuple(changes), ("",), names, tuple(range(shape[1])), objectives)
    known = dict.fromkeys(workloads, text)
    experiment = Experiment(
        "x",
        "X",
        "",
        "simulations",
        axes,
        known,
        replace(judge or Judging(), metrics=("wait",) if "wait" in columns else ()),
        agents=agents or {},
    )
    rows: list[dict[str, object]] = []
    for c in range(shape[0]):
        for s in range(shape[1]):
            for name in names:
                for t, trained in enumerate(experiment.agents[name].seeds if name in experiment.agents else (None,)):
                    values = {column: np.reshape(each[name], (-1, *shape))[t, c, s] for column, each in columns.items()}
                    row: dict[str, object] = {
                        "run": len(rows), "workload": workloads[c // len(changes)], "cluster": clusters[c][s] if clusters else "8",
                        "change": changes[c % len(changes)], "estimate": "", "seed": s, "scheduler": name,
                        "training_seed": NAN if trained is None else trained, **values, "n_jobs": 10, "n_killed": int(c == 0 and s == 0),
                    }  # fmt: skip
                    rows.append(row)
    texts = {"workload", "cluster", "change", "estimate", "scheduler"}
    made = {key: np.array([row[key] for row in rows], object if key in texts else None) for key in rows[0]}
    found = Results(Path("nowhere"), experiment, {}, made, windows=has_windows(experiment))
    vars(found).update({"manifests": [], "_curve_frame": None})  # as read from the folder
    return found


def said(columns: Mapping[str, Mapping[str, npt.ArrayLike]], **more: object) -> Summary:
    return summarise(results_of(columns, **more))  # type: ignore[arg-type]


# ── two schedulers, two workloads, three seeds ──


def test_means_rest_on_seeds() -> None:
    table = said({"slowdown": SLOW}).table
    for name, per_seed in {"fcfs": [3, 5, 7], "sjf": [2.5, 4.5, 5.5]}.items():
        assert table.line(name).values["slowdown"] == replace(mean_interval(np.array(per_seed, float)), of="seed")
        assert table.line(name).spread == pytest.approx(np.std(per_seed, ddof=1))
    assert (table.runs, table.over, table.n) == (6, "seed", 3)
    assert [line.best for line in table.lines] == [set(), {"slowdown"}]


def test_oracle_and_gap() -> None:
    table = said({"slowdown": SLOW}, judge=Judging(oracle=("fcfs", "sjf"))).table
    assert table.oracle == mean_interval(np.array([2.5, 4.0, 5.5]))
    assert table.line("fcfs").gap == mean_interval(np.array([0.5, 0.5, 0.5]))
    gap = table.line("sjf").gap
    assert gap is not None
    assert gap.mean == pytest.approx(1 / 36)


def test_gap_and_bound_of_a_negative_objective_of_which_more_is_better() -> None:
    bound = {name: np.full((2, 3), -4.0) for name in BALANCED}
    table = said({"balanced": BALANCED, "bound.balanced": bound}, judge=Judging(oracle=("fcfs", "sjf"))).table
    lines = {line.scheduler: line for line in table.lines}
    assert table.oracle is not None
    assert table.oracle.mean == pytest.approx(np.mean([-5, -10, -15, -10, -20, -30]))
    assert lines["fcfs"].gap is not None
    assert lines["sjf"].gap is not None
    assert lines["fcfs"].gap.mean == pytest.approx(0.5)
    assert lines["sjf"].gap.mean == pytest.approx(1 / 6)
    assert table.bound is not None
    assert table.bound.mean == -4.0
    assert lines["fcfs"].above_bound is not None
    assert lines["fcfs"].above_bound.mean == pytest.approx(np.mean([1.5, 4, 6.5]))
    assert lines["sjf"].best == {"balanced"}
    assert not lines["fcfs"].best


def test_versus_is_a_paired_share_with_wins_by_run() -> None:
    summary = said({"slowdown": SLOW, "balanced": BALANCED}, judge=Judging(baseline="fcfs"))
    slow, balanced = (table.line("sjf").versus for table in summary.tables)
    assert slow is not None
    assert balanced is not None
    assert slow.share == pytest.approx((12.5 - 15) / 15)
    assert slow.difference.mean == pytest.approx(-2.5 / 3)
    assert (slow.wins, slow.ties, slow.losses) == (3, 2, 1)
    assert slow.difference.wins == 3
    assert slow.better is None  # three seeds are too few to tell
    assert balanced.share == pytest.approx((-50 + 60) / 60)
    assert balanced.share > 0
    assert (balanced.wins, balanced.ties, balanced.losses) == (3, 2, 1)
    assert not balanced.lower_wins
    assert summary.table.line("fcfs").versus is None


def test_p_values_are_corrected_over_all_objectives() -> None:
    slow = {"fcfs": [[2, 4, 6], [4, 6, 8]], "sjf": [[1, 3.1, 5.05], [3, 4.9, 7.02]], "edf": [[3, 4, 6], [5, 6, 9]]}
    balanced = {**BALANCED, "edf": [[-9, -18, -33], [-10, -21, -28]]}
    summary = said({"slowdown": slow, "balanced": balanced}, judge=Judging(baseline="fcfs", groups=("workload",)))
    plain = []
    for values in (slow, balanced):
        seeds = {name: np.mean(each, axis=0) for name, each in values.items()}
        plain += [paired_difference(seeds[name], seeds["fcfs"]).p for name in ("sjf", "edf")]
    found = [line.versus.p for table in summary.tables for line in table.lines if line.versus]
    assert summary.comparisons == 4
    assert found == pytest.approx(holm(plain).tolist())
    assert min(plain) < min(found) == pytest.approx(4 * min(plain))
    assert len(summary.groups) == 2
    assert all(math.isnan(line.versus.p) for table in summary.groups for line in table.lines if line.versus)


def test_the_baseline_is_the_best_that_is_no_challenger_or_the_best_of_the_rivals() -> None:
    slow = {"sjf": [[1, 1, 1]], "edf": [[2, 2, 3]], "fcfs": [[4, 4, 5]], "lcfs": [[9, 9, 8]]}
    assert said({"slowdown": slow}, judge=Judging(challengers=("sjf",))).table.baseline == "edf"
    assert said({"slowdown": slow}, judge=Judging(challengers=("sjf",), rivals=("fcfs", "lcfs"))).table.baseline == "fcfs"
    assert said({"slowdown": slow}, judge=Judging(baseline="lcfs")).table.baseline == "lcfs"
    assert said({"balanced": slow}, judge=Judging(challengers=("lcfs",))).table.baseline == "fcfs"
    assert said({"slowdown": slow}, judge=Judging(challengers=tuple(slow))).table.baseline == "sjf"


def test_groups_are_tables_of_their_own() -> None:
    found = said({"slowdown": SLOW}, judge=Judging(baseline="fcfs", groups=("workload",))).groups
    assert [table.group for table in found] == ["workload=w0", "workload=w1"]
    assert found[0].line("sjf").values["slowdown"].mean == pytest.approx(2)
    assert found[1].line("sjf").values["slowdown"].mean == pytest.approx(19 / 3)
    assert found[0].runs == 3


def test_a_cluster_that_is_drawn_by_the_seed_makes_no_further_cells() -> None:
    clusters = [["a0", "a1", "a2"], ["b0", "b1", "b2"]]
    results = results_of({"slowdown": SLOW}, clusters=clusters)
    assert len(Pivot(results).cells) == 2
    assert summarise(results).table.runs == 6
    assert summarise(results).table.line("sjf").values == said({"slowdown": SLOW}).table.line("sjf").values


def test_cells_whose_columns_are_all_the_same_stay_apart() -> None:
    results = results_of({"slowdown": SLOW})
    results.columns["workload"][:] = "w"
    pivot = Pivot(results)
    assert len(pivot.cells) == 2
    assert np.array_equal(pivot.values("slowdown", "sjf")[0], SLOW["sjf"])


# ── what is missing ──


def test_a_run_that_one_of_two_has_no_value_of_counts_for_neither() -> None:
    """Else the one that failed where it is hard would look better."""
    holes = {"fcfs": [[1, 1, 1], [100, 100, 100]], "sjf": [[2, 2, 2], [NAN, 100, 100]]}
    versus = said({"slowdown": holes}, judge=Judging(baseline="fcfs")).table.line("sjf").versus
    assert versus is not None
    assert versus.difference.mean == pytest.approx(np.mean([1, 0.5, 0.5]))
    assert (versus.wins, versus.ties, versus.losses) == (0, 2, 3)


def test_the_oracle_is_the_best_of_those_that_have_a_value() -> None:
    holes = {"fcfs": [[2, 2, 2]], "sjf": [[1, NAN, 3]], "edf": [[5, 6, 7]]}
    table = said({"slowdown": holes}, judge=Judging(oracle=("fcfs", "sjf"))).table
    assert table.oracle is not None
    assert table.oracle.mean == pytest.approx(np.mean([1, 2, 2]))


def test_infinite_and_missing_values_break_nothing() -> None:
    odd = {"fcfs": [[1, 2, 3]], "sjf": [[INF, 0.1, 0.1]], "edf": [[NAN, NAN, NAN]]}
    table = said({"slowdown": odd}, judge=Judging(baseline="fcfs", oracle=("fcfs", "sjf"))).table
    assert [line.best for line in table.lines] == [{"slowdown"}, set(), set()]
    versus = table.line("sjf").versus
    assert versus is not None
    assert (versus.wins, versus.losses) == (2, 1)
    nothing = table.line("edf")
    assert math.isnan(nothing.values["slowdown"].mean)
    assert nothing.versus is not None
    assert math.isnan(nothing.versus.p)
    assert math.isnan(nothing.versus.share)
    none = said({"slowdown": {"fcfs": [[NAN, NAN]], "sjf": [[NAN, NAN]]}}).table
    assert not any(line.best for line in none.lines)
    single = said({"slowdown": {"fcfs": [[INF], [1]], "sjf": [[1], [2]]}}).table
    assert single.line("fcfs").values["slowdown"].mean == 1


def test_zeros_of_oracle_and_bound_give_no_shares() -> None:
    zero = {"fcfs": [[0, 0, 0]], "sjf": [[0, 1, 2]]}
    table = said({"slowdown": zero, "bound.slowdown": {name: [[0, 0, 0]] for name in zero}}, judge=Judging(oracle=("fcfs",))).table
    gap = table.line("sjf").gap
    assert gap is not None
    assert math.isnan(gap.mean)
    assert table.bound is None


def test_one_seed_resamples_logs_and_one_of_all_has_no_interval() -> None:
    one = said({"slowdown": {"fcfs": [[1], [2]], "sjf": [[2], [2]]}})  # one seed of a generator draws the same jobs for both
    assert (one.table.over, one.table.n) == ("seed", 1)
    assert one.table.line("sjf").values["slowdown"].mean == 2
    assert math.isnan(one.table.line("sjf").values["slowdown"].low)
    logs = said({"slowdown": {"fcfs": [[1], [2]], "sjf": [[2], [2]]}}, text="log.swf on 8")
    assert (logs.table.over, logs.table.n) == ("workload", 2)
    assert math.isfinite(logs.table.line("fcfs").values["slowdown"].low)
    alone = said({"slowdown": {"fcfs": [[1]], "sjf": [[2]]}})
    value = alone.table.line("sjf").values["slowdown"]
    assert value.mean == 2
    assert math.isnan(value.low)
    assert any("one seed only" in note for note in alone.notes)
    single = said({"slowdown": {"fcfs": [[1, 2], [3, 4]]}})
    assert single.comparisons == 0
    assert single.table.lines[0].versus is None


def test_notes() -> None:
    same = said({"slowdown": SLOW, "wait": {"fcfs": [[1, NAN, 3], [1, 2, 3]], "sjf": [[1, NAN, 3], [1, 2, 3]]}})
    assert any(note.startswith("wait is the same for every scheduler") for note in same.notes)
    assert not any(note.startswith("slowdown is the same") for note in same.notes)
    assert any(note.startswith("2 of 120 jobs were killed") for note in same.notes)
    assert any(note.startswith("3 seeds are too few") for note in same.notes)


# ── agents ──


def agents(count: int, *names: str) -> dict[str, AgentSpec]:
    return {name: AgentSpec("Switch", "d3qn", ("demo",), "1k", seeds=tuple(range(count))) for name in names}


def test_agents_rest_on_training_seeds() -> None:
    mine = np.array([[[1, 2, 3], [4, 5, 6]], [[2, 3, 4], [5, 6, 7]]], float)  # two training seeds
    table = said({"slowdown": {"a": mine, "fcfs": SLOW["fcfs"]}}, judge=Judging(baseline="fcfs"), agents=agents(2, "a")).table
    assert (table.over, table.n, table.runs) == ("training seed", 2, 6)
    by_training_seed = mean_interval(np.array([3.5, 4.5]))  # wider than that of 3, 4 and 5 by seed
    assert table.line("a").values["slowdown"] == replace(by_training_seed, of="training seed")
    assert table.line("fcfs").values["slowdown"] == replace(mean_interval(np.array([3.0, 5.0, 7.0])), of="seed")
    versus = table.line("a").versus
    assert versus is not None
    assert versus.difference.mean == pytest.approx(-1.0)
    each = mine.mean(axis=0) - np.array(SLOW["fcfs"])
    assert (versus.wins, versus.ties, versus.losses) == ((each < 0).sum(), (each == 0).sum(), (each > 0).sum())


def test_a_mean_over_training_seeds_of_equal_values_is_a_tie() -> None:
    value = 0.1 + 0.2
    table = said(
        {"slowdown": {"a": np.full((3, 2, 3), value), "fcfs": np.full((2, 3), value)}},
        judge=Judging(baseline="fcfs"),
        agents=agents(3, "a"),
    ).table
    versus = table.line("a").versus
    assert versus is not None
    assert (versus.wins, versus.ties, versus.losses) == (0, 6, 0)


def test_agents_are_paired_by_training_seed() -> None:
    generator = np.random.default_rng(1)
    common = generator.normal(0, 5, (6, 1, 1))
    a = 50 + common + generator.normal(0, 0.01, (6, 2, 5))
    table = said({"slowdown": {"a": a, "b": a + 0.1}}, judge=Judging(baseline="a"), agents=agents(6, "a", "b")).table
    versus = table.line("b").versus
    assert versus is not None
    assert versus.difference.mean == pytest.approx(0.1)
    assert versus.better is False


# ── changes ──


def test_degradations_are_ratios_of_means_by_seed_positive_where_it_is_worse() -> None:
    changes = ("", "burst:severity=1")
    slow = {"fcfs": [[1, 2, 4], [2, 2, 6], [3, 2, 4], [6, 2, 6]], "sjf": np.ones((4, 3))}  # workloads × changes
    balanced = {"fcfs": [[-1, -2, -4], [-2, -2, -6], [-3, -2, -4], [-6, -2, -6]], "sjf": -np.ones((4, 3))}
    found = said({"slowdown": slow, "balanced": balanced}, changes=changes).degradations
    assert {(each.objective, each.scheduler, each.change, each.kind) for each in found} == {
        (objective, name, changes[1], "burst") for objective in ("slowdown", "balanced") for name in ("fcfs", "sjf")
    }
    shares = np.array([(4 - 2) / 2, 0, (6 - 4) / 4])  # of the means over the two workloads
    for each in found:
        expected = shares if each.scheduler == "fcfs" else np.zeros(3)
        assert each.share.mean == pytest.approx(expected.mean()), each
        assert each.share.low == pytest.approx(mean_interval(expected).low)


def test_no_degradations_without_what_is_unchanged() -> None:
    assert said({"slowdown": SLOW}).degradations == ()
    assert said({"slowdown": SLOW}, changes=("burst:severity=1", "burst:severity=2")).degradations == ()


# ── what is resampled ──


@pytest.mark.parametrize("shape", [(1, 4, 3), (1, 4, 1), (1, 1, 5), (3, 4, 2), (2, 1, 1)])
def test_units_by_brute_force(shape: tuple[int, int, int]) -> None:
    generator = np.random.default_rng(3)
    values = generator.normal(size=shape)
    values[generator.random(shape) < 0.2] = NAN
    values[generator.random(shape) < 0.1] = INF
    trained, cells, seeds = shape

    def mean(each: list[float]) -> float:
        known = [value for value in each if math.isfinite(value)]
        return sum(known) / len(known) if known else NAN

    over_trained = [[mean([values[t, c, s] for t in range(trained)]) for s in range(seeds)] for c in range(cells)]
    expected = []
    if trained > 1:
        expected.append([mean([values[t, c, s] for c in range(cells) for s in range(seeds)]) for t in range(trained)])
    if seeds > 1:
        expected.append([mean([over_trained[c][s] for c in range(cells)]) for s in range(seeds)])
    if not expected:
        expected.append([mean([values[0, c, 0] for c in range(cells)])])
    for found, wanted in zip(units(values), expected, strict=True):
        assert found == pytest.approx(wanted, nan_ok=True)
    if trained == 1 and seeds == 1:
        assert units(values, windows=True)[0] == pytest.approx([mean([values[0, c, 0]]) for c in range(cells)], nan_ok=True)


def test_an_agent_that_is_better_by_one_seed_alone_is_not_called_better() -> None:
    """Its training seeds agree: what varies are the seeds."""
    plain = np.full((1, 10), 100.0)
    one = plain * 1.02
    one[0, 3] = 50.0
    mine = np.stack([one + 0.01 * t for t in range(5)])
    table = said({"slowdown": {"a": mine, "sjf": plain}}, judge=Judging(baseline="sjf"), agents=agents(5, "a")).table
    versus = table.line("a").versus
    assert versus is not None
    assert versus.difference.mean < 0
    assert versus.better is None
    assert versus.p > 0.05


def test_p_and_the_interval_of_the_way_that_is_least_sure_are_shown() -> None:
    """Alike over 8 seeds, unlike over 5 training seeds: the larger p comes with its own interval."""
    generator = np.random.default_rng(3)
    mine = 10.0 + generator.normal(0, 3, (5, 1, 1)) + generator.normal(0, 0.01, (5, 1, 8))
    versus = (
        said({"slowdown": {"a": mine, "fcfs": np.full((1, 8), 9.0)}}, judge=Judging(baseline="fcfs"), agents=agents(5, "a"))
        .table.line("a")
        .versus
    )
    assert versus is not None
    assert versus.difference == paired_difference(mine.mean(axis=(1, 2)), np.full(5, 9.0))


# ── the best of several ──


def test_seeds_are_parts_too_and_fewer_than_five_are_none():
    rng = np.random.default_rng(2)
    base = rng.normal(20.0, 1.0, (1, 6))
    columns = {"fcfs": base, **{f"s{k}": base + rng.normal(-1.0, 2.0, (1, 6)) for k in range(4)}}
    summary = said({"slowdown": columns})
    found = gain_of_choice(summary, ["s0", "s1", "s2", "s3"], "fcfs")
    values = np.stack([columns[f"s{k}"][0] for k in range(4)])
    expected = [values[int(np.argmin(np.delete(values, s, 1).mean(axis=1))), s] - base[0, s] for s in range(6)]
    assert found is not None
    assert found.mean == pytest.approx(np.mean(expected)) and found.n == 6
    few = said({"slowdown": {name: each[:, :4] for name, each in columns.items()}})
    assert gain_of_choice(few, ["s0", "s1"], "fcfs") is None
