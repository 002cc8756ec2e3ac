"""A scheduler at work beside a batch system, whichever that is: the loop, what a mode plans, the order of a queue, jobs that are placed.

`live.slurm` and `live.lsf` add what they read and what they send; nothing here knows a command of either.
"""
