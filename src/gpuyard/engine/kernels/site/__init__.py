"""A site beyond its nodes, in kernels: partitions that share nodes, jobs that may not start yet, limits, and why jobs waited."""
