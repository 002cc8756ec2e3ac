"""What may be said about numbers: statistics, bounds, summaries and sentences."""
