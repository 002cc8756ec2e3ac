"""The modes beside a stand-in of LSF: shadow, order, place and publish. No LSF was at hand."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from tests.support.standin_lsf import HOSTS

from gpuyard.cli.main import run
from gpuyard.errors import UsageError
from gpuyard.live.deployment.modes import Planned
from gpuyard.live.deployment.placing import PlaceSettings
from gpuyard.live.deployment.running import NoRightError
from gpuyard.live.guards import GuardSettings
from gpuyard.live.log import RotatedLog, read_lines
from gpuyard.live.lsf.commands import LsfError, cluster_of, lsf_update, read_lsf, send
from gpuyard.live.lsf.deploying import LsfDeployment, LsfSettings, reset
from gpuyard.live.lsf.hooks import epsub, esub
from gpuyard.policies import parse_scheduler
from support.nodes import until

SJF, FCFS = "sjf/fewest/skip", "fcfs/fewest/skip"
GANG = ("-n", "2", "-R", "span[ptile=1]", "-gpu", "num=8")


def deployment(mode, scheduler=SJF, *, queues=(), settle=5.0, deadman=600.0, guards=None, log=None, **more):
    placing = PlaceSettings(deadman, settle=settle, rest=0.2)
    guards = guards or GuardSettings()
    settings = LsfSettings(mode, 0.02, partitions=queues, patience=20.0, place=placing, guards=guards, **more)
    made = LsfDeployment(parse_scheduler(scheduler), settings, log)
    made.check()
    return made


def blocked(lsf):
    """Fill every GPU; return the jobs that do."""
    found = [lsf.submit("-m", name, "-gpu", f"num={gpus}", seconds=300, queue="native") for name, (_, gpus) in HOSTS.items()]
    until(lambda: all(lsf.stats()[job] == "RUN" for job in found))
    return found


def many(lsf, count=12, seconds=0.1):
    """Submit jobs, the longest first; return their limits in minutes."""
    found = {}
    for k in range(count):
        limit = 3 * (count - k) + 2
        found[lsf.submit("-W", str(limit), "-gpu", f"num={1 + k % 4}", seconds=seconds)] = limit
    return found


def by_limit(jobs):
    return sorted(jobs, key=lambda job: (jobs[job], int(job)))


def mixed(lsf, count):
    """Sixty short jobs as in a day: one GPU, several, whole hosts, gangs."""
    shapes = [("-gpu", "num=1"), ("-gpu", "num=2"), ("-gpu", "num=4"), GANG, ("-gpu", "num=8"), ("-n", "4")]
    return [lsf.submit(*shapes[k % 6], "-W", str(1 + k % 7), "-r", seconds=0.05 + 0.05 * (k % 4)) for k in range(count)]


# ── reading ──


def test_what_lsf_prints_is_read_also_when_it_takes_a_second_try(lsf):
    lsf.submit("-gpu", "num=2", "-W", "10", seconds=60)
    lsf.submit(*GANG, seconds=60)
    lsf.submit("-b", "23:59", "-gpu", "num=1")
    until(lambda: list(lsf.stats().values()).count("RUN") >= 1)
    (lsf.folder / "slow").write_text("3")
    state, _ = read_lsf()
    jobs = {job.name: job for job in state.jobs}
    assert (jobs["101"].runs, jobs["101"].gpus, jobs["101"].limit, jobs["101"].nodes) == (True, 2, 600.0, ("h1",))
    assert (jobs["102"].node_count, jobs["102"].gpus, jobs["102"].chunk) == (2, 16, 8)
    assert (jobs["103"].waits, jobs["103"].why) == (True, "begin")
    assert {node.name: dict(node.gpus) for node in state.nodes} == {
        "h1": {"teslaa100": 8}, "h2": {"teslaa100": 8}, "h3": {"teslav100": 4}, "h4": {"teslav100": 4}
    }  # fmt: skip
    assert cluster_of() == "lsf-test-cluster"


def test_a_snapshot_of_this_machines_lsf_is_decided_as_any(lsf, tmp_path, capsys):
    blocked(lsf)
    job = lsf.submit("-gpu", "num=8", "-W", "10")
    path = str(tmp_path / "now.json")
    assert run(["snapshot", "lsf", "--out", path]) == 0
    assert "lsf: 4 jobs run, 1 may start, 0 may not yet" in capsys.readouterr().err
    assert run(["decide", path]) == 0
    assert f"{job}  8 GPUs    wait" in capsys.readouterr().out
    assert run(["snapshot", "lsf", path]) == 2
    assert "lsf and files cannot be mixed" in capsys.readouterr().err


def test_an_empty_lsf_has_no_jobs(lsf):
    assert read_lsf()[0].jobs == []


def test_an_lsf_that_cannot_be_reached_is_an_error_in_time(lsf):
    lsf.down(True)
    with pytest.raises(LsfError, match=r"bjobs: no answer within 0.5 s: it cannot connect to LSF"):
        read_lsf(0.5)
    lsf.down(False)
    assert read_lsf()[0].nodes


def test_without_lsf_the_hint_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LsfError, match=r"bjobs: no such command") as error:
        read_lsf()
    assert error.value.hint == "source profile.lsf first"


# ── shadow and order ──


def test_shadow_mode_logs_and_changes_nothing(lsf, tmp_path, capsys):
    blocked(lsf)
    jobs = many(lsf)
    before = lsf.events()
    log = tmp_path / "shadow.jsonl"
    assert run(["deploy", "lsf", "--shadow", "--scheduler", SJF, "--cycles", "2", "--every", "0.05s", "--log", str(log)]) == 0
    assert lsf.events() == before
    lines = read_lines(log)
    assert [line["mode"] for line in lines] == ["shadow"] * 2
    assert lines[0]["order"] == by_limit(jobs)
    assert lines[0]["out_of_order"] == len(lines[0]["updates"]) > 0
    assert "12 wait; " in capsys.readouterr().out


@pytest.mark.parametrize("by", ["btop", "aps"])
def test_order_mode_lets_jobs_start_in_its_order(standin, by):
    lsf = standin(aps=by == "aps")
    blockers = blocked(lsf)
    jobs = many(lsf)
    work = deployment("order", by=by, queues=("gpu",))
    records = [next(work.cycles()) for _ in range(2)]
    assert records[0]["failed"] == {}
    assert records[1]["updates"] == []
    assert lsf.queue() == by_limit(jobs)
    new = lsf.submit("-W", "2", "-gpu", "num=1", seconds=0.1)
    assert len(next(work.cycles())["updates"]) == 1  # of the new job alone
    jobs[new] = 2
    assert lsf.queue() == by_limit(jobs)
    for job in blockers:
        lsf.run("bkill", job, user="root")
    lsf.until_ended(list(jobs))
    lsf.check([*jobs])


@pytest.mark.parametrize("by", ["btop", "aps"])
def test_reset_gives_the_queue_back(standin, by, capsys):
    lsf = standin(dispatch=False, aps=by == "aps")
    jobs = many(lsf)
    next(deployment("order", by=by, queues=("gpu",)).cycles())
    assert lsf.queue() == by_limit(jobs) != list(jobs)
    assert run(["deploy", "lsf", "--reset", "--means", by]) == 0
    assert "the order of queues stays as it is" in capsys.readouterr().err
    assert lsf.queue() == by_limit(jobs)  # whoever ordered other queues did so on purpose
    assert run(["deploy", "lsf", "--reset", "--means", by, "--queue", "gpu"]) == 0
    assert "commands put every job back" in capsys.readouterr().err
    assert lsf.queue() == list(jobs)
    assert all(job["aps"] == 0 for job in lsf.jobs.values())
    assert reset(by, ("gpu",), None, GuardSettings())[0] == (len(jobs) if by == "aps" else 0)


def test_what_gives_the_queue_back_does_not_move_whom_the_operator_has_excluded(standin):
    lsf = standin(dispatch=False)
    many(lsf, 3)
    theirs = lsf.submit("-W", "99", user="eve")
    many(lsf, 3)
    lsf.run("btop", theirs, "1", user="root")  # her place is the administrator's will
    ordered = lsf.queue()
    guards = GuardSettings(users=frozenset({"eve"}))
    work = deployment("order", guards=guards)
    next(work.cycles())
    assert lsf.queue() != ordered
    work.mode.withdraw(30.0)
    assert lsf.queue() == ordered
    assert reset("btop", ("gpu",), None, guards) == (0, {})


def test_death_in_order_mode_holds_nobody(lsf):
    blockers = blocked(lsf)
    jobs = many(lsf)
    next(deployment("order").cycles())  # and never again
    for job in blockers:
        lsf.run("bkill", job, user="root")
    lsf.until_ended(list(jobs))
    assert set(lsf.stats().values()) <= {"DONE", "EXIT"}


def test_only_so_many_commands_a_cycle_and_the_head_comes_first(standin):
    lsf = standin(dispatch=False)
    jobs = many(lsf)
    work = deployment("order", most=3)
    assert len(next(work.cycles())["updates"]) == 3
    assert lsf.queue()[:3] == by_limit(jobs)[:3]
    while next(work.cycles())["updates"]:
        pass
    assert lsf.queue() == by_limit(jobs)


def test_jobs_that_are_left_to_the_site_keep_their_places(standin):
    lsf = standin(dispatch=False)
    first = lsf.submit("-W", "99", user="eve")
    jobs = many(lsf, 6)
    next(deployment("order", guards=GuardSettings(users=frozenset({"eve"}))).cycles())
    assert lsf.queue() == [first, *by_limit(jobs)]
    with pytest.raises(UsageError, match="nobody can be left to the site"):
        deployment("order", by="aps", guards=GuardSettings(users=frozenset({"eve"})))


def test_who_may_not_change_others_jobs_is_told(standin, monkeypatch):
    lsf = standin(dispatch=False)
    many(lsf, 5)
    monkeypatch.setenv("STANDIN_USER", "bob")
    with pytest.raises(NoRightError, match="may not change other users' jobs"):
        next(deployment("order").cycles())


def test_the_kill_switch_returns_the_sites_order(standin, tmp_path):
    lsf = standin(dispatch=False)
    jobs = many(lsf)
    work = deployment("order", guards=GuardSettings(stop_file=tmp_path / "stop"))
    next(work.cycles())
    (tmp_path / "stop").touch()
    record = next(work.cycles())
    assert (record["acts"], record["stopped"]) == (False, True)
    assert lsf.queue() == list(jobs)


# ── place (T2 to T11) ──


def settle(lsf, work, jobs):
    records = []
    lsf.until_ended(jobs, lambda: records.append(next(work.cycles())))
    return records


def wrongly_placed(lsf, records):
    """Return where jobs were put that ran elsewhere, and where they ran."""
    decided = {}
    for record in records:
        decided |= dict(record.get("placed", []))
    ran = {each["job"]: list(each["hosts"]) for each in lsf.events("start")}
    return {job: (decided.get(job), hosts) for job, hosts in ran.items() if sorted(decided.get(job, [])) != sorted(hosts)}


@pytest.mark.parametrize("count", [12, pytest.param(60, marks=pytest.mark.slow)])
def test_t2_mixed_jobs_run_once_where_it_was_decided(lsf, count):
    lsf.install()
    jobs = mixed(lsf, count)
    records = settle(lsf, deployment("place", queues=("gpu",)), jobs)
    lsf.check(jobs)
    assert wrongly_placed(lsf, records) == {}
    assert not any("error" in record for record in records)


def test_t3_a_gang_waits_whole(lsf):
    lsf.install()
    blocker = lsf.submit("-m", "h1", "-gpu", "num=1", seconds=600, queue="native")
    until(lambda: lsf.stats()[blocker] == "RUN")
    gang, small = lsf.submit(*GANG), lsf.submit("-gpu", "num=1")
    work = deployment("place", queues=("gpu",))
    settle(lsf, work, [small])
    assert lsf.stats()[gang] == "PEND"
    assert lsf.jobs[gang]["asked"] == []
    lsf.run("bkill", blocker, user="root")
    settle(lsf, work, [gang])
    assert sorted(lsf.events("start")[-1]["hosts"]) == ["h1", "h2"]


@pytest.mark.parametrize("moments", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_t4_killed_at_any_moment_all_jobs_start_by_themselves(standin, tmp_path, moments):
    """Killed with -9 while it acts. LSF's clock then runs on past the begin times, and LSF alone does the rest."""
    lsf = standin()
    lsf.install(deadman=300.0)
    rng = random.Random(3)
    jobs = []
    command = [sys.executable, "-m", "gpuyard", "deploy", "lsf", "--place", "--queue", "gpu", "--every", "0.05s", "--deadman", "5m",
               "--scheduler", FCFS, "--log", str(tmp_path / "log.jsonl"), "--lock", str(tmp_path / "lock")]  # fmt: skip
    for _ in range(moments):
        jobs += mixed(lsf, 3)
        before = len(read_lines(tmp_path / "log.jsonl"))
        work = subprocess.Popen(command, env=lsf.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        until(lambda before=before, work=work: len(read_lines(tmp_path / "log.jsonl")) > before or work.poll() is not None)
        assert work.poll() is None, work.stderr.read()
        time.sleep(rng.random() * 0.2)
        work.send_signal(signal.SIGKILL)
        work.wait()
    jobs += mixed(lsf, 3)
    lsf.pass_time(400.0)
    lsf.until_ended(jobs)
    lsf.check(jobs)


def test_t5_restarted_half_way_no_job_is_lost_or_started_twice(lsf):
    lsf.install()
    jobs = mixed(lsf, 12)
    while list(lsf.stats().values()).count("DONE") < 4:
        next(deployment("place", queues=("gpu",)).cycles())  # each time a new one, which knows nothing
    settle(lsf, deployment("place", queues=("gpu",)), jobs)
    lsf.check(jobs)


@pytest.mark.parametrize("change", [("-bn",), ("-m", "h1"), ("-b", "0:01"), ("-Jd", "mine"), ("-mn",)])
def test_t6_an_owner_cannot_start_a_job_by_himself(standin, change):
    lsf = standin(dispatch=False)
    lsf.install()
    job = lsf.submit("-gpu", "num=1")
    before = lsf.jobs[job]
    done = lsf.run("bmod", *change, job)
    assert done.returncode == 255
    assert "are set by gpuyard here" in done.stderr
    assert lsf.jobs[job] == before
    assert lsf.run("bmod", "-bn", job, user="lsfadmin").returncode == 0
    assert lsf.run("bmod", "-b", "0:01", job, user="bob").returncode == 255


def test_t7_a_job_on_a_host_that_fails_is_placed_again(lsf):
    lsf.install()
    job = lsf.submit("-gpu", "num=8", "-r", seconds=0.6)
    work = deployment("place", queues=("gpu",), settle=0.3)
    until(lambda: next(work.cycles()) and lsf.stats()[job] == "RUN")
    first = next(iter(lsf.jobs[job]["exec"]))
    with lsf.state() as s:
        s["hosts"][first]["status"] = "unavail"
    until(lambda: lsf.events("requeue"))
    assert lsf.jobs[job]["asked"] == [first]  # it would wait there for ever
    settle(lsf, work, [job])
    assert lsf.stats()[job] == "DONE"
    assert next(iter(lsf.events("start")[-1]["hosts"])) != first


def test_t8_mbatchd_is_away_for_a_while(lsf, tmp_path):
    lsf.install()
    jobs = mixed(lsf, 9)
    log = RotatedLog(tmp_path / "log.jsonl")
    work = LsfDeployment(parse_scheduler(FCFS), LsfSettings("place", 0.02, partitions=("gpu",), patience=1.0), log)
    next(work.cycles())
    lsf.down(True)
    assert "cannot connect to LSF" in next(work.cycles())["error"]
    lsf.down(False)
    work.settings = LsfSettings("place", 0.02, partitions=("gpu",), patience=20.0)
    settle(lsf, work, jobs)
    lsf.check(jobs)


def test_t9_what_cannot_be_is_not_sent_and_a_bad_host_heals(lsf):
    lsf.install()
    job, wide = lsf.submit("-gpu", "num=1"), lsf.submit("-gpu", "num=64")  # more than any host has
    assert "Bad host name" in send_one(job, "-m", "nosuch")
    work = deployment("place", queues=("gpu",), settle=0.2)
    with lsf.state() as s:
        s["jobs"][job]["asked"] = ["h4"]  # as if an earlier one had put it on a host that has failed since
        s["jobs"][job]["text"] = f"gpuyard b={int(time.time()) - 100} h=h4"
        s["jobs"][job]["begin"] = 0.0
        s["hosts"]["h4"]["status"] = "unavail"
    records = settle(lsf, work, [job])
    lsf.check([job])
    assert not any(wide in dict(record["placed"]) for record in records)
    assert "h4" not in lsf.events("start")[0]["hosts"]


def send_one(job, *words):
    from gpuyard.live.lsf.commands import lsf_update

    return send([lsf_update("bmod", job, *words)])[job]


def test_t10_a_job_that_is_requeued_is_placed_anew(lsf):
    lsf.install()
    job = lsf.submit("-gpu", "num=8", seconds=0.5)
    work = deployment("place", queues=("gpu",), settle=0.2)
    until(lambda: next(work.cycles()) and lsf.stats()[job] == "RUN")
    first = next(iter(lsf.jobs[job]["exec"]))
    lsf.run("bstop", "999")  # who is not there harms nobody
    blocker = lsf.submit("-m", first, "-gpu", "num=8", seconds=600, queue="native")
    lsf.run("brequeue", job, user="root")
    with lsf.state() as s:  # others are quicker, unless it has been started again already
        if job in s["order"]["gpu"]:
            s["order"]["gpu"].remove(job)
            s["order"]["gpu"].append(job)
    settle(lsf, work, [job])
    assert lsf.stats()[job] == "DONE"
    lsf.run("bkill", blocker, user="root")


def test_t11_a_job_that_is_cancelled_between_snapshot_and_decision_is_no_error(lsf):
    lsf.install()
    jobs = [lsf.submit("-gpu", "num=1") for _ in range(3)]
    work = deployment("place", queues=("gpu",))
    real = work._read

    def cancelling():
        state = real()
        lsf.run("bkill", jobs[1])
        return state

    work._read = cancelling
    record = next(work.cycles())
    assert "error" not in record
    assert record["failed"] == {}
    work._read = real
    settle(lsf, work, jobs)
    assert [lsf.stats()[job] for job in jobs] == ["DONE", "EXIT", "DONE"]


def test_begin_times_are_put_off_while_it_lives_and_only_when_they_come_near(standin):
    lsf = standin(dispatch=False)
    lsf.install(deadman=300.0)
    with lsf.state() as s:
        for host in s["hosts"].values():
            host["status"] = "closed_Adm"
    job = lsf.submit("-gpu", "num=1")
    begin = lsf.jobs[job]["begin"]
    assert 300 <= begin - time.time() <= 361
    work = deployment("place", queues=("gpu",), deadman=300.0)
    assert next(work.cycles())["updates"] == []
    with lsf.state() as s:
        s["jobs"][job] |= {"begin": begin - 240, "text": f"gpuyard b={begin - 240:.0f}"}
    assert len(next(work.cycles())["updates"]) == 1
    assert lsf.jobs[job]["begin"] >= begin
    assert lsf.jobs[job]["text"] == f"gpuyard b={lsf.jobs[job]['begin']:.0f}"


def test_jobs_with_a_will_of_their_own_are_left_to_lsf(lsf):
    lsf.install()
    own = [lsf.submit("-m", "h3", "-gpu", "num=1"), lsf.submit("-Jd", "thesis", "-gpu", "num=1"), lsf.submit(queue="native")]
    array = lsf.submit("-J", "many[1-3]")
    assert [lsf.jobs[job]["text"] for job in [*own, array]] == ["", "thesis", "", ""]
    lsf.until_ended([*own, array])  # though nobody decides
    (lsf.folder / "stop").touch()
    lsf.install(stop=lsf.folder / "stop")
    job = lsf.submit("-gpu", "num=1")
    assert lsf.jobs[job]["begin"] == 0.0


def test_held_jobs_are_resumed_where_it_was_decided(lsf):
    """The way without a dead-man, for sites whose bmod -bn does not work."""
    lsf.install(hold=True)
    jobs = mixed(lsf, 6)
    assert set(lsf.stats().values()) == {"PSUSP"}
    records = settle(lsf, deployment("place", queues=("gpu",)), jobs)
    lsf.check(jobs)
    assert wrongly_placed(lsf, records) == {}


def test_a_held_job_that_starts_just_when_it_is_taken_back_is_not_left_suspended(lsf):
    job = lsf.submit("-gpu", "num=1", seconds=300)
    until(lambda: lsf.stats()[job] == "RUN")
    work = deployment("place", queues=("gpu",))
    work.mode.plan = lambda decided, state: Planned([lsf_update("bstop", job), lsf_update("bmod", job, "-mn")])
    assert "error" not in next(work.cycles())
    assert [each["job"] for each in lsf.events("bresume")] == [job]
    assert lsf.stats()[job] == "RUN"


def test_reset_in_place_mode_lets_all_start_at_once(lsf):
    lsf.install()
    jobs = mixed(lsf, 4)
    lsf.install(hold=True)
    jobs += mixed(lsf, 2)
    assert run(["deploy", "lsf", "--reset"]) == 0
    lsf.until_ended(jobs)
    lsf.check(jobs)


# ── publish ──


def test_publish_mode_writes_decisions_and_sends_nothing(standin, tmp_path):
    lsf = standin(dispatch=False)
    jobs = [lsf.submit("-gpu", "num=8") for _ in range(4)]
    lsf.submit("-J", "many[1-3]", "-gpu", "num=1")
    before = lsf.events()
    work = deployment("publish", FCFS, queues=("gpu",), publish=tmp_path / "decisions")
    record = next(work.cycles())
    assert dict(record["placed"]) == {jobs[0]: ["h1"], jobs[1]: ["h2"]}
    data = (tmp_path / "decisions").read_bytes()
    assert data[:8] == b"gpuyard\0"
    assert b"h1\0" in data
    assert next(work.cycles())["placed"] == []  # they are under way
    assert (tmp_path / "decisions").read_bytes()[80:] == data[80:]
    assert lsf.events() == before
    assert run(["deploy", "lsf", "--reset", "--decisions", str(tmp_path / "decisions")]) == 0
    assert not (tmp_path / "decisions").exists()


# ── the command line ──


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "which mode?"),
        (["--shadow", "--order"], "which mode?"),
        (["--place"], "which queues?"),
        (["--order", "--queue", "nosuch"], "no such queue: nosuch"),
        (["--place", "--queue", "gpu", "--deadman", "20s"], "less than"),
        (["--order", "--means", "magic"], "unknown means"),
        (["--shadow", "--every", "0s"], "not a time that makes sense"),
    ],
)
def test_what_makes_no_sense_is_refused(standin, words, told, capsys, tmp_path):
    standin(dispatch=False)
    assert run(["deploy", "lsf", *words, "--log", str(tmp_path / "log"), "--cycles", "1"]) == 2
    assert told in capsys.readouterr().err


