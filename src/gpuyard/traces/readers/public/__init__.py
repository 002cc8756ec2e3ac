"""Readers of public datasets, each recognised by its content. Importing the package registers them."""

from __future__ import annotations

from gpuyard.traces.readers.public import gavel, google, helios, openb, others, pai, philly, philly_log

__all__ = ["gavel", "google", "helios", "openb", "others", "pai", "philly", "philly_log"]
