"""One deployment for each cluster: a lock on this machine, or in a folder that several machines share."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuyard.errors import UsageError
from gpuyard.files import locked

SYSTEM = Path("/run/gpuyard")


@contextmanager
def leading(cluster: str, folder: Path | None = None) -> Iterator[None]:
    """Be the one deployment of a cluster, named for instance `slurm-tiger`; refuse if there is another."""
    place = (folder or _folder()) / re.sub(r"[^A-Za-z0-9._-]", "_", cluster)[:100]
    with locked(place, what=f"{cluster}: has a deployment already", hint="one at a time: stop the other first, or watch its log"):
        yield


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
