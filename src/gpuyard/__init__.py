"""gpuyard: simulate, learn, prove and run GPU-cluster scheduling."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuyard.engine.simulation import Simulation
    from gpuyard.errors import GpuyardError
    from gpuyard.metrics import counts, measure, measure_by
    from gpuyard.model.cluster import Cluster
    from gpuyard.model.cluster_file import load_cluster
    from gpuyard.model.decision import Action, Decision, Part
    from gpuyard.model.jobs import Jobs
    from gpuyard.model.result import Result
    from gpuyard.model.rules import Rules
    from gpuyard.model.snapshot import Snapshot
    from gpuyard.model.workload import Workload
    from gpuyard.notebook.calls import compare, simulate, simulate_many
    from gpuyard.policies import Meta, Scheduler, ordering, parse_scheduler, placement, preemption, switch
    from gpuyard.traces import load_workload, with_estimate

__version__ = "0.1.0"

# Loaded when first used: numba and polars take half a second that `gpuyard --help` should not pay.
_HOME = {
    "Simulation": "engine.simulation", "GpuyardError": "errors", "counts": "metrics", "measure": "metrics", "measure_by": "metrics",
    "Cluster": "model.cluster", "load_cluster": "model.cluster_file", "Action": "model.decision", "Decision": "model.decision",
    "Part": "model.decision", "Jobs": "model.jobs", "Result": "model.result", "Rules": "model.rules", "Snapshot": "model.snapshot",
    "Workload": "model.workload", "simulate": "notebook.calls", "simulate_many": "notebook.calls", "compare": "notebook.calls",
    "Meta": "policies", "Scheduler": "policies", "ordering": "policies", "parse_scheduler": "policies", "placement": "policies",
    "preemption": "policies", "switch": "policies", "load_workload": "traces", "with_estimate": "traces",
}  # fmt: skip

__all__ = [
    "Action", "Cluster", "Decision", "GpuyardError", "Jobs", "Meta", "Part", "Result", "Rules", "Scheduler", "Simulation", "Snapshot",
    "Workload", "compare", "counts", "load_cluster", "load_workload", "measure", "measure_by", "ordering", "parse_scheduler",
    "placement", "preemption", "simulate", "simulate_many", "switch", "with_estimate",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gpuyard' has no attribute {name!r}")
    return getattr(import_module(f"gpuyard.{_HOME[name]}"), name)
