"""Writes the systemd unit of a deployment: no rights but those that it needs, started again whenever it ends badly."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from gpuyard.errors import UsageError
from gpuyard.live.leader import SYSTEM

FOLDER = Path("/var/log/gpuyard")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
UNIT = """\
[Unit]
Description=gpuyard beside {system}
After=network-online.target slurmctld.service
Wants=network-online.target

[Service]
User={user}
ExecStart={command}
Restart=on-failure
RestartSec=10
LogsDirectory=gpuyard
CacheDirectory=gpuyard
RuntimeDirectory={folder}
RuntimeDirectoryPreserve=yes
Environment=NUMBA_CACHE_DIR=/var/cache/gpuyard XDG_CACHE_HOME=/var/cache/gpuyard
WorkingDirectory=/var/log/gpuyard
# it talks to the batch system alone, writes its log, and needs nothing else of the machine
CapabilityBoundingSet=
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
LockPersonality=yes
MemoryMax=2G
Nice=5

[Install]
WantedBy=multi-user.target
"""


def unit_text(arguments: Sequence[str], user: str) -> str:
    """Return the unit that runs `gpuyard deploy ARGUMENTS…` as `user`."""
    if not arguments or arguments[0].startswith("-"):
        raise UsageError("which deployment?", hint="e.g. gpuyard deploy unit slurm --order")
    if not _PLAIN.fullmatch(user):
        raise UsageError(f"{user[:40]!r} is not the name of a user")
    if any(not each.isprintable() for each in arguments):
        raise UsageError("an argument holds letters that a unit cannot")
    given = list(arguments)
    if "--log" not in given:
        given += ["--log", str(FOLDER / f"{given[0]}.jsonl")]
    words = [sys.executable, "-m", "gpuyard", "deploy", *given]
    command = " ".join(shlex.quote(each).replace("%", "%%").replace("$", "$$") for each in words)
    return UNIT.format(system=given[0], user=user, command=command, folder=SYSTEM.name)
