"""Rules of the simulated system that belong to neither the workload, the cluster nor the scheduler."""

from __future__ import annotations

from dataclasses import dataclass

from gpuyard.errors import UsageError


@dataclass(frozen=True)
class Rules:
    """The rules for running jobs. `checkpoint`: seconds between checkpoints (0: progress is never lost, inf: always)."""

    walltime_kill: bool = False
    checkpoint: float = 0.0  # s
    restart_cost: float = 0.0  # s on the devices, on every start after a stop

    def __post_init__(self) -> None:
        if not self.checkpoint >= 0:
            raise UsageError(f"checkpoint = {self.checkpoint} is not an interval in seconds")
        if not 0 <= self.restart_cost < float("inf"):
            raise UsageError(f"restart_cost = {self.restart_cost} is not a time in seconds")
