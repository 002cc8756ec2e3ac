"""The `gpuyard` command: one file per verb. Heavy imports are inside functions, so that help appears at once."""
