"""Runs jobs so that none is lost: a shim per attempt, its files, and the daemon's side of the protocol.

`shim.py` runs on its own and imports nothing of gpuyard; what else lives here imports it, and the jobs, book and clock of the node.
"""
