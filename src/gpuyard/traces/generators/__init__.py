"""Generators of random workloads, from published models or simple laws, registered by name."""
