"""Asks a scheduler of the registry what to do, in a process of its own, so that one that hangs or crashes stops nothing else."""
