"""A real Slurm for tests: munged, slurmctld and a slurmd for each node, with fake GPUs, all in a folder of its own and as this user.

Nothing of the machine's own Slurm is touched: it has its own configuration, munge key, ports and state. It takes half a second to come up.
Debian and Ubuntu have it as `apt-get install slurm-wlm munge`; their slurmd serves several nodes on one machine.
"""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest

NEEDED = ("munged", "slurmctld", "slurmd", "squeue", "sbatch", "scontrol", "scancel", "sprio")
NODES = {"a1": ("a100", 8), "a2": ("a100", 8), "b1": ("v100", 4), "b2": ("v100", 4)}
UP, DOWN = 20.0, 1.0  # s; nothing is lost with one that is killed then
_SBIN = "/usr/sbin:/sbin:/usr/local/sbin"

CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={me}
SlurmdUser={me}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={base}/munge/munge.sock
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool/%n
SlurmctldPidFile={base}/pid/slurmctld.pid
SlurmdPidFile={base}/pid/slurmd-%n.pid
SlurmctldLogFile={base}/log/slurmctld.log
SlurmdLogFile={base}/log/slurmd-%n.log
ReturnToService=2
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
SlurmdParameters=config_overrides
SlurmctldParameters=node_reg_mem_percent=1
MaxJobCount=20000
MinJobAge=300
KillWait=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=100
GresTypes=gpu
SchedulerType=sched/{scheduler}
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0
PriorityType=priority/{priority}
JobCompType=jobcomp/filetxt
JobCompLoc={base}/log/jobcomp.log
AccountingStorageType=accounting_storage/none
{nodes}
{partitions}
"""


def binaries() -> None:
    """Skip, and say so in the summary, where Slurm is not installed."""
    path = os.environ.get("PATH", "") + f":{_SBIN}"
    missing = [name for name in NEEDED if shutil.which(name, path=path) is None]
    if missing:
        what = f"no real Slurm on this machine ({missing[0]} is missing): apt-get install slurm-wlm munge"
        warnings.warn(pytest.PytestWarning(f"SKIPPED: {what}"), stacklevel=2)
        pytest.skip(what)


class RealSlurm:
    """A running Slurm. `environment` is what its commands need."""

    def __init__(
        self, base: Path, *, scheduler: str = "backfill", priority: str = "multifactor",
        partitions: Sequence[str] = ("PartitionName=gpu Nodes=a1,a2,b1,b2 Default=YES MaxTime=INFINITE State=UP",),
        hook: str = "", more: str = "",
    ) -> None:  # fmt: skip
        self.base, self.hook, self.more = base, hook, more
        self.settings = {"scheduler": scheduler, "priority": priority, "partitions": "\n".join(partitions)}
        self.environment = {
            **os.environ, "PATH": f"{os.environ.get('PATH', '')}:{_SBIN}", "SLURM_CONF": str(base / "etc" / "slurm.conf"), "LC_ALL": "C",
        }  # fmt: skip

    # ── up and down ──

    def start(self) -> None:
        """Bring it up, and wait until all nodes are there."""
        for name in ("munge", "etc", "log", "pid", "state", "spool", "dev", "jobs"):
            (self.base / name).mkdir(parents=True, exist_ok=True)
        (self.base / "munge").chmod(0o755)
        key = self.base / "munge" / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        munge = self.base / "munge"
        self._run(
            ["munged", "--force", "--num-threads=1", f"--key-file={key}", f"--socket={munge}/munge.sock", f"--seed-file={munge}/seed",
             f"--pid-file={self.base}/pid/munged.pid", f"--log-file={self.base}/log/munged.log"]
        )  # fmt: skip
        self._configure()
        self._run(["slurmctld", "-c"])
        for name in NODES:
            (self.base / "spool" / name).mkdir(exist_ok=True)
            self._run(["slurmd", "-N", name, "-c"])
        until = time.monotonic() + UP
        while True:
            with suppress(subprocess.CalledProcessError):
                states = self.run("sinfo", "-h", "-N", "-o", "%N %T").split("\n")
                if {line.split()[0] for line in states if line.endswith((" idle", " mixed"))} == set(NODES):
                    return
            if time.monotonic() > until:
                raise RuntimeError(f"Slurm does not come up: {(self.base / 'log' / 'slurmctld.log').read_text()[-2000:]}")
            time.sleep(0.05)

    def _configure(self) -> None:
        ports = free_ports(1 + len(NODES))
        devices, lines = self._devices(), []
        host, me = socket.gethostname().split(".")[0], getpass.getuser()
        for port, (name, (kind, count)) in zip(ports[1:], NODES.items(), strict=True):
            lines.append(
                f"NodeName={name} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} CPUs=64 RealMemory=512000 "
                f"Gres=gpu:{kind}:{count} Feature={kind} State=UNKNOWN"
            )
        gres = [f"NodeName={name} Name=gpu Type={kind} File={devices[name]}" for name, (kind, _) in NODES.items()]
        (self.base / "etc" / "gres.conf").write_text("\n".join(gres) + "\n")
        text = CONF.format(base=self.base, host=host, me=me, port=ports[0], nodes="\n".join(lines), **self.settings)
        text += f"{self.more}\n"
        if self.hook:
            (self.base / "etc" / "job_submit.lua").write_text(self.hook)
            text += "JobSubmitPlugins=lua\n"
        (self.base / "etc" / "slurm.conf").write_text(text)

    def _devices(self) -> dict[str, str]:
        """Fake devices: copies of /dev/null, or terminals where this user may not make any."""
        found, terminal = {}, 0
        for name, (_, count) in NODES.items():
            try:
                for k in range(count):
                    os.mknod(self.base / "dev" / f"{name}-gpu{k}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
                found[name] = f"{self.base}/dev/{name}-gpu[0-{count - 1}]"
            except PermissionError:
                found[name] = f"/dev/tty[{terminal}-{terminal + count - 1}]"
                terminal += count
        return found

    def kill(self, name: str) -> None:
        """Kill a daemon at once: slurmctld, or the slurmd of a node by `slurmd-a1`."""
        path = self.base / "pid" / f"{name}.pid"
        pid = int(path.read_text())
        os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + UP
        while Path(f"/proc/{pid}").exists() and time.monotonic() < until and "zombie" not in Path(f"/proc/{pid}/status").read_text():
            time.sleep(0.05)
        path.unlink()

    def restart(self, name: str) -> None:
        """Start a daemon again that was killed; the controller with what it had saved."""
        self._run(["slurmctld"] if name == "slurmctld" else ["slurmd", "-N", name.removeprefix("slurmd-")])

    def stop(self) -> None:
        """Take it down: only processes whose pid files lie in its folder."""
        with suppress(subprocess.SubprocessError, OSError):
            self.run("scancel", "-u", getpass.getuser())
            time.sleep(0.3)
        pids = []
        for path in (self.base / "pid").glob("*.pid"):
            with suppress(ValueError, OSError):
                pids.append(int(path.read_text()))
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + DOWN
        while pids and time.monotonic() < until:
            pids = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
            time.sleep(0.05)
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    # ── use ──

    def _run(self, command: Sequence[str]) -> str:
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=20, check=False, cwd=self.base / "jobs"
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stderr or done.stdout}")
        return done.stdout

    def run(self, *command: str, given: str | None = None) -> str:
        """Run one of its commands and return what it prints."""
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=20, check=True, cwd=self.base / "jobs", input=given
        ).stdout

    def submit(self, *options: str, seconds: float = 300.0) -> int:
        """Submit a job that sleeps, with a name like no other's unless it is given one; return its number."""
        name = "".join(secrets.choice(ascii_lowercase) for _ in range(12))
        return int(self.run("sbatch", "--parsable", f"-J{name}", *options, f"--wrap=sleep {seconds}"))

    def states(self) -> Mapping[int, str]:
        """Return the state of every job, ended ones too."""
        rows = (line.split("|") for line in self.run("squeue", "-h", "-t", "all", "-o", "%A|%T").splitlines())
        return {int(number): state for number, state in rows}

    @contextmanager
    def used(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Let the commands of this process reach it; at the end its queue is empty."""
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, self.environment[name])
        yield
        self.clear()

    def clear(self) -> None:
        """Cancel all jobs, and wait until nothing runs."""
        jobs = self.run("squeue", "-h", "-a", "-o", "%A").split()
        if jobs:
            self.run("scancel", *jobs)
        until = time.monotonic() + UP
        while self.run("squeue", "-h", "-t", "PD,R,CG,CF,S").strip():
            if time.monotonic() > until:
                raise RuntimeError("jobs do not end")
            time.sleep(0.05)


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


@contextmanager
def private_slurm(**settings: Any) -> Iterator[RealSlurm]:
    """Start a Slurm in a folder of its own, and take both away at the end."""
    binaries()
    base = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # a short path: sockets have at most 108 letters
    base.chmod(0o755)
    slurm = RealSlurm(base, **settings)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()
        shutil.rmtree(base, ignore_errors=True)
