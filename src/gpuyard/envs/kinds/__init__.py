"""The decisions that can be left open, one folder each."""
