"""The built-in backfill rules. The engine carries them out; docs/concepts/semantics.md defines them."""

from __future__ import annotations

from gpuyard.policies.slots import BACKFILLS, Backfill

for _backfill in (
    Backfill("none", "no job passes the head", words="without backfilling"),
    Backfill("skip", "any job that fits may pass", words="with whoever fits passing"),
    Backfill("easy", "a job that does not delay the head's reservation may pass (Lifka 1995)", words="with EASY"),
    Backfill(
        "conservative", "a job that delays no reservation may pass (Mu'alem and Feitelson 2001)", words="with conservative backfilling"
    ),
):
    BACKFILLS.add(_backfill.name, _backfill)
