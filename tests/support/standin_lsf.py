"""An LSF that stands in for one: its commands on PATH, and a dispatcher of its own. See `lsf/commands.py` for what is faithful."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuyard.live.lsf.hooks import esub

COMMANDS = (
    "bsub", "bmod", "btop", "bbot", "bresume", "bstop", "bkill", "brequeue", "brun", "bjobs", "bhosts", "bqueues", "lshosts", "lsid",
    "mbatchd",
)  # fmt: skip
PATIENCE = 300.0  # s: a machine that tests something else at the same time is slow
HOSTS = {"h1": ("TeslaA100", 8), "h2": ("TeslaA100", 8), "h3": ("TeslaV100", 4), "h4": ("TeslaV100", 4)}


class StandInLsf:
    """Starts it in a folder. `environment` is what its commands need."""

    def __init__(self, folder: Path, *, aps: bool = False) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        text = (Path(__file__).parent / "lsf" / "commands.py").read_text()
        for name in COMMANDS:
            self._write(self.bin / name, f"#!{sys.executable} -IS\n{text}")
        self._write(self.bin / "id", '#!/bin/sh\necho "$STANDIN_USER"\n')  # esub asks who submits
        hosts = {
            name: {"slots": 64, "used": 0, "gpus": gpus, "taken": [], "model": model, "status": "ok"}
            for name, (model, gpus) in HOSTS.items()
        }
        queues = {"gpu": {"prio": 30, "aps": aps}, "native": {"prio": 30, "aps": False}}
        state = {"hosts": hosts, "queues": queues, "default": "gpu", "order": {name: [] for name in queues}, "jobs": {}, "next": 101,
                 "ahead": 0.0, "events": []}  # fmt: skip
        (folder / "state.json").write_text(json.dumps(state))
        path = f"{self.bin}:{os.environ['PATH']}"
        self.environment = {
            **os.environ,
            "PATH": path,
            "STANDIN_LSF": str(folder),
            "STANDIN_BIN": str(self.bin),
            "STANDIN_USER": "lsfadmin",
        }
        self._mbatchd: subprocess.Popen[bytes] | None = None

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    # ── up and down ──

    def start(self) -> None:
        """Let jobs be dispatched."""
        self._mbatchd = subprocess.Popen([self.bin / "mbatchd"], env=self.environment)

    def stop(self) -> None:
        if self._mbatchd is not None:
            self._mbatchd.kill()
            self._mbatchd.wait()

    def down(self, yes: bool) -> None:
        """Let mbatchd be unreachable, or there again."""
        (self.folder / "down").touch() if yes else (self.folder / "down").unlink()

    def install(self, **settings: Any) -> None:
        """Install the hook of place mode for the queue gpu."""
        hook = esub(["gpu"], admins=["lsfadmin"], default="gpu", **{"deadman": 600.0, **settings})
        self._write(self.folder / "esub.gpuyard", hook)

    # ── use ──

    def run(self, *command: str, user: str = "ann") -> subprocess.CompletedProcess[str]:
        """Run a command as a user."""
        environment = {**self.environment, "STANDIN_USER": user}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def submit(self, *options: str, seconds: float = 0.2, queue: str = "gpu", user: str = "ann") -> str:
        """Submit a job, and return its number."""
        done = self.run("bsub", "-q", queue, *options, "sleep", str(seconds), user=user)
        assert done.returncode == 0, done.stderr
        return done.stdout.split("<")[1].split(">")[0]

    @contextmanager
    def state(self) -> Iterator[dict[str, Any]]:
        """Look at, and change, what it knows."""
        with (self.folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = json.loads((self.folder / "state.json").read_text())
            yield found
            (self.folder / "state.json").write_text(json.dumps(found))

    @property
    def jobs(self) -> Mapping[str, Any]:
        with self.state() as s:
            return dict(s["jobs"])

    def stats(self) -> dict[str, str]:
        return {number: job["stat"] for number, job in self.jobs.items()}

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        with self.state() as s:
            return [each for each in s["events"] if not kinds or each["event"] in kinds]

    def queue(self, name: str = "gpu") -> list[str]:
        """The waiting jobs of a queue, as they stand."""
        with self.state() as s:
            return sorted(s["order"][name], key=lambda n: (-s["jobs"][n]["aps"], s["order"][name].index(n)))

    def pass_time(self, seconds: float) -> None:
        """Let LSF's clock run ahead."""
        with self.state() as s:
            s["ahead"] += seconds

    def until_ended(self, jobs: list[str], meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait until jobs have ended."""

        end = time.monotonic() + PATIENCE
        while True:
            meanwhile()
            found = self.stats()
            if all(found[job] in ("DONE", "EXIT") for job in jobs):
                return
            assert time.monotonic() < end, {job: self.jobs[job] for job in jobs if found[job] not in ("DONE", "EXIT")}
            time.sleep(0.005)

    def check(self, jobs: list[str]) -> None:
        """By its own record: each job ran once, no GPU was held twice at a time, and nobody was forced."""
        events = self.events()
        ours = [each for each in events if each["job"] in jobs]
        runs = [(each["event"], each["job"]) for each in ours if each["event"] in ("start", "done")]
        assert sorted(runs) == sorted((what, job) for job in jobs for what in ("start", "done"))
        held: dict[tuple[str, int], str] = {}
        for each in events:
            if each["event"] == "start":
                for host, gpus in each["hosts"].items():
                    for gpu in gpus:
                        assert held.setdefault((host, gpu), each["job"]) == each["job"], "a GPU is held twice"
            elif each["event"] in ("done", "exit", "requeue"):
                held = {gpu: job for gpu, job in held.items() if job != each["job"]}
        assert not self.events("brun")
