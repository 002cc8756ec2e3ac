"""Schedulers that are classes with `decide(snapshot)`: they see the whole queue, and may learn while they decide."""
