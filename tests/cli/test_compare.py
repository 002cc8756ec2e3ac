"""`gpuyard compare`: the cross, pairing, statistics, formats, the report."""

from __future__ import annotations

import csv
import html
import io
import json

import pytest

from gpuyard import load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.cli.common.output import STAR
from gpuyard.engine import batch
from gpuyard.errors import UsageError
from gpuyard.experiments.compare import Plan, Source, _batches, compare
from gpuyard.experiments.judging.statistics import mean_interval, paired_difference
from gpuyard.experiments.usual import ALL, RANKED, TODAY, usual_schedulers
from gpuyard.metrics import measure
from gpuyard.traces.writing import write_workload
from support.sites import site

SMALL = ("compare", "demo:jobs=80", "--cluster", "4x8:a100")
TWO = ("--scheduler", "fcfs", "--scheduler", "sjf/best/easy")


def test_numbers_are_those_of_paired_simulations(cli):
    data = json.loads(cli(*SMALL, *TWO, "--seeds", 5, "--metric", "bsld", "--metric", "utilization", "-f", "json").out)
    values = {}
    for label in ("fcfs", "sjf/best/easy"):
        runs = [simulate(load_workload("demo:jobs=80", s), load_cluster("4x8:a100"), parse_scheduler(label), seed=s) for s in range(5)]
        values[label] = [measure(run, ["bsld"])["bsld"] for run in runs]
    first, second = data[0]["schedulers"]
    expected = mean_interval(values["fcfs"])
    assert (first["metrics"]["bsld"]["mean"], first["metrics"]["bsld"]["low"]) == (expected.mean, expected.low)
    difference = paired_difference(values["sjf/best/easy"], values["fcfs"])
    assert [second["difference"][key] for key in ("mean", "low", "high", "wins", "losses")] == [
        difference.mean, difference.low, difference.high, difference.wins, difference.losses,
    ]  # fmt: skip
    assert first["difference"] is None
    assert data[0]["baseline"] == "fcfs"
    assert second["metrics"]["bsld"]["best"] is True


def test_the_cross_of_every_repeated_option(cli):
    axes = (
        "--ordering",
        "fcfs",
        "--ordering",
        "sjf",
        "--placement",
        "best",
        "--placement",
        "worst",
        "--backfill",
        "none",
        "--backfill",
        "easy",
    )
    arguments = (
        "compare",
        "demo:jobs=20",
        "demo:jobs=30",
        "--cluster",
        "node8",
        "--cluster",
        "4x8:a100",
        "--estimate",
        "exact",
        "--estimate",
        "noisy:0.3",
    )
    data = json.loads(cli(*arguments, *axes, "--seeds", 1, "--metric", "wait", "-f", "json").out)
    cases = [(t["workload"], t["cluster"], t["estimate"]) for t in data]
    assert len(set(cases)) == 8
    assert cases[:3] == [("demo:jobs=20", "node8", "exact"), ("demo:jobs=20", "node8", "noisy:0.3"), ("demo:jobs=20", "4x8:a100", "exact")]
    assert len(data[0]["schedulers"]) == 8


def test_the_table_marks_the_best_and_prints_the_estimate_source(cli):
    code, out, err = cli(*SMALL, *TWO, "--seeds", 3, "--estimate", "exact", "--all")
    assert code == 0
    assert STAR in out
    assert "estimates: exact, 3 seeds" in out
    assert "baseline" in out
    assert "3 seeds are too few to tell" in err


def test_predicted_estimates_are_said_to_be_each_schedulers_own(cli):
    out = cli(*SMALL, *TWO, "--seeds", 3, "--estimate", "rolling").out
    assert "estimates: rolling, made inside each simulation, 3 seeds" in out
    both = cli(*SMALL, *TWO, "--seeds", 2, "--estimate", "exact", "--estimate", "rolling").out
    assert "means over the schedulers" in both


