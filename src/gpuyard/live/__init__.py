"""Runs real work: the queue of a GPU node, and what it shares with batch systems.

It builds on `policies` and everything below, and never imports learning, environments, polars or figures, so that production stays light.
"""
