"""The tolerance of every comparison of cpus, memory, GPU shares and quotas."""

EPS = 1e-6
