"""The study of a real machine goes on where it was, needs no tables while it runs, and its predictions are those of its own figures."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard import load_workload
from gpuyard.errors import DataError, UsageError
from gpuyard.experiments.real.judging import judge
from gpuyard.experiments.real.measuring import Rates, crowds
from gpuyard.experiments.real.predicting import Calibration, calibrated, errors, measured_result, predict
from gpuyard.experiments.real.replaying import ReplayedJob, TraceReplay, replay_file
from gpuyard.experiments.real.study import RealSettings, load_study, settings_of
from gpuyard.experiments.real.traces import RealJob, RealTrace, calibration, convert, held_out
from gpuyard.traces.splits import SEEDS

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "real_node.py"
RATES = Rates("cpu", "cpu", "numpy", {("lm",): {"lm": 10.0}, ("etl",): {"etl": 4.0}, ("lm", "lm"): {"lm": 5.0},
                                      ("lm", "etl"): {"lm": 8.0, "etl": 2.0}, ("etl", "etl"): {"etl": 4.0}})  # fmt: skip
BLOCKED = """
import runpy, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("polars", "plotly", "pandas", "pyarrow"):
            raise ImportError(f"{name} is not here")
sys.meta_path.insert(0, Absent())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def replayed(trace: RealTrace, starts: list[float], took: list[float], slots: int = 1) -> TraceReplay:
    """A replay in which jobs started and took as said."""
    jobs = tuple(
        ReplayedJob(job.kind, job.submit, start, start + span, "DONE", 5, 0.0, job.deadline, job.seconds, job.seconds, 0.1, 0.0)
        for job, start, span in zip(trace.jobs, starts, took, strict=True)
    )
    return TraceReplay(trace.name, "fcfs", slots, 1.0, False, jobs, "cpu", "numpy", (0.001, 0.002))


# ── traces ──


def test_traces_are_of_held_out_seeds_and_repeat():
    made = held_out(5, jobs=20, compress=200.0)
    assert made == held_out(5, jobs=20, compress=200.0)
    assert [trace.name for trace in made] == ["base-77000", "bursty-77001", "diurnal-77002", "shifted_diurnal-77003", "base-77004"]
    assert {int(trace.name.rpartition("-")[2]) for trace in made} <= set(SEEDS["test"])
    for trace in made:
        assert (len(trace.jobs), trace.jobs[0].submit) == (20, 0.0)
        assert sorted(job.submit for job in trace.jobs) == [job.submit for job in trace.jobs]


def test_the_class_of_a_job_says_which_work_it_is():
    workload = load_workload("family", 77_000)
    made = convert(workload, 0, jobs=60, compress=100.0, name="t", source="t")
    labels = [workload.jobs.classes[k].lower() for k in workload.jobs.job_class[:60]]
    for label, job in zip(labels, made.jobs, strict=True):
        assert {"llm": job.kind == "lm", "vis": job.kind in ("cnn", "vit"), "dat": job.kind == "etl"}.get(label[:3], True)
    assert {job.kind for job in convert(workload, 0, jobs=60, compress=100.0, name="t", source="t", kinds=("etl",)).jobs} == {"etl"}


def test_what_is_written_is_read_again(tmp_path):
    trace = held_out(1, jobs=3, compress=200.0)[0]
    replay = replayed(trace, [0.0, 1.0, 2.0], [1.0, 1.0, 1.0])
    for each, kind in ((trace, RealTrace), (replay, TraceReplay), (RATES, Rates)):
        each.save(tmp_path / "file.json")
        assert kind.load(tmp_path / "file.json") == each
    with pytest.raises(DataError, match="not a trace of a real machine"):
        RealTrace.load(tmp_path / "file.json")


@pytest.mark.parametrize(
    ("values", "told"),
    [({"trace": "3"}, "traces"), ({"traces": "x"}, "is not a number"), ({"slots": "0"}, "does not lie in"), ({"kinds": "lm cook"}, "cook")],
)
def test_wrong_settings_are_named(values, told):
    with pytest.raises(UsageError, match=told):
        settings_of(values)


def test_the_short_form_can_be_changed():
    assert settings_of({"jobs": "9"}, quick=True) == replace(settings_of({}, quick=True), jobs=9)
    assert settings_of({}, quick=True).traces == 1 < RealSettings().traces


# ── predictions ──


