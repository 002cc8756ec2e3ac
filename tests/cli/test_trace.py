"""`gpuyard trace` and `--apply`."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from gpuyard.traces import GENERATORS, apply, load_workload, write_csv
from support.complaints import complaints

ROW = "{} {} {} 60 4 -1 -1 4 120 -1 1 {} -1 -1 {} -1 -1 -1\n"
LOG = "; MaxProcs: 32\n; UnixStartTime: 1506816000\n" + "".join(ROW.format(k, 600 * k, 30, k % 3, k % 2) for k in range(1, 101))
LOG += "101 60600 5 -1 4" + " -1" * 13 + "\n"  # no run time


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """100 jobs of 4 processors for 60 s, one every ten minutes from 2017-10-01 00:10 on, and one row that is dropped."""
    path = tmp_path / "log.swf"
    path.write_text(LOG)
    return path


def written(outcome) -> list[dict]:
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


# ── info ──


def test_info_tells_all(cli, log):
    code, out, err = cli("trace", "info", log)
    assert (code, err) == (0, "")
    text = " ".join(out.split())
    for told in (
        "format swf",
        "jobs 100 of 101 rows",
        "dropped 1 rows: no run time",
        "2017-10-01 00:10:00 to 2017-10-01 16:40:00",
        "145 jobs a day",
        "processors 4 (100%)",
        "work 6.67 processor·h",
        "run time 1m median",
        "wait in the log 30s median",
        "of 100 jobs",
        "load 0.404 processors",
        "up to 4.00 processors",
        "estimates requested; median 2.00 × the run time; 0.0% too short; 100 jobs ask",
        "users 3: 1, 0, 2; the busiest has 34% of the jobs",
        "partitions 2: 0, 1",
        "cluster one pool of 32 processors, as log.swf says",
        "1% of its devices",
        "missing memory",
        "note time 0 is 2017-10-01T00:00:00",
    ):
        assert told in text, told


def test_info_as_numbers(cli, log):
    (data,) = json.loads(cli("trace", "info", log, "-f", "json").out)
    assert (data["format"], data["jobs"], data["rows"], data["dropped"]) == ("swf", 100, 101, {"no run time": 1})
    assert (data["first"], data["span"], data["sizes"]) == ("2017-10-01 00:10:00", 59400.0, {"4": 100})
    assert (data["wait"]["mean"], data["run"]["p95"], data["estimate"]["p50"]) == (30.0, 60.0, 2.0)
    assert (data["cluster"]["name"], data["cluster"]["gpus"]) == ("32", 32)
    assert data["mean_gpus"] == pytest.approx(4 * 60 * 100 / 59400)


def test_info_of_several_is_a_table(cli, log):
    out = cli("trace", "info", log, "demo:jobs=50", "eda").out
    lines = [line.split() for line in out.splitlines() if line.startswith((str(log), "demo", "eda"))]
    assert [line[2 if line[1] == "swf" else 3] for line in lines] == ["100", "50", "1,000"]
    records = list(csv.DictReader(io.StringIO(cli("trace", "info", log, "demo:jobs=50", "-f", "csv").out)))
    assert [record["jobs"] for record in records] == ["100", "50"]
    assert [record["format"] for record in records] == ["swf", "generator demo"]
    assert cli("trace", "info", log, "eda", "-f", "md").out.startswith("| file |")


def test_one_bad_file_among_several(cli, log, tmp_path):
    (tmp_path / "bad.swf").write_text("1 2 3\n")
    code, out, err = cli("trace", "info", tmp_path / "bad.swf", log, "-f", "csv")
    assert code == 1
    assert [record["jobs"] for record in csv.DictReader(io.StringIO(out))] == ["100"]
    assert "bad.swf:1: 3 columns" in err
    assert "1 of 2 could not be read" in err
    code, out, err = cli("trace", "info", tmp_path / "bad.swf")
    assert (code, out, len(complaints(err))) == (1, "", 1)


@pytest.mark.parametrize("name", list(GENERATORS))
def test_info_of_every_generator(cli, name):
    code, out, _ = cli("trace", "info", name)
    assert code == 0
    assert f"generator {name}" in out


def test_info_and_show_agree(cli, log):
    shown, told = cli("show", log).out, cli("trace", "info", log).out
    assert [line.split() for line in shown.splitlines()[3:]] == [line.split() for line in told.splitlines()[4:]]


def test_info_on_a_cluster(cli, log):
    assert "load on 2x8:a100" in cli("trace", "info", log, "--cluster", "2x8:a100").out


# ── convert, generate ──


def test_convert_there_and_back(cli, log, tmp_path):
    outcome = cli("trace", "convert", log, tmp_path / "a.csv.gz", "-f", "json")
    (record,) = written(outcome)
    assert (record["jobs"], record["span"]) == (100, 59400.0)
    assert "a.csv.gz does not hold the date of time 0" in outcome.err
    assert "does not hold the nodes that the trace shows" in outcome.err
    assert cli("trace", "convert", log, tmp_path / "a.csv.gz", "--show-names").code == 0
    assert cli("trace", "convert", tmp_path / "a.csv.gz", tmp_path / "b.swf", "--show-names").code == 0
    first, last = load_workload(str(log)), load_workload(str(tmp_path / "b.swf"))
    assert first.jobs.table.tobytes() == last.jobs.table.tobytes()
    assert first.runtime.tobytes() == last.runtime.tobytes()
    np.testing.assert_array_equal(first.logged_start, last.logged_start)


def test_convert_refuses_and_leaves_nothing(cli, log, tmp_path):
    before = {entry.name for entry in tmp_path.iterdir()}
    for out, code, told in (("a.json", 2, "in which format?"), ("none/a.csv", 1, "cannot be written"), (".", 2, "in which format?")):
        outcome = cli("trace", "convert", log, tmp_path / out)
        assert (outcome.code, outcome.out) == (code, "")
        assert told in outcome.err
    outcome = cli("trace", "convert", "eda:jobs=10", tmp_path / "a.swf")
    assert outcome.code == 1
    assert "SWF has whole processors only" in outcome.err
    assert {entry.name for entry in tmp_path.iterdir()} == before


def test_generate_is_what_the_seed_makes(cli, tmp_path):
    assert cli("trace", "generate", "gangs:jobs=30", tmp_path / "a.csv", "--seed", "7").code == 0
    write_csv(load_workload("gangs:jobs=30", 7), tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert cli("trace", "generate", "gangs", tmp_path / "c.csv", "--seed", "7", "--with", "jobs=30").code == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "c.csv").read_bytes()
    outcome = cli("trace", "generate", "gang", tmp_path / "d.csv")
    assert outcome.code == 2
    assert "did you mean 'gangs'?" in outcome.err


# ── sample ──


def sampled(cli, tmp_path, *arguments):
    (record,) = written(cli("trace", "sample", *arguments, "-f", "json"))
    return load_workload(record["file"])


def test_a_window_by_times_or_dates(cli, log, tmp_path):
    out = tmp_path / "a.csv"
    by_time = sampled(cli, tmp_path, log, out, "--from", "2h", "--until", "3h")
    assert by_time.jobs.id.tolist() == [12, 13, 14, 15, 16, 17]
    by_date = sampled(cli, tmp_path, log, out, "--from", "2017-10-01T02:00", "--until", "2017-10-01 03:00:00")
    assert by_date == by_time
    assert len(sampled(cli, tmp_path, log, out, "--from", "2017-09-01")) == 100
    assert len(sampled(cli, tmp_path, log, out, "--until", "2017-10-01T01:00")) == 5


def test_users_partitions_shares_and_the_first(cli, log, tmp_path):
    out = tmp_path / "a.csv"
    assert sampled(cli, tmp_path, log, out, "--user", "1", "--user", "2", "--partition", "1", "--jobs", "3").jobs.id.tolist() == [1, 5, 7]
    third = sampled(cli, tmp_path, log, out, "--keep", "0.3", "--seed", "5")
    assert third.jobs.id.tolist() == apply(load_workload(str(log)), "thin:0.3", 5).jobs.id.tolist()
    some = sampled(cli, tmp_path, log, out, "--keep", "0.5", "--by", "user", "--seed", "1")
    assert {33, 34, 67} >= {int((some.jobs.user == k).sum()) for k in set(some.jobs.user.tolist())}


def test_batches(cli, log, tmp_path):
    records = written(cli("trace", "sample", log, tmp_path / "b.csv.gz", "--batch", "20", "--batches", "4", "--seed", "3", "-f", "json"))
    assert [Path(r["file"]).name for r in records] == ["b-000.csv.gz", "b-001.csv.gz", "b-002.csv.gz", "b-003.csv.gz"]
    starts = []
    for record in records:
        ids = load_workload(record["file"]).jobs.id
        assert np.diff(ids).tolist() == [1] * 19
        starts.append(int(ids[0]))
    assert len(set(starts)) > 1
    one = sampled(cli, tmp_path, log, tmp_path / "b.csv.gz", "--batch", "20", "--seed", "3")
    assert one.jobs.id[0] == starts[0]


def test_load(cli, log, tmp_path):
    guessed = sampled(cli, tmp_path, log, tmp_path / "a.csv", "--load", "0.5")
    assert 4 * 60 * 100 / (32 * np.ptp(guessed.jobs.submit)) == pytest.approx(0.5)
    given = sampled(cli, tmp_path, log, tmp_path / "a.csv", "--load", "1.2", "--cluster", "1x8:gpu", "--jobs", "50")
    assert 4 * 60 * 50 / (8 * np.ptp(given.jobs.submit)) == pytest.approx(1.2)
    hosts = sampled(cli, tmp_path, "eda:jobs=100", tmp_path / "a.csv", "--load", "0.6", "--cluster", "hosts:count=2,cores=10")
    assert float(hosts.jobs.cpus @ hosts.runtime) / (20 * np.ptp(hosts.jobs.submit)) == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "no part is chosen"),
        (("--jobs", "5", "--batch", "5"), "both say how many"),
        (("--batches", "3"), "--batch is missing"),
        (("--batch", "5", "--batches", "0"), "does not lie in"),
        (("--keep", "2"), "keep = 2"),
        (("--keep", "0.5", "--by", "moon"), "moon"),
        (("--user", "nobody"), "unknown user"),
        (("--user", "a,b"), "a comma"),
        (("--from", "soon"), "is not a time"),
        (("--from", "3h", "--until", "2h"), "is not an interval"),
        (("--load", "0"), "load = 0"),
        (("--jobs", "0"), "at least 1"),
        (("--jobs", "5", "--seed", "-1"), "seed -1"),
    ],
)
def test_samples_that_are_refused(cli, log, tmp_path, arguments, told):
    outcome = cli("trace", "sample", log, tmp_path / "a.csv", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert told in outcome.err
    assert not (tmp_path / "a.csv").exists()


def test_a_sample_of_nothing(cli, log, tmp_path):
    outcome = cli("trace", "sample", log, tmp_path / "a.csv", "--from", "999d")
    assert outcome.code == 1
    assert "leaves no jobs" in outcome.err
    outcome = cli("trace", "sample", "demo:jobs=10", tmp_path / "a.csv", "--from", "2017-10-01")
    assert outcome.code == 2
    assert "does not say when its time 0 was" in outcome.err


# ── perturb, --apply ──


def test_perturb(cli, log, tmp_path):
    (record,) = written(
        cli("trace", "perturb", log, tmp_path / "a.csv", "--apply", "thin:0.5", "--apply", "stretch:2", "--seed", "4", "-f", "json")
    )
    assert record["is"] == "log.swf+thin:0.5+stretch:2"
    made = load_workload(record["file"])
    expected = apply(apply(load_workload(str(log)), "thin:0.5", 4), "stretch:2", 4)
    assert made.jobs.submit.tolist() == expected.jobs.submit.tolist()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [((), "nothing to apply"), (("--apply", "thn"), "did you mean 'thin'?"), (("--apply", "capacity-dips"), "acts on clusters")],
)
def test_perturbations_that_are_refused(cli, log, tmp_path, arguments, told):
    outcome = cli("trace", "perturb", log, tmp_path / "a.csv", *arguments)
    assert outcome.code == 2
    assert told in outcome.err
    assert len(complaints(outcome.err)) == 1


def test_simulate_a_perturbed_workload(cli):
    clean = json.loads(cli("simulate", "demo:jobs=200", "--metric", "wait", "-f", "json").out)
    dipped = json.loads(cli("simulate", "demo:jobs=200", "--apply", "capacity-dips:4", "--metric", "wait", "-f", "json").out)
    dense = json.loads(cli("simulate", "demo:jobs=200", "--apply", "stretch:0.1", "--metric", "wait", "-f", "json").out)
    assert (dipped["cluster"], dipped["workload"]) == ("16x8:a100+capacity-dips:4", "demo:jobs=200")
    assert (dense["cluster"], dense["workload"]) == ("16x8:a100", "demo:jobs=200+stretch:0.1")
    waits = [each["metrics"]["wait"]["value"] for each in (clean, dipped, dense)]
    assert waits[0] < waits[1]
    assert waits[0] < waits[2]
    assert "stretch:0.1 was applied" in dense["notes"]


def test_the_cluster_is_guessed_from_the_clean_log(cli, log):
    outcome = cli("simulate", log, "--apply", "arrival-noise", "--metric", "wait")
    assert "one pool of 32 processors" in outcome.err
    assert "arrival-noise was applied with seed 0" in outcome.err


def test_compare_takes_another_sample_at_every_seed(cli, log):
    base = ("compare", log, "--ordering", "fcfs", "--ordering", "sjf", "--metric", "wait", "--seeds", "3", "-f", "json")
    (plain,) = json.loads(cli(*base).out)
    (dense,) = json.loads(cli(*base, "--apply", "stretch:0.01").out)
    (noisy,) = json.loads(cli(*base, "--apply", "stretch:0.01", "--apply", "arrival-noise:share=1").out)
    (dipped,) = json.loads(cli(*base, "--apply", "stretch:0.01", "--apply", "capacity-dips:4").out)
    assert [len(each["seeds"]) for each in (plain, dense, noisy, dipped)] == [1, 1, 3, 3]
    assert noisy["workload"] == f"{log}+stretch:0.01+arrival-noise:share=1"
    assert cli(*base, "--apply", "thn").code == 2


# ── fetch ──


def test_fetch_refuses_unknown_names(cli):
    outcome = cli("trace", "fetch", "philly", "filly")
    assert outcome.code == 2
    assert "did you mean 'philly'?" in outcome.err
    assert "philly-vc" in cli("list", "datasets").out
    assert "sha256" in cli("show", "kth-sp2").out
