"""Marks on LSF's jobs: what place mode has to know of a job after a restart stands in the job's description, in LSF itself.

gpuyard b=1794736355                  it may start by itself from then on
gpuyard b=1794736355 h=hostA,hostB    it was started then, on these hosts
gpuyard held                          it is held until it is started, come what may
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from gpuyard.live.deployment.placing import MARK

HELD = "it is held until gpuyard starts it"
_HOST = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,253}"
_TEXT = re.compile(rf"{MARK}(?: (held))?(?: b=(\d{{1,11}}))?(?: h=({_HOST}(?:,{_HOST})*))?")


@dataclass(frozen=True)
class JobMark:
    """A mark; `text` is empty where there is none."""

    text: str = ""
    begin: float = math.nan  # s since 1970
    hosts: tuple[str, ...] = ()
    held: bool = False

    def __str__(self) -> str:
        parts = [MARK, *(["held"] if self.held else []), *([f"b={self.begin:.0f}"] if self.begin == self.begin else [])]
        return " ".join([*parts, *([f"h={','.join(self.hosts)}"] if self.hosts else [])])


def mark_of(description: str) -> JobMark:
    """Read a job's description."""
    match = _TEXT.fullmatch(description.strip())
    if match is None or not (match[1] or match[2]):
        return JobMark()
    hosts = tuple(match[3].split(",")) if match[3] else ()
    return JobMark(MARK, float(match[2]) if match[2] else math.nan, hosts, match[1] is not None)
