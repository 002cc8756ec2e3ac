"""Checkpoints whose choices are known in advance: linear networks with given weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.features.schema import Schema
from gpuyard.networks.checkpoint import Manifest, TrainingRecord, Use, write_checkpoint
from gpuyard.networks.shapes import tensor_shapes
from gpuyard.networks.spec import NetworkSpec
from gpuyard.policies.learned import DECISIONS


def write_linear(
    path: Path, decision: str, weights: Mapping[str, float] | Sequence[Mapping[str, float]], choices: Mapping[str, Any], *,
    objective: str = "bsld", workloads: Sequence[str] = (), cluster: str = "", trained_on: Sequence[Use] = (), schema: Schema | None = None,
) -> Path:  # fmt: skip
    """Write a policy whose score is Σ weight × feature; a switch has a table of weights for each scheduler, which may hold `bias`."""
    seen = schema or DECISIONS[decision].schema
    tables = [weights] if isinstance(weights, Mapping) else list(weights)
    actions = 0 if seen.rows else len(tables)
    spec = NetworkSpec(len(seen.rows), len(seen.context), actions, head_layers=(), value_layers=())
    arrays: dict[str, Array] = {name: np.zeros(shape, np.float32) for name, shape in tensor_shapes(spec).items()}
    for name in arrays:
        if name.endswith(".scale"):
            arrays[name][:] = 1.0
    places = {name: k for k, name in enumerate((*seen.rows, *seen.context))}
    for row, table in enumerate(tables):
        for name, weight in table.items():
            if name == "bias":
                arrays["head.0.bias"][row] = weight
            else:
                arrays["head.0.weight"][row, places[name]] = weight
    config = {"workloads": list(workloads), "cluster": cluster}
    training = TrainingRecord("by-hand", config, 0, 0, tuple(trained_on))
    write_checkpoint(path, Manifest("by-hand", "by hand", seen, spec, objective, choices, training, {}, "none"), arrays)
    return path
