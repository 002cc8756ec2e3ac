"""Slurm: reads what its commands print into a snapshot, and lets a scheduler work beside it.

`text` and `documents` parse commands and their JSON into `records`; `means` are site factors and priorities, `placing` the updates of place
mode, and `deploying` works with them. What LSF and Slurm share is in `live.deployment`.
"""
