"""Shadow and order modes, and the reset, beside a real Slurm."""

from __future__ import annotations

import getpass
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.live.slurm.test_real import until
from tests.support.real_slurm import RealSlurm, private_slurm

from gpuyard.cli.main import run
from gpuyard.errors import UsageError
from gpuyard.live.deployment.running import REREAD
from gpuyard.live.estimator import HistoryEstimator, recalled
from gpuyard.live.log import read_lines
from gpuyard.live.slurm.commands import went
from gpuyard.live.slurm.deploying import SlurmDeployment, SlurmSettings, reset
from gpuyard.live.slurm.means import read_site_factors, set_site_factors
from gpuyard.policies import parse_scheduler

SHAPES = (("--gres=gpu:a100:4",), ("--gres=gpu:v100:2",), ("-N2", "--gres=gpu:a100:2"), ("--gres=gpu:v100:2",), ("--gres=gpu:a100:4",))


def blocked(slurm: RealSlurm) -> list[int]:
    """Fill every GPU; return the jobs that do."""
    found = [slurm.submit("-w", name, f"--gres=gpu:{8 if name[0] == 'a' else 4}") for name in ("a1", "a2", "b1", "b2")]
    until(lambda: all(slurm.states()[job] == "RUNNING" for job in found))
    return found


def forty_waiting(slurm: RealSlurm, seconds: float = 0.1, count: int = 40) -> dict[int, tuple[int, int]]:
    """Submit 40 jobs of mixed size and limits, the longest mostly first; return their limits in minutes and shapes."""
    found = {}
    for k in range(count):
        limit = 1 + (37 * (40 - k)) % 41
        found[slurm.submit(*SHAPES[k % len(SHAPES)], f"-t{limit}", seconds=seconds)] = (limit, k % len(SHAPES))
    return found


def forty(slurm: RealSlurm) -> dict[int, tuple[int, int]]:
    """Submit 40 jobs, and wait until Slurm has a priority for each."""
    found = forty_waiting(slurm)
    until(lambda: len(read_site_factors()) == 40)
    return found


def deployment(**settings) -> SlurmDeployment:
    made = SlurmDeployment(parse_scheduler("sjf/fewest/easy"), SlurmSettings(every=0.1, **settings))
    made.check()
    return made


def queue_order(slurm: RealSlurm) -> list[int]:
    """Waiting jobs as Slurm would take them."""
    rows = [line.split("|") for line in slurm.run("squeue", "-h", "-t", "PD", "-o", "%A|%Q").splitlines()]
    return [int(job) for job, priority in sorted(rows, key=lambda row: (-int(row[1]), int(row[0])))]


def whole_queue(slurm: RealSlurm) -> list[str]:
    """Jobs with what an update could change."""
    return sorted(slurm.run("squeue", "-a", "-o", "%i|%Q|%T|%n|%l|%D").splitlines())


def ended(slurm: RealSlurm) -> dict[int, dict[str, str]]:
    """What Slurm's own record of ended jobs says."""
    lines = (slurm.base / "log" / "jobcomp.log").read_text().splitlines()
    rows = [dict(part.partition("=")[::2] for part in line.split(" ") if "=" in part) for line in lines]
    found = {int(row["JobId"]): row for row in rows}
    assert len(found) == len(rows), "a job ended twice"
    return found


def rpcs(slurm: RealSlurm) -> dict[str, int]:
    """How often the controller was asked what, so far."""
    return {name: int(count) for name, count in re.findall(r"(REQUEST_\w+)\s*\(\s*\d+\) count:(\d+)", slurm.run("sdiag"))}


# ── 40 jobs, once per mode ──


