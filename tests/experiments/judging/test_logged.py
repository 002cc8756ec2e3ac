"""What really happened, as a Result; and the comparison that puts it beside simulations."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from gpuyard.engine.simulation import simulate
from gpuyard.errors import DataError, UsageError
from gpuyard.experiments.compare import Plan, Source, compare
from gpuyard.experiments.judging.answering.names import in_words
from gpuyard.experiments.judging.answering.plain import plain_answer
from gpuyard.experiments.judging.logged import LABEL, has_log, logged_result
from gpuyard.experiments.judging.words import answer
from gpuyard.metrics import measure
from gpuyard.model.cluster import Cluster
from gpuyard.model.workload import Workload
from gpuyard.policies import parse_scheduler
from gpuyard.report.tables import as_data, as_record
from gpuyard.traces import guess_cluster, load_workload

POOL = Cluster.uniform(1, 4)


def four() -> Workload:
    """Four jobs on 4 GPUs; the third has no start in the log, the fourth one before its submit, which is no start."""
    return Workload.build(
        {"submit": [0.0, 10.0, 20.0, 30.0], "gpus": [2, 4, 1, 1]}, [100.0, 50.0, 5.0, 5.0], logged_start=[0.0, 110.0, np.nan, 29.0]
    )


def test_the_log_by_hand() -> None:
    result = logged_result(four(), POOL)
    found = measure(result, ["wait", "turnaround", "utilization_drained", "queue_mean", "queue_max", "makespan", "completed"])
    assert found["wait"] == 50.0
    assert found["turnaround"] == (100.0 + 150.0) / 2
    assert found["utilization_drained"] == pytest.approx((2 * 100 + 4 * 50) / (4 * 160))
    assert found["queue_mean"] == pytest.approx(100 / 160)
    assert found["queue_max"] == 1.0
    assert found["makespan"] == 160.0
    assert result.manifest["measured"] is True


def test_the_timeline_of_the_log() -> None:
    bins = logged_result(four(), POOL).timeline
    at = {int(t): k for k, t in enumerate(np.round(bins["time"]))}
    assert bins["busy"][at[50]] == pytest.approx(2.0)
    assert bins["busy"][at[105]] == pytest.approx(0.0, abs=1e-9)
    assert bins["busy"][at[130]] == pytest.approx(4.0)
    assert bins["queue"][at[50]] == pytest.approx(1.0)
    assert (bins["busy"] * bins["span"]).sum() == pytest.approx(400.0)
    assert (bins["queue"] * bins["span"]).sum() == pytest.approx(100.0)


def test_a_simulation_whose_starts_are_logged_comes_back_with_the_same_numbers() -> None:
    work = load_workload("demo:jobs=300")
    cluster = Cluster.uniform(16, 8)
    result = simulate(work, cluster, parse_scheduler("sjf/fewest/easy"))
    again = Workload.build(
        {name: work.jobs.table[name] for name in ("submit", "gpus", "estimate", "user", "deadline")},
        work.runtime, users=work.jobs.users, logged_start=result.table["start"],
    )  # fmt: skip
    names = [
        "wait",
        "wait.p95",
        "bsld",
        "turnaround",
        "utilization",
        "queue_mean",
        "queue_max",
        "makespan",
        "fairness_users",
        "deadline_met",
    ]
    assert measure(logged_result(again, cluster), names) == pytest.approx(measure(result, names))


def test_which_workloads_have_a_log() -> None:
    assert has_log(four())
    assert not has_log(load_workload("demo:jobs=5"))
    assert not has_log(Workload.build({"submit": [1.0]}, [1.0], logged_start=[0.0]))


def busy(seed: int = 0) -> Workload:
    """A queue on 4 GPUs that the log served last come first, with much waste."""
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.uniform(0, 50_000, 400))
    runtime = rng.exponential(400, 400)
    start = submit + rng.exponential(20_000, 400)
    return Workload.build({"submit": submit, "gpus": rng.choice([1, 2], 400)}, runtime, logged_start=start, name="busy")


def comparison(**options: object):
    plan = Plan(
        (Source("busy", lambda seed: busy(), False, (POOL,)),),
        tuple(parse_scheduler(s) for s in ("fcfs/fewest/easy", "sjf/fewest/easy", "srpt/fewest/easy/srpt")),
        ("wait", "utilization"),
        **options,
    )  # fmt: skip
    return compare(plan)[0]


def test_the_log_is_the_first_line_and_the_baseline() -> None:
    found = comparison()
    assert [line.scheduler for line in found.lines] == [LABEL, "fcfs/fewest/easy", "sjf/fewest/easy", "srpt/fewest/easy/srpt"]
    assert found.table.baseline == LABEL
    assert found.table.stand_in == "fcfs/fewest/easy"
    log, fcfs, sjf, srpt = found.lines
    assert log.change is None
    assert log.to_stand_in is None
    assert fcfs.to_stand_in is None
    wait = np.mean(np.asarray(busy().logged_start) - busy().jobs.submit)
    assert log.values["wait"].mean == pytest.approx(wait)
    assert sjf.change is not None
    assert sjf.change.mean == pytest.approx(sjf.values["wait"].mean - wait)
    assert sjf.to_stand_in is not None
    assert sjf.to_stand_in.mean == pytest.approx(sjf.values["wait"].mean - fcfs.values["wait"].mean)
    assert "wait" not in log.best
    assert [line.preempts for line in found.lines] == [False, False, False, True]
    assert srpt.change is not None


def test_the_answer_in_words() -> None:
    found = comparison()
    against, faithful, first, preempting, supposed = answer(found)
    assert first.startswith(
        "Against the log itself: shortest job first with EASY (sjf/fewest/easy), the best of 2 that stop no running job,"
    )
    assert " would have cut the mean wait from " in first
    assert "95 % interval" in first
    assert "by blocks of time" in first
    assert "first come, first served with EASY (fcfs/fewest/easy) gives mean wait" in faithful
    assert "what is not simulated" in faithful
    assert "(corrected for the choice among 2: " in first
    assert against.startswith("Simulation against simulation: shortest job first")
    assert preempting.startswith("With preemption: shortest remaining time first, preempting, with EASY")
    assert supposed.startswith("A supposition: if 50 % of the jobs could be stopped")
    data = as_data(found)
    assert data["answer"] == answer(found)
    assert data["stand_in"] == "fcfs/fewest/easy"
    assert as_record(found, found.lines[2])["to_stand_in"] == pytest.approx(found.lines[2].to_stand_in.mean)  # type: ignore[union-attr]


def test_a_baseline_other_than_the_log() -> None:
    found = comparison(baseline="sjf/fewest/easy")
    assert found.table.baseline == "sjf/fewest/easy"
    assert found.lines[0].change is not None
    assert answer(found)[2].startswith("Against the log itself: The log has a mean wait of ")
    with pytest.raises(UsageError, match="unknown baseline"):
        comparison(baseline="ljf")


def test_in_words() -> None:
    assert in_words(parse_scheduler("fcfs")) == "first come, first served without backfilling (fcfs)"
    assert in_words(parse_scheduler("meta:backlog(fcfs, sjf)")) == "meta:backlog(fcfs, sjf)"


def test_every_line_is_about_the_same_jobs() -> None:
    """Half of the starts are not known, and some jobs do not fit: neither counts in any line, so that sums add up."""
    work = busy()
    start = np.where(np.arange(len(work)) % 3 == 0, np.nan, work.known_start)
    gpus = np.where(np.arange(len(work)) % 7 == 0, 9, work.jobs.gpus)
    work = Workload.build({"submit": work.jobs.submit, "gpus": gpus}, work.runtime, logged_start=start, name="half")
    plan = Plan((Source("half", lambda seed: work, False, (POOL,)),), (parse_scheduler("fcfs/fewest/easy"),), ("wait",))
    (found,) = compare(plan)
    log, fcfs = found.lines
    assert found.results.paired == int((np.isfinite(start) & (gpus <= 4)).sum())
    assert fcfs.change is not None
    assert fcfs.change.mean == pytest.approx(fcfs.values["wait"].mean - log.values["wait"].mean)
    assert fcfs.change.n == found.results.paired


def test_a_cluster_smaller_than_what_ran_is_told() -> None:
    work = Workload.build({"submit": [0.0, 0.0], "gpus": [4, 4]}, [10.0, 10.0], logged_start=[0.0, 0.0])
    plan = Plan((Source("w", lambda seed: work, False, (POOL,)),), (parse_scheduler("fcfs"),), ("wait", "utilization"))
    assert "more ran at once in the log than this cluster holds (utilisation 2.00)" in " ".join(answer(compare(plan)[0]))


def test_a_decider_that_stops_jobs_is_known_to_preempt() -> None:
    plan = Plan(
        (Source("busy", lambda seed: busy(), False, (POOL,)),),
        (parse_scheduler("fcfs/fewest/easy"), parse_scheduler("gavel")), ("wait", "utilization"),
    )  # fmt: skip
    (found,) = compare(plan)
    assert [line.preempts for line in found.lines] == [False, False, True]
    assert any("preempted jobs lose nothing" in note for note in found.notes)


def test_progress_counts_simulations() -> None:
    seen: list[int] = []
    plan = Plan((Source("busy", lambda seed: busy(), False, (POOL,)),), (parse_scheduler("fcfs"), parse_scheduler("sjf")), ("wait",))
    compare(plan, progress=seen.append)
    assert seen[-1] == plan.cells() == 2


def test_an_overdue_job_of_a_real_cluster_does_not_hang_a_decision() -> None:
    """A job that a real cluster lets run past its limit: the pass ends, and its end is believed to lie ahead."""
    from dataclasses import replace

    from gpuyard.engine.simulation import Simulation
    from gpuyard.model.rules import Rules

    work = Workload.build({"submit": [0.0, 1.0], "gpus": [4, 4], "walltime": [100.0, 100.0]}, [90.0, 10.0])
    simulation = Simulation(work, POOL, rules=Rules(walltime_kill=True))
    scheduler = parse_scheduler("fcfs/fewest/easy")
    snapshot = simulation.advance()
    assert snapshot is not None
    simulation.apply(scheduler.decide(snapshot))
    snapshot = simulation.advance()
    assert snapshot is not None
    assert scheduler.decide(replace(snapshot, now=5000.0)) == []


@pytest.mark.parametrize(("name", "within"), [("CTC-SP2-easy-resimulated", 0.05), ("SDSC-SP2-easy-resimulated", 0.05)])
def test_the_waits_of_another_simulator(shared: Path, name: str, within: float) -> None:
    """The waits in these logs were made by another program's EASY: ours gives the same mean within a few per cent."""
    work = load_workload(str(shared / "traces" / "swf" / f"{name}.swf.gz"))
    cluster, _ = guess_cluster(work)
    theirs = measure(logged_result(work, cluster), ["wait", "utilization", "bsld"])
    ours = measure(simulate(work, cluster, parse_scheduler("fcfs/fewest/easy")), ["wait", "utilization", "bsld"])
    assert ours == pytest.approx(theirs, rel=within)


