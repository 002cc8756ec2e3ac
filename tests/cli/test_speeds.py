"""`--speeds`: measured speeds of classes by GPU type; and public traces without --cluster."""

from __future__ import annotations

import json

JOBS = "submit,runtime,gpus,job_class\n0,100,1,lm\n0,100,1,big\n0,100,1,other\n"
TABLE = {"lm": {"v100": 1.0, "t4": 0.25}, "big": {"v100": 1.0, "t4": 0.0}}


def turnaround(cli, *arguments):
    found = cli("simulate", *arguments, "--metric", "turnaround.max", "--metric", "turnaround", "-f", "json")
    assert found.code == 0, found.err
    return {name: each["value"] for name, each in json.loads(found.out)["metrics"].items()}, json.loads(found.out)["counts"], found.err


def test_measured_speeds_change_how_long_jobs_take(cli, tmp_path):
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "table.json").write_text(json.dumps(TABLE))
    jobs, table = tmp_path / "jobs.csv", tmp_path / "table.json"
    lab = tmp_path / "lab.toml"
    lab.write_text('[[nodes]]\ngpus = 8\ntype = "t4"\n\n[types.t4]\nspeed = 0.5\n')
    values, counts, _ = turnaround(cli, jobs, "--cluster", lab)
    assert values["turnaround.max"] == 200  # all at the type's own speed
    values, counts, _ = turnaround(cli, jobs, "--cluster", lab, "--speeds", table)
    assert (counts["done"], counts["rejected"]) == (2, 1)  # `big` does not fit on a T4
    assert values == {"turnaround.max": 400, "turnaround": 300}  # lm 100/0.25, other 100/0.5


def test_jobs_wait_for_the_type_on_which_they_fit(cli, tmp_path):
    (tmp_path / "jobs.csv").write_text("submit,runtime,gpus,job_class\n0,100,1,big\n0,100,1,big\n")
    (tmp_path / "table.json").write_text(json.dumps(TABLE))
    values, counts, _ = turnaround(cli, tmp_path / "jobs.csv", "--cluster", "1x1:v100+1x8:t4", "--speeds", tmp_path / "table.json")
    assert counts["done"] == 2
    assert values == {"turnaround.max": 200, "turnaround": 150}  # one after the other on the only V100


def test_a_table_of_no_use_is_told(cli, tmp_path):
    (tmp_path / "jobs.csv").write_text("submit,runtime\n0,100\n")
    (tmp_path / "table.json").write_text(json.dumps(TABLE))
    found = cli("simulate", tmp_path / "jobs.csv", "--cluster", "1x8:h100", "--speeds", tmp_path / "table.json")
    assert found.code == 0
    assert "no job of jobs.csv has a class of the table, e.g. 'lm'" in found.err
    assert "the table knows none of the types of 1x8:h100; it knows t4, v100" in found.err


def test_wrong_tables_are_one_line(cli, tmp_path):
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "table.json").write_text("[]")
    for text, says in (
        (tmp_path / "table.json", "is not a speed table"),
        ("absent.json", "absent.json: no such file"),
        (":reference=x", "is not FILE"),
    ):
        code, out, err = cli("simulate", tmp_path / "jobs.csv", "--cluster", "1x8:t4", "--speeds", text)
        assert code in (1, 2)
        assert says in err
        assert out == ""


def test_compare_takes_speeds_too(cli, tmp_path):
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "table.json").write_text(json.dumps(TABLE))
    (tmp_path / "lab.toml").write_text('[[nodes]]\ngpus = 8\ntype = "v100"\n\n[types.v100]\nspeed = 0.5\n')
    arguments = ("compare", tmp_path / "jobs.csv", "--cluster", tmp_path / "lab.toml", "--ordering", "fcfs", "--ordering", "sjf")
    found = cli(*arguments, "--speeds", tmp_path / "table.json", "--metric", "turnaround", "-f", "json")
    assert found.code == 0, found.err
    means = [line["metrics"]["turnaround"]["mean"] for line in json.loads(found.out)[0]["schedulers"]]
    assert means == [400 / 3, 400 / 3]  # lm 100/1, big 100/1, other 100/0.5


def test_a_public_trace_brings_its_cluster(cli, tmp_path):
    rows = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 07:00:00,10.0,8,80.0,6214e9\n"
    (tmp_path / "anything").write_text(rows)
    found = cli("simulate", tmp_path / "anything", "--scheduler", "fcfs/best/easy", "--metric", "wait")
    assert found.code == 0
    assert "on philly under fcfs/best/easy" in found.out
    assert "the preset philly, which goes with " in found.err
