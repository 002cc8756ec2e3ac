"""The built-in policies of each slot, one module per slot. Importing the package registers them."""

from gpuyard.policies.rules import backfills, orderings, placements, preemptions, switches

__all__ = ["backfills", "orderings", "placements", "preemptions", "switches"]
