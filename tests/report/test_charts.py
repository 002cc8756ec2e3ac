from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuyard.errors import UnknownNameError
from gpuyard.experiments.design.spec import shipped
from gpuyard.report.charts import Absent, Axis, Chart, Lines, Points, Strip, axis_of, share_axis, style_of
from gpuyard.report.static import draw
from gpuyard.report.studies import FIGURES, NoData, Study, charts_of
from gpuyard.report.writing import figure_files, file_name

ALL = sorted(FIGURES)
HAS_DATA = {"regret": "shifted", "adaptation": "shifted", "speedup": "shifted", "makespan": "shifted", "tasks": "shifted",
            "choices": "core", "gantt": "core", "oracle_gap": "core", "util_vs_gpus": "core",
            "by_group": "core", "drift_regret": "drifting", "drift_adaptation": "drifting", "drift_recovery": "drifting",
            "switch_gain": "switching", "best_fixed": "switching", "stops_change": "stopping",
            "who_pays": "stopping", "longest_waits": "stopping", "stops_by_workload": "stopping"}  # fmt: skip


def made(name: str, request: pytest.FixtureRequest) -> tuple[Study, list[Chart]]:
    study: Study = request.getfixturevalue(HAS_DATA.get(name, "changed"))
    return study, FIGURES[name](study)


@pytest.mark.parametrize("name", ALL)
def test_every_figure_is_drawn(name: str, request: pytest.FixtureRequest) -> None:
    _, charts = made(name, request)
    assert charts
    for chart in charts:
        assert chart.title and chart.caption.endswith(".")
        figure = draw(chart)
        labels = [text.get_text() for axes in figure.axes for text in (axes.xaxis.label, axes.yaxis.label, axes.title)]
        assert any(labels)


@pytest.mark.parametrize("name", ["robustness_radar", "regret", "by_priority"])
def test_the_same_data_gives_the_same_bytes(name: str, request: pytest.FixtureRequest) -> None:
    """The others are among those of `core`, whose report is written twice in test_report.py."""
    study, charts = made(name, request)
    first = dict(figure_files(charts[:1]))
    assert first == dict(figure_files(FIGURES[name](study)[:1]))
    assert {file.rpartition(".")[2] for file in first} == {"pdf", "png"}
    assert all(b"CreationDate" not in data for data in first.values())


def test_shipped_experiments_name_figures_that_exist() -> None:
    import tomllib

    for path in shipped().values():
        for name in tomllib.loads(path.read_text()).get("figures", ()):
            assert name in FIGURES


def test_missing_data_is_said_and_an_unknown_name_refused(core: Study) -> None:
    asked = replace(core.results.experiment, figures=("regret", "oracle_gap"))
    found = charts_of(Study(replace(core.results, experiment=asked), core.summary))
    assert isinstance(found[0], Absent) and "regret" in found[0].reason
    assert isinstance(found[1], Chart)
    with pytest.raises(UnknownNameError, match="oracle_gab"):
        charts_of(Study(replace(core.results, experiment=replace(asked, figures=("oracle_gab",))), core.summary))


def test_a_radar_of_fewer_than_three_kinds_is_none(core: Study) -> None:
    with pytest.raises(NoData, match="three kinds"):
        FIGURES["robustness_radar"](core)


@pytest.mark.parametrize("name", ["stops_change", "who_pays", "longest_waits", "stops_by_workload"])
def test_figures_of_stopping_need_an_experiment_about_it(name: str, core: Study) -> None:
    with pytest.raises(NoData, match="does not vary the share"):
        FIGURES[name](core)


def test_a_scheduler_looks_the_same_in_every_chart(core: Study) -> None:
    styles: dict[str, set[int]] = {}
    for chart in (each for name in ("cdf_jct", "oracle_gap", "versus", "by_group") for each in FIGURES[name](core)):
        drawn = chart.drawing
        assert isinstance(drawn, (Lines, Points))
        for series in drawn.lines if isinstance(drawn, Lines) else drawn.marks:
            styles.setdefault(series.name, set()).add(series.style)
    assert set(styles) == set(core.results.schedulers)
    assert all(len(each) == 1 for each in styles.values())


def test_styles_differ() -> None:
    looks = [style_of(k) for k in range(40)]
    assert len({(look.colour, look.dash) for look in looks}) == 40
    assert len({look.colour for look in looks[:8]}) == 8


def test_a_cdf_rises_from_nothing_to_all(core: Study) -> None:
    drawn = FIGURES["cdf_jct"](core)[0].drawing
    assert isinstance(drawn, Lines)
    for line in drawn.lines:
        assert (np.diff(line.y) >= -1e-12).all() and line.y[0] < 0.05 and line.y[-1] == pytest.approx(1.0)


def test_utilisation_is_that_of_the_runs(core: Study) -> None:
    drawn = FIGURES["util_vs_gpus"](core)[0].drawing
    assert isinstance(drawn, Lines)
    columns = core.results.columns
    chosen = (columns["scheduler"] == "edf") & (columns["gpus"] == drawn.categories[0])
    line = next(line for line in drawn.lines if line.name == "edf")
    assert line.y[0] == pytest.approx(columns["utilization"][chosen].mean())


def test_learning_curves_have_a_mean_over_training_seeds_without_the_untrained_network(changed: Study) -> None:
    drawn = FIGURES["learning_curves"](changed)[0].drawing
    assert isinstance(drawn, Lines)
    assert [line.name for line in drawn.lines] == ["agent"]
    assert drawn.lines[0].y.tolist() == [18.5, 17.5, 16.5, 15.5]


def test_scales() -> None:
    assert axis_of("", [np.array([1.0, 100.0])]).scale == "log"
    assert axis_of("", [np.array([0.0, 100.0])]).scale == "linear"
    far = share_axis("", [np.array([0.002, 3.0])], [np.array([0.002])])
    assert far.scale == "bent"
    assert share_axis("", [np.array([0.5, 3.0])]).scale == "linear"
    places = far.place(np.array([-3.0, -0.001, 0.0, 0.001, 3.0]))
    assert (np.diff(places) > 0).all() and places[2] == 0 and places[0] == -places[4]
    texts = [text for _, text in far.ticks(np.array([0.002, 3.0]))]
    assert texts[0] == "0 %" and "100 %" in texts


def test_neighbouring_choices_are_one_stretch() -> None:
    strip = Strip(Axis("hours"), ("a", "b"), np.array([0.0, 1.0, 2.0, 5.0]), np.array([1, 1, 0]))
    assert strip.stretches() == [(1, 0.0, 2.0), (0, 2.0, 5.0)]


def test_file_names_mean_nothing_to_a_file_system() -> None:
    used: set[str] = set()
    assert file_name("../../etc/passwd", used) == "etc_passwd"
    assert file_name("../../etc/passwd", used) == "etc_passwd-2"
    assert file_name("///", used) == "figure"


def test_many_schedulers_are_thinned_out_and_the_caption_says_so(core: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuyard.report.study.MOST_SHOWN", 4)
    few = Study(core.results, core.summary)
    assert len(few.shown) == 4 and {"meta", "direct", core.summary.table.baseline} <= set(few.shown)
    cdf = next(chart for chart in charts_of(few) if chart.name == "cdf_jct")
    assert isinstance(cdf, Chart) and "4 more schedulers" in cdf.caption
