"""Learners: what turns environments into schedulers."""
