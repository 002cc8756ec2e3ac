"""One deployment for each cluster: a lock on this machine, or in a folder that several machines share."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuyard.errors import UsageError
from gpuyard.files import LOCK, locked

SYSTEM = Path("/run/gpuyard")


@contextmanager
def leading(cluster: str, folder: Path | None = None) -> Iterator[None]:
    """Be the one deployment of a cluster, named for instance `slurm-tiger`; refuse if there is another."""
    what, hint = f"{cluster}: has a deployment already", "one at a time: stop the other first, or watch its log"
    place = (folder or _folder()) / re.sub(r"[^A-Za-z0-9._-]", "_", cluster)[:100]
    if folder is None and place.parent != SYSTEM and _held(SYSTEM / place.name / LOCK):  # another user leads the cluster there
        raise UsageError(what, hint=hint)
    with locked(place, what=what, hint=hint):
        yield


def _held(path: Path) -> bool:
    """Return whether a process of whatever user holds a lock that this one may not open: the kernel lists all locks."""
    try:
        found = path.stat()
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    name = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    return any(name in line.split() for line in lines)


def _folder() -> Path:
    """Return where locks lie: /run/gpuyard where this user may write there, so that all see the same, else the user's own state."""
    with suppress(OSError):
        SYSTEM.mkdir(mode=0o755, exist_ok=True)
    if os.access(SYSTEM, os.W_OK | os.X_OK):
        return SYSTEM
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        return (Path(state) if state else Path.home() / ".local" / "state") / "gpuyard" / "deploy"
    except RuntimeError:
        raise UsageError("this user has no home, so there is no place for a lock", hint="--lock DIR") from None