def test_shadow_mode_logs_what_it_would_do_and_changes_nothing(slurm: RealSlurm, tmp_path, capsys):
    blocked(slurm)
    jobs = forty(slurm)
    before = whole_queue(slurm), read_site_factors()
    asked = rpcs(slurm)
    log = tmp_path / "shadow.jsonl"
    assert run(["deploy", "slurm", "--shadow", "--cycles", "3", "--every", "0.05s", "--log", str(log)]) == 0
    assert (whole_queue(slurm), read_site_factors()) == before
    assert set(before[1].values()) == {0}
    assert rpcs(slurm).get("REQUEST_UPDATE_JOB", 0) == asked.get("REQUEST_UPDATE_JOB", 0)
    lines = read_lines(log)
    assert [line["mode"] for line in lines] == ["shadow"] * 3
    assert (lines[0]["waiting"], lines[0]["running"], lines[0]["would_start"]) == (40, 4, [])
    assert lines[0]["out_of_order"] == len(lines[0]["updates"]) > 0
    assert [int(name) for name in lines[0]["order"]] == sorted(jobs, key=lambda job: (jobs[job][0], job))
    assert "40 wait; 39 out of order, 39 updates to send" in capsys.readouterr().out


def test_order_mode_starts_40_jobs_in_its_order_each_once_and_holds_none(slurm: RealSlurm):
    blockers = blocked(slurm)
    jobs = forty(slurm)
    work = deployment(mode="order")
    records = [next(work.cycles()) for _ in range(2)]
    assert records[0]["failed"] == {}
    assert records[1]["out_of_order"] == 0
    assert records[1]["updates"] == []
    assert queue_order(slurm) == sorted(jobs, key=lambda job: (jobs[job][0], job))
    slurm.run("scancel", *map(str, blockers))
    held: list[str] = []
    while not all(slurm.states()[job] == "COMPLETED" for job in jobs):
        records.append(next(work.cycles()))
        held += [line for line in slurm.run("squeue", "-h", "-t", "PD", "-o", "%i %Q %r").splitlines() if " 0 " in line or "Held" in line]
    assert held == []
    assert not any("error" in record for record in records)
    record = ended(slurm)
    assert {record[job]["JobState"] for job in jobs} == {"COMPLETED"}
    assert_never_oversubscribed({job: record[job] for job in jobs}, jobs)
    for shape in range(len(SHAPES)):
        alike = sorted((job for job in jobs if SHAPES[jobs[job][1]] == SHAPES[shape]), key=lambda job: (jobs[job][0], job))
        starts = [record[job]["StartTime"] for job in alike]
        assert starts == sorted(starts)
    told = [int(name) for each in records for name, _ in each.get("started", []) if int(name) in jobs]
    assert told  # how many depends on the machine: one that starts and ends between two cycles is not seen
    assert len(told) == len(set(told))


def assert_never_oversubscribed(record, jobs):
    """From Slurm's own record: at no second do jobs hold more GPUs of a node than it has."""
    from datetime import datetime

    from gpuyard.model.site.notation import node_names

    events = []
    for job, row in record.items():
        each = int(SHAPES[jobs[job][1]][-1].rpartition(":")[2])
        begin, end = (datetime.fromisoformat(row[name]).timestamp() for name in ("StartTime", "EndTime"))
        events += [event for node in node_names(row["NodeList"]) for event in ((begin, 1, node, each), (end, 0, node, -each))]
    used = dict.fromkeys(("a1", "a2", "b1", "b2"), 0)
    for _, _, node, count in sorted(events):
        used[node] += count
        assert used[node] <= (8 if node[0] == "a" else 4)


def test_reset_puts_every_job_back_also_those_that_sprio_does_not_show(slurm: RealSlurm, capsys):
    blocked(slurm)
    jobs = list(forty(slurm))
    next(deployment(mode="order").cycles())
    array = slurm.submit("--array=0-3%1", "--gres=gpu:1")
    later, runs = slurm.submit("--begin=now+1hour", "--gres=gpu:1"), slurm.submit("-c1")
    until(lambda: slurm.states()[runs] == "RUNNING")
    assert set_site_factors([(later, 77), (runs, 88), (array, 99)]) == {}
    slurm.run("scontrol", "hold", str(jobs[3]))
    assert sum(site != 0 for site in read_site_factors().values()) > 30
    assert run(["deploy", "slurm", "--reset"]) == 0
    assert re.search(r"\d+ jobs put back\n", capsys.readouterr().err)
    slurm.run("scontrol", "release", str(jobs[3]))
    slurm.run("scontrol", "update", f"jobid={later}", "starttime=now")
    slurm.run("scontrol", "requeue", str(runs))
    slurm.run("scontrol", "update", f"jobid={runs}", "starttime=now")
    until(lambda: {jobs[3], later} <= set(read_site_factors()))
    assert set(read_site_factors().values()) == {0}
    assert reset()[1] == {}


