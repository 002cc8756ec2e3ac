"""Workloads: readers of outside files, generators, changes and estimates. Importing the package fills their registries.

A text such as `demo`, `log.swf.gz` or `dataset:NAME` becomes a Workload here. The folder imports `model` and no policy.
"""

from __future__ import annotations

from gpuyard.traces.base import GENERATORS, READERS, Generator, Reader, generator, load_workload, reader, reader_of
from gpuyard.traces.changes import perturb, reshape
from gpuyard.traces.changes.transform import (
    CLUSTER_TRANSFORMS,
    TRANSFORMS,
    apply,
    apply_all,
    apply_all_to_cluster,
    apply_to_cluster,
    cluster_transform,
    transform,
)
from gpuyard.traces.datasets import DATASETS, Dataset, fetch
from gpuyard.traces.estimates.predictors import accuracy
from gpuyard.traces.estimates.sources import ESTIMATES, EstimateSource, estimate_source, is_random, with_estimate
from gpuyard.traces.generators import demo, drift, family, gangs, lublin, tasks
from gpuyard.traces.guess import guess_cluster
from gpuyard.traces.opening import Limits
from gpuyard.traces.readers import batch, csv, public, swf, swf19
from gpuyard.traces.readers.csv import write_csv
from gpuyard.traces.readers.swf import swf_header, write_swf
from gpuyard.traces.writing import write_workload

__all__ = [
    "CLUSTER_TRANSFORMS", "DATASETS", "ESTIMATES", "GENERATORS", "READERS", "TRANSFORMS", "Dataset", "EstimateSource", "Generator",
    "Limits", "Reader", "accuracy", "apply", "apply_all", "apply_all_to_cluster", "apply_to_cluster", "batch", "cluster_transform", "csv",
    "demo", "drift", "estimate_source", "family", "fetch", "gangs", "generator", "guess_cluster", "is_random", "load_workload", "lublin",
    "perturb", "public", "reader", "reader_of", "reshape", "swf", "swf19", "swf_header", "tasks", "transform", "with_estimate", "write_csv",
    "write_swf", "write_workload",
]  # fmt: skip
