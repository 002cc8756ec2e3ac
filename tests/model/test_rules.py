"""StopTerms of jobs: read, written, filled from the rules; and what they do to a run."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpuyard import Rules, Workload, load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.errors import DataError, UsageError
from gpuyard.model.jobs import JOB
from gpuyard.model.rules import MAY_STOP, MUST_RUN, NOT_SAID, StopTerms, parse_terms, terms_labels, terms_table
from gpuyard.traces import apply, write_csv
from gpuyard.traces.readers.csv import read_csv


def test_a_job_without_terms_costs_no_byte():
    """The number of a job's terms took the place that two narrower columns gave up."""
    assert JOB.itemsize == 112


@pytest.mark.parametrize(
    "terms",
    [StopTerms(), StopTerms(True), StopTerms(False), StopTerms(True, 600.0, 12.0, 30.0, 60.5), StopTerms(None, math.inf, drain=0.0)],
)
def test_terms_read_back_as_written(terms: StopTerms):
    again = parse_terms(terms.text)
    assert repr(again) == repr(terms)  # NaN is not equal to itself


@pytest.mark.parametrize("text", ["maybe", "preemptible=perhaps", "drain=-1", "drain=inf", "drain=x", "drain=1 drain=2", "preemptible=1"])
def test_other_texts_are_no_terms(text: str):
    with pytest.raises(DataError, match="terms"):
        parse_terms(text)


def test_the_rules_fill_what_a_job_does_not_say():
    rules = Rules(checkpoint=600.0, restart_cost=60.0, checkpoint_cost=12.0, drain=30.0)
    texts = ["", "preemptible=yes", "preemptible=no", "preemptible=yes checkpoint=100 checkpoint_cost=25 drain=0 restart_cost=5"]
    table = terms_table(texts, rules)
    assert table["stops"].tolist() == [NOT_SAID, MAY_STOP, MUST_RUN, MAY_STOP]
    assert table["restart"].tolist() == [60.0, 90.0, 60.0, 5.0]
    assert table["interval"].tolist() == [600.0, 612.0, 600.0, 125.0]
    assert table["writing"].tolist() == [1.0, 600 / 612, 1.0, 0.8]


@pytest.mark.parametrize("checkpoint", [0.0, math.inf])
def test_who_writes_no_checkpoints_pays_for_none(checkpoint: float):
    row = terms_table(["preemptible=yes"], Rules(checkpoint=checkpoint, checkpoint_cost=12.0))[0]
    assert (row["interval"], row["writing"]) == (checkpoint, 1.0)


@pytest.mark.parametrize("name", ["restart_cost", "checkpoint_cost", "drain"])
@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_rules_refuse_what_is_no_time(name: str, value: float):
    with pytest.raises(UsageError, match=name):
        Rules(**{name: value})


def test_columns_become_labels_and_labels_columns():
    columns = {"submit": [0.0, 1.0, 2.0, 3.0], "preemptible": [1, np.nan, 0, 1], "checkpoint": [600, np.nan, np.nan, np.inf]}
    jobs = Workload.build(columns, np.ones(4)).jobs
    assert [jobs.term_texts[k] for k in jobs.terms] == [
        "preemptible=yes checkpoint=600",
        "",
        "preemptible=no",
        "preemptible=yes checkpoint=inf",
    ]
    stated = jobs.stated
    assert set(stated) == {"preemptible", "checkpoint"}
    for name in stated:
        np.testing.assert_array_equal(stated[name], np.array(columns[name], float))


@pytest.mark.parametrize("name, value", [("preemptible", 0.5), ("drain", -1.0), ("drain", np.inf), ("checkpoint", -2.0)])
def test_bad_columns_are_refused_with_their_row(name: str, value: float):
    with pytest.raises(DataError, match=f"row 2: {name}"):
        Workload.build({"submit": [0.0, 1.0], name: [0.0, value]}, np.ones(2))
    with pytest.raises(DataError, match="values for 2 jobs"):
        terms_labels({name: [1.0]}, 2, "jobs")