def test_the_best_survives_csv(cli):
    rows = list(csv.DictReader(io.StringIO(cli(*SMALL, *TWO, "--seeds", 2, "--metric", "bsld", "-f", "csv").out)))
    assert [row["bsld_best"] for row in rows] == ["false", "true"]
    assert float(rows[1]["difference"]) == pytest.approx(float(rows[1]["bsld"]) - float(rows[0]["bsld"]))
    assert rows[0]["difference"] == ""


def test_markdown(cli):
    lines = cli(*SMALL, *TWO, "--seeds", 2, "--metric", "bsld", "-f", "md").out.splitlines()
    assert sum(line.startswith("| ") for line in lines) == 3
    assert any(f"{STAR}" in line and "**" in line for line in lines)


def test_another_baseline(cli):
    data = json.loads(cli(*SMALL, *TWO, "--seeds", 2, "--baseline", "sjf/best/easy", "-f", "json").out)
    assert data[0]["baseline"] == "sjf/best/easy"
    assert data[0]["schedulers"][1]["difference"] is None


def test_the_number_of_threads_does_not_matter(cli):
    arguments = (*SMALL, *TWO, "--scheduler", "fcfs/random/easy", "--seeds", 3, "--estimate", "noisy:0.4", "-f", "json")
    assert cli(*arguments, "--threads", 1).out == cli(*arguments, "--threads", 4).out


def test_one_command_is_a_demonstration(cli):
    code, out, err = cli("compare", "demo:jobs=40", "--seeds", 1)
    assert code == 0
    assert "16x8:a100" in err
    names = [scheduler.label for scheduler in usual_schedulers([load_workload("demo:jobs=40")])]
    assert len(names) == 6 and TODAY in names and any(name.startswith("learned:") for name in names)
    for name in names:
        assert name in out
    assert "may stop jobs †" in out
    table = out[: out.index("baseline: ")]
    assert [word for word in ("mean", "wait", "slowdown", "longest", "busy") if word not in table] == []
    assert "ljf" not in out


@pytest.mark.parametrize("more", [(), ("--all",)], ids=["usual", "all"])
def test_a_site_with_limits_is_compared_without_rank_rules_which_know_none(cli, tmp_path, more):
    (tmp_path / "lab.toml").write_text("[[nodes]]\ncount = 4\ngpus = 8\n[[limits]]\neach = ['user']\ngpus = 24\n")
    code, out, _ = cli("compare", "demo:jobs=20", "--cluster", tmp_path / "lab.toml", "--seeds", 1, *more)
    assert code == 0
    assert TODAY in out and RANKED not in out


def test_a_site_is_compared_with_its_own_policy(cli, tmp_path):
    (tmp_path / "slurm.conf").write_text("PriorityType=priority/multifactor\nPriorityWeightAge=1000\n")
    out = cli(*SMALL, *TWO, "--slurm-conf", tmp_path / "slurm.conf", "--seeds", 2).out
    assert "baseline: Slurm's fair share + EASY (multifactor:" in out
    out = cli(*SMALL, *TWO, "--slurm-conf", tmp_path / "slurm.conf", "--seeds", 2, "--baseline", "fcfs").out
    assert "baseline: First come, first served" in out


def test_all_shows_every_scheduler_with_every_interval(cli):
    out = cli("compare", "demo:jobs=20", "--seeds", 2, "--all").out
    for text in (*ALL, "learned:meta"):
        assert parse_scheduler(text).label in out
    assert "deadline_met" in out and "better–" in out


