"""Judgement of results: statistics, bounds, summaries and sentences, for `compare`, `evaluate` and `run` alike."""
