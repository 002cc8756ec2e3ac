"""Readers of the accounting of batch systems (Slurm, LSF). Each makes `Records`; `workload_of` turns them into a Workload."""

from __future__ import annotations

from gpuyard.traces.readers.batch import bjobs, jobcomp, lsb_acct, sacct, sacct_json, slurm_table

__all__ = ["bjobs", "jobcomp", "lsb_acct", "sacct", "sacct_json", "slurm_table"]
