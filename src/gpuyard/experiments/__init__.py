"""Experiments: axes, runs, and what may be said of their numbers."""
