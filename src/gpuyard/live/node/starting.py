"""Starts and stops the daemon of a folder, and writes the unit by which systemd does."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from gpuyard.files import claim
from gpuyard.live.node.api import Message
from gpuyard.live.node.client import NodeClient, NodeError, NoNodeError
from gpuyard.live.node.core import NodeSettings
from gpuyard.live.node.daemon import prepare_folder, unusable
from gpuyard.live.node.store import DATABASE
from gpuyard.live.unit import unit_word

LOG = "daemon.log"
LOGS = (LOG, "scheduler.log")
MOST_LOG = 1_000_000  # bytes after which a new log is begun at a start
PATIENCE = 60.0  # s until a daemon must answer, or be gone
OF_JOBS = "GPUYARD_"  # variables of a job that the daemon must not have: what has its token is killed with the job
UNIT = """\
[Unit]
Description=gpuyard node: a queue for the GPUs of this machine
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command}
# Jobs outlive the daemon: systemd must end it alone, not all that runs below it, nor when a job runs out of memory.
KillMode=process
OOMPolicy=continue
Restart=on-failure
RestartSec=2
# Jobs get control groups of their own, so that nothing of them is left when they end.
Delegate=yes

[Install]
WantedBy=default.target
"""


def kept_settings(folder: Path) -> NodeSettings:
    """Return the settings of the folder's last daemon; the usual ones where there was none."""
    path = folder / DATABASE
    if not path.is_file():
        return NodeSettings()
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)) as database:
            row = database.execute("SELECT value FROM meta WHERE key = 'settings'").fetchone()
        known = {each.name for each in fields(NodeSettings)}
        return NodeSettings(**{name: value for name, value in json.loads(row[0] if row else "{}").items() if name in known})
    except (sqlite3.Error, ValueError, AttributeError, TypeError) as error:
        raise NodeError(f"{path}: the settings of the node cannot be read: {error}", hint="give another folder: --folder DIR") from None


def start_node(folder: Path, settings: NodeSettings, patience: float = PATIENCE) -> Message:
    """Start a daemon that outlives this process; return its status once it answers."""
    prepare_folder(folder)
    log = folder / LOG
    try:
        for name in LOGS:
            if (folder / name).exists() and (folder / name).stat().st_size > MOST_LOG:
                (folder / name).replace(folder / f"{name}.1")
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable(folder, error) from None
    try:
        begun = os.fstat(file).st_size
        daemon = subprocess.Popen(
            [sys.executable, "-m", "gpuyard.live.node.daemon", str(folder), json.dumps(asdict(settings))],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd="/", env=_environment(os.environ), start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(file)
    with NodeClient(folder, patience=patience) as client:
        return _answering(client, daemon, log, begun, patience)


def _answering(client: NodeClient, daemon: subprocess.Popen[bytes], log: Path, begun: int, patience: float) -> Message:
    """Wait until the daemon answers, or has ended."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        with suppress(NodeError):
            status = client.call("status")
            if status["pid"] == daemon.pid:
                return status
            client.close()
        if daemon.poll() is not None:
            said = log.read_bytes()[begun:].decode("utf-8", "replace").strip().splitlines()
            error, _, hint = (said[-1] if said else f"exit code {daemon.returncode}").partition("; hint: ")
            raise NodeError(f"the node did not start: {error.removeprefix('gpuyard: error: ')}", hint=hint or f"its log is {log}")
        time.sleep(0.02)
    daemon.kill()
    raise NodeError(f"the node did not answer within {patience:g} s", hint=f"its log is {log}")


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the daemon's environment; it runs in another folder, and belongs to no job, even if one has started it."""
    kept = {name: value for name, value in variables.items() if not name.startswith(OF_JOBS)}
    paths = [str(Path(each).absolute()) for each in variables.get("PYTHONPATH", "").split(os.pathsep) if each]
    return kept | ({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})


def stop_node(folder: Path, patience: float = PATIENCE) -> Message:
    """Stop the daemon of a folder and wait until it is gone; return its last status. Its jobs go on."""
    with NodeClient(folder) as client:
        status = client.call("status")
        client.call("stop")
    until = time.monotonic() + patience
    while time.monotonic() < until:
        with (folder / "lock").open("a+", encoding="ascii") as lock:
            if claim(lock):
                return status
        time.sleep(0.02)
    raise NodeError(f"{folder}: the node does not end", hint=f"kill {status['pid']} ends it; jobs go on")


def unit_text(arguments: list[str]) -> str:
    """Return a unit for systemd that runs `gpuyard` with these arguments."""
    words = [sys.executable, "-m", "gpuyard", *arguments]
    return UNIT.format(command=" ".join(unit_word(word) for word in words))


def reachable(folder: Path) -> Message | None:
    """Return the status of the folder's daemon, or None if none runs. One that runs and cannot be asked raises NodeError."""
    try:
        with NodeClient(folder) as client:
            return client.call("status")
    except NoNodeError:
        return None


def described(status: Mapping[str, Any]) -> str:
    """Say in a sentence what a node manages."""
    names = [str(each["name"]) for each in status["devices"]]
    if not names:
        return f"{status['slots']} CPU slots ({status['gpu_problem'] or 'no GPU'})"
    parts = [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]
    shared = f", {status['share']} jobs on each" if status["share"] > 1 else ""
    return ", ".join(parts) + shared