def test_an_answer_that_can_not_be_given() -> None:
    """A handful of jobs that hardly meet; and schedulers that all do the same."""
    work = Workload.build({"submit": [0.0, 9000.0, 20_000.0]}, [10.0, 10.0, 10.0], logged_start=[50.0, 9050.0, 20_050.0])
    schedulers = (parse_scheduler("fcfs"), parse_scheduler("sjf"))
    plan = Plan((Source("w", lambda seed: work, False, (POOL,)),), schedulers, ("wait", "utilization"))
    told, faithful = answer(compare(plan)[0])
    assert faithful.startswith("How faithful: ")
    assert [told] == ["All schedulers give the same mean wait, 0s: this load leaves them nothing to decide (--apply load:0.9 raises it)."]
    alone = Plan(plan.sources, schedulers[:1], plan.metrics)
    text = " ".join(answer(compare(alone)[0]))
    assert "3 jobs are too few for an answer" in text
    assert "these jobs fill 0.0% of this cluster" in text


def _trust(work: Workload, *, scheduler: str = "fcfs/fewest/easy") -> str:
    schedulers = (parse_scheduler(scheduler), parse_scheduler("sjf/fewest/easy"))
    found = plain_answer(compare(Plan((Source("w", lambda seed: work, False, (POOL,)),), schedulers, ("wait", "utilization")))[0])
    assert found is not None
    return " ".join(found.trust)


