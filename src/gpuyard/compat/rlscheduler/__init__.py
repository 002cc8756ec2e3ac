"""The rules of the RLScheduler paper's simulator (Zhang et al., SC 2020), for comparisons with its published numbers."""
