"""Slurm: reads what its commands print into a snapshot, and lets a scheduler work beside it.

`text` and `documents` parse commands and their JSON into `records`; `means` are site factors and priorities, `modes` says what is
sent, and `deploying` sends it. What LSF and Slurm share is in `live.deployment`.
"""
