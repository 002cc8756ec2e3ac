"""Slurm: reads what its commands print into a snapshot.

`text` and `documents` parse commands and their JSON into `records`; `site` makes a snapshot of these.
"""
