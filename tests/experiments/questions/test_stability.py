"""Whether a winner stays ahead at other loads, sizes and estimates, and how near the simulated present is to the log."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuyard import compare
from gpuyard.experiments.judging.answering.fidelity import GroupFidelity, farthest, fidelity
from gpuyard.experiments.judging.answering.plain import plain_answer
from gpuyard.experiments.questions.stability import MOST_JOBS, Stability, Tried, _size_name, busiest, stability
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.rules import Rules
from gpuyard.model.workload import Workload
from gpuyard.policies import parse_scheduler
from gpuyard.report.tables import as_data
from support.sites import site

FCFS, LONGEST, SHORTEST = (parse_scheduler(f"{name}/fewest/easy") for name in ("fcfs", "ljf", "sjf"))


@pytest.fixture(scope="module")
def log() -> Workload:
    return site(1, jobs=3000).log


def test_one_that_is_worse_everywhere_is_not_stable(log: Workload) -> None:
    found = stability(log, load_cluster("700"), LONGEST, SHORTEST, "waiting", Rules())
    assert found is not None
    assert [each.setting for each in found.tried] == [
        "load × 0.8", "load × 0.9", "load × 1.1", "load × 1.2", "10 % fewer devices", "10 % more devices", "exact estimates",
        "noisy:0.5 estimates",
    ]  # fmt: skip
    assert found.reversed
    assert found.words.startswith("Not stable: ")
    again = stability(log, load_cluster("700"), SHORTEST, LONGEST, "waiting", Rules())
    assert again is not None
    assert not again.reversed
    assert again.words.startswith("Is it stable: shortest job first + EASY stays ahead")
    assert [(each.best, each.today) for each in again.tried] == [(each.today, each.best) for each in found.tried]


def test_what_is_said() -> None:
    rows = (Tried("load × 0.9", 105.0, 7.3, True), Tried("load × 1.1", 50.0, 80.0, True), Tried("10 % more devices", 7.0, 7.0, True))
    found = Stability("F1 + EASY", "First come, first served + EASY", "bsld", rows, 100, 100, guessed=True)
    assert [each.setting for each in found.reversed] == ["load × 0.9"]
    assert (
        "is worse than first come, first served + EASY with load × 0.9 (105 against 7.30); it stays ahead in 1 of 3 settings" in found.words
    )
    assert "The size of the cluster is a guess: with 10 % more devices it is 7.00 against 7.00" in found.words
    higher = Tried("x", 0.9, 0.8, False)
    assert higher.lead == pytest.approx(0.125)


def test_only_what_was_tried_is_said_to_have_been(log: Workload) -> None:
    """Of two nodes a tenth is one; of one node there is none to take; jobs without a start are no shorter stretch of a log."""
    draws = np.random.default_rng(0)
    work = Workload.build({"submit": np.arange(200.0), "gpus": draws.integers(1, 9, 200)}, draws.uniform(10.0, 500.0, 200))
    two, one = (stability(work, load_cluster(text), SHORTEST, LONGEST, "waiting", Rules()) for text in ("2x8:a100", "1x8:a100"))
    assert two is not None
    assert one is not None
    assert "load × 0.8 to 1.2, 50 % fewer and 50 % more devices" in two.words
    assert "fewer" not in one.words
    counted = np.arange(len(log)) > 10
    some = stability(log, load_cluster("700"), SHORTEST, LONGEST, "waiting", Rules(), counted)
    assert some is not None
    assert (some.jobs, "busiest" in some.words) == (len(log) - 11, False)


def test_how_often_it_stays_ahead_is_said_in_english() -> None:
    ahead, level = Tried("load × 0.9", 1.0, 2.0, True), Tried("load × 1.1", 2.0, 2.0, True)
    told = [Stability("One", "Two", "waiting", rows, 9, 9).words for rows in ((ahead,) * 3, (ahead, level), (ahead, level, level))]
    assert "one stays ahead of two in all 3 settings tried" in told[0]
    assert told[1].endswith("in 1 of 2 settings tried (load × 0.9 to 1.1), and is level in the other.")
    assert told[2].endswith("and is level in the other 2.")
    same = Stability("One", "Two", "waiting", (Tried("load × 0.9", 2.0, 2.0, True), level), 9, 9)
    assert same.words == "Not stable: one is level with two in all 2 settings tried (load × 0.9 to 1.1)."


def test_nothing_is_said_of_a_winner_where_there_is_none() -> None:
    jobs = {"submit": np.arange(60.0) * 1e5, "gpus": np.ones(60)}
    idle = Workload.build(jobs, np.full(60, 50.0), logged_start=np.arange(60.0) * 1e5 + 0.1)
    assert compare(["fcfs/fewest/easy", "sjf/fewest/easy"], idle, "1x8:gpu").results.stability is None


def test_a_long_log_is_judged_on_its_busiest_stretch() -> None:
    n = MOST_JOBS + 10_000
    submit = np.cumsum(np.where(np.arange(n) < 10_000, 100.0, 10.0))
    rows = busiest(Workload.build({"submit": submit}, np.full(n, 50.0)), MOST_JOBS)
    assert (rows[0], len(rows)) == (10_000, MOST_JOBS)


def test_the_answer_says_whether_the_winner_is_stable_and_a_reversal_changes_the_advice(log: Workload) -> None:
    summary = compare(["fcfs/fewest/easy", "sjf/fewest/easy"], log, "512@1+192@2+64@3")
    found = plain_answer(summary)
    assert found is not None
    assert found.stable == (summary.results.stability.words,)  # type: ignore[union-attr]
    assert found.stable[0] in found.lines
    worse = Stability("a", "b", "waiting", (Tried("load × 0.9", 2.0, 1.0, True),), 1, 1)
    turned = plain_answer(replace(summary, results=replace(summary.results, stability=worse)))
    assert turned is not None
    assert turned.next.startswith("Do not switch for good")


def test_waits_and_devices_in_use_by_partition_and_size() -> None:
    """On the true cluster under the site's own policy the simulation is the log; as one pool it is not, and the answer says where."""
    log = site(1, jobs=3000, glitches=0.0).log
    same = compare(["fcfs/fewest/easy", "sjf/fewest/easy"], log, "512@1+192@2+64@3")
    rows = fidelity(same.results.waits, same.table.stand_in)
    assert {each.grouping for each in rows} == {"partition", "GPUs"}
    assert sum(each.jobs for each in rows if each.grouping == "partition") == len(log)
    for each in rows:
        assert each.wait[1] == pytest.approx(each.wait[0], rel=1e-9)
        assert each.busy[1] == pytest.approx(each.busy[0], rel=1e-9)
    assert farthest(rows, "processors") == ""
    pool = compare(["fcfs/fewest/easy", "sjf/fewest/easy"], log, "768")
    text = " ".join(plain_answer(pool).lines)  # type: ignore[union-attr]
    assert "Farthest off: " in text
    assert "% of the" in text
    assert as_data(pool)["fidelity"][0]["wait"][0] > 0


