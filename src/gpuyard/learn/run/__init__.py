"""A training from beginning to end: its settings and plan, its folder, its start, its loop and its validation.

It knows learners by their registry alone. It imports no JAX, so that the command line can show help without it.
"""
