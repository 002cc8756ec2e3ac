"""The verbs for clusters that another system runs: `gpuyard snapshot`, `decide` and `deploy`."""
