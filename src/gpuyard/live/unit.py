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
READ, WRITTEN = ("--stop-file", "--against", "--wake"), ("--log", "--metrics", "--lock", "--decisions")  # options that name files
_OWN = (FOLDER, Path("/run") / SYSTEM.name)  # what systemd makes for the unit
_HIDDEN = tuple(map(Path, ("/tmp", "/var/tmp", "/home", "/root", "/run/user")))  # the unit has others there, or none
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
{writable}ProtectHome=yes
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
    files = _files(given)
    if not any(name == "--log" for name, _ in files):
        given += ["--log", str(FOLDER / f"{given[0]}.jsonl")]
    folders = {path if name == "--lock" else path.parent for name, path in files if name in WRITTEN}
    foreign = sorted(str(each) for each in folders if not any(each.is_relative_to(own) for own in _OWN))
    writable = "".join(f"ReadWritePaths={unit_word(each)}\n" for each in foreign)
    command = " ".join(unit_word(each) for each in (sys.executable, "-m", "gpuyard", "deploy", *given))
    return UNIT.format(system=given[0], user=user, command=command, folder=SYSTEM.name, writable=writable)


def _files(given: Sequence[str]) -> list[tuple[str, Path]]:
    """Return the files that arguments name, by option; refuse those that the service would look for elsewhere than who writes them here."""
    found = []
    for each, after in zip(given, [*given[1:], ""], strict=True):
        name, sign, value = each.partition("=")
        if name not in (*READ, *WRITTEN):
            continue
        path = Path(value if sign else after)
        if not path.is_absolute() or ".." in path.parts:
            raise UsageError(f"{name} {path}: a unit needs a whole path", hint=f"e.g. {name} {FOLDER / path.name}")
        if any(path.is_relative_to(hidden) for hidden in _HIDDEN):
            raise UsageError(f"{name} {path}: the service has a folder of its own there, or none", hint=f"e.g. {name} {SYSTEM / path.name}")
        found.append((name, path))
    return found


def unit_word(word: str) -> str:
    """Write a word as systemd reads it: `%` and `$` mean something to it, and quotes keep blanks."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if shlex.quote(word) == word else f'"{escaped}"'
