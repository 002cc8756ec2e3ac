"""Every verb tells the truth about estimates: `exact` where jobs request no time, with a note, and only there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.model.result import Result
from support.checkpoints import write_linear

NOTE = "no requested times: estimates are the run times"
CASES = {  # table of jobs → what is said about its estimates, and the note
    "id,submit,runtime,gpus\n1,0,50,1\n2,1,60,1\n3,2,70,1\n": ("exact", NOTE),
    "id,submit,runtime,gpus,walltime\n1,0,50,1,100\n2,1,60,1,\n3,2,70,1,100\n": (
        "requested; exact for 1 of 3 jobs", "1 of 3 jobs have no requested time: their estimates are the run times",
    ),
    "id,submit,runtime,gpus,walltime\n1,0,50,1,100\n2,1,60,1,100\n3,2,70,1,100\n": ("requested", ""),
}  # fmt: skip
FAMILIES = {"family:horizon=300": "exact", "lublin:jobs=20,nodes=8,requests=exact": "exact", "lublin:jobs=20,nodes=8": "requested"}


@pytest.fixture(params=[*CASES, *FAMILIES])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, str]:
    """A workload, what is said about its estimates, and the note."""
    if request.param in FAMILIES:
        source = FAMILIES[request.param]
        return request.param, source, NOTE if source == "exact" else ""
    path = tmp_path / "jobs.csv"
    path.write_text(request.param)
    return str(path), *CASES[request.param]


def told(note: str, talk: str) -> bool:
    """Whether the note is there, or, for no note, no such note at all."""
    return note in talk if note else "requested time" not in talk


def test_simulate(cli: Callable, case: tuple[str, str, str], tmp_path: Path) -> None:
    text, source, note = case
    _, out, err = cli("simulate", text, "--cluster", "8", "--metric", "wait", "--out", tmp_path / "saved")
    assert f"(estimates: {source}, seed 0)" in out
    assert told(note, err)
    data = json.loads(cli("simulate", text, "--cluster", "8", "--metric", "wait", "-f", "json").out)
    assert data["estimate"] == source
    assert told(note, " ".join(data["notes"]))
    saved = Result.load(tmp_path / "saved")
    assert (saved.manifest["estimate"], saved.workload.estimates) == (source, source)
    assert saved.workload.estimate_source == source.partition(";")[0]


def test_compare_and_its_report(cli: Callable, case: tuple[str, str, str], tmp_path: Path) -> None:
    text, source, note = case
    asked = ("compare", text, "--cluster", "8", "--scheduler", "fcfs", "--scheduler", "sjf", "--seeds", 2, "--metric", "wait")
    _, out, err = cli(*asked, "--report", tmp_path / "report")
    assert f"(estimates: {source}, " in out
    assert told(note, err)
    page = (tmp_path / "report" / "report.html").read_text()
    assert f"<dt>estimates</dt><dd>{source}" in page
    assert told(note, page)
    (data,) = json.loads(cli(*asked, "-f", "json").out)
    assert data["estimate"] == source
    assert f",{source}," in cli(*asked, "-f", "csv").out


@pytest.mark.parametrize("verb", [("trace", "info"), ("show",)])
def test_facts_about_a_workload(cli: Callable, case: tuple[str, str, str], verb: tuple[str, ...]) -> None:
    text, source, note = case
    out = " ".join(cli(*verb, text).out.split())
    assert f"estimates {source}" in out
    assert told(note, out.replace("missing requested times", "").replace("requested times of", ""))


def test_trace_info_as_data(cli: Callable, case: tuple[str, str, str]) -> None:
    text, source, note = case
    (data,) = json.loads(cli("trace", "info", text, "-f", "json").out)
    assert data["estimates"] == source
    assert told(note, " ".join(data["notes"]))


@pytest.mark.parametrize("source", ["noisy:0.3", "rolling", "boosting"])
@pytest.mark.parametrize("verb", ["simulate", "compare"])
def test_other_sources_bring_no_note_about_requests(cli: Callable, verb: str, source: str) -> None:
    further = ("--scheduler", "sjf", "--seeds", 2) if verb == "compare" else ()
    code, out, err = cli(verb, "family:horizon=300", "--cluster", "8", "--estimate", source, "--metric", "wait", *further)
    assert code == 0, err
    assert f"(estimates: {source}" in out
    assert "requested" not in out + err


def test_a_study_says_what_its_schedulers_knew(cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.toml").write_text(
        'title = "One"\n[axes]\nworkloads = ["family:horizon=300 on 8"]\nchanges = ["", "runtime-distortion:1"]\n'
        'schedulers = ["fcfs", "sjf"]\nseeds = "0-1"\nobjectives = ["wait"]\n[judge]\nbaseline = "fcfs"\n'
    )
    told_by = cli("run", "one.toml", "--workers", 1)
    told = "estimates of run times: exact in 4 Runs, exact before runtime-distortion in 4 Runs"
    assert told in told_by.out + told_by.err
    assert cli("report", "results/one").code == 0
    assert told in Path("results/one/report.html").read_text()


def test_evaluate(cli: Callable, tmp_path: Path) -> None:
    exact = "family:horizon=300 on 8"
    checkpoint = write_linear(
        tmp_path / "sjf.safetensors", "job", {"estimate": -1.0}, {"placement": "fewest", "backfill": "none"}, workloads=[exact]
    )
    _, out, err = cli("evaluate", checkpoint, "--batches", 2, "--metric", "wait")
    assert "(estimates: exact, " in out
    assert NOTE in err
