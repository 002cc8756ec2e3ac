"""The study of a real machine: how jobs slow each other down, traces replayed on a node, and what the simulator predicts for them.

`measuring`, `traces` and `replaying` run where the work is done and need neither polars nor figures; `predicting` and `judging`
read what they wrote.
"""
