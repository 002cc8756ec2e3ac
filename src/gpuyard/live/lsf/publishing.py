"""Publishes decisions in a file for the scheduler plugin. `plugin/decisions.h` says what stands where; here it is written, there read.

Bytes are written beside the file and renamed into its place, with a heartbeat: when gpuyard ends or hangs, the file goes stale, and LSF
schedules by itself.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuyard.errors import UsageError
from gpuyard.files import write_bytes

VERSION = 1
MOST_BYTES = 4 << 20
NAME = 64  # bytes of a host's name, with a zero at its end
MODE = 0o644
_HEAD = struct.Struct("<8sIIQQqIIIIIII12x")
_JOB = struct.Struct("<QII")
_CHECKSUM_AT = 64


@dataclass(frozen=True)
class PublishSettings:
    """The times that the plugin goes by, in s."""

    stale: float = 30.0  # after which it follows the file no more
    new: float = 60.0  # for which it keeps a job that is not named
    kept: float = 86_400.0  # for which it keeps any job, at most


def decision_bytes(decided: Mapping[int, Sequence[str]], number: int, now: float, settings: PublishSettings) -> bytes:
    """Return the file: for each job the hosts that it may start on now, none if it is to wait. `now` in s since 1970."""
    names = list(dict.fromkeys(host for hosts in decided.values() for host in hosts))
    place = {name: k for k, name in enumerate(names)}
    encoded = [name.encode() for name in names]
    for name in encoded:
        if not 0 < len(name) < NAME or b"\0" in name:
            raise UsageError(f"host {name[:70]!r}: its name does not fit into {NAME - 1} bytes")
    jobs, places = bytearray(), list[int]()
    for job in sorted(decided):
        jobs += _JOB.pack(job, len(places), len(decided[job]))
        places += [place[name] for name in decided[job]]
    body = b"".join(name.ljust(NAME, b"\0") for name in encoded) + jobs + struct.pack(f"<{len(places)}I", *places)
    size = _HEAD.size + len(body)
    if size > MOST_BYTES:
        raise UsageError(f"{len(decided):,} decisions take {size:,} bytes; the plugin reads {MOST_BYTES:,}")
    times = [int(1000 * each) for each in (settings.stale, settings.new, settings.kept)]
    head = _HEAD.pack(b"gpuyard\0", VERSION, _HEAD.size, size, number, int(1000 * now), *times, len(names), len(decided), len(places), 0)
    data = bytearray(head + body)
    struct.pack_into("<I", data, _CHECKSUM_AT, zlib.crc32(data))
    return bytes(data)


class DecisionFile:
    """The file, published again and again."""

    def __init__(self, path: Path, settings: PublishSettings | None = None) -> None:
        self.path, self.settings = path, settings or PublishSettings()
        self._number = 0

    def publish(self, decided: Mapping[int, Sequence[str]], now: float) -> None:
        """Replace the file."""
        self._number += 1
        write_bytes(self.path, decision_bytes(decided, self._number, now, self.settings))
        self.path.chmod(MODE)

    def withdraw(self) -> None:
        """Remove the file: LSF schedules by itself from its next session on."""
        self.path.unlink(missing_ok=True)
