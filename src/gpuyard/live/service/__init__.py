"""The decision service, `gpuyard decide --serve`: other programs ask a scheduler over a socket, and act themselves.

It changes nothing outside itself, and gives the decisions that a simulation and `gpuyard decide` give. It imports the rest of `live`.
"""
