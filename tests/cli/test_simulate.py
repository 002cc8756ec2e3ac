"""`gpuyard simulate`: formats, schedulers, inputs, and every bad input in one line."""

from __future__ import annotations

import csv
import gzip
import io
import json

import pytest

from gpuyard import Result, load_cluster, load_workload, parse_scheduler, simulate, with_estimate
from gpuyard.metrics import measure
from support.complaints import complaints

SMALL = ("simulate", "demo:jobs=60", "--cluster", "4x8:a100")


def test_the_table_says_what_was_run(cli):
    code, out, err = cli(*SMALL, "--scheduler", "sjf/best/easy")
    assert (code, err) == (0, "")
    assert "demo:jobs=60 on 4x8:a100 under sjf/best/easy  (estimates: requested, seed 0)" in out
    assert "60 jobs: 60 done, 0 killed, 0 rejected, 0 unfinished" in out
    assert "bounded slowdown" in out


def test_the_table_says_that_predicted_estimates_are_the_simulations_own(cli, tmp_path):
    out = cli(*SMALL, "--estimate", "rolling", "--out", tmp_path / "saved").out
    assert "(estimates: rolling, made inside each simulation, seed 0)" in out
    saved = Result.load(tmp_path / "saved")
    expected = simulate(with_estimate(load_workload("demo:jobs=60"), "rolling"), load_cluster("4x8:a100"), parse_scheduler("fcfs"))
    assert saved.workload.jobs.estimate.tolist() == expected.workload.jobs.estimate.tolist()
    assert saved.workload.estimate_source == "rolling"


def test_json_has_the_very_numbers(cli):
    found = json.loads(
        cli(*SMALL, "--scheduler", "sjf/best/easy", "--seed", 3, "--metric", "wait", "--metric", "bsld.p95", "-f", "json").out
    )
    result = simulate(load_workload("demo:jobs=60", 3), load_cluster("4x8:a100"), parse_scheduler("sjf/best/easy"), seed=3)
    assert {name: each["value"] for name, each in found["metrics"].items()} == measure(result, ["wait", "bsld.p95"])
    assert found["estimate"] == "requested"
    assert found["counts"]["done"] == 60


def test_json_has_null_for_what_is_not_a_number(cli):
    found = json.loads(cli("simulate", "lublin:jobs=5", "--cluster", "256", "--metric", "deadline_met", "-f", "json").out)
    assert found["metrics"]["deadline_met"]["value"] is None


def test_csv_parses_back(cli):
    rows = list(csv.DictReader(io.StringIO(cli(*SMALL, "--metric", "wait", "--metric", "utilization", "-f", "csv").out)))
    assert [row["metric"] for row in rows] == ["wait", "utilization"]
    assert rows[0]["unit"] == "s"
    assert float(rows[1]["value"]) > 0


def test_markdown_is_a_table(cli):
    lines = cli(*SMALL, "--metric", "wait", "-f", "md").out.splitlines()
    assert "| metric | value | unit |  | is |" in lines
    assert any(line.startswith("| wait | ") for line in lines)


