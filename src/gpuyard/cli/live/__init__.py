"""The verb for clusters that another system runs: `gpuyard decide`."""
