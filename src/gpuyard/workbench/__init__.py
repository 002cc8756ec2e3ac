"""Real work for a machine: jobs that train small networks or crunch a table, and what measures how fast devices are.

`python -m gpuyard.workbench KIND` runs one job, on CPU or GPU, with torch or jax, whichever is installed. The folder imports
`networks.tensor_file` for checkpoints and nothing else of gpuyard but its base; torch and jax are imported when a job asks for them.
"""
