"""Learners turn environments into schedulers: one file per algorithm, each a class whose methods are the steps of its paper.

`parts` holds what algorithms share, `run` a training from its plan to its checkpoints, `devices` the learned choice of a device.
This package may import JAX, and nothing from experiments, report, web or cli. Of gpuyard's other packages, only those import it.
"""
