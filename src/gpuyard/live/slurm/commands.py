"""Calls Slurm's commands: within a time limit, never through a shell, with times in seconds since 1970."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import time
from collections.abc import Mapping, Sequence

from gpuyard.errors import DataError, GpuyardError
from gpuyard.live.deployment.modes import Update
from gpuyard.live.slurm.records import unverified
from gpuyard.live.slurm.text import PLACING, SQUEUE, KnownRows, drawn_jobs, scontrol_nodes, scontrol_partitions
from gpuyard.live.state.site import SiteJob, SiteNode, SiteState

PATIENCE = 30.0  # s for one command
MOST = 256_000_000  # bytes of an answer: some 500,000 jobs
NOW = "gpuyard:now"  # in a configuration: when slurmctld answered, by its own clock
PER_CALL = 200  # updates that one scontrol sends
_LONGEST = 300  # characters of a complaint
_REFUSED = re.compile(r"^(?:([A-Z][^\n]*?) for job (\d+(?:_\S+)?)|(\d+(?:_\S+)?): ([A-Z][^\n]*))$", re.M)
_GONE = ("Invalid job id", "Job has already finished", "Job/step already completing", "Job is no longer pending")
_NO_RIGHT = ("Invalid user id", "Access/permission denied", "Access denied")


class SlurmError(GpuyardError):
    """A command of Slurm failed, or did not answer in time."""


def call(command: Sequence[str], patience: float = PATIENCE, given: str | None = None, *, complaints: bool = False) -> str:
    """Run a command and return what it prints; `given` is its stdin. With `complaints` return those, whatever its exit code."""
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
    for name in [each for each in environment if each.startswith(("SQUEUE_", "SINFO_", "SPRIO_"))]:
        del environment[name]  # a user's own formats and filters
    try:
        done = subprocess.run(
            list(command), input=given, stdin=None if given is not None else subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=patience, env=environment, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise SlurmError(f"{command[0]}: no such command", hint="run it where Slurm's commands are installed") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{command[0]}: no answer within {patience:g} s") from None
    if complaints:
        return done.stderr
    if done.returncode:
        raise SlurmError(f"{command[0]}: {' '.join(done.stderr.split())[:_LONGEST] or f'exit code {done.returncode}'}")
    if len(done.stdout) > MOST:
        raise DataError(f"{command[0]}: more than {MOST:,} bytes of text")
    return done.stdout


def scontrol_line(update: Update) -> str:
    """Return what scontrol is told."""
    return f"update jobid={update.job} {update.change}" if update.verb == "update" else f"{update.verb} {update.job}"


def send(updates: Sequence[Update], patience: float = PATIENCE) -> dict[str, str]:
    """Send updates in their order, by one scontrol for some hundred; return the jobs that did not take theirs, and why."""
    failed: dict[str, str] = {}
    for at in range(0, len(updates), PER_CALL):
        lines = "".join(f"{scontrol_line(each)}\n" for each in updates[at : at + PER_CALL])
        complaints = call(["scontrol"], patience, given=lines, complaints=True)
        found = [(job or task, why or what) for why, job, task, what in _REFUSED.findall(complaints)]
        failed |= {job: why.strip() for job, why in found if why.strip() != "No error"}
    return failed


def went(why: str) -> bool:
    """Return whether a refusal says that the job has started, ended or been cancelled meanwhile: nothing is wrong."""
    return why.startswith(_GONE)


def no_right(failed: Mapping[str, str]) -> bool:
    """Return whether refusals say that this user may not change others' jobs."""
    return any(why.startswith(_NO_RIGHT) for why in failed.values())


def read_jobs(patience: float = PATIENCE, *, ended: bool = False, placing: bool = False, known: KnownRows | None = None) -> list[SiteJob]:
    """Read the queue: one call of `squeue`, which lists each task of an array; with `ended` also those that ended in the last minutes.

    With `placing` also the nodes that jobs are pinned to, and marks of ours. `known`: see `drawn_jobs`.
    """
    separator = f"|{secrets.token_hex(4)}|"
    fields = ",".join(name + ":" + separator for name in (*SQUEUE, *(PLACING if placing else ())))
    return drawn_jobs(call(["squeue", "-a", "-r", *(["-t", "all"] if ended else []), "-O", fields], patience), separator, known=known)


def read_nodes(patience: float = PATIENCE) -> list[SiteNode]:
    """Read the nodes."""
    return scontrol_nodes(call(["scontrol", "-a", "-o", "-d", "show", "node"], patience))


def configuration(patience: float = PATIENCE) -> dict[str, str]:
    """Return what `scontrol show config` says, such as PriorityType and SLURM_VERSION."""
    lines = call(["scontrol", "show", "config"], patience).splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    asked = re.match(r"Configuration data as of (\d{1,12})$", lines[0].strip()) if lines else None
    return {name.strip(): value.strip() for name, _, value in pairs} | ({NOW: asked[1]} if asked else {})


def cluster_name(patience: float = PATIENCE) -> str:
    """Return a name that tells this cluster from others: by its own name, its controller and the port."""
    config = configuration(patience)
    host = config.get("SlurmctldHost[0]", config.get("SlurmctldHost", ""))
    return "-".join(filter(None, ("slurm", config.get("ClusterName", ""), host, config.get("SlurmctldPort", ""))))


def read_slurm(patience: float = PATIENCE, *, ended: bool = False, placing: bool = False) -> SiteState:
    """Read jobs, nodes, partitions and the release, by one command each."""
    jobs = read_jobs(patience, ended=ended, placing=placing)
    nodes = read_nodes(patience)
    partitions = scontrol_partitions(call(["scontrol", "-a", "-o", "show", "partition"], patience))
    config = configuration(patience)
    version, now = config.get("SLURM_VERSION", ""), float(config.get(NOW, "nan"))
    return SiteState(time.time(), jobs, nodes, partitions, f"slurm {version}".strip(), unverified(version), now)