@pytest.mark.parametrize("by", ["priority", "user", "partition", "job_class"])
def test_groups(cli, by):
    code, out, _ = cli(*SMALL, "--by", by, "-f", "csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert sum(int(row["jobs"]) for row in rows) == 60
    assert {row["by"] for row in rows} == {by}


def test_rejects_and_dropped_rows_are_told_with_their_reasons(cli, tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("submit,runtime,gpus\n0,10,1\n1,10,64\n2,,1\n")
    code, out, err = cli("simulate", trace, "--cluster", "node8")
    assert code == 0
    assert "2 jobs: 1 done, 0 killed, 1 rejected" in out
    assert "rejected: 1, more GPUs than its partition has" in out
    assert "note: 1 rows dropped" in err
    assert "note: 1 jobs rejected: more GPUs than its partition has" in err


def test_the_slots_may_be_given_one_by_one(cli):
    whole = cli(*SMALL, "--scheduler", "sjf/best/easy/srpt", "-f", "json").out
    parts = cli(*SMALL, "--ordering", "sjf", "--placement", "best", "--backfill", "easy", "--preemption", "srpt", "-f", "json").out
    assert whole == parts


def test_a_meta_scheduler(cli):
    code, out, _ = cli(*SMALL, "--meta", "backlog:limit=3", "--of", "fcfs", "--of", "sjf/best/easy", "--every", "60s", "-f", "json")
    assert code == 0
    assert json.loads(out)["scheduler"] == "meta:backlog:limit=3(fcfs, sjf/best/easy)@60"


def test_rules_reach_the_engine(cli):
    common = (*SMALL, "--scheduler", "srpt/best/easy/srpt", "--metric", "gpu_hours.sum", "--metric", "killed.sum", "-f", "json")
    free = json.loads(cli(*common).out)["metrics"]
    paid = json.loads(cli(*common, "--checkpoint", "10m", "--restart-cost", "30s").out)["metrics"]
    assert paid["gpu_hours.sum"]["value"] > free["gpu_hours.sum"]["value"]
    short = json.loads(
        cli("simulate", "family:variant=estimate", "--cluster", "node8", "--walltime-kill", "--metric", "killed.sum", "-f", "json").out
    )
    assert short["metrics"]["killed.sum"]["value"] > 0


def test_estimates(cli):
    found = {}
    for source in ("requested", "exact", "noisy:0.3"):
        data = json.loads(cli(*SMALL, "--scheduler", "sjf", "--estimate", source, "--metric", "turnaround", "-f", "json").out)
        assert data["estimate"] == source
        found[source] = data["metrics"]["turnaround"]["value"]
    assert len(set(found.values())) > 1


def test_a_csv_whose_columns_are_named(cli, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_ms,len,cards\n0,5000,1\n1000,2000,2\n")
    options = ("--column", "submit=arrival_ms", "--column", "runtime=len", "--column", "gpus=cards", "--with", "unit=ms")
    code, out, _ = cli("simulate", trace, "--cluster", "node8", *options, "--metric", "makespan", "-f", "json")
    assert code == 0
    assert json.loads(out)["metrics"]["makespan"]["value"] == 5.0


def test_only_the_first_jobs(cli):
    assert json.loads(cli(*SMALL, "--jobs", "10", "-f", "json").out)["counts"]["jobs"] == 10


def test_a_saved_result_loads_back(cli, tmp_path):
    code, _, err = cli(*SMALL, "--scheduler", "sjf", "--out", tmp_path / "kept")
    assert code == 0
    assert "result saved in" in err
    expected = simulate(load_workload("demo:jobs=60"), load_cluster("4x8:a100"), parse_scheduler("sjf"))
    assert Result.load(tmp_path / "kept").same_bytes(expected)


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_plots(cli, tmp_path, suffix):
    code, _, err = cli(*SMALL, "--plot", tmp_path / f"figure.{suffix}")
    assert code == 0
    assert "figure drawn in" in err
    head = (tmp_path / f"figure.{suffix}").read_bytes()[:5]
    assert head.startswith({"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[suffix])


@pytest.mark.parametrize(
    ("workload", "cluster", "scheduler"),
    [
        ("lublin:jobs=40", "256", "fcfs"),  # a pool: no device numbers
        ("demo:jobs=900", "16x8:a100", "srpt/fewest/easy/srpt"),  # a window
        ("gangs:jobs=50,nodes=100", "100x8:a100", "fcfs"),  # more devices than can be drawn
    ],
)
def test_plots_of_other_shapes(cli, tmp_path, workload, cluster, scheduler):
    assert cli("simulate", workload, "--cluster", cluster, "--scheduler", scheduler, "--plot", tmp_path / "f.png").code == 0


def test_plot_of_shared_and_cpu_jobs(cli, tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("submit,runtime,gpus,cpus\n0,10,0.5,1\n1,10,0.3,1\n2,10,0,2\n3,5,0.2,1\n")
    assert cli("simulate", trace, "--cluster", "node8", "--plot", tmp_path / "f.png").code == 0


def test_an_swf_log_brings_its_cluster(cli, tmp_path):
    log = tmp_path / "log.swf"
    log.write_text("; MaxProcs: 32\n1 0 -1 10 4 -1 -1 4 20 -1 1 1 1 -1 -1 -1 -1 -1\n")
    code, out, err = cli("simulate", log)
    assert code == 0
    assert "on 32 under fcfs" in out
    assert "one pool of 32 processors" in err


def bad_files(folder):
    """A name and arguments for each way in which an input can be broken, with what must be said."""
    swf = "1 0 -1 10 4 -1 -1 4 20 -1 1 1 1 -1 -1 -1 -1 -1\n"
    whole = gzip.compress(swf.encode() * 2000)
    files = {
        "truncated.swf.gz": whole[: len(whole) // 2],
        "columns.swf": b"1 2 3\n",
        "negative.swf": swf.replace("1 0 -1 10", "1 -5 -1 10").encode(),
        "nan.csv": b"submit,runtime\nnan,3\n",
        "huge.csv": b"submit,runtime,gpus\n0,3,1000000000\n",
        "twice.csv": b"id,submit,runtime\n1,0,3\n1,1,3\n",
        "latin.csv": b"submit,runtime,user\n0,3,caf\xe9\n",
        "empty.csv": b"",
        "directory.csv": None,
        "unknown.dat": b"1 2 3",
    }
    for name, content in files.items():
        (folder / name).mkdir() if content is None else (folder / name).write_bytes(content)
    (folder / "broken.toml").write_text("[[nodes]\n")
    (folder / "wrong.toml").write_text('[[nodes]]\ngpus = "eight"\n')
    (folder / "raises.py").write_text("def rule(jobs, j, now):\n    if jobs.gpus[j] > 0:\n        raise ValueError('no')\n    return 1.0\n")
    (folder / "nan.py").write_text("def rule(jobs, j, now):\n    return jobs.submit[j] * float('nan')\n")
    (folder / "syntax.py").write_text("def rule(:\n")
    (folder / "text.py").write_text("def rule(jobs, j, now):\n    return 'a'\n")


MACHINE = ("--cluster", "node8")
DEMO = ("demo:jobs=20", *MACHINE)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["truncated.swf.gz", *MACHINE], 1, "truncated: it ends after"),
        (["columns.swf", *MACHINE], 1, "columns.swf:1:"),
        (["negative.swf", *MACHINE], 1, "negative.swf:1:"),
        (["nan.csv", *MACHINE], 1, "nan.csv"),
        (["huge.csv", *MACHINE], 1, "huge.csv:2:"),
        (["twice.csv", *MACHINE], 1, "twice.csv:3:"),
        (["latin.csv", *MACHINE], 1, "is not UTF-8"),
        (["empty.csv", *MACHINE], 1, "the file is empty"),
        (["directory.csv", *MACHINE], 1, "is a directory"),
        (["unknown.dat", *MACHINE], 2, "nor the name matches a known format"),
        (["absent.csv", *MACHINE], 1, "no such file"),
        (["dmeo", *MACHINE], 2, "did you mean 'demo'?"),
        (["demo:jbs=3", *MACHINE], 2, "did you mean 'jobs'?"),
        (["demo:jobs=1e99", *MACHINE], 2, "jobs"),
        (["family"], 2, "hint: give --cluster"),
        (["demo", "--cluster", "broken.toml"], 1, "broken.toml"),
        (["demo", "--cluster", "wrong.toml"], 1, "gpus"),
        (["demo", "--cluster", "nothere.toml"], 1, "no such cluster file"),
        (["demo", "--cluster", "nod8"], 2, "did you mean 'node8'?"),
        (["demo", "--cluster", "16x8:a1000"], 2, "unknown GPU type 'a1000'; hint: did you mean 'a100'? A type of your own"),
        (["demo", "--cluster", "9999999999x8:a100"], 1, "9999999999"),
        ([*DEMO, "--scheduler", "sjff"], 2, "unknown ordering or decider 'sjff'; hint: did you mean 'sjf'?"),
        ([*DEMO, "--scheduler", "sjf/bset"], 2, "did you mean 'best'?"),
        ([*DEMO, "--scheduler", "sjf/best/eazy"], 2, "did you mean 'easy'?"),
        ([*DEMO, "--scheduler", "sjf/best/easy/srtp"], 2, "did you mean 'srpt'?"),
        ([*DEMO, "--scheduler", ""], 2, "is not ordering"),
        ([*DEMO, "--scheduler", "las:powr=2"], 2, "powr"),
        ([*DEMO, "--scheduler", "sjf", "--ordering", "fcfs"], 2, "both say which scheduler"),
        ([*DEMO, "--meta", "backlog"], 2, "give at least two"),
        ([*DEMO, "--of", "fcfs"], 2, "belong to --meta"),
        ([*DEMO, "--meta", "backlg", "--of", "fcfs", "--of", "sjf"], 2, "did you mean 'backlog'?"),
        ([*DEMO, "--ordering", "raises.py:rule"], 1, "raised an error or returned NaN for job"),
        ([*DEMO, "--ordering", "nan.py:rule"], 1, "raised an error or returned NaN for job"),
        ([*DEMO, "--ordering", "syntax.py:rule"], 1, "syntax.py: cannot be loaded: SyntaxError"),
        ([*DEMO, "--ordering", "text.py:rule"], 1, "does not compile"),
        ([*DEMO, "--ordering", "nan.py:rul"], 2, "did you mean 'rule'?"),
        ([*DEMO, "--ordering", "absent.py:rule"], 1, "no such policy file"),
        ([*DEMO, "--metric", "wiat"], 2, "did you mean 'wait'?"),
        ([*DEMO, "--metric", "wait.p96"], 2, "p96"),
        ([*DEMO, "--by", "usr"], 2, "did you mean 'user'?"),
        ([*DEMO, "--estimate", "exactly"], 2, "did you mean 'exact'?"),
        ([*DEMO, "--estimate", "noisy:x"], 2, "is not a number"),
        ([*DEMO, "--checkpoint", "ten"], 2, "is not a time"),
        ([*DEMO, "--restart-cost", "-1s"], 2, "is not a time"),
        ([*DEMO, "--jobs", "0"], 2, "at least 1"),
        ([*DEMO, "--jobs", "x"], 2, "is not a count"),
        ([*DEMO, "--seed", "-1"], 2, "seed -1"),
        ([*DEMO, "--column", "submit"], 2, "is not NAME=VALUE"),
        ([*DEMO, "--column", "submit=x"], 2, "no columns to name"),
        ([*DEMO, "--with", "limits=3"], 2, "cannot be set here"),
        (["nan.csv", *MACHINE, "--reader", "sfw"], 2, "did you mean 'swf'?"),
        ([*DEMO, "--plot", "figure.bmp"], 2, "unknown kind of figure"),
        ([*DEMO, "--plot", "absent/figure.png"], 2, "no such folder"),
        ([*DEMO, "--out", "directory.csv/../broken.toml"], 1, "broken.toml"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_is_one_line(cli, tmp_path, monkeypatch, arguments, code, told):
    bad_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    outcome = cli("simulate", *arguments)
    talk = [line for line in outcome.err.splitlines() if "compiling the engine" not in line and "no --cluster" not in line]
    found = complaints("\n".join(talk))
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    assert len(found) == 1
    assert told in found[0]
    assert "this is a bug" not in found[0]


def test_independent_errors_are_told_together(cli):
    outcome = cli(
        "simulate", "dmo", "--scheduler", "sjf/easy", "--cluster", "16x8:a1000", "--metric", "bsldd", "--metric", "wiat", "--by", "usr"
    )
    assert (outcome.code, outcome.out) == (2, "")
    assert [complaint.partition("; hint: ")[2] for complaint in complaints(outcome.err)] == [
        "did you mean 'demo'?", "did you mean 'a100'? A type of your own is declared in a .toml file, in [types.a1000]",
        "write sjf/fewest/easy", "did you mean 'bsld'?", "did you mean 'wait'?", "did you mean 'user'?",
    ]  # fmt: skip
    compared = cli("compare", "dmo", "--scheduler", "sjff", "--baseline", "fifo", "--estimate", "exactly", "--metric", "wiat")
    assert compared.code == 2
    assert len(complaints(compared.err)) == 5
    evaluated = cli("evaluate", "learned:gpu", "--against", "sjff", "--metric", "wiat", "--cluster", "nod8")
    assert len(complaints(evaluated.err)) == 3


def test_by_twice_gives_both(cli):
    code, out, _ = cli(*SMALL, "--by", "user", "--by", "priority", "--by", "user")
    assert code == 0
    assert out.count("by user") == 1
    assert out.count("by priority") == 1
    groups = json.loads(cli(*SMALL, "--by", "user", "--by", "priority", "-f", "json").out)["groups"]
    assert list(groups) == ["user", "priority"]
    assert sum(row["jobs"] for row in groups["user"]) == sum(row["jobs"] for row in groups["priority"]) > 0


@pytest.mark.parametrize("metric", ["utilisation", "utilization", "node_utilisation.max"])
def test_metrics_are_accepted_in_both_spellings(cli, metric):
    american = metric.replace("is", "iz")
    assert list(json.loads(cli(*SMALL, "--metric", metric, "-f", "json").out)["metrics"]) == [american]
    assert cli("show", metric).code == 0


@pytest.mark.parametrize(
    ("cluster", "told"),
    [("16x8:h100", "2.28 × as fast"), ("16x8:h800", "no figures are known for GPU type 'h800'"), ("16x8:gpu", ""), ("16x8:a100", "")],
)
def test_what_a_device_type_does_to_run_times_is_said(cli, cluster, told):
    code, _, err = cli("simulate", "demo:jobs=20", "--cluster", cluster, "--metric", "wait")
    assert code == 0
    assert told in err if told else "note: " not in err


def test_a_simulation_under_the_policy_of_a_site(cli, tmp_path):
    site, jobs, lab, out = (tmp_path / name for name in ("site.txt", "jobs.csv", "lab.toml", "out.csv"))
    partitions = "PartitionName=gpu Nodes=g[1-3]\nPartitionName=debug Nodes=g3 PriorityTier=2\n"
    site.write_text(f"PriorityWeightAge=10\n{partitions}Name|Priority|MaxTRESPU\nnormal|0|gres/gpu=8\n")
    rows = "0,100,8,ann,normal,gpu\n" * 3 + "5,10,1,bob,normal,gpu\n"
    jobs.write_text("submit,runtime,gpus,user,qos,partition\n" + rows)
    lab.write_text('[[nodes]]\ncount = 3\nnames = ["g1", "g2", "g3"]\ngpus = 8\n')
    done = cli("simulate", jobs, "--cluster", lab, "--slurm-conf", site, "--jobs-out", out)
    assert done.code == 0, done.err
    assert "2 jobs waited 2m 30s each, on average, because of this: its user is at a limit" in done.err
    lines = out.read_text().splitlines()
    assert lines[0].endswith("not_eligible,waited_for")
    assert lines[3].endswith("200.0,user-limit")


@pytest.mark.parametrize("verb", ["simulate", "compare", "whatif"])
def test_a_job_of_a_partition_that_is_not_there_is_refused(cli, tmp_path, verb):
    (tmp_path / "jobs.csv").write_text('id,submit,gpus,runtime,partition\n1,0,1,10,day\n4,0,1,10,"day,dusk"\n5,5,1,10,dusk\n')
    nodes = 'gpus = 4\npartition = "day,night"\n'
    (tmp_path / "lab.toml").write_text(f"[partitions.day]\n[partitions.night]\ntier = 1\n[[nodes]]\n{nodes}")
    asked = cli(verb, tmp_path / "jobs.csv", "--cluster", tmp_path / "lab.toml")
    assert "jobs.csv: job 4: partition 'day,dusk' is not in cluster lab; 1 more like it" in asked.err
    assert "--apply 'only:partition=day|night' leaves such jobs out" in asked.err


def test_metrics_may_be_given_with_commas(cli):
    out = cli(*SMALL, "--metric", "utilisation, bsld", "--metric", "wait", "-f", "json").out
    assert list(json.loads(out)["metrics"]) == ["utilization", "bsld", "wait"]


def test_who_may_be_stopped_is_a_share_or_a_label(cli, tmp_path):
    file = tmp_path / "jobs.csv"
    file.write_text("submit,runtime,gpus,partition\n0,9000,1,low\n1,10,1,high\n9001,9000,1,high\n9002,10,1,low\n")
    rest = ("--cluster", "1", "--scheduler", "saf/fewest/easy/gittins", "--metric", "preemptions.sum", "-f", "csv")
    for who, stops in (("partition=low", 1), ("partition=high", 0), ("partition=low|high", 1), ("100%", 1), ("0", 0)):
        assert f"preemptions.sum,{stops}.0," in cli("simulate", file, *rest, "--preemptible", who).out, who
    assert "did you mean 'low'" in cli("simulate", file, *rest, "--preemptible", "partition=lo").err
    assert "not a share of the jobs" in cli("simulate", file, *rest, "--preemptible", "half").err


def test_limits_on_users_hold_although_a_comparison_calls_them_otherwise(cli, tmp_path):
    (tmp_path / "log.csv").write_text("id,submit,gpus,runtime,user,wait\n1,0,4,100,ann,0\n2,0,4,100,ann,100\n3,0,4,100,bob,0\n")
    (tmp_path / "lab.toml").write_text('[[nodes]]\ngpus = 12\n[[limits]]\nuser = "ann"\ngpus = 4\n')
    asked = cli("compare", tmp_path / "log.csv", "--cluster", tmp_path / "lab.toml", "--scheduler", "fcfs")
    assert asked.code == 0, asked.err
    assert "gives a mean wait of 33.3 s, the log says 33.3 s" in asked.out
