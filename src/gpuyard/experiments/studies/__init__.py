"""Experiments that need code of their own."""
