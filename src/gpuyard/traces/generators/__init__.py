"""Workloads that are drawn at random, from published models or plain laws. Each is registered by name."""
