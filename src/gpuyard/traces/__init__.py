"""Workloads: readers of outside files and generators. Importing the package fills both registries."""

from __future__ import annotations

from gpuyard.traces import csv, demo, family, gangs, lublin, poisson, swf
from gpuyard.traces.base import GENERATORS, READERS, Generator, Reader, generator, load_workload, reader
from gpuyard.traces.opening import Limits
from gpuyard.traces.swf import swf_header, swf_processors, write_swf

__all__ = [
    "GENERATORS",
    "READERS",
    "Generator",
    "Limits",
    "Reader",
    "csv",
    "demo",
    "family",
    "gangs",
    "generator",
    "load_workload",
    "lublin",
    "poisson",
    "reader",
    "swf",
    "swf_header",
    "swf_processors",
    "write_swf",
]
