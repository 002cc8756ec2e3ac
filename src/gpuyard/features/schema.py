"""The names of what a network sees, and a hash over them that is kept in every checkpoint."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Schema:
    """The features of a decision: of each thing that can be chosen (a row), and of the situation as a whole (the context).

    A decision among a fixed number of things that have no features of their own (which scheduler to use) has no rows.
    """

    decision: str  # job, host, device or switch
    version: int  # counts up when the meaning of a feature changes while its name stays
    rows: tuple[str, ...]  # features of one row, in order
    context: tuple[str, ...]

    @property
    def hash(self) -> str:
        """Return 16 hex digits; two schemas with the same hash can use each other's checkpoints."""
        text = json.dumps([self.decision, self.version, list(self.rows), list(self.context)], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
