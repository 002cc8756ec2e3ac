"""Learned choice between CPU and GPU: models of how long tasks take, and the strategies that use them, in plain numpy.

What is trained beforehand lies in `devices.safetensors`; `online` and `regressor` start from it and go on learning in each simulation.
"""
