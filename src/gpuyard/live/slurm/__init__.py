"""Slurm: reads what its commands print into a snapshot, and lets a scheduler work beside it.

`text` and `documents` parse commands and their JSON into `records`; `site` makes a snapshot of these; `ordering` plans site factors, and
`deploying` sets them.
"""
