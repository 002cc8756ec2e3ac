"""The built-in policies of each slot, one module per slot. Importing the package registers them."""

from gpuyard.policies.rules import orderings, placements, preemptions, switches

__all__ = ["orderings", "placements", "preemptions", "switches"]
