"""Readers of batch systems' accounting: Slurm and LSF. All make `Records`, which `workload_of` turns into a Workload."""

from __future__ import annotations

from gpuyard.traces.readers.batch import bjobs, jobcomp, lsb_acct, sacct, sacct_json, slurm_table

__all__ = ["bjobs", "jobcomp", "lsb_acct", "sacct", "sacct_json", "slurm_table"]
