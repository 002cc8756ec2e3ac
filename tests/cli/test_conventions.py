"""What all verbs have in common: where results go, how wide tables are, what is said while something takes long."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.cli.common import messages
from gpuyard.cli.common.messages import every_pause
from gpuyard.cli.common.output import progress_bar
from gpuyard.cli.verbs import command
from support.complaints import complaints

ROOT = Path(__file__).parents[2]
MAKES = {  # verbs that make something to keep; the tools for traces take the name of a file as their last word
    "simulate", "compare", "evaluate", "explain", "run", "report", "train", "profile", "history", "bench", "snapshot",
}  # fmt: skip
SMALL = ("demo:jobs=60", "--cluster", "4x8:a100")


def verbs(group: object = None, path: str = "") -> Iterator[tuple[str, set[str]]]:
    """Every verb with its options."""
    for name, each in getattr(group or command(), "commands").items():  # noqa: B009 - a group of verbs has them
        if hasattr(each, "commands"):
            yield from verbs(each, f"{path}{name} ")
        else:
            yield f"{path}{name}", {option for parameter in each.params for option in parameter.opts}


def test_out_is_where_a_result_goes_in_every_verb_that_makes_one():
    assert {verb for verb, options in verbs() if "--out" in options} == MAKES
    assert [verb for verb, options in verbs() if options & {"--save", "--output", "-o"}] == []


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["simulate", "demo", "--save", "x"], "did you mean --out?"),
        (["trace", "convert", "log.swf", "--out", "jobs.csv"], "OUT is the last word, without an option"),
        (["list", "metrics", "--out", "x"], "it goes to stdout: -f csv > FILE"),
    ],
)
def test_who_writes_it_otherwise_is_told(cli, arguments, hint):
    outcome = cli(*arguments)
    assert outcome.code == 2
    assert complaints(outcome.err)[0].endswith(f"; hint: {hint}")


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "arguments",
    [["list", "policies"], ["list", "metrics"], ["show", "gittins"], ["show", "learned:hpc"], ["simulate", *SMALL, "--by", "user"]],
    ids=" ".join,
)
def test_tables_fit_the_columns_that_are_asked_for(cli, monkeypatch, columns, arguments):
    monkeypatch.setenv("COLUMNS", str(columns))
    outcome = cli(*arguments)
    assert outcome.code == 0
    assert max(map(len, outcome.out.splitlines())) <= columns


def test_one_long_piece_of_work_is_told_every_ten_seconds(capsys, monkeypatch):
    monkeypatch.setattr(messages, "PAUSE", 0.01)
    with progress_bar("simulating", 8) as progress:
        progress(2)
        said = ""
        while said.count("simulating: 2 of 8") < 2:
            said += capsys.readouterr().err
    with messages.time_so_far("simulating"):
        while "simulating: 0s so far; Ctrl-C stops" not in said:
            said += capsys.readouterr().err
    capsys.readouterr()
    time.sleep(0.03)
    assert capsys.readouterr().err == ""  # not when it is over


def test_what_ends_in_time_is_not_told(cli):
    code, _, err = cli("simulate", *SMALL, "--metric", "wait")
    assert code == 0
    assert "so far" not in err
    with pytest.raises(ZeroDivisionError), every_pause(lambda: None):
        raise ZeroDivisionError


def test_the_demo_is_the_command_of_the_readme_and_writes_a_report():
    (line,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("DEMO_ARGS")]
    asked, _, folder = line.partition("?= ")[2].partition(" --report ")
    assert f"\ngpuyard {asked}\n" in (ROOT / "README.md").read_text()
    assert folder


def test_a_cluster_file_that_was_written_is_read(cli, tmp_path):
    """`profile` writes what `simulate` takes."""
    outcome = cli("profile", "--quick", "--out", tmp_path / "machine.toml")
    assert outcome.code == 0
    assert "profile" in tomllib.loads((tmp_path / "machine.toml").read_text())
    assert cli("simulate", "tasks:jobs=20", "--cluster", tmp_path / "machine.toml", "--scheduler", "greedy-device").code == 0
