"""Environments: simulations with one decision left open."""
