"""Experiments, trainings and comparisons, as a browser asks for them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.errors import UsageError
from gpuyard.web.comparisons import MOST_WAITING, Comparisons, check_names
from gpuyard.web.folders import FolderList
from support.dashboards import ManyJobs, TriedDashboard
from support.nodes import until

ASKED = {"workload": "demo:jobs=60", "cluster": "2x8:a100", "schedulers": ["fcfs/fewest/easy", "sjf/fewest/easy"], "seeds": 2}


@pytest.fixture(scope="module")
def served(results: Path) -> Iterator[TriedDashboard]:
    made = TriedDashboard(ManyJobs(running=1), results)
    yield made
    made.stop()


def test_every_experiment_is_listed_with_its_state(served: TriedDashboard):
    found = {each["folder"]: each for each in served.get("/api/results")["experiments"]}
    assert {name: each["state"] for name, each in found.items()} == {
        "one": "complete", "two": "complete", "begun": "running", "damaged": "damaged",
    }  # fmt: skip
    assert served.ask(f"/api/results/{found['begun']['name']}")[0] == 409
    assert served.ask("/api/results/0123456789abcdef")[0] == 400
    assert served.ask("/api/results/..%2f..%2fetc")[0] in (404, 422)


def test_an_experiment_is_told_in_full(served: TriedDashboard):
    (name,) = (each["name"] for each in served.get("/api/results")["experiments"] if each["folder"] == "two")
    found = served.get(f"/api/results/{name}")
    assert found["title"] == "Second" and found["runs"] == 4 and "2 schedulers" in found["answer"]
    (table,) = found["tables"]
    assert {line["scheduler"] for line in table["lines"]} == {"fcfs", "srpt"} and table["baseline"] == "fcfs"
    means = [line["mean"] for line in table["lines"]]
    assert means == sorted(means) and all("share" in line for line in table["lines"] if line["scheduler"] != "fcfs")
    assert found["charts"] and {each["kind"] for each in found["charts"]} <= {"lines", "points", "picture", "absent"}
    svg = served.get(f"/api/results/{name}/charts/0.svg")
    assert svg.startswith(b"<?xml") and b"<svg" in svg and b"<script" not in svg
    assert served.ask(f"/api/results/{name}/charts/99.svg")[0] == 404
    manifests = served.get(f"/api/results/{name}/manifests?count=2")
    assert manifests["total"] == 4 and len(manifests["manifests"]) == 2


def test_a_training_is_told_while_it_grows(served: TriedDashboard, results: Path):
    (listed,) = served.get("/api/training")["trainings"]
    assert listed["about"] == "PickJob · ppo" and listed["state"] == "running" and listed["updates"] == 900
    found = served.get(f"/api/training/{listed['name']}")
    curves = {each["name"]: each["values"] for each in found["curves"]}
    assert set(curves) == {"return"} and len(found["x"]) == len(curves["return"]) == 400
    assert found["x"][0] == 0 and found["x"][-1] == 64 * 899 and curves["return"][0] == -100.0
    with (results / "trainings" / "first" / "metrics.jsonl").open("a") as file:
        file.write('ps": 1, "return": 5}\n{"update": 901, "steps": 60000, "return": -0.5}\n')
    until(lambda: served.get(f"/api/training/{listed['name']}")["last"]["return"] == -0.5, "the new line is shown")
    old = time.time() - 3600
    os.utime(results / "trainings" / "first" / "metrics.jsonl", (old, old))
    assert served.get(f"/api/training/{listed['name']}")["state"] == "stopped"


def test_folders_are_found_to_a_depth_and_links_are_not_followed(tmp_path: Path):
    deep = tmp_path / "a" / "b" / "c" / "d"
    for folder in (deep, deep / "e", tmp_path / ".hidden", tmp_path / "node_modules"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "experiment.json").write_text("{}")
    (tmp_path / "link").symlink_to(deep)
    assert [each.shown for each in FolderList([tmp_path]).all("experiment")] == ["a/b/c/d"]
    with pytest.raises(UsageError, match="no such experiment"):
        FolderList([tmp_path]).find("x" * 16, "experiment")


def test_a_comparison_is_made_in_a_process_of_its_own(served: TriedDashboard):
    status, told, _ = served.ask("/api/comparisons", method="POST", body=ASKED)
    assert status == 202 and told["state"] in ("waiting", "running") and told["total"] == 4
    number = told["number"]
    assert served.ask(f"/api/comparisons/{number}/result")[0] == 409
    end = time.monotonic() + 120.0
    while (told := served.get(f"/api/comparisons/{number}"))["state"] in ("waiting", "running") and time.monotonic() < end:
        time.sleep(0.1)
    assert told["state"] == "done" and told["done"] == 4, told
    result = served.get(f"/api/comparisons/{number}/result")
    assert {each["scheduler"] for each in result["schedulers"]} == set(ASKED["schedulers"])  # type: ignore[arg-type]
    assert result["names"]["sjf/fewest/easy"] == "Shortest job first + EASY"
    play = served.get(f"/api/comparisons/{number}/play")
    assert [run["scheduler"] for run in play["runs"]] == ASKED["schedulers"]
    for run in play["runs"]:
        assert run["jobs"] == 60 and run["ended"][-1] == 60 and len(run["times"]) == len(run["queue"]) == len(run["busy"])
        assert all(0 <= row < 16 for span in run["spans"] for row in span[3])


def test_a_comparison_can_be_cancelled_and_the_next_one_runs():
    comparisons = Comparisons()
    try:
        first = comparisons.ask("demo:jobs=20000", "16x8:a100", ["fcfs", "sjf"], 20)
        until(lambda: first.state == "running")
        others = [comparisons.ask("demo", "16x8:a100", ["fcfs", "sjf"], 1) for _ in range(MOST_WAITING)]
        with pytest.raises(UsageError, match="wait already"):
            comparisons.ask("demo", "16x8:a100", ["fcfs", "sjf"], 1)
        for each in (first, *others[1:]):
            comparisons.cancel(each.number)
        until(lambda: first.process is None, "its process has ended")
        assert first.state == "cancelled"
        until(lambda: others[0].state == "running", "the next one runs")
    finally:
        comparisons.close()
    assert others[0].state == "cancelled"


@pytest.mark.parametrize("text", [
    "./mine.py:rule", "../secret", "./etc/passwd", "fcfs/./mine.py:rule", "sjf/fewest/easy/~/x.safetensors", "mine.toml", "a\\b", "x//y",
    "best.safetensors",
    "guard(./mine.py:f)", "log.swf.py", "meta:backlog(fcfs, ./a.py:f)",
])  # fmt: skip
def test_no_file_is_read_and_no_code_is_run_for_a_viewer(served: TriedDashboard, text: str):
    for names in ((f"demo:{text}", "2x8", ()), ("demo", f"2x8{text}", ()), ("demo", "2x8", (text,))):
        with pytest.raises(UsageError, match="names a file"):
            check_names(*names)
    for changed in ({"workload": text}, {"cluster": text}, {"schedulers": [text, "fcfs"]}):
        status, said, _ = served.ask("/api/comparisons", method="POST", body={**ASKED, **changed})
        assert status == 400 and said["error"]


@pytest.mark.parametrize(
    "text", ["sjf/fewest/easy", "wfp:power=2/best/easy:depth=10", "learned:hpc", "meta:backlog(fcfs, sjf)", "demo:jobs=10"]
)
def test_names_are_not_taken_for_files(text: str):
    check_names(text if text.startswith("demo") else "demo", "2x8:a100", [text])


@pytest.mark.parametrize(("changed", "status"), [
    ({"workload": "no-such-workload"}, 400), ({"schedulers": ["fcfs"]}, 422), ({"schedulers": ["fcfs", "ficfs"]}, 400),
    ({"seeds": 0}, 422), ({"seeds": 10**9}, 422), ({"workload": "x" * 201}, 422),
])  # fmt: skip
def test_what_cannot_be_compared_is_refused_at_once(served: TriedDashboard, changed: dict[str, object], status: int):
    found, said, _ = served.ask("/api/comparisons", method="POST", body={**ASKED, **changed})
    assert found == status and said["error"]


def test_a_workload_that_is_too_large_is_refused_by_its_process(served: TriedDashboard):
    _, told, _ = served.ask("/api/comparisons", method="POST", body={**ASKED, "workload": "demo:jobs=60000"})
    until(lambda: served.get(f"/api/comparisons/{told['number']}")["state"] == "failed", "it is refused")
    assert "at most 50,000" in served.get(f"/api/comparisons/{told['number']}")["error"]
