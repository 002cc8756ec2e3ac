"""All figures by name; importing this fills the registry."""

from __future__ import annotations

from gpuyard.report import figures
from gpuyard.report.study import FIGURES, NoData, Study, charts_of, load_study

__all__ = ["FIGURES", "NoData", "Study", "charts_of", "figures", "load_study"]
