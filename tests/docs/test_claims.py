"""The page "claim by claim": its claims name what exists, its numbers are those of the folders, its verdicts follow from them."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from gpuyard.cli.verbs import app
from gpuyard.errors import UsageError
from gpuyard.experiments.design.spec import load_experiment, parse_experiment, shipped
from gpuyard.experiments.judging.summary import Summary, summarise
from gpuyard.experiments.running.results import load_results
from gpuyard.experiments.running.runner import backend_of, run

ROOT = Path(__file__).resolve().parents[2]
TABLE: dict[str, Any] = tomllib.loads((ROOT / "docs" / "pages" / "claims.toml").read_text("utf-8"))
README = (ROOT / "README.md").read_text("utf-8")
CLAIMS: list[dict[str, Any]] = TABLE["claims"]
CHECKS = [(claim["row"], check) for claim in CLAIMS for check in claim.get("checks", ())]
ROWS = {"A": 11, "B": 8, "C": 6, "D": 7, "E": 5}
SMALL = """
title = "Small"
figures = ["objective"]
[axes]
workloads = ["calm", "busy"]
changes = ["", "burst:severity=2"]
schedulers = ["fcfs", "srpt", "coin"]
seeds = "0-5"
objectives = ["slowdown", "balanced"]
[names]
calm = "family:shape=base,intensity=low,gpus=4 on 1x4:a100"
busy = "family:shape=bursty,intensity=medium,gpus=4 on 1x4:a100"
coin = "meta:random(fcfs, srpt)@60"
[judge]
challengers = ["coin"]
oracle = ["fcfs", "srpt"]
[[sets]]
name = "two"
fixed = ["fcfs", "srpt"]
switches = ["coin"]
"""


@pytest.fixture(scope="module")
def claims() -> ModuleType:
    """The script that makes the page."""
    spec = importlib.util.spec_from_file_location("claims_page", ROOT / "docs" / "pages" / "claims.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    folder = tmp_path_factory.mktemp("claims") / "small"
    run(parse_experiment(SMALL, "small.toml"), folder, backend_of("local", 1))
    return summarise(load_results(folder))


def test_every_row_of_every_system_is_there() -> None:
    expected = {f"{letter}{k + 1}" for letter, rows in ROWS.items() for k in range(rows)}
    assert {claim["row"] for claim in CLAIMS} == expected
    assert set(TABLE["systems"]) == set(ROWS)
    for claim in CLAIMS:
        assert claim.get("checks") or claim.get("measured") or claim.get("lacks"), claim["claim"]
        assert claim.get("command") or claim.get("lacks"), claim["claim"]


@pytest.mark.parametrize("command", sorted({claim["command"] for claim in CLAIMS if "command" in claim}))
def test_every_command_exists(command: str) -> None:
    program, *words = shlex.split(command)
    if program == "python":
        assert (ROOT / words[0]).is_file()
        return
    assert program == "gpuyard"
    found: Any = typer.main.get_command(app)
    while hasattr(found, "commands"):
        found = found.commands[words.pop(0)]
    assert found.make_context(found.name, list(words)).params  # unknown options and missing arguments are refused
    if found.name == "run":
        assert words[0] in shipped()


@pytest.mark.parametrize(("row", "check"), CHECKS, ids=[f"{row}-{k}" for k, (row, _) in enumerate(CHECKS)])
def test_every_check_names_what_a_study_has(row: str, check: dict[str, Any], claims: ModuleType) -> None:
    experiment = load_experiment(check["study"])
    for key in ("scheduler", "against", "switch"):
        assert check.get(key, experiment.axes.schedulers[0]) in experiment.axes.schedulers
    assert check.get("objective", experiment.axes.objectives[0]) in experiment.axes.objectives
    assert "workload" not in check or check["workload"] in experiment.axes.workloads
    assert len([name for name in claims.CHECKS if name in check]) == 1
    if "switch" in check:
        among = next(each for each in experiment.sets if each.name == check["set"])
        assert check["switch"] in among.switches
        assert not among.workloads or check["workload"] in among.workloads


def test_a_missing_folder_is_named(claims: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="core") as caught:
        claims.page(tmp_path)
    assert all(str(tmp_path / check["study"]) in str(caught.value) for _, check in CHECKS)
    text = claims.page(tmp_path, partial=True)
    assert "There is no folder of core." in text and "**holds**" in text
    assert all(f"| {claim['row']} | {claim['claim']} |" in text for claim in CLAIMS)


def test_numbers_are_those_of_the_summary(claims: ModuleType, small: Summary) -> None:
    line = small.tables[0].line("coin")
    assert line.versus is not None and line.gap is not None and small.tables[0].baseline == "srpt"
    better = claims.decide({"study": "small", "scheduler": "coin", "objective": "slowdown", "better": True}, small)
    assert better.passed is False
    assert better.text.startswith(f"coin: slowdown {100 * line.versus.share:.0f} % [") and better.text.endswith("worse than srpt")
    worse = claims.decide({"study": "small", "scheduler": "coin", "objective": "slowdown", "worse": True}, small)
    assert worse.passed is True and worse.text == better.text
    gap = {"study": "small", "scheduler": "coin", "objective": "slowdown"}
    assert claims.decide(gap | {"gap_at_most": line.gap.mean + 1e-9}, small).passed is True
    assert claims.decide(gap | {"gap_at_most": line.gap.mean - 1e-9}, small).passed is False
    assert claims.decide(gap | {"behind_at_most": line.versus.share + 1e-9}, small).passed is True
    assert claims.decide(gap | {"behind_at_most": line.versus.share - 1e-9}, small).passed is False
    assert claims.decide(gap | {"tell": "gap"}, small).passed is None
    first = claims.decide({"study": "small", "scheduler": "fcfs", "against": "coin", "objective": "balanced", "better": True}, small)
    assert first.passed is False and "worse than coin" in first.text
    on_busy = claims.decide(gap | {"scheduler": "srpt", "against": "fcfs", "workload": "busy", "better": True}, small)
    assert on_busy.passed is True and on_busy.text.startswith("srpt on busy: slowdown ") and on_busy.text.endswith("better than fcfs")


def test_counts_and_times(claims: ModuleType, small: Summary) -> None:
    assert claims.decide({"study": "small", "runs": 72}, small) == ("72 runs", True)
    assert claims.decide({"study": "small", "runs": 71}, small).passed is False
    assert claims.decide({"study": "small", "scenarios": 6}, small) == ("6 scenarios on each of 2 workloads", True)
    assert claims.decide({"study": "small", "scheduler": "coin", "latency_at_most": 1e9}, small).passed is True
    assert claims.decide({"study": "small", "scheduler": "coin", "latency_at_most": 0.0}, small).passed is False
    assert claims.decide({"study": "small", "scheduler": "coin", "growth_at_most": 1e9}, small).passed is True
    switch = {"study": "small", "switch": "coin", "set": "two", "workload": "busy", "objective": "slowdown"}
    found = claims.decide(switch, small)
    assert found.passed is False and found.text.startswith("coin on busy: slowdown ") and found.text.endswith("worse than srpt alone")


def test_verdicts_follow_from_the_checks(claims: ModuleType) -> None:
    yes, no, told = claims.Finding("", True), claims.Finding("", False), claims.Finding("", None)
    assert claims._verdict({}, []) == "holds"
    assert claims._verdict({}, [yes, told]) == "holds"
    assert claims._verdict({}, [yes, no]) == "holds in part"
    assert claims._verdict({}, [no, told]) == "does not hold"
    assert claims._verdict({"part": "…"}, [yes]) == "holds in part"
    assert claims._verdict({"lacks": "…"}, []) == "does not hold"
    assert claims._verdict({"cannot": "…"}, [no]) == "cannot be reached"
    assert claims._verdict({"cannot": "…"}, [yes]) == "holds"  # numbers go before reasons


def test_the_page_comes_from_this_script(claims: ModuleType) -> None:
    text = (ROOT / "docs" / "reference" / "claims.md").read_text("utf-8")
    assert text.startswith(claims.INTRODUCTION)
    assert all(f"| {claim['row']} | {claim['claim']} |" in text for claim in CLAIMS)


def test_the_readme_names_only_gains_that_are_sure() -> None:
    """What the README says of stopping jobs are the cells of docs/reference/preemption.md whose interval excludes 0."""
    page = (ROOT / "docs" / "reference" / "preemption.md").read_text("utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| `saf/fewest/easy/gittins` |"))  # the first: all may be stopped
    waits = [cell.split(" / ")[0].strip() for cell in row.strip("| ").split(" | ")[1:]]
    sure = [int(cell[:-1]) for cell in waits if cell.endswith("*")]
    assert all(gain < 0 for gain in sure)
    said = re.search(r"on seven production logs.*?by (\d+) to (\d+) % on (\w+); on the other (\w+) \((.*?)\)", " ".join(README.split()))
    assert said is not None
    numbers = ("zero", "one", "two", "three", "four", "five", "six", "seven")
    assert (int(said[1]), int(said[2])) == (-max(sure), -min(sure))
    assert (numbers.index(said[3]), numbers.index(said[4])) == (len(sure), len(waits) - len(sure)) and len(waits) == 7
    logs = next(line for line in page.splitlines() if line.startswith("| Usual")).strip("| ").split(" | ")[1:]
    assert said[5].split(" and ") == [log for log, cell in zip(logs, waits, strict=True) if not cell.endswith("*")]
