"""What a node has run as a measured result: saved, shown, read as a log, compared."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gpuyard import Result, load_cluster, measure
from gpuyard.traces import load_workload


@pytest.fixture
def ended(cli, node) -> list[int]:
    """Jobs that have ended in every way; the first one runs twice."""
    words = [
        ("--retry", "1", "--", "sh", "-c", "sleep 0.1; exit 3"), ("--cpus", "2", "--class", "lm", "--", "sleep", "0.2"),
        ("--walltime", "0.2s", "--grace", "0.1s", "--", "sleep", "60"), ("--estimate", "1m", "--deadline", "1h", "--", "true"),
        ("--hold", "--", "true"),
    ]  # fmt: skip
    numbers = [int(cli("submit", *each).out) for each in words]
    cli("cancel", numbers[-1])
    assert cli("wait", *numbers).code == 1
    return numbers


def test_a_result_of_what_was_measured(cli, ended, tmp_path):
    code, out, err = cli("history", "--out", tmp_path / "mine")
    assert (code, out) == (0, "")
    assert err == f"gpuyard: 4 jobs in {tmp_path / 'mine'}; try gpuyard show {tmp_path / 'mine'}\n"
    result = Result.load(tmp_path / "mine")
    assert result.manifest["kind"] == "measured"
    assert result.manifest["states"] == {"KILLED": 2, "FAILED": 1, "DONE": 2}
    assert result.workload.dropped == {"never ran": 1}
    assert result.workload.jobs.table["id"].tolist() == ended[:-1]
    assert result.workload.jobs.gpus.tolist() == [1, 2, 1, 1]  # CPU slots
    assert result.table["preemptions"].tolist() == [1, 0, 0, 0]
    assert (result.table["start"] >= result.workload.jobs.submit).all()
    assert (result.table["ran"] <= result.table["end"] - result.table["start"] + 1e-6).all()
    assert 0.2 <= result.table["ran"][1] < 20
    assert len(result.segments) == 5
    used = measure(result, ["wait", "turnaround", "utilization", "utilization_drained", "fragmentation"])
    assert all(np.isfinite(value) for value in used.values()), used
    assert result.timeline["busy"] @ result.timeline["span"] == pytest.approx(result.table["gpu_seconds"].sum(), rel=1e-6)
    assert "measured" in cli("show", tmp_path / "mine").out
    records = {each["id"]: each for each in json.loads(cli("history", "-f", "json").out)}
    assert [records[number]["state"] for number in ended] == ["FAILED", "DONE", "KILLED", "DONE", "KILLED"]


def test_a_log_that_the_other_verbs_read(cli, ended, tmp_path):
    log = tmp_path / "jobs.csv"
    assert cli("history", "--out", log).code == 0
    read = load_workload(str(log))
    assert read.jobs.users == ("user-1",)
    saved = cli("history", "--out", tmp_path / "saved").code == 0 and Result.load(tmp_path / "saved")
    assert saved
    np.testing.assert_allclose(read.logged_start, saved.table["start"])
    np.testing.assert_allclose(read.runtime, saved.table["ran"])
    assert json.loads(cli("trace", "info", log, "-f", "json").out)[0]["wait"]["count"] == len(read)
    code, out, _ = cli("compare", log, "--cluster", "1x4:gpu", "--scheduler", "fcfs/fewest/easy", "--metric", "wait", "-f", "json")
    assert code == 0
    rows = {each["scheduler"]: each for each in json.loads(out)[0]["schedulers"]}
    logged = next(each for name, each in rows.items() if name != "fcfs/fewest/easy")
    assert logged["metrics"]["wait"]["mean"] == pytest.approx(measure(saved, "wait"))


def test_a_result_is_a_workload_with_its_cluster(cli, ended, tmp_path):
    """Of what was measured and of a simulation alike."""
    place = tmp_path / "saved"
    assert cli("history", "--out", place).code == 0
    made = load_workload(str(place))
    assert made.name == "saved"
    assert made.jobs.table.tobytes() == Result.load(place).workload.jobs.table.tobytes()
    assert load_cluster(str(place)) == Result.load(place).cluster
    assert json.loads(cli("trace", "info", place, "-f", "json").out)[0]["format"] == "result"
    words = ("--scheduler", "fcfs/fewest/easy", "--metric", "wait", "-f", "json")
    code, out, err = cli("compare", place, *words)
    assert code == 0, err
    assert f"no --cluster: the cluster of {place}, which goes with saved" in err
    assert len(json.loads(out)[0]["schedulers"]) == 2
    assert cli("simulate", place, "--scheduler", "fcfs/fewest/easy", "--metric", "wait", "--out", tmp_path / "again").code == 0
    assert len(load_workload(str(tmp_path / "again"))) == len(made)
    code, _, err = cli("trace", "info", place, "--reader", "csv")
    assert (code, f"{place}: is a result, which needs no reader" in err) == (2, True)


def test_the_report_of_a_result_is_that_of_its_comparison(cli, ended, tmp_path):
    place = tmp_path / "saved"
    assert cli("history", "--out", place).code == 0
    code, _, err = cli("report", place)
    assert code == 0, err
    assert "<html" in (tmp_path / "saved.html").read_text()
    assert sorted(each.name for each in place.iterdir()) == ["arrays.npz", "manifest.json"]
    assert cli("report", tmp_path).code == 1


def test_other_files_are_refused(cli, node, tmp_path):
    assert cli("history", "--out", tmp_path / "jobs.parquet").code == 2
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "letter.txt").write_text("dear")
    cli("wait", cli("submit", "true").out.strip())
    assert cli("history", "--out", tmp_path / "taken").code == 1
    assert (tmp_path / "taken" / "letter.txt").read_text() == "dear"
