"""What runs real work: a GPU node's queue, and what it shares with batch systems.

It builds on `policies` and everything below, and never imports learning, environments, polars or figures, so that production stays light.
"""
