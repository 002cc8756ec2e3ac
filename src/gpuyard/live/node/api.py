"""How the client and the daemon speak: one JSON object per line over a Unix socket that only its owner can open.

A request is `{"verb": …, argument: value, …}`, its answer `{"ok": true, …}` or `{"ok": false, "error": …, "hint": …, "code": 1 or 2}`.
A connection carries any number of requests, one after the other. A line holds at most LONGEST bytes.

| verb | arguments | answer |
|---|---|---|
| submit | job: `Submission.plain()`, token: a text that makes a repeated request harmless | ids |
| jobs | ids, or none for all that have not ended; ended: number of ended jobs that are listed too | jobs |
| why | id | state, reason, position, start, earliest, latest |
| cancel, hold, release | ids | ids |
| retry | ids, or none for all that have FAILED or are LOST | ids |
| wait | ids, timeout | jobs |
| top | id | processes, devices |
| status | | what the node is and does |
| first | ids | ids: they go before all others |
| page | before, limit | jobs in short, ended or not, with numbers below `before`, the greatest first |
| watch | epoch, since, reasons_at, limit | what has changed since the `next` of the last answer; whole: begin again with `page` |
| drain, resume | | draining |
| stop | | stopped |
| history | since, limit; runs: also what makes it a measured result | jobs that have ended, newest first |
| decisions | limit | what the policy decided, and why |
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from gpuyard.errors import DataError, UsageError

LONGEST = 4_000_000  # bytes of a line
SOCKET = "node.sock"
FOLDER_VARIABLE = "GPUYARD_NODE"  # names the node's folder
Message = dict[str, Any]


def node_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of the user's node: as given, as GPUYARD_NODE says, or the usual one."""
    named = str(given) if given else os.environ.get(FOLDER_VARIABLE, "")
    if named:
        return Path(named).expanduser().absolute()
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "gpuyard" / "node"


def encode(message: Message, limit: int = LONGEST) -> bytes:
    """Return a message as a line of at most `limit` bytes; 0: of any length."""
    line = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogateescape") + b"\n"
    if 0 < limit < len(line):
        raise UsageError(f"message of {len(line):,} bytes; at most {LONGEST:,}", hint="submit with --env NAME to send fewer variables")
    return line


def decode(line: bytes) -> Message:
    """Read a line; what is not a JSON object is refused."""
    try:
        message = json.loads(line.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"message is not JSON: {str(error)[:100]}") from None
    if not isinstance(message, dict):
        raise DataError("message is not a JSON object")
    return message
