"""The verbs for clusters that another system runs: `gpuyard snapshot` and `gpuyard decide`."""
