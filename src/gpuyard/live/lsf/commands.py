"""Calls LSF's commands: within a time limit, never through a shell, with years in dates."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress

from gpuyard.errors import DataError, GpuyardError
from gpuyard.live.deployment.modes import Update
from gpuyard.live.lsf.text import LsfTables, lsf_state
from gpuyard.live.state.site import SiteState

PATIENCE = 30.0  # s for one command
MOST = 256_000_000  # bytes of an answer
JOBS = (
    "jobid jobindex stat user queue proj_name exec_host slots nreq_slot gpu_num effective_resreq submit_time start_time runtimelimit "
    "run_time pendstate pend_reason job_name job_description"
)
HOSTS, QUEUES = "host_name status max njobs run ngpus ngpus_alloc", "queue_name priority status"
NO_JOBS = ("No unfinished job found", "No job found", "No matching job found")
_GONE = ("No matching job found", "Job has already finished", "Job has already started", "Job is not pending")
_NO_RIGHT = ("User permission denied", "Permission denied", "Operation not permitted")
_LONGEST = 300  # characters of a complaint
_WAITS = "Cannot connect to LSF. Please wait ..."


class LsfError(GpuyardError):
    """A command of LSF failed, or did not answer in time."""


def lsf_update(verb: str, job: str, *words: str) -> Update:
    """Make a change of one job: `bmod -m "h1 h2" 17`."""
    return Update(job, shlex.join(words), verb)


def call(command: Sequence[str], patience: float = PATIENCE) -> tuple[int, str, str]:
    """Run a command; return its exit code, what it prints, and what it complains about."""
    environment = {**os.environ, "LSB_DISPLAY_YEAR": "Y", "LC_ALL": "C"}
    for name in [each for each in environment if each.startswith("LSB_B") and each.endswith("_FORMAT")]:
        del environment[name]  # a user's own columns
    try:
        done = subprocess.run(list(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=patience, env=environment, check=False)
    except FileNotFoundError:
        raise LsfError(f"{command[0]}: no such command", hint="source profile.lsf first") from None
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"") + (late.stderr or b"")
        why = ": it cannot connect to LSF" if _WAITS.encode() in said else ""
        raise LsfError(f"{command[0]}: no answer within {patience:g} s{why}") from None
    if len(done.stdout) > MOST:
        raise DataError(f"{command[0]}: more than {MOST:,} bytes of text")
    text, complaint = (each.decode("utf-8", "replace") for each in (done.stdout, done.stderr))
    return done.returncode, text, complaint


def ask(command: Sequence[str], patience: float = PATIENCE) -> str:
    """Run a command and return what it prints; a complaint is an error."""
    code, text, complaint = call(command, patience)
    if code:
        raise LsfError(f"{command[0]}: {' '.join((complaint or text).split())[:_LONGEST] or f'exit code {code}'}")
    return text


def read_lsf(patience: float = PATIENCE, ground: LsfTables | None = None) -> tuple[SiteState, LsfTables]:
    """Read jobs, and hosts, GPUs and queues unless `ground` has them; a command each. Jobs stand in LSF's own order."""
    tables = LsfTables(hosts=ground.hosts, gpus=ground.gpus, queues=ground.queues) if ground else LsfTables()
    command = ["bjobs", "-u", "all", "-a", "-o", JOBS, "-json"]
    code, text, complaint = call(command, patience)
    if code and not any(words in complaint + text for words in NO_JOBS):
        raise LsfError(f"bjobs: {' '.join((complaint or text).split())[:_LONGEST] or f'exit code {code}'}")
    if "{" in text:
        tables.add(text, "bjobs")
    if ground is None:
        tables.add(ask(["bhosts", "-o", HOSTS, "-json"], patience), "bhosts")
        tables.add(ask(["bqueues", "-o", QUEUES, "-json"], patience), "bqueues")
        with suppress(LsfError):  # where GPUs are not configured
            tables.add(ask(["lshosts", "-gpu"], patience), "lshosts")
    now = time.time()
    return lsf_state(tables, now, now), tables


def cluster_of(patience: float = PATIENCE) -> str:
    """Return the cluster's name, as lsid says it."""
    words = ask(["lsid"], patience).split("My cluster name is ")
    return f"lsf-{words[1].split()[0]}" if len(words) > 1 and words[1].split() else "lsf"


def send(updates: Sequence[Update], patience: float = PATIENCE) -> dict[str, str]:
    """Send changes in their order, a command each; return the jobs that did not take theirs, and why. No more is sent for such a job."""
    failed: dict[str, str] = {}
    for each in updates:
        if each.job in failed:
            continue
        words = shlex.split(each.change)
        command = [each.verb, each.job, *words] if each.verb in ("btop", "bbot") else [each.verb, *words, each.job]
        code, text, complaint = call(command, patience)
        if code:
            failed[each.job] = " ".join((complaint or text).split())[:_LONGEST] or f"exit code {code}"
    return failed


def went(why: str) -> bool:
    """Return whether a refusal says that the job has started, ended or been cancelled meanwhile: nothing is wrong."""
    return any(words in why for words in _GONE)


def no_right(failed: dict[str, str]) -> bool:
    """Return whether refusals say that this user may not change others' jobs."""
    return any(words in why for why in failed.values() for words in _NO_RIGHT)
