"""Workloads: readers of outside files and generators. Importing the package fills both registries."""

from __future__ import annotations

from gpuyard.traces import csv, demo, family, gangs, lublin, poisson, swf
from gpuyard.traces.base import GENERATORS, READERS, Generator, Reader, generator, load_workload, reader, reader_of
from gpuyard.traces.estimates import ESTIMATES, EstimateSource, estimate_source, is_random, with_estimate
from gpuyard.traces.guess import guess_cluster
from gpuyard.traces.opening import Limits
from gpuyard.traces.predictors import accuracy
from gpuyard.traces.swf import swf_header, write_swf

__all__ = [
    "ESTIMATES",
    "GENERATORS",
    "READERS",
    "EstimateSource",
    "Generator",
    "Limits",
    "Reader",
    "accuracy",
    "csv",
    "demo",
    "estimate_source",
    "family",
    "gangs",
    "generator",
    "guess_cluster",
    "is_random",
    "load_workload",
    "lublin",
    "poisson",
    "reader",
    "reader_of",
    "swf",
    "swf_header",
    "with_estimate",
    "write_swf",
]