# ── load, limits, faults ──


def test_killed_at_any_moment_it_leaves_no_job_held(slurm: RealSlurm, tmp_path):
    """All jobs may start at every moment, and Slurm starts them by itself; what is left are offsets, which the reset takes back."""
    blockers = blocked(slurm)
    jobs = forty(slurm)
    command = [sys.executable, "-m", "gpuyard", "deploy", "slurm", "--order", "--every", "0.05s", "--log", str(tmp_path / "log.jsonl")]
    with subprocess.Popen(command, env=slurm.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as work:
        assert work.stdout is not None
        assert work.stdout.readline().startswith(b"cycle 0: 4 run, 40 wait")
        work.kill()
    offsets = read_site_factors()
    assert any(offsets.values())
    assert all(abs(site) <= 1_000_000 for site in offsets.values())
    assert not [line for line in whole_queue(slurm) if "|0|" in line]
    assert reset()[1] == {}
    assert set(read_site_factors().values()) == {0}
    slurm.run("scancel", *map(str, blockers), *map(str, list(jobs)[4:]))
    until(lambda: all(slurm.states()[job] == "COMPLETED" for job in list(jobs)[:4]))


def test_a_cycle_is_one_squeue_and_at_most_so_many_updates(slurm: RealSlurm):
    blocked(slurm)
    jobs = forty(slurm)
    work = deployment(mode="order", most=7)
    next(work.cycles())  # the first reads nodes, partitions and site factors as well
    left = []
    for _ in range(6):
        before = rpcs(slurm)
        record = next(work.cycles())
        after = rpcs(slurm)
        new = {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}
        assert new.pop("REQUEST_UPDATE_JOB", 0) == len(record["updates"]) <= 7
        assert new.pop("REQUEST_JOB_INFO") == 1
        assert set(new) <= {"REQUEST_STATS_INFO", "REQUEST_PARTITION_INFO"} | {name for name in new if "STEP" in name or "NODE_REG" in name}
        left.append(record["left"])
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0
    assert queue_order(slurm) == sorted(jobs, key=lambda job: (jobs[job][0], job))


def test_arrays_move_whole_and_a_new_first_job_costs_one_update(slurm: RealSlurm):
    blocked(slurm)
    wide = [slurm.submit("--gres=gpu:1", f"-t{limit}") for limit in (50, 40, 30)]
    array = slurm.submit("--array=0-9", "--gres=gpu:1", "-t20")
    until(lambda: len(read_site_factors()) == 4)
    work = deployment(mode="order")
    next(work.cycles())
    assert queue_order(slurm) == [array, *reversed(wide)]
    assert f"{array}_[0-9]" in slurm.run("squeue", "-h", "-t", "PD", "-o", "%i")  # nothing was split off
    first = slurm.submit("--gres=gpu:1", "-t1")
    until(lambda: first in read_site_factors())
    record = next(work.cycles())
    assert [job for job, _ in record["updates"]] == [str(first)]
    assert queue_order(slurm)[0] == first


def test_it_learns_how_long_jobs_take_and_remembers(slurm: RealSlurm, tmp_path):
    """A job that asks for an hour, like one that took a tenth of a second, goes before one that asks for five minutes."""
    memory = tmp_path / "log.jsonl.estimates"
    first = slurm.submit("--gres=gpu:1", "-t60", "-Jtrain-1", seconds=0.1)
    until(lambda: slurm.states()[first] == "COMPLETED")
    blocked(slurm)
    five = slurm.submit("--gres=gpu:1", "-t5", "-Jother")
    again = slurm.submit("--gres=gpu:1", "-t60", "-Jtrain-2")
    until(lambda: len(read_site_factors()) == 2)
    assert next(deployment(mode="order").cycles())["order"] == [str(again), str(five)]
    assert queue_order(slurm) == [again, five]
    work = SlurmDeployment(parse_scheduler("sjf"), SlurmSettings(every=0.01), memory=memory)
    for _ in work.cycles(REREAD + 1):
        pass
    kept = recalled(memory).estimate(getpass.getuser(), "train-#", 3600.0)
    assert kept.expected <= 5.0
    memory.write_text("{}")
    assert recalled(memory).as_data() == HistoryEstimator().as_data()


def test_told_to_end_it_says_what_it_leaves(slurm: RealSlurm, tmp_path):
    command = [sys.executable, "-m", "gpuyard", "deploy", "slurm", "--order", "--every", "0.05s", "--log", str(tmp_path / "log.jsonl")]
    with subprocess.Popen(command, env=slurm.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as work:
        assert work.stdout is not None
        assert work.stdout.readline().startswith("cycle 0")
        again = subprocess.run(command, env=slurm.environment, capture_output=True, text=True, timeout=60, check=False)
        work.terminate()
        _, err = work.communicate(timeout=20)
    assert work.returncode == 0
    assert "the order stays as it is; gpuyard deploy slurm --reset puts every job back" in err
    assert again.returncode == 2
    assert "in use by another gpuyard process" in again.stderr


def test_the_owner_cannot_undo_an_order(slurm: RealSlurm):
    if os.getuid() != 0:
        pytest.skip("only root can submit as another user")
    blocked(slurm)
    command = ["sbatch", "--parsable", "--gres=gpu:1", "-D", "/tmp", "-o", "/dev/null", "--wrap=sleep 9"]
    done = subprocess.run(command, env=slurm.environment, capture_output=True, text=True, user=65534, check=True, timeout=20)
    job = int(done.stdout)
    assert set_site_factors([(job, 500)]) == {}
    update = ["scontrol", "update", f"jobid={job}", "sitefactor=0"]
    refused = subprocess.run(update, env=slurm.environment, capture_output=True, text=True, user=65534, check=False, timeout=20)
    assert refused.returncode == 1
    assert read_site_factors()[job] == 500


def test_a_job_that_is_gone_by_then_is_no_error(slurm: RealSlurm):
    blocked(slurm)
    gone = slurm.submit("--gres=gpu:1")
    stays = slurm.submit("--gres=gpu:1")
    slurm.run("scancel", str(gone))
    failed = set_site_factors([(gone, 5), (999_999, 5), (stays, 5)])
    assert "999999" in failed
    assert str(stays) not in failed
    assert all(map(went, failed.values()))


def test_a_command_that_hangs_ends_a_cycle_and_not_the_deployment(slurm: RealSlurm, tmp_path, monkeypatch):
    blocked(slurm)
    slurm.submit("--gres=gpu:1")
    work = deployment(mode="order", patience=5.0)
    assert "error" not in next(work.cycles())
    (tmp_path / "squeue").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "squeue").chmod(0o755)
    work.settings = SlurmSettings(mode="order", every=0.1, patience=0.3)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:{slurm.environment['PATH']}")
        assert next(work.cycles())["error"] == "squeue: no answer within 0.3 s"
        (tmp_path / "squeue").write_text("#!/bin/sh\necho 'JOBID|STATE|'\necho '1|'\n")
        assert "is not the table that was asked for" in next(work.cycles())["error"]
    work.settings = SlurmSettings(mode="order", every=0.1)
    assert "error" not in next(work.cycles())


@pytest.fixture(scope="module")
def builtin() -> Iterator[RealSlurm]:
    """A Slurm that starts jobs as they come."""
    with private_slurm(scheduler="builtin", priority="basic") as slurm:
        yield slurm


def test_a_slurm_without_priorities_is_refused_and_may_be_shadowed(builtin: RealSlurm, monkeypatch):
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, builtin.environment[name])
    with pytest.raises(UsageError, match="sched/builtin starts jobs as they come and ignores priorities"):
        deployment(mode="order")
    assert "error" not in next(deployment().cycles())


def test_what_has_no_order_is_refused():
    with pytest.raises(UsageError, match="it decides what starts, not in which order jobs stand"):
        SlurmDeployment(parse_scheduler("milp"), SlurmSettings())
    assert run(["deploy", "slurm", "--shadow", "--order"]) == 2
