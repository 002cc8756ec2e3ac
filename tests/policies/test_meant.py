"""What a scheduler was meant to be: a policy in the wrong slot, other separators and names, a file without a function."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError, PolicyError, UsageError
from gpuyard.policies import BACKFILLS, DECIDERS, ORDERINGS, PLACEMENTS, PREEMPTIONS, parse_ordering, parse_scheduler
from gpuyard.policies.meant import OTHER_NAMES


def said(text: str) -> str:
    with pytest.raises(GpuyardError) as raised:
        parse_scheduler(text)
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "wrong", "meant"),
    [
        ("sjf/easy", "easy is a backfill rule, not a placement", "sjf/fewest/easy"),
        ("easy", "easy is a backfill rule, not an ordering", "fcfs/fewest/easy"),
        ("easy/sjf", "easy is a backfill rule, not an ordering", "sjf/fewest/easy"),
        ("best/sjf", "best is a placement, not an ordering", "sjf/best"),
        ("sjf/fewest/srpt", "srpt is an ordering, not a backfill rule", "sjf/fewest/none/srpt"),
        ("srpt-area", "srpt-area is a preemption rule, not an ordering", "saf/fewest/easy/srpt-area"),
        ("wfp3/easy:depth=10", "easy is a backfill rule, not a placement", "wfp3/fewest/easy:depth=10"),
        ("learned:gpu/easy", "easy is a backfill rule, not a placement", "learned:gpu/fewest/easy"),
        ("meta:backlog(fcfs, sjf/easy)", "easy is a backfill rule, not a placement", "sjf/fewest/easy"),
        ("milp/best/easy", "milp is a decider, not an ordering", "milp, or fcfs/milp/easy"),
        ("sjf+easy", "is not ordering[/placement", "sjf/fewest/easy"),
        ("sjf-easy", "is not ordering[/placement", "sjf/fewest/easy"),
        ("sjf, best, easy", "is not ordering[/placement", "sjf/best/easy"),
    ],
)
def test_the_hint_is_what_was_meant(text: str, wrong: str, meant: str):
    assert wrong in said(text)
    assert said(text).endswith(f"; hint: write {meant}")
    parse_scheduler(meant.partition(",")[0])


def test_two_in_one_slot_are_not_guessed():
    assert said("sjf/best/easy/easy").endswith("hint: write ordering/placement/backfill/preemption")


@pytest.mark.parametrize("name", [*ORDERINGS, *BACKFILLS, *PLACEMENTS, *PREEMPTIONS])
def test_every_policy_in_the_slot_of_another_is_put_right_or_named(name: str):
    for slot, known in enumerate((ORDERINGS, PLACEMENTS, BACKFILLS, PREEMPTIONS)):
        text = "/".join([*["saf", "fewest", "easy"][:slot], name])
        if name in known:
            parse_scheduler(text)
        else:
            assert f"{name} is a" in said(text)


@pytest.mark.parametrize(("name", "ours"), OTHER_NAMES.items())
def test_other_names_are_known_and_not_ours(name: str, ours: str):
    registries = (ORDERINGS, PLACEMENTS, BACKFILLS, PREEMPTIONS, DECIDERS)
    assert any(ours in known for known in registries)
    assert not any(name in known for known in registries)


def test_fifo_is_called_fcfs():
    assert said("fifo") == "unknown ordering or decider 'fifo'; hint: it is called 'fcfs' here"
    assert said("sjf/first-fit") == "unknown placement 'first-fit'; hint: it is called 'first' here"


def test_a_file_without_a_name_lists_its_functions_and_is_not_run(tmp_path: Path):
    mine = tmp_path / "mine.py"
    mine.write_text("raise SystemExit\ndef rule(jobs, j, now): return 0\nclass Clever: ...\ndef _helper(): ...\n")
    for text in (str(mine), f"{mine}/best/easy"):
        assert said(text) == f"{mine}: which function of the file?; hint: it has rule, Clever: write {mine}:rule"
    with pytest.raises(UsageError, match="it has rule, Clever"):
        parse_ordering(str(mine))


@pytest.mark.parametrize(("content", "told"), [(None, "no such policy file"), ("x = 1\n", "defines no function"), ("def (", "no function")])
def test_a_file_that_has_none(tmp_path: Path, content: str | None, told: str):
    mine = tmp_path / "mine.py"
    if content is not None:
        mine.write_text(content)
    with pytest.raises(PolicyError, match=told):
        parse_scheduler(str(mine))
