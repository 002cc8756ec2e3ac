"""Estimates of run times: the registry of sources, and predictors that learn from jobs that have ended."""
