"""Readers of public datasets, each told by its content. Importing the package registers them."""

from __future__ import annotations

from gpuyard.traces.readers.public import dlrm, gavel, google, helios, openb, pai, philly, philly_log, requests, studies

__all__ = ["dlrm", "gavel", "google", "helios", "openb", "pai", "philly", "philly_log", "requests", "studies"]