def test_a_table_keeps_the_terms(tmp_path):
    columns = {"submit": [0.0, 1.0, 2.0], "preemptible": [1, 0, np.nan], "restart_cost": [60.5, np.nan, 0.0], "checkpoint": [np.inf] * 3}
    workload = Workload.build(columns, np.ones(3), name="jobs.csv")
    write_csv(workload, tmp_path / "jobs.csv")
    assert (tmp_path / "jobs.csv").read_text().splitlines()[0].endswith("preemptible,checkpoint,restart_cost")
    assert read_csv(tmp_path / "jobs.csv").jobs == workload.jobs
    (tmp_path / "words.csv").write_text("submit,runtime,preemptible,drain\n0,1,TRUE,\n1,1,0,30\n2,1,,\n")
    assert read_csv(tmp_path / "words.csv").jobs.stated["preemptible"].tolist()[:2] == [1.0, 0.0]
    (tmp_path / "bad.csv").write_text("submit,runtime,preemptible\n0,1,perhaps\n")
    with pytest.raises(DataError, match="bad.csv:2: preemptible = 'perhaps' is not yes, no or once"):
        read_csv(tmp_path / "bad.csv")


def test_a_share_of_the_jobs_is_drawn_by_seed_and_nested():
    log = load_workload("lublin:jobs=400", 1)
    few, many, other = (
        apply(log, "preemptible:" + text, seed).jobs.stated["preemptible"] for text, seed in (("0.2", 3), ("0.5", 3), ("0.2", 4))
    )
    assert 0.1 < few.mean() < 0.3 and 0.4 < many.mean() < 0.6
    assert (few <= many).all() and (few != other).any()
    assert apply(log, "preemptible:0", 3).jobs.stated["preemptible"].max() == 0.0
    priced = apply(log, "preemptible:share=0.5,checkpoint=10m,cost=12,drain=30,restart=1m", 3).jobs.stated
    np.testing.assert_array_equal(priced["restart_cost"], np.where(many > 0, 60.0, np.nan))
    np.testing.assert_array_equal(priced["checkpoint_cost"], np.where(many > 0, 12.0, np.nan))


def two_jobs(**terms: float) -> Workload:
    """A long job, and at 95 s a short one that wants the only GPU."""
    stated = {name: [value, np.nan] for name, value in terms.items()}
    return Workload.build({"submit": [0.0, 95.0], "estimate": [200.0, 10.0], **stated}, [200.0, 10.0])


@pytest.mark.parametrize("terms, end", [
    ({}, 95 + 10 + 5 + 110),  # the rules: 90 s kept, 5 s to restart
    ({"preemptible": 1.0}, 95 + 10 + 5 + 110),
    ({"preemptible": 0.0}, 200.0),  # it is not stopped
    ({"preemptible": 1.0, "checkpoint": 0.0}, 95 + 10 + 5 + 105),
    ({"preemptible": 1.0, "checkpoint": np.inf}, 95 + 10 + 5 + 200),
    ({"preemptible": 1.0, "restart_cost": 20.0, "drain": 3.0}, 95 + 10 + 23 + 110),
    ({"preemptible": 1.0, "checkpoint": 40.0, "checkpoint_cost": 10.0}, 95 + 10 + 5 + 160 / 0.8),  # 50 s of 95 kept, 40 of them work
])  # fmt: skip
def test_terms_by_hand(terms: dict[str, float], end: float):
    workload = two_jobs(**terms)
    result = simulate(workload, load_cluster("1"), parse_scheduler("srpt/fewest/none/srpt"), rules=Rules(checkpoint=30.0, restart_cost=5.0))
    assert result.table["end"][0] == pytest.approx(end)


def test_checkpoints_lengthen_a_run_that_is_never_stopped():
    workload = Workload.build({"submit": [0.0], "preemptible": [1.0]}, [1000.0])
    rules = Rules(checkpoint=100.0, checkpoint_cost=2.0)
    result = simulate(workload, load_cluster("1"), parse_scheduler("fcfs"), rules=rules)
    assert result.table["end"][0] == pytest.approx(1020.0)
