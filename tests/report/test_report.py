from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from gpuyard.errors import DataError, GpuyardError, UsageError
from gpuyard.experiments.judging.summary import summarise
from gpuyard.experiments.judging.text import value_text
from gpuyard.experiments.judging.words import findings, lead, signed_share
from gpuyard.report.page.experiment import experiment_page, short_answer
from gpuyard.report.page.frame import MOST_BYTES
from gpuyard.report.studies import FIGURES, Study
from gpuyard.report.tables import csv_files, oracle_gaps, run_rows
from gpuyard.report.writing import write_report

USUAL = ["regime", "scheduler", "seed", "avg_jct", "p95_jct", "p99_jct", "slowdown", "makespan", "queue_len_mean", "queue_len_max",
         "fairness_jain", "utilization", "energy", "sla", "oracle_gap", "decision_latency_us"]  # fmt: skip
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


class Page(HTMLParser):
    """What a browser would see: elements with their attributes, and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def written(core_report: Path) -> Path:
    return core_report


@pytest.fixture(scope="module")
def seen(written: Path) -> Page:
    return Page(written.read_text("utf-8"))


def test_everything_is_written(written: Path, core: Study) -> None:
    folder = written.parent
    names = {path.name for path in (folder / "figures").iterdir()}
    assert {f"{name}.{suffix}" for name in ("oracle_gap", "util_vs_gpus", "cdf_jct", "by_priority") for suffix in ("pdf", "png")} <= names
    assert {path.name for path in (folder / "csv").iterdir()} == {"runs.csv", "summary.csv", "groups.csv", "differences.csv"}
    assert not list(folder.rglob("*.part"))
    assert written.stat().st_size < MOST_BYTES


def test_a_second_report_is_the_same_lands_in_the_folder_of_the_experiment_and_leaves_its_results_alone(
    written: Path, core_folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(core_folder, copy)
    before = {path.name: path.read_bytes() for path in copy.iterdir() if path.is_file()}
    assert write_report(copy) == copy / "report.html"
    assert all((copy / name).read_bytes() == data for name, data in before.items())
    for path in sorted(file for file in written.parent.rglob("*") if file.is_file()):
        assert path.read_bytes() == (copy / path.relative_to(written.parent)).read_bytes(), path.name


def test_the_page_asks_the_network_for_nothing(seen: Page) -> None:
    for tag, attributes in seen.elements:
        for name in ("src", "href", "action", "data"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, value)
    policy = next(each for each in seen.named("meta") if each.get("http-equiv") == "Content-Security-Policy")["content"]
    assert policy and "default-src 'none'" in policy


def test_the_page_has_all_its_parts_in_their_order(seen: Page, core: Study) -> None:
    places = [seen.text.index(words) for words in (
        core.results.experiment.question, "What was found", "How far to trust it", "What to do next", "The main table", "Figures",
        "gap to the oracle", "By groups of workloads", "All that was found", "How this was made", "Holm",
    )]  # fmt: skip
    assert places == sorted(places)
    assert "gpuyard run core --quick" in seen.text
    assert len(seen.named("h1")) == 1
    assert len(seen.named("caption")) == len(seen.named("table")) > 5
    pictures = seen.named("img")
    assert len(pictures) >= 8
    assert all(each["alt"] and (each["src"] or "").startswith("data:image/png;base64,") for each in pictures)
    for name in core.results.schedulers:
        assert name in seen.text


def test_the_answer_is_one_sentence_about_every_challenger(core: Study, changed: Study) -> None:
    told = short_answer(core.summary)
    assert told.startswith("On slowdown, ") and "srpt" in told and all(name in told for name in ("meta", "direct"))
    assert told.count(". ") == 0
    none = replace(core.results.experiment, judge=replace(core.results.experiment.judge, challengers=(), rivals=()))
    assert "lowest mean slowdown" in short_answer(summarise(replace(core.results, experiment=none)))
    assert "edf" in short_answer(changed.summary)


def test_numbers_in_the_table_are_those_of_the_summary(seen: Page, core: Study) -> None:
    line = core.summary.table.line("edf")
    assert value_text(line.values["slowdown"]).partition(" [")[0] in seen.text
    assert line.versus is not None and signed_share(line.versus).partition(" [")[0] in seen.text


def renamed(study: Study, old: str, new: str) -> Study:
    """The same study in which a scheduler has another name, wherever names come in."""
    experiment = study.results.experiment

    def swap(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in names)

    judge = replace(experiment.judge, challengers=swap(experiment.judge.challengers), oracle=swap(experiment.judge.oracle))
    axes = replace(experiment.axes, schedulers=swap(experiment.axes.schedulers))
    columns = {**study.results.columns, "scheduler": np.array(swap(tuple(study.results.columns["scheduler"].tolist())), dtype=object)}
    results = replace(study.results, experiment=replace(experiment, judge=judge, axes=axes, title=EVIL, question=EVIL), columns=columns)
    return Study(results, summarise(results))


@pytest.mark.parametrize("old", ["edf", "meta"])
def test_hostile_names_stay_text(core: Study, old: str) -> None:
    study = renamed(core, old, EVIL)
    made = experiment_page(study, [])
    seen = Page(made)
    assert not seen.named("img") and not seen.named("script")
    assert EVIL in seen.text
    assert "alert(1)</script>" not in made


def test_too_large_a_report_is_refused(core: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuyard.report.page.frame.MOST_BYTES", 1000)
    with pytest.raises(GpuyardError, match="more than"):
        experiment_page(core, [])


def test_the_answer_of_a_real_experiment_names_every_challenger(core: Study) -> None:
    said = lead(core.summary)
    assert "8 schedulers ran on 8 workloads with 2 seeds: 128 runs in all." in said
    assert all(name in said for name in ("meta", "direct"))
    assert len(findings(core.summary)) == len(core.results.experiment.axes.objectives)


# ── CSV ──


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_runs_have_the_usual_columns_and_all_others(core: Study) -> None:
    found = rows(csv_files([core.summary])["runs.csv"])
    assert list(found[0])[: len(USUAL)] == USUAL
    assert len(found) == len(core.results) == 128
    assert {"workload", "shape", "balanced", "n_done", "bound.slowdown"} <= set(found[0])
    for k in (0, 77):
        assert float(found[k]["avg_jct"]) == core.results.columns["turnaround"][k]
        assert float(found[k]["decision_latency_us"]) == core.results.manifests[k]["decision_latency_us"]
    assert len({row["regime"] for row in found}) == 8


def test_the_gap_of_each_run_is_to_the_best_of_the_same_run(core: Study) -> None:
    gaps, columns = oracle_gaps(core.results), core.results.columns
    assert (gaps[np.isin(columns["scheduler"], core.results.experiment.judge.oracle)] >= 0).all()
    for k in range(0, len(core.results), len(core.results.schedulers)):
        assert gaps[k : k + 5].min() == 0
    chosen = columns["scheduler"] == "meta"
    line = core.summary.table.line("meta")
    assert line.gap is not None and gaps[chosen].mean() == pytest.approx(line.gap.mean)


def test_summary_and_degradation_tables(core: Study, changed: Study) -> None:
    found = rows(csv_files([core.summary])["summary.csv"])
    assert len([row for row in found if not row["scheduler"].startswith("(")]) == 3 * 8
    assert {row["scheduler"] for row in found if row["scheduler"].startswith("(")} >= {"(oracle)"}
    meta = next(row for row in found if row["scheduler"] == "meta" and row["objective"] == "slowdown")
    line = core.summary.table.line("meta")
    assert line.versus is not None and float(meta["p_corrected"]) == line.versus.p and float(meta["share"]) == line.versus.share
    files = csv_files([changed.summary])
    assert len(rows(files["degradation.csv"])) == 2 * 3 * 4
    assert "p_corrected" not in rows(csv_files([core.summary])["groups.csv"])[0]


def test_usual_columns_are_there_though_the_experiment_names_none_of_them(changed: Study) -> None:
    found = run_rows(changed.results)
    assert "makespan" not in changed.results.experiment.metrics
    assert all(
        np.isfinite(row[name]) for row in found for name in ("makespan", "p95_jct", "p99_jct", "queue_len_mean", "fairness_jain", "energy")
    )
    assert len({row["regime"] for row in found}) == 5


# ── what can be wrong ──


def test_a_folder_without_an_experiment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no experiment"):
        write_report(tmp_path)


def test_an_incomplete_one_is_refused(core_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(core_folder, copy)
    (copy / "complete.json").unlink()
    with pytest.raises(UsageError, match="not complete"):
        write_report(copy)


def test_a_place_that_cannot_be_written_is_one_clear_line(core_folder: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(GpuyardError, match="cannot be written"):
        write_report(core_folder, blocked)


@pytest.fixture(autouse=True)
def _same_figures() -> Iterator[None]:
    before = list(FIGURES)
    yield
    assert list(FIGURES) == before
