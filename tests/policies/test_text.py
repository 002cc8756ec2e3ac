"""Schedulers as text: what is written is what is meant, and a label can be read back."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from gpuyard.errors import PolicyError, UnknownNameError, UsageError
from gpuyard.policies import (
    BACKFILLS,
    ORDERINGS,
    PLACEMENTS,
    PREEMPTIONS,
    SWITCHES,
    Meta,
    Scheduler,
    parse_backfill,
    parse_ordering,
    parse_placement,
    parse_preemption,
    parse_scheduler,
    parse_switch,
)
from support.schedulers import suit

FILE = """
def rule(jobs, j, now, power=1.0, shift=0.0):
    return jobs.estimate[j] ** power + shift


def where(nodes, n, jobs, j, tight=1.0):
    return tight * nodes.free[n]


def stop(jobs, j, now, slack=5.0):
    return jobs.submit[j] // slack


def choose(system, now, most=3.0):
    return 1 if system.waiting > most else 0
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, with a policy file beside it, in it and below it."""
    here = tmp_path / "here"
    (here / "deep" / "er").mkdir(parents=True)
    for place in (tmp_path, here, here / "deep" / "er"):
        (place / "mine.py").write_text(FILE)
    monkeypatch.chdir(here)
    return here


# --- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_the_label_of_every_combination_can_be_read_back(ordering: str):
    backfills = [*BACKFILLS, *(f"{name}:depth=7" for name in BACKFILLS)]
    for rest in itertools.product(PLACEMENTS, backfills, PREEMPTIONS):
        if not suit(ordering, *rest[1:]):
            continue
        made = parse_scheduler("/".join((ordering, *rest)))
        assert parse_scheduler(made.label) == made
        assert parse_scheduler(made.label).label == made.label


def test_two_different_schedulers_have_two_labels():
    every = itertools.product(ORDERINGS, PLACEMENTS, BACKFILLS, PREEMPTIONS)
    labels = ["/".join(parts) for parts in every if suit(parts[0], *parts[2:])]
    assert len({parse_scheduler(text).label for text in labels}) == len(labels)


@pytest.mark.parametrize(
    "text",
    [
        "las/best/easy:depth=100/las:threshold=600",
        "las/best/none/las:threshold=1234567.25",
        "las/best/none/las:threshold=1e-07,every=0.1",
        "las/best/none/las:every=33.333333333333336",
        "las/best/none/las:every=0",
        "srpt/first/none/srpt:every=60",
        "fcfs/first/conservative:depth=1234567",
    ],
)
def test_parameters_survive_the_label_to_the_last_digit(text: str):
    made = parse_scheduler(text)
    assert parse_scheduler(made.label) == made


def test_parameters_tell_labels_apart():
    texts = [f"fcfs/first/{rest}" for rest in ("none/las", "none/las:every=7", "none/las:threshold=7", "skip", "skip:depth=3")]
    assert len({parse_scheduler(text).label for text in texts}) == len(texts)


def test_what_is_left_out_is_the_plain_choice():
    assert parse_scheduler("sjf") == parse_scheduler("sjf/fewest/none/none")
    assert parse_scheduler("sjf/best") == parse_scheduler("sjf/best/none/none")


@pytest.mark.parametrize("rule", SWITCHES)
@pytest.mark.parametrize("period", ["", "@30", "@0.7"])
def test_the_label_of_a_meta_scheduler_can_be_read_back(rule: str, period: str):
    made = parse_scheduler(f"meta:{rule}(fcfs/best/easy, sjf/first/skip:depth=3/las:threshold=5,every=0){period}")
    assert isinstance(made, Meta)
    assert parse_scheduler(made.label) == made


def test_metas_with_other_rules_or_periods_have_other_labels():
    texts = [f"meta:{rule}(fcfs, sjf){period}" for rule in (*SWITCHES, "backlog:limit=3") for period in ("", "@30", "@10m")]
    assert len({parse_scheduler(text).label for text in texts}) == len(texts)


# --- files ------------------------------------------------------------------------------------------------------------


PATHS = ("mine.py", "./mine.py", "../mine.py", "./deep/er/mine.py", "../here/mine.py", "./deep/../mine.py", "absolute")


@pytest.mark.parametrize("path", PATHS)
def test_paths_in_every_slot(folder: Path, path: str):
    path = str(folder / "mine.py") if path == "absolute" else path
    texts = [
        f"{path}:rule",
        f"{path}:rule:power=2/best",
        f"fcfs/{path}:where:tight=-1/easy",
        f"fcfs/best/easy:depth=3/{path}:stop",
        f"{path}:rule/{path}:where/skip/{path}:stop:slack=3,every=9",
    ]
    for text in texts:
        made = parse_scheduler(text)
        assert isinstance(made, Scheduler)
        assert parse_scheduler(made.label).label == made.label
        assert parse_scheduler(made.label) == made


def test_an_absolute_path_keeps_its_form(folder: Path):
    path = str(folder / "mine.py")
    assert parse_scheduler(f"{path}:rule/best").ordering.name == f"{path}:rule"  # type: ignore[union-attr]
    assert parse_scheduler(f"sjf/{path}:where").placement.name == f"{path}:where"  # type: ignore[union-attr]
    assert "//" not in parse_scheduler(f"{path}:rule").label


def test_a_path_below_without_a_dot_can_be_read_back_from_the_label(folder: Path):
    ordering = parse_ordering("deep/er/mine.py:rule")
    made = Scheduler(ordering, PLACEMENTS["best"], BACKFILLS["none"], PREEMPTIONS["none"])
    assert parse_scheduler(made.label).label == made.label


def test_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(folder))
    made = parse_scheduler("~/deep/er/mine.py:rule/best")
    assert parse_scheduler(made.label) == made


def test_a_switch_rule_from_a_file(folder: Path):
    made = parse_scheduler("meta:./mine.py:choose:most=2(fcfs, ./mine.py:rule:power=2,shift=1/best)@60")
    assert isinstance(made, Meta)
    assert dict(made.rule.params) == {"most": 2.0}
    assert parse_scheduler(made.label).label == made.label


def test_the_same_file_by_two_paths_is_one_module(folder: Path):
    assert parse_ordering("./mine.py:rule").function is parse_ordering(f"{folder}/mine.py:rule").function


@pytest.mark.parametrize("name", ["has space.py", "ümlaut.py", "a-b.py", "2nd.py", "deep/has,comma.py", "py.py", "x.py.py"])
def test_odd_file_names(folder: Path, name: str):
    (folder / name).write_text(FILE)
    made = parse_scheduler(f"./{name}:rule:power=2/best")
    assert made.ordering.params[0] == ("power", 2.0)  # type: ignore[union-attr]
    assert parse_scheduler(made.label).label == made.label


def test_a_function_with_a_decorator_is_what_its_decorator_says(folder: Path, monkeypatch: pytest.MonkeyPatch):
    for registry in (ORDERINGS, PLACEMENTS):
        monkeypatch.setattr(registry, "_things", dict(registry.items()))  # what it registers is forgotten after the test
    (folder / "decorated.py").write_text(
        "from gpuyard import ordering, placement\n"
        "@ordering('my own rule', title='by number')\ndef rule(jobs, j, now):\n    return jobs.index[j]\n"
        "@placement('my own place', span='fewest')\ndef place(nodes, n, jobs, j):\n    return nodes.free[n]\n"
    )
    made = parse_scheduler("./decorated.py:rule/./decorated.py:place")
    assert isinstance(made, Scheduler)
    assert made.ordering.title == "by number"
    assert made.placement.span == "fewest"
    assert parse_ordering("my own rule").function is made.ordering.function


# --- what is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "ordering"),
        ("/", ""),
        ("//", ""),
        ("fcfs//easy", ""),
        ("fcfs/best/", ""),
        ("fcfs/best/easy/none/none", "ordering"),
        ("sjff", "did you mean 'sjf'"),
        ("SJF/bets", "sjf"),
        ("fcfs/bets", "did you mean 'best'"),
        ("fcfs/best/easi", "did you mean 'easy'"),
        ("fcfs/best/easy/sprt", "did you mean 'srpt'"),
        ("fcfs:power=2", "power"),
        ("fcfs/best:x=1", "x"),
        ("fcfs/best/easy:depht=3", "depth"),
        ("fcfs/best/easy:depth=-1", "whole number"),
        ("fcfs/best/easy:depth=1.5", "whole number"),
        ("fcfs/best/easy:depth=nan", "is not parameter=number"),
        ("fcfs/best/easy:depth=inf", "whole number"),
        ("fcfs/best/easy:depth=1e300", "depth"),
        ("fcfs/best/easy:depth", "parameter=number"),
        ("fcfs/best/easy/las:threshold=", "parameter=number"),
        ("fcfs/best/easy/las:every=-1", "every"),
        ("fcfs/best/easy/las:every=nan", "every"),
        ("fcfs/best/easy/las:every=inf", "every"),
        ("fcfs/best/easy/las:threshold=nan", "threshold"),
        ("fcfs/best/easy/las:treshold=3", "did you mean 'threshold'"),
        ("meta:backlog", "meta:RULE"),
        ("meta:backlog()", "at least two"),
        ("meta:backlog(fcfs)", "at least two"),
        ("meta:backlock(fcfs, sjf)", "did you mean 'backlog'"),
        ("meta:backlog(fcfs, sjf)@soon", "soon"),
        ("meta:backlog(fcfs, sjf)@inf", "not a period"),
        ("meta:backlog(fcfs, sjf)@-5", ""),
        ("meta:backlog(fcfs, sjff)", "did you mean 'sjf'"),
        ("./nowhere.py:rule", "no such policy file"),
        (".py:rule", "no such policy file"),
        ("./:rule", ""),
        (".", ""),
        ("~", ""),
        ("./mine.py", ""),
        ("./mine.py:", ""),
        ("./mine.py:rul", "did you mean 'rule'"),
        ("./mine.py:rule:powr=3", "did you mean 'power'"),
        ("./mine.py:where", "default"),
        ("\0.py:rule", ""),
        ("fcfs\n", ""),
        ("x" * 100_000, ""),
    ],
)
def test_a_wrong_text_is_refused_in_one_line(folder: Path, text: str, words: str):
    with pytest.raises((UsageError, PolicyError)) as refusal:
        parse_scheduler(text)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("parse", [parse_ordering, parse_placement, parse_backfill, parse_preemption, parse_switch])
def test_an_unknown_name_is_a_wrong_usage(parse: object):
    with pytest.raises(UnknownNameError) as refusal:
        parse("unheard_of")  # type: ignore[operator]
    assert refusal.value.exit_code == 2
    assert refusal.value.hint


def test_spaces_around_parameters():
    assert parse_preemption("las:threshold=5, every=7") == parse_preemption("las:threshold=5,every=7")


def test_a_file_that_changes_what_is_imported_stays_local(folder: Path):
    (folder / "random.py").write_text("def rule(jobs, j, now):\n    return 0.0\n")
    parse_ordering("./random.py:rule")
    import random

    assert Path(random.__file__ or "").parent != folder
