"""The damage is repeatable and does damage."""

from __future__ import annotations

import random

from support.mutations import mutated

LINES = ["100|ann|COMPLETED|2024-01-01T00:00:00|8", '{"jobs": [1, 2]}', ""]


def test_the_same_seed_gives_the_same_text() -> None:
    assert mutated(LINES, random.Random(3)) == mutated(LINES, random.Random(3))
    assert len({mutated(LINES, random.Random(seed)) for seed in range(100)}) > 95


def test_most_lines_are_changed_and_any_line_can_be_given() -> None:
    rng = random.Random(1)
    assert sum(mutated(LINES[:1], rng).rstrip("\n") != LINES[0] for _ in range(200)) > 180
    assert isinstance(mutated([], rng), str)