def test_submit_times_that_are_start_times_are_noticed() -> None:
    """Jobs on a busy cluster, by a log that has lost when they came."""
    rng = np.random.default_rng(0)
    came = Workload.build({"submit": np.sort(rng.uniform(0, 40_000, 300)), "gpus": np.ones(300)}, rng.uniform(200, 900, 300))
    start = simulate(came, POOL, parse_scheduler("fcfs/fewest/easy")).table["start"]
    whole = Workload.build({"submit": came.jobs.submit, "gpus": np.ones(300)}, came.runtime, logged_start=start)
    lost = Workload.build({"submit": start, "gpus": np.ones(300)}, came.runtime, logged_start=start)
    assert "by the log hardly anybody waited (0s on average) with" in _trust(lost)
    assert "hardly anybody waited" not in _trust(whole)


def test_another_utilisation_is_told() -> None:
    """In the log every job starts hours later, so that fewer devices are busy until the last one comes."""
    submit = np.arange(200) * 100.0
    work = Workload.build({"submit": submit, "gpus": np.full(200, 4.0)}, np.full(200, 95.0), logged_start=submit + 0.5)
    assert re.search(r"busy \(log: .*\): (close|far apart)", _trust(work))
    late = Workload.build({"submit": submit, "gpus": np.full(200, 4.0)}, np.full(200, 95.0), logged_start=submit + 9000.0)
    told = _trust(late)
    assert "far apart" in told
    assert re.search(r"with \d[\d.]* % of the GPUs busy \(log: \d", told)


def test_a_cluster_that_takes_no_job_is_refused() -> None:
    work = Workload.build({"submit": [0.0], "gpu_type": [0]}, [1.0], gpu_types=("a100",), logged_start=[0.0])
    plan = Plan((Source("w", lambda seed: work, False, (POOL,)),), (parse_scheduler("fcfs"),), ("wait",))
    with pytest.raises(DataError, match="all jobs are rejected: no such GPU type; hint: jobs ask for a100; the cluster has gpu"):
        compare(plan)
