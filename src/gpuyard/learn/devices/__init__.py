"""Learned choice between CPU and GPU: models of how long tasks take, and the scheduler that uses them."""