def test_neighbours_add_what_they_added_in_pairs():
    assert RATES.slowdown("lm", []) == 1.0
    assert RATES.slowdown("lm", ["lm"]) == 2.0
    assert RATES.slowdown("lm", ["lm", "etl"]) == pytest.approx(2.25)
    assert RATES.slowdown("etl", ["lm", "etl"]) == pytest.approx(2.0)
    assert crowds(["lm", "etl", "vit"])[-1] == ("lm", "vit", "etl")
    assert RATES.complete(("lm", "etl"))
    assert not RATES.complete()


def test_one_job_at_a_time_is_predicted_by_adding_up():
    trace = RealTrace("t", "t", 1.0, tuple(RealJob(at, "lm", 2.0, 1e9, 0.0) for at in (0.0, 1.0, 9.0)))
    costs = calibrated(replayed(calibration(("lm",)), [0.0, 1.0, 3.5, 4.6], [0.9, 2.4, 1.0, 2.7]))
    assert costs.pace["lm"] == pytest.approx(16 / 15)  # between the middle two of 14/15, 1, 17/15 and 18/15
    assert costs.fixed["lm"] == pytest.approx(0.4, abs=0.02)
    assert costs.change == pytest.approx(0.1)  # of 0.1, 0.1 and 0.1
    costs = Calibration(0.1, {"lm": 0.3}, {"lm": 1.1})
    found = predict(trace, "fcfs", 1, False, RATES, costs)
    assert found.agreed
    assert found.result.table["end"].tolist() == pytest.approx([2.6, 5.2, 11.6])
    measured = measured_result(trace, replayed(trace, [0.1, 2.7, 9.1], [2.5, 2.5, 5.1]), costs)
    assert errors(measured, found.result).tolist() == pytest.approx([0.0, 0.0, 0.5])


def test_where_slots_share_a_device_the_pace_is_that_of_one_job_at_a_time():
    alone = Calibration(0.1, {"lm": 0.3}, {"lm": 1.2})
    seen = replayed(calibration(("lm",)), [0.0, 0.0, 0.9, 1.9], [0.8, 2.5, 0.9, 2.4], slots=2)
    costs = calibrated(seen, alone)  # it was slowed down, and says what it took beside its steps by its own clock
    assert (costs.pace, costs.change) == ({"lm": 1.2}, pytest.approx(0.1))
    assert costs.fixed["lm"] == pytest.approx(0.4)


def test_two_jobs_at_once_slow_each_other_down():
    trace = RealTrace("t", "t", 1.0, tuple(RealJob(0.0, "lm", 2.0, 1e9, 0.0) for _ in range(2)))
    found = predict(trace, "fcfs", 2, False, RATES, Calibration())
    assert found.agreed
    assert found.result.table["end"].tolist() == pytest.approx([4.0, 4.0], rel=0.02)


# ── the whole ──


@pytest.mark.slow
def test_the_study_goes_on_and_needs_no_tables(tmp_path):
    """Real jobs, killed in the middle: what is there is kept."""
    folder = tmp_path / "real"
    settings = {"traces": "1", "jobs": "5", "schedulers": "fcfs srpt", "compress": "2000", "measure": "0.3", "alone_jobs": "3",
                "slots": "2", "scale": "small", "kinds": "etl", "library": "numpy"}  # fmt: skip
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-c", BLOCKED, str(SCRIPT), "real", "--out", str(folder), *given]
    first = subprocess.run([*command, "--seconds-budget", "0"], capture_output=True, text=True, check=True)
    assert "6 replays are missing" in first.stdout
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as study:
        one = replay_file(folder / "replays", "calibration", "fcfs", 1)
        while not one.exists():
            assert study.poll() is None
            time.sleep(0.05)
        study.kill()
    before = one.read_bytes()
    last = subprocess.run([*command, "--seconds-budget", "3000"], capture_output=True, text=True, check=True)
    assert "complete" in last.stdout
    assert one.read_bytes() == before
    rates, traces, replays = load_study(folder)
    assert (rates.library, set(rates.crowds), len(traces), len(replays)) == ("numpy", {("etl",), ("etl", "etl")}, 3, 6)
    assert sum(replay.lost for replay in replays) == 0
    assert {each.scheduler for each in judge(folder).of(2)} == {"fcfs", "srpt"}
    words = [sys.executable, "-m", "gpuyard", "run", "real", "--out", str(folder), "-f", "json", *given]
    shown = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert {each["scheduler"] for each in shown["schedulers"]} == {"fcfs", "srpt"}
    assert (shown["slots"], shown["traces"], shown["device"]) == (2, 1, "CPU slots")
