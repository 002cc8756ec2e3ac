"""Names for people."""

from __future__ import annotations

import math

import pytest

from gpuyard.experiments.judging.answering.names import amount, duration, in_sentence, people_name, plain_title
from gpuyard.experiments.usual import ALL
from gpuyard.policies import parse_scheduler


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("fcfs/fewest/easy", "First come, first served + EASY"),
        ("fcfs", "First come, first served, no backfilling"),
        ("multifactor/fewest/easy", "Slurm's fair share + EASY"),
        ("sjf/best/conservative", "Shortest job first + conservative backfilling"),
        ("srpt/fewest/easy/srpt", "Shortest remaining time first + EASY, may stop jobs"),
        ("saf/fewest/easy/gittins", "Gittins rank + EASY, may stop jobs"),
        ("learned:gpu", "Learned policy for GPUs + EASY"),
        ("learned:lublin", "Learned policy lublin + EASY"),
        ("milp(fcfs/fewest/easy)", "milp(fcfs/fewest/easy)"),
    ],
)
def test_a_scheduler_has_a_name_that_people_understand(text: str, name: str) -> None:
    assert people_name(parse_scheduler(text)) == name


def test_every_scheduler_that_is_compared_has_a_name_of_its_own() -> None:
    names = [people_name(parse_scheduler(text)) for text in ALL]
    assert len(set(names)) == len(ALL)
    assert max(map(len, names)) <= 80


def test_names_in_a_sentence_begin_small_unless_they_are_names() -> None:
    assert in_sentence("First come, first served + EASY") == "first come, first served + EASY"
    assert in_sentence("Learned policy for HPC + EASY") == "the learned policy for HPC + EASY"
    assert in_sentence("WFP3 + EASY") == "WFP3 + EASY"
    assert in_sentence("Slurm's fair share + EASY") == "Slurm's fair share + EASY"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (45.0, "45.0 s"), (2016.0, "33.6 min"), (4080.0, "1 h 8 min"), (3600.0, "1 h"), (52200.0, "14.5 h"),
     (266400.0, "3 d 2 h"), (1e6, "11.6 d"), (-120.0, "−2.00 min")],
)  # fmt: skip
def test_times_have_three_digits_and_a_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_amounts_carry_their_unit() -> None:
    assert amount("utilization", 0.8241) == "82.4 %"
    assert amount("bsld", 1.374) == "1.37"
    assert amount("wait.max", 52200.0) == "14.5 h"
    assert amount("energy", 12.34) == "12.3 kWh"
    assert amount("wait", math.nan) == "not known" and amount("bsld", math.inf) == "endless"


def test_headings_are_words() -> None:
    titles = [plain_title(name) for name in ("delay", "waiting.max", "bsld", "utilization", "wait.p95", "queue_max")]
    assert titles == ["mean wait", "longest wait", "slowdown", "GPUs busy", "95th percentile of wait", "queue length, most"]