def test_the_present_is_compared_with_the_log_also_where_all_schedulers_tie() -> None:
    work = Workload.build({"submit": [0.0, 1e6], "gpus": [8, 8]}, [10.0, 10.0], logged_start=[0.0, 1e6])
    summary = compare(["fcfs/fewest/easy", "sjf/fewest/easy"], work, "1x8:gpu")
    assert any(line.startswith("How faithful") for line in as_data(summary)["answer"] + as_data(summary)["in_short"])


def test_only_groups_that_are_far_off_are_named() -> None:
    small = GroupFidelity("GPUs", "1 or less", 10, (3600.0, 60.0), (1.0, 1.0))
    assert farthest([small], "GPUs") == "Farthest off: jobs on at most 1 GPU 60.0 s (log: 1 h)."
    near, far = (GroupFidelity("partition", name, 10, wait, (1.0, 1.0)) for name, wait in (("a", (100.0, 130.0)), ("b", (3600.0, 60.0))))
    assert farthest([near, far], "GPUs") == "Farthest off: partition b 60.0 s (log: 1 h)."


def test_twice_as_many_devices_are_written_out() -> None:
    one, two = load_cluster("1x8:a100"), load_cluster("2x8:a100")
    assert _size_name(one, two, 1.1) == "100 % more devices"
    assert _size_name(two, one, 0.9) == "50 % fewer devices"
