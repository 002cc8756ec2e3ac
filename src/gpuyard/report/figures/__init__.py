"""Figures by name: each module registers what makes its charts from a study. They use the charts, the palette and nothing that draws."""

from __future__ import annotations

from gpuyard.report.figures import curves, phases, schedulers, stopping

__all__ = ["curves", "phases", "schedulers", "stopping"]