def test_a_dry_run_prints_what_would_be_sent(standin, capsys, tmp_path):
    lsf = standin(dispatch=False)
    many(lsf, 5)
    before = lsf.events()
    assert run(["deploy", "lsf", "--order", "--dry-run", "--log", str(tmp_path / "log")]) == 0
    assert "nothing was sent" in capsys.readouterr().out
    assert lsf.events() == before


def test_the_hooks_are_printed(capsys):
    assert run(["deploy", "esub", "--queue", "gpu", "--deadman", "10m", "--admin", "lsfadmin"]) == 0
    text = capsys.readouterr().out
    assert text == esub(["gpu"], deadman=600, admins=["lsfadmin"])
    assert run(["deploy", "esub", "--queue", "gpu", "--plugin"]) == 0
    assert capsys.readouterr().out == epsub(["gpu"])
    assert run(["deploy", "esub", "--queue", 'gpu"; rm -rf /']) == 2
    for script in (text, epsub(["gpu"])):
        subprocess.run(["/bin/sh", "-n"], input=script, text=True, check=True)


def test_the_hook_after_submission_tags_a_job(tmp_path):
    (tmp_path / "bmod").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/told\n')
    (tmp_path / "bmod").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LSB_SUB_JOB_QUEUE": "gpu", "LSB_SUB_PARM_FILE": str(tmp_path / "parm")}
    for number, name, tagged in (("17", "", True), ("18", 'LSB_SUB_JOB_NAME="a[1-3]"', False), ("19; rm", "", False)):
        (tmp_path / "told").unlink(missing_ok=True)
        (tmp_path / "parm").write_text(name)
        subprocess.run(["/bin/sh"], input=epsub(["gpu"]), text=True, check=True, env={**environment, "LSB_SUB_JOB_ID": number})
        assert (tmp_path / "told").exists() == tagged
