"""The answer in everyday words: who may be as good as the best, what its own interval says, and that nobody waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from gpuyard import load_cluster, load_workload, measure, parse_scheduler, simulate
from gpuyard.cli.common.bars import gains_chart
from gpuyard.cli.common.tables import best_first
from gpuyard.experiments.compare import Plan, Source, compare
from gpuyard.experiments.judging.answering import plain
from gpuyard.experiments.judging.answering.plain import by_how_much, headline, peers_sentence, plain_answer
from gpuyard.experiments.judging.choice import peers_of
from gpuyard.experiments.judging.statistics import Interval, paired_difference
from gpuyard.experiments.judging.summary import Summary
from gpuyard.experiments.judging.words import candidates
from gpuyard.model.cluster import Cluster
from gpuyard.model.workload import Workload
from gpuyard.report.page.compared import comparison_page

SEEDS = tuple(range(6))
TODAY, SHORTEST, SMALLEST, LARGEST = "fcfs/fewest/easy", "sjf/fewest/easy", "saf/fewest/easy", "largest/fewest/easy"
METRICS = ("waiting", "utilization")
POOL = Cluster.uniform(1, 4)


def of_demo(schedulers: Sequence[str], jobs: int = 800, cluster: str = "16x8:a100") -> Summary:
    source = Source("demo", lambda seed: load_workload(f"demo:jobs={jobs}", seed), True, (load_cluster(cluster),))
    return compare(Plan((source,), tuple(map(parse_scheduler, schedulers)), METRICS, seeds=SEEDS))[0]


def of_log(work: Workload, schedulers: Sequence[str] = (TODAY, SHORTEST, SMALLEST)) -> Summary:
    return compare(Plan((Source("log", lambda _: work, False, (POOL,)),), tuple(map(parse_scheduler, schedulers)), METRICS))[0]


@pytest.fixture(scope="module")
def demo() -> Summary:
    return of_demo((TODAY, SHORTEST, SMALLEST, LARGEST))


def test_who_may_be_as_good_as_the_best_is_named(demo: Summary) -> None:
    found = plain_answer(demo)
    assert found is not None and found.word == "Yes" and found.verdict is not None
    best, waits = found.verdict.best.scheduler, {}
    for text in (TODAY, SHORTEST, SMALLEST, LARGEST):
        runs = [simulate(load_workload("demo:jobs=800", s), load_cluster("16x8:a100"), parse_scheduler(text), seed=s) for s in SEEDS]
        waits[text] = [measure(run, "waiting") for run in runs]
    differences = {text: paired_difference(values, waits[best]) for text, values in waits.items() if text != best}
    alike = [text for text, each in differences.items() if not (each.clear and each.mean > 0)]
    assert {line.scheduler for line in peers_of(demo, found.verdict.best, candidates(demo))} == set(alike)
    assert set(alike) == {SHORTEST, SMALLEST} - {best}  # so that neither "all" nor "none" would pass
    other = "smallest area first + EASY" if best == SHORTEST else "shortest job first + EASY"
    (said,) = found.peers
    assert said.startswith(f"Not surely worse: {other} (") and "largest" not in said.lower()
    assert said in " ".join(found.lines) and said.partition(": ")[2] in comparison_page(demo)


def test_many_are_not_all_named(demo: Summary) -> None:
    lines = [*demo.lines, *demo.lines]
    (said,) = peers_sentence(demo, lines[:5])
    assert said.endswith(" and 2 more.") and said.count("(") == 3
    assert peers_sentence(demo, []) == []


def test_a_learned_policy_is_not_advised_where_a_rule_is_not_surely_worse(demo: Summary) -> None:
    names = {**demo.results.names}
    answer = plain_answer(demo)
    assert answer is not None and answer.verdict is not None
    assert answer.next.startswith("Check ")
    names[answer.verdict.best.scheduler] = "Learned policy for HPC + EASY"
    learned = plain_answer(replace(demo, results=replace(demo.results, names=names)))
    assert learned is not None
    assert learned.sentence.startswith("The learned policy for HPC + EASY, the best of 4")
    assert learned.next.startswith("Try s") and "first, which is simpler and not surely worse" in learned.next


def test_a_range_that_is_wider_than_in_the_table_is_explained(demo: Summary) -> None:
    found = plain_answer(demo)
    assert found is not None and found.verdict is not None and found.verdict.best.versus is not None
    alone = found.verdict.best.versus.share_interval
    wider = alone.high - alone.low < found.verdict.share.high - found.verdict.share.low
    assert ("so wider than in the table" in found.sure) == wider


def test_a_best_that_is_sure_alone_but_not_after_its_choice_is_explained(demo: Summary) -> None:
    found = plain_answer(demo)
    assert found is not None and found.verdict is not None
    doubted = replace(found.verdict, share=replace(found.verdict.share, low=-0.5, high=0.4))
    said = plain._sure(demo, doubted)
    assert "this may be chance. Taken alone it is between" in said and said.endswith("picked as the best on these very jobs.")
    assert "alone with today's on another stretch of time" in plain._next(demo, doubted, ())
    assert "Taken alone" not in plain._sure(demo, replace(doubted, several=False))
    nothing = replace(found.verdict, share=replace(found.verdict.share, mean=0.0, low=0.0, high=1e-9))
    assert plain._sure(demo, nothing).startswith("How sure: who is best on the rest of the jobs gains nothing on any part of them")


@pytest.mark.parametrize(("runtime", "words"), [(1.0, "No job waits"), (40.0, "Hardly any job waits")])
def test_where_nobody_waits_there_is_nothing_to_gain(runtime: float, words: str) -> None:
    submit = np.repeat(np.arange(100) * 100.0, 5 if runtime > 1 else 4)  # five jobs at a time on four devices, or four
    work = Workload.build({"submit": submit, "gpus": np.ones(len(submit))}, np.full(len(submit), runtime))
    summary = of_log(work, (TODAY, SHORTEST))
    found = plain_answer(summary)
    assert found is not None and found.word == "No"
    assert found.sentence.startswith(f"{words}, with ") and "to gain" in found.sentence
    assert "not simulated here" in " ".join(found.trust) and "--apply load:0.9" in found.next
    assert gains_chart(summary, found) == [] and found.pays == ()
    assert headline(summary).startswith(f"No: {words.lower()}")


def test_waits_in_the_log_that_no_simulation_has_are_not_called_nothing() -> None:
    submit = np.arange(300) * 100.0
    work = Workload.build({"submit": submit, "gpus": np.ones(300)}, np.full(300, 30.0), logged_start=submit + 900.0)
    summary = of_log(work)
    found = plain_answer(summary)
    assert found is not None and found.word == "No"
    assert (
        found.sentence.startswith("Simulated, no job waits, with ") and "the mean wait of 15.0 min in the log had other" in found.sentence
    )
    cells = {row[0].partition("\n")[0]: row[1] for row in best_first(summary).rows}
    assert cells == {
        "First come, first served + EASY": "baseline", "Shortest job first + EASY": "the same", "Smallest area first + EASY": "the same",
        "What actually happened": "the log",
    }  # fmt: skip
    assert summary.results.what_if is None  # of no wait there is no share
    idle = best_first(of_log(replace(work, logged_start=submit)))
    assert {row[1] for row in idle.rows} == {"the log", "the same"}


def test_the_table_compares_with_what_the_answer_compares_with() -> None:
    """In this log every job starts hours later than in any simulation, so the answer compares simulations; so does the table."""
    submit = np.arange(300) * 100.0
    work = Workload.build({"submit": submit, "gpus": np.full(300, 4.0)}, np.tile([30.0, 160.0], 150), logged_start=submit + 90_000.0)
    table = best_first(of_log(work))
    cells = {row[0].partition("\n")[0]: row[1] for row in table.rows}
    assert cells["First come, first served + EASY"] == "baseline" and cells["What actually happened"] == "the log"
    assert table.caption is not None and "First come, first served + EASY (fcfs/fewest/easy), simulated" in table.caption
    faithful = best_first(of_log(replace(work, logged_start=simulate(work, POOL, parse_scheduler(TODAY)).table["start"])))
    assert faithful.header[1].endswith("vs the log")
    assert faithful.caption is not None and "baseline: What actually happened (log)" in faithful.caption


def test_none_of_the_users_is_a_word(demo: Summary) -> None:
    found = plain_answer(demo)
    assert found is not None
    losing = [change for change in demo.results.waits.changes("user", SHORTEST, TODAY) if change.longer] if demo.results.waits else []
    said = " ".join(found.pays)
    assert ("none of 24 users waits longer on average" in said) == (not losing)
    assert "; 0 of" not in said


def test_an_increase_of_thousands_of_percent_is_said_in_times() -> None:
    wide = Interval(21.0, -1.0, 143.94, 9)
    assert by_how_much(wide, "wait") == "between 100 % shorter and 145 times as long"
    assert by_how_much(wide, "utilization") == "between 100 % lower and 145 times as high"
    assert by_how_much(replace(wide, high=9.0), "wait") == "between 100 % shorter and 900 % longer"


def test_schedulers_that_tie_are_not_called_the_best() -> None:
    """Jobs that wait for each other and are all alike: no order is better."""
    work = Workload.build({"submit": np.arange(200) * 10.0, "gpus": np.full(200, 4.0)}, np.full(200, 60.0))
    summary = of_log(work)
    found = plain_answer(summary)
    assert found is not None
    assert found.sentence.startswith("The 3 schedulers that stop no job are level: mean wait ")
    assert headline(summary).startswith("No: the 3 schedulers that stop no job are level")
