"""A queue for one machine: a daemon that decides, one small shim per job that runs it, and a client that speaks to the daemon.

`jobs`, `api` and `client` need the standard library only: `gpuyard submit` must return at once. `shim.py` runs on its own.
"""
