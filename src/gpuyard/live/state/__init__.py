"""Turns what is seen of a real cluster into a `Snapshot`: a table of jobs that is kept up to date, and its way to another process."""
