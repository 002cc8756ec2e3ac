"""Calls Slurm's commands: within a time limit, never through a shell, with times in seconds since 1970."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence

from gpuyard.errors import DataError, GpuyardError
from gpuyard.live.slurm.records import unverified
from gpuyard.live.slurm.text import SQUEUE, scontrol_nodes, scontrol_partitions, squeue_jobs
from gpuyard.live.state.site import SiteJob, SiteState

PATIENCE = 30.0  # s for one command
MOST = 256_000_000  # bytes of an answer: some 500,000 jobs
_LONGEST = 300  # characters of a complaint


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


def read_jobs(patience: float = PATIENCE, *, ended: bool = False) -> list[SiteJob]:
    """Read the queue: one call of `squeue`, which lists each task of an array; with `ended` also those that ended in the last minutes."""
    return squeue_jobs(
        call(["squeue", "-a", "-r", *(["-t", "all"] if ended else []), "-O", ",".join(f"{name}:|" for name in SQUEUE)], patience)
    )


def configuration(patience: float = PATIENCE) -> dict[str, str]:
    """Return what `scontrol show config` says, such as PriorityType and SLURM_VERSION."""
    lines = call(["scontrol", "show", "config"], patience).splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def read_slurm(patience: float = PATIENCE, *, ended: bool = False) -> SiteState:
    """Read jobs, nodes, partitions and the release, by one command each."""
    jobs = read_jobs(patience, ended=ended)
    nodes = scontrol_nodes(call(["scontrol", "-a", "-o", "-d", "show", "node"], patience))
    partitions = scontrol_partitions(call(["scontrol", "-a", "-o", "show", "partition"], patience))
    version = configuration(patience).get("SLURM_VERSION", "")
    return SiteState(time.time(), jobs, nodes, partitions, f"slurm {version}".strip(), unverified(version))
