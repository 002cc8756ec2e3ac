"""The clock of a node."""

from __future__ import annotations

import time


class NodeClock:
    """s since 1970 that never go back, whatever happens to the machine's clock while the node runs. They pass while the machine sleeps."""

    def __init__(self, last: float) -> None:
        self._offset = max(time.time(), last) - _since_boot()

    def now(self) -> float:
        return _since_boot() + self._offset

    def at(self, monotonic: float) -> float:
        """Return when a process of this boot read this from the monotonic clock, if the machine has not slept since."""
        return self.now() - (time.monotonic() - monotonic)


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
