"""The nouns: jobs, nodes, clusters, workloads, snapshots, decisions and results, as frozen columns of numpy arrays.

Beside them are the texts and files they come from: units, cluster files, presets, speed tables and saved results. This room imports
numpy and nothing of gpuyard but `arrays`, `errors`, `files` and `registry`.
"""
