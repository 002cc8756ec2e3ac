"""Commands of LSF that stand in for it: bsub, bjobs, bmod … over one file of state, and mbatchd, which dispatches.

Texts and exit codes are those of published outputs of LSF 10.1 and of OpenLava; what no output was at hand for is marked (made up).
A copy of this file, named as the command, is what a test calls. It knows nothing of gpuyard.
"""

# ruff: noqa: E501, T201
from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

FOLDER = Path(os.environ["STANDIN_LSF"])
ME = os.environ.get("STANDIN_USER", "lsfadmin")
ADMINS = ("root", "lsfadmin")
WAIT = "Cannot connect to LSF. Please wait ..."
BANNER = "You have new mail in /var/spool/mail/lsfadmin"


# ── state ──


@contextmanager
def state():
    with (FOLDER / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = json.loads((FOLDER / "state.json").read_text())
        yield found
        beside = FOLDER / "state.new"
        beside.write_text(json.dumps(found))
        beside.rename(FOLDER / "state.json")


def now_of(s):
    return time.time() + s["ahead"]


def note(s, what, job, **more):
    s["events"].append({"t": now_of(s), "event": what, "job": job["id"], **more})


# ── mbatchd ──


def tick(s):
    """What mbatchd does each second: jobs end, hosts fail, jobs start."""
    now = now_of(s)
    for job in s["jobs"].values():
        if job["stat"] == "RUN" and any(s["hosts"][h]["status"] != "ok" for h in job["exec"]):
            leave(s, job)
            requeue(s, job) if job["rerun"] else end(s, job, "EXIT")
        elif job["stat"] == "RUN" and now >= job["start"] + job["seconds"]:
            leave(s, job)
            end(s, job, "DONE")
    prio = {name: queue["prio"] for name, queue in s["queues"].items()}
    waiting = [s["jobs"][n] for queue in sorted(s["order"], key=lambda name: -prio[name]) for n in s["order"][queue]]
    waiting.sort(key=lambda job: (-prio[job["queue"]], -job["aps"]))  # stable: then as they stand
    for job in waiting:
        if job["stat"] == "PEND" and job["begin"] <= now:
            dispatch(s, job, now)


def dispatch(s, job, now):
    tile, found = -(-job["slots"] // job["nodes"]), []
    for name in job["asked"] or list(s["hosts"]):
        host = s["hosts"][name]
        free = [g for g in range(host["gpus"]) if g not in host["taken"]]
        if host["status"] == "ok" and host["slots"] - host["used"] >= tile and len(free) >= job["gpus"]:
            found.append((name, free[: job["gpus"]]))
        if len(found) == job["nodes"]:
            break
    if len(found) < job["nodes"]:
        job["reason"] = "Not enough hosts to meet the job's resource requirements;"
        return
    job.update(stat="RUN", start=now, exec=dict(found), tile=tile)
    s["order"][job["queue"]].remove(job["id"])
    for name, gpus in found:
        s["hosts"][name]["taken"] += gpus
        s["hosts"][name]["used"] += tile
    note(s, "start", job, hosts=job["exec"])


def leave(s, job):
    for name, gpus in job["exec"].items():
        host = s["hosts"][name]
        host["taken"] = [g for g in host["taken"] if g not in gpus]
        host["used"] -= job["tile"]


def end(s, job, stat):
    job.update(stat=stat, end=now_of(s))
    note(s, stat.lower(), job)


def requeue(s, job):
    """Back to the head of its queue; hosts that it asked for stay, a system value does not."""
    job.update(stat="PEND", exec={}, aps=0.0)
    s["order"][job["queue"]].insert(0, job["id"])
    note(s, "requeue", job)


def mbatchd():
    while True:
        if not (FOLDER / "down").exists():
            with state() as s:
                tick(s)
        time.sleep(float(os.environ.get("STANDIN_INTERVAL", "0.05")))


# ── submitting and changing ──


def options(words, with_value, without=()):
    found, left = {}, list(words)
    while left and left[0].startswith("-"):
        name = left.pop(0)
        if name in with_value:
            found[name] = left.pop(0)
        elif name in without:
            found[name] = ""
        else:
            stop(f"{name}: Illegal option.", 255)
    return found, left


def hook(parameters):
    """Run esub as LSF does: parameters in a file, changes from another, and a way to refuse."""
    esub = FOLDER / "esub.gpuyard"
    if not esub.exists():
        return {}
    given, changed = FOLDER / f"parm.{os.getpid()}", FOLDER / f"modify.{os.getpid()}"
    given.write_text("".join(f'{key}="{value}"\n' for key, value in parameters.items()))
    changed.write_text("")
    environment = {**os.environ, "LSB_SUB_PARM_FILE": str(given), "LSB_SUB_MODIFY_FILE": str(changed), "LSB_SUB_ABORT_VALUE": "97"}
    names = Path(os.environ["STANDIN_BIN"])
    environment["PATH"] = f"{names}:{environment['PATH']}"
    done = subprocess.run(["/bin/sh", str(esub)], env=environment, capture_output=True, text=True)
    rows = dict(line.partition("=")[::2] for line in changed.read_text().splitlines())
    given.unlink()
    changed.unlink()
    if done.returncode == 97:
        stop(
            f"{done.stderr.strip()}\nRequest aborted by esub. Job not {'modified' if 'LSB_SUB_MODIFY' in parameters else 'submitted'}.", 255
        )
    return {key: value.strip('"') for key, value in rows.items()}


def begin_of(text, s):
    """`[[[year:]month:]day:]hour:minute`"""
    parts = [int(each) for each in text.split(":")]
    today = datetime.fromtimestamp(now_of(s))
    day = [today.year, today.month, today.day][: 5 - len(parts)] + parts
    return datetime(*day).timestamp()


def bsub(words):
    given, command = options(words, ("-J", "-q", "-n", "-gpu", "-R", "-W", "-b", "-Jd", "-m"), ("-H", "-r"))
    parameters = {"LSB_SUB_COMMAND_LINE": " ".join(command)}
    names = {"-q": "QUEUE", "-J": "JOB_NAME", "-b": "BEGIN_TIME", "-Jd": "JOB_DESCRIPTION", "-m": "HOSTS"}
    parameters |= {f"LSB_SUB_{names[key]}": value for key, value in given.items() if key in names}
    changed = hook(parameters)
    with state() as s:
        number = str(s["next"])
        s["next"] += 1
        queue = given.get("-q", s["default"])
        ptile = re.search(r"ptile=(\d+)", given.get("-R", ""))
        slots = int(given.get("-n", "1"))
        job = {
            "id": number, "user": ME, "queue": queue, "name": given.get("-J", command[0]), "slots": slots,
            "nodes": -(-slots // int(ptile[1])) if ptile else 1, "resreq": given.get("-R", ""), "gpus": int(given.get("-gpu", "num=0")[4:]),
            "limit": float(given.get("-W", "0")), "seconds": float(command[1]), "rerun": "-r" in given, "asked": given.get("-m", "").split(),
            "begin": begin_of(given["-b"], s) if "-b" in given else float(changed.get("LSB_SUB_BEGIN_TIME", "0")), "aps": 0.0,
            "text": given.get("-Jd", changed.get("LSB_SUB_JOB_DESCRIPTION", "")), "submit": now_of(s), "start": 0.0, "end": 0.0, "exec": {},
            "stat": "PSUSP" if "-H" in given or changed.get("LSB_SUB_HOLD") == "Y" else "PEND", "reason": "New job is waiting for scheduling;",
        }  # fmt: skip
        s["jobs"][number] = job
        s["order"][queue].append(number)
        note(s, "new", job)
    default = "" if "-q" in given else "default "
    print(f"Job <{number}> is submitted to {default}queue <{queue}>.")


def found(s, number, *, waits=False):
    """The job, if this user may change it."""
    job = s["jobs"].get(number)
    if job is None:
        stop(f"Job <{number}>: No matching job found", 255)
    if job["stat"] in ("DONE", "EXIT"):
        stop(f"Job <{number}>: Job has already finished", 255)
    if ME not in (job["user"], *ADMINS):
        stop(f"Job <{number}>: User permission denied", 255)
    if waits and job["stat"] not in ("PEND", "PSUSP"):
        stop(f"Job <{number}>: Job has already started", 255)  # (made up)
    return job


def bmod(words):
    given, (number,) = options(words, ("-m", "-b", "-aps", "-Jd"), ("-mn", "-bn", "-apsn", "-Jdn"))
    names = {"-b": "BEGIN_TIME", "-bn": "BEGIN_TIME", "-m": "HOSTS", "-mn": "HOSTS", "-Jd": "JOB_DESCRIPTION", "-Jdn": "JOB_DESCRIPTION"}
    hook({"LSB_SUB_MODIFY": "Y"} | {f"LSB_SUB_{names[key]}": value or "SUB_RESET" for key, value in given.items() if key in names})
    with state() as s:
        job = found(s, number, waits=True)
        if ("-aps" in given or "-apsn" in given) and ME not in ADMINS:
            stop("User permission denied. Job not modified.", 255)
        hosts = given.get("-m", "").split()
        for host in hosts:
            if host not in s["hosts"]:
                stop(f"{host}: Bad host name, host group name or cluster name. Job not modified.", 255)
        job["asked"] = hosts if "-m" in given else [] if "-mn" in given else job["asked"]
        job["begin"] = begin_of(given["-b"], s) if "-b" in given else 0.0 if "-bn" in given else job["begin"]
        job["text"] = given.get("-Jd", "" if "-Jdn" in given else job["text"])
        if "-aps" in given:
            job["aps"] = float(given["-aps"].removeprefix("system="))
        job["aps"] = 0.0 if "-apsn" in given else job["aps"]
        note(s, "bmod", job, words=words)
    print(f"Parameters of job <{number}> are being changed")


def move(words, *, top):
    number, place = words[0], int(words[1]) if len(words) > 1 else 1
    with state() as s:
        job = found(s, number, waits=True)
        if s["queues"][job["queue"]]["aps"]:
            stop(f"Job <{number}>: Operation not permitted on a job in an absolute priority queue", 255)  # (made up)
        queue = s["order"][job["queue"]]
        queue.remove(number)
        queue.insert(place - 1 if top else len(queue) + 1 - place, number)
        note(s, "move", job, words=words)
    print(f"Job <{number}> has been moved to position {place} from {'top' if top else 'bottom'}.")


def bresume(words):
    with state() as s:
        job = found(s, words[0])
        if job["stat"] == "PSUSP":
            job["stat"] = "PEND"
        note(s, "bresume", job)
    print(f"Job <{words[0]}> is being resumed")


def bstop(words):
    with state() as s:
        job = found(s, words[0])
        if job["stat"] == "PEND":
            job["stat"] = "PSUSP"
    print(f"Job <{words[0]}> is being stopped")


def bkill(words):
    with state() as s:
        job = found(s, words[0])
        if job["stat"] == "RUN":
            leave(s, job)
        else:
            s["order"][job["queue"]].remove(job["id"])
        end(s, job, "EXIT")
    print(f"Job <{words[0]}> is being terminated")


def brequeue(words):
    with state() as s:
        job = found(s, words[0])
        leave(s, job)
        requeue(s, job)
    print(f"Job <{words[0]}> is being requeued")


def brun(words):
    with state() as s:
        s["events"].append({"t": now_of(s), "event": "brun", "job": words[-1]})
    print(f"Job <{words[-1]}> is being forced to run.")


# ── showing ──


def date(s, when):
    return (
        time.strftime("%b %d %H:%M:%S %Y" if os.environ.get("LSB_DISPLAY_YEAR") == "Y" else "%b %d %H:%M", time.localtime(when))
        if when
        else ""
    )


def show(fields, rows, command, what):
    """JSON as -json prints it: all values are texts, with a banner behind it."""
    records = [{name.upper(): row.get(name, "") for name in fields.split()} for row in rows]
    print(json.dumps({"COMMAND": command, what: len(records), "RECORDS": records}, indent=2))
    print(BANNER)


def bjobs(words):
    given, _ = options(words, ("-u", "-o"), ("-a", "-json"))
    with state() as s:
        order = [n for queue in s["order"].values() for n in queue]
        others = [n for n, job in s["jobs"].items() if n not in set(order) and ("-a" in given or job["stat"] == "RUN")]
        jobs = [s["jobs"][n] for n in [*others, *sorted(order, key=lambda n: (-s["jobs"][n]["aps"], order.index(n)))]]
        rows = [job_row(s, job) for job in jobs]
    if not rows:
        stop("No job found" if "-a" in given else "No unfinished job found", 255)
    show(given["-o"], rows, "bjobs", "JOBS")


def job_row(s, job):
    now, waits = now_of(s), job["stat"] in ("PEND", "PSUSP")
    delayed = job["begin"] > now
    notation = [f"{job['tile']}*{h}" if int(job["id"]) % 2 else ":".join([h] * job["tile"]) for h in job["exec"]]  # both are seen
    ran = (job["end"] or now) - job["start"] if job["start"] else 0.0
    return {
        "jobid": job["id"], "jobindex": "1" if "[" in job["name"] else "0", "stat": job["stat"], "user": job["user"], "queue": job["queue"], "proj_name": "default",
        "exec_host": ":".join(notation), "slots": "" if waits else str(job["slots"]), "nreq_slot": str(job["slots"]),
        "gpu_num": str(job["gpus"] * job["nodes"]) if job["gpus"] else "", "effective_resreq": f"select[type == local] order[r15s:pg] {job['resreq']} ",
        "submit_time": date(s, job["submit"]), "start_time": date(s, job["start"]) + (" L" if job["start"] else ""),
        "runtimelimit": f"{job['limit']:.1f}" if job["limit"] else "", "run_time": f"{ran:.0f} second(s)",
        "pendstate": "" if not waits else "IPEND" if delayed else "EPEND", "job_name": job["name"], "job_description": job["text"],
        "pend_reason": "" if not waits else "The job's start time has not been reached;" if delayed else job["reason"],
    }  # fmt: skip


def bhosts(words):
    given, _ = options(words, ("-o",), ("-json",))
    with state() as s:
        rows = []
        for name, host in s["hosts"].items():
            status = "closed_Full" if host["status"] == "ok" and host["used"] >= host["slots"] else host["status"]
            rows.append({"host_name": name, "status": status, "max": str(host["slots"]), "njobs": str(host["used"]), "run": str(host["used"]),
                         "ngpus": str(host["gpus"]), "ngpus_alloc": str(len(host["taken"]))})  # fmt: skip
    show(given["-o"], rows, "bhosts", "HOSTS")


def bqueues(words):
    given, _ = options(words, ("-o",), ("-json",))
    with state() as s:
        rows = [{"queue_name": name, "priority": str(q["prio"]), "status": "Open:Active"} for name, q in s["queues"].items()]
    show(given["-o"], rows, "bqueues", "QUEUES")


def lshosts(words):
    print("HOST_NAME  gpu_id gpu_model        gpu_driver  gpu_factor numa_id vendor")
    with state() as s:
        for name, host in s["hosts"].items():
            for k in range(host["gpus"]):
                print(f"{name if k == 0 else '':<10} {k:>6} {host['model']:<16} 384.10      7.0        0       Nvidia")


def lsid(words):
    print("IBM Spectrum LSF Community Edition 10.1.0.15, May 13 2025\nMy cluster name is test-cluster\nMy master name is h1")


# ── how it is called ──


def stop(text, code):
    print(text, file=sys.stderr)
    sys.exit(code)


def connect():
    """Wait for mbatchd as LSF's commands do: for ever, saying so on the stream that the answer comes on."""
    slow = FOLDER / "slow"  # how often it takes a second try
    for _ in range(int(slow.read_text()) if slow.exists() else 0):
        print(WAIT, flush=True)
    while (FOLDER / "down").exists():
        print(WAIT, flush=True)
        time.sleep(0.1)


COMMANDS = {
    "bsub": bsub, "bmod": bmod, "btop": lambda words: move(words, top=True), "bbot": lambda words: move(words, top=False), "bresume": bresume,
    "bstop": bstop, "bkill": bkill, "brequeue": brequeue, "brun": brun, "bjobs": bjobs, "bhosts": bhosts, "bqueues": bqueues,
    "lshosts": lshosts, "lsid": lsid,
}  # fmt: skip

if __name__ == "__main__":
    name = Path(sys.argv[0]).name
    if name == "mbatchd":
        mbatchd()
    connect()
    COMMANDS[name](sys.argv[1:])