def test_the_table_is_sorted_names_people_names_and_compares_with_what_sites_run(cli):
    schedulers = ("--scheduler", "ljf", "--scheduler", TODAY, "--scheduler", "sjf/fewest/easy")
    out = cli(*SMALL, *schedulers, "--seeds", 5, "--metric", "wait", "--metric", "utilization").out
    places = [
        out.index(name) for name in ("Shortest job first + EASY", "First come, first served + EASY", "Longest job first, no backfilling")
    ]
    assert places == sorted(places)
    data = json.loads(cli(*SMALL, *schedulers, "--seeds", 5, "--metric", "wait", "-f", "json").out)[0]
    assert data["baseline"] == TODAY
    means = [each["metrics"]["wait"]["mean"] for each in data["schedulers"]]
    assert means.index(min(means)) == 2


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_and_the_answer_fit_the_columns_that_are_asked_for(cli, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    out = cli("compare", "demo:jobs=60", "--seeds", 5).out
    assert max(map(len, out.splitlines())) <= columns
    assert sum(line.startswith("───") for line in out.splitlines()) == 1  # one block: no column is below the others


def test_the_last_lines_say_who_wins_how_sure_and_who_pays(cli):
    out = cli("compare", "demo", "--seeds", 5, "--scheduler", "sjf/fewest/easy", "--scheduler", TODAY, "--metric", "waiting").out
    said = out.split("second lines")[1]
    assert "Shortest job first + EASY cuts the mean wait from" in said
    assert "How sure: the range is a 95 % interval over 5 seeds. It" in said  # no choice to allow for
    assert "It is better in 5 of 5 seeds." in said
    assert "Who pays: " in said and "none of 24 users waits longer on average" in said and "the longest wait grows from" in said
    assert "over 12 h" in said and "█" in said
    assert "p =" not in said and "sjf" not in said


def test_a_worse_challenge_is_no_answer(cli):
    out = cli("compare", "demo", "--seeds", 5, "--scheduler", "ljf", "--scheduler", TODAY, "--metric", "waiting").out
    said = " ".join(out.split())
    assert "Longest job first, no backfilling gives a mean wait of" in said and "it is surely worse (between" in said


def test_a_worse_mean_with_a_shorter_longest_wait_is_told_as_both(cli, tmp_path):
    (tmp_path / "mine.py").write_text("def rule(jobs, j, now):\n    return jobs.submit[j] if now - jobs.submit[j] > 21600.0 else 1e12\n")
    arguments = ("--ordering", "sjf", "--ordering", f"{tmp_path}/mine.py:rule", "--backfill", "easy", "--metric", "waiting")
    out = cli("compare", "demo", "--seeds", 5, *arguments).out
    said = out.partition("second lines")[2]
    assert "mine.py:rule + EASY gives a mean wait of" in said and "it is surely worse (between" in said
    assert "In return the longest wait falls from 1 d" in said


def test_a_log_is_one_sample(cli, tmp_path):
    log = tmp_path / "log.swf"
    rows = [f"{i} {i * 5} -1 {30 + i * 7 % 50} 4 -1 -1 4 100 -1 1 1 1 -1 -1 -1 -1 -1" for i in range(1, 200)]
    log.write_text("; MaxProcs: 16\n" + "\n".join(rows) + "\n")
    code, out, err = cli("compare", log, *TWO, "--metric", "bsld", "--metric", "utilization", "-f", "json")
    assert code == 0
    assert "a log is one sample" in err
    table = json.loads(out)[0]
    assert table["seeds"] == [0]
    line = table["schedulers"][1]
    assert line["metrics"]["bsld"]["of"] == "block"
    assert line["metrics"]["bsld"]["low"] is not None
    assert line["metrics"]["utilization"]["low"] is None
    assert line["difference"]["of"] == "job"
    noisy = json.loads(cli("compare", log, *TWO, "--metric", "bsld", "--estimate", "noisy:0.5", "--seeds", 3, "-f", "json").out)[0]
    assert len(noisy["seeds"]) == 3
    assert any("one log" in note for note in noisy["notes"])


def test_the_report(cli, tmp_path):
    arguments = ("--seeds", 2, "--estimate", "exact", "--estimate", "noisy:0.3", "--report", tmp_path / "out", "-f", "json")
    code, out, err = cli(*SMALL, *TWO, *arguments)
    assert code == 0
    assert "report.html" in err
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.html", "csv"}
    page = html.unescape((tmp_path / "out" / "report.html").read_text())
    assert "open it in a browser: file://" in err
    answers = [table["answer"][0] for table in json.loads(out)]
    assert len(answers) == 2
    assert "2 comparisons" in page
    assert page.count("Would another scheduler serve these jobs better?") == 2
    assert all(f"<details><summary>{estimate} estimates: " in page for estimate in ("exact", "noisy:0.3"))
    rows = list(csv.DictReader((tmp_path / "out" / "csv" / "summary.csv").open()))
    assert [(row["workload"], row["estimate"], row["scheduler"]) for row in rows] == [
        ("demo:jobs=80", estimate, label) for estimate in ("exact", "noisy:0.3") for label in ("fcfs", "sjf/best/easy")
    ]
    runs = list(csv.DictReader((tmp_path / "out" / "csv" / "runs.csv").open()))
    assert len(runs) == 8


def test_the_report_is_one_file_where_its_name_is_one(cli, tmp_path):
    code, _, err = cli(*SMALL, *TWO, "--seeds", 1, "--report", tmp_path / "new" / "answer.html")
    assert code == 0
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["answer.html"]
    assert (tmp_path / "new" / "answer.html").as_uri() in err


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.swf"
    rows = [f"{i} {i * 5} {i * 7 % 90} {30 + i * 7 % 50} 4 -1 -1 4 100 -1 1 {i % 5} 1 -1 -1 -1 -1 -1" for i in range(1, 200)]
    rows += ["200 1000 0 10 0 -1 -1 0 100 -1 1 1 1 -1 -1 -1 -1 -1"]
    path.write_text("; MaxProcs: 16\n; UnixStartTime: 1700000000\n" + "\n".join(rows) + "\n")
    return path


def test_the_report_of_a_log_says_what_happened_and_how_it_was_made(cli, log, tmp_path):
    code, out, err = cli("compare", log, *TWO, "--report", tmp_path / "out", "-f", "json")
    assert code == 0, err
    page = html.unescape((tmp_path / "out" / "report.html").read_text())
    assert "Would another scheduler have served these users better?" in page
    assert '<th scope="row">What actually happened</th>' in page
    assert "One sample allows no test" in page and "5 time blocks" in page
    for words in ("199 jobs of a log over", "from 14 Nov 2023", "1 of 200 (0.500 %): no processors (1). This means: too few to matter.",
                  "16 processors: one pool of 16 processors, as log.swf says", "requested: the times that users asked for"):  # fmt: skip
        assert words in page
    assert str(tmp_path) not in page
    for sentence in json.loads(out)[0]["answer"]:
        assert sentence.partition(": ")[2] in page or sentence in page


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([*SMALL, "--seeds", "0"], "does not lie in"),
        ([*SMALL, "--seeds", "2", "--seed", "1"], "are both given"),
        ([*SMALL, "--threads", "0"], "does not lie in"),
        ([*SMALL, "--baseline", "sjf"], "unknown baseline"),
        ([*SMALL, "--scheduler", "meta:backlog"], "is not meta:RULE"),
        ([*SMALL, "--scheduler", "meta:backlog(fcfs)"], "at least two"),
        ([*SMALL, "--metric", "wiat"], "did you mean 'wait'?"),
        ([*SMALL, "--ordering", "fcsf"], "did you mean 'fcfs'?"),
        ([*SMALL, "--estimate", "exat"], "unknown estimate source"),
        (["compare", "family"], "hint: give --cluster"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_requests(cli, arguments, told):
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert told in err


def test_a_policy_that_fails_stops_it_with_its_job(cli, tmp_path):
    (tmp_path / "mine.py").write_text("def rule(jobs, j, now):\n    return jobs.submit[j] * float('nan')\n")
    code, out, err = cli(*SMALL, "--ordering", f"{tmp_path}/mine.py:rule", "--seeds", 2)
    assert (code, out) == (1, "")
    assert "for job" in err


def test_a_report_that_cannot_be_written(cli, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = cli(*SMALL, *TWO, "--seeds", 1, "--report", tmp_path / "file")
    assert code == 1
    assert "cannot be written" in err


def test_labels_read_back():
    for text in (*ALL, "sjf/best/easy:depth=3/las:threshold=60", "meta:backlog:limit=3(fcfs, sjf/best/easy)@10m"):
        label = parse_scheduler(text).label
        assert parse_scheduler(label).label == label


def test_progress_counts_every_cell():
    source = Source("demo", lambda seed: load_workload("demo:jobs=30", seed), True, (load_cluster("node8"),))
    plan = Plan((source,), (parse_scheduler("fcfs"), parse_scheduler("sjf")), ("wait",), seeds=(0, 1, 2))
    seen: list[int] = []
    compare(plan, threads=2, progress=seen.append)
    assert seen == list(range(1, plan.cells() + 1)) == [1, 2, 3, 4, 5, 6]


def test_schedulers_that_run_together_have_the_numbers_of_each_alone(monkeypatch):
    source = Source("demo", lambda seed: load_workload("demo:jobs=24", seed), True, (load_cluster("node8"),))
    schedulers = tuple(
        parse_scheduler(text) for text in ("fcfs", "sjf", "migrate(fcfs/best/easy)", "srpt/fewest/easy/srpt", "saf/best/easy")
    )
    plan = Plan((source,), schedulers, ("wait", "bsld.p95", "energy", "fairness"), seeds=(0, 1))
    together = compare(plan)
    assert [len(part) for part in _batches(schedulers, 24)] == [2, 1, 2]
    monkeypatch.setattr(batch, "TOGETHER", 1)
    assert [len(part) for part in _batches(schedulers, 24)] == [1, 1, 1, 1, 1]
    assert repr(compare(plan)) == repr(together)


def test_a_scheduler_twice_is_refused():
    source = Source("demo", lambda seed: load_workload("demo:jobs=30", seed), True, (load_cluster("node8"),))
    with pytest.raises(UsageError, match="given twice"):
        compare(Plan((source,), (parse_scheduler("fcfs"), parse_scheduler("fcfs")), ("wait",)))


def test_nothing_is_best_where_nothing_is_known(cli):
    table = json.loads(
        cli("compare", "lublin:jobs=20", "--cluster", "256", *TWO, "--metric", "deadline_met", "--seeds", 5, "-f", "json").out
    )[0]
    for line in table["schedulers"]:
        assert line["metrics"]["deadline_met"] == {"mean": None, "low": None, "high": None, "n": 0, "of": "seed", "best": False}


def test_a_network_that_was_trained_on_the_log_is_marked_and_never_the_best(cli, shared, tmp_path):
    log = shared / "traces" / "swf" / "KTH-SP2-1996-2.1-cln.swf.gz"
    assert [each.label for each in usual_schedulers([load_workload(str(log))])][-1].startswith("learned:gpu")  # not hpc, which knows it
    arguments = ("--scheduler", "learned:hpc", "--scheduler", TODAY, "--metric", "waiting", "--report", tmp_path / "out.html")
    code, out, err = cli("compare", log, *arguments)
    assert code == 0
    assert "was trained on jobs of this log, so its numbers flatter it" in err
    assert "‡ was trained on jobs of this log" in out and "HPC + EASY ‡" in " ".join(out.split())
    assert "First come, first served + EASY, as today, is the best" in out
    assert "‡ was trained on jobs of this log" in html.unescape((tmp_path / "out.html").read_text())
    out = cli("compare", log, "--apply", "window:start=20750000", *arguments[:6]).out  # the 30 % that it never saw
    assert "‡" not in out


def test_what_a_log_does_not_say_is_fitted_if_asked(cli, tmp_path):
    log = site(1, jobs=2000, glitches=0.0).log
    path = tmp_path / "site.swf"
    write_workload(log, path)
    two = ("--scheduler", "fcfs/fewest/easy", "--scheduler", "sjf/fewest/easy", "--metric", "wait")
    assert "Calibrated" not in cli("compare", path, *two).out
    assert "Calibrated: no outage brings" in " ".join(cli("compare", path, *two, "--calibrate").out.split())
    data = json.loads(cli("compare", path, *two, "--calibrate", "-f", "json").out)
    assert data[0]["calibration"].startswith("Calibrated: no outage brings")
    few = cli(*SMALL, *TWO, "--calibrate")
    assert few.code == 2 and "has too few jobs with a start" in few.err
