"""The clock of a node."""

from __future__ import annotations

import time


class NodeClock:
    """s since 1970 that never go back, whatever happens to the machine's clock while the node runs."""

    def __init__(self, last: float) -> None:
        self._offset = max(time.time(), last) - time.monotonic()

    def now(self) -> float:
        return time.monotonic() + self._offset

    def at(self, monotonic: float) -> float:
        """Return when a process of this boot read this from the monotonic clock."""
        return monotonic + self._offset
