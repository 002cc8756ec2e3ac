"""A probe as an environment kind, small enough to train in a second; also a program: the command line with this kind in it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpuyard.envs.base import Step
from gpuyard.envs.kinds.base import ENVS, EnvKind
from gpuyard.policies import parse_scheduler
from gpuyard.testing.probes import ActionByObservation, LargestRow


@dataclass(frozen=True)
class ToyOptions:
    rows: int = 4
    broken: bool = False  # NaN rewards
    plain: bool = False  # a fixed number of actions
    flavour: Literal["sweet", "sour"] = "sweet"


class Broken(LargestRow):
    def step(self, actions):
        step = super().step(actions)
        return Step(step.observation, np.full_like(step.reward, np.nan), step.done)


def make(source, options, count, seed):
    source.episode(0)
    if options.plain:
        return ActionByObservation(count)
    return (Broken if options.broken else LargestRow)(count, rows=options.rows)


def scheduler(spec, arrays, options):
    """Something that depends on every weight."""
    total = sum(float(np.abs(array).sum()) for array in arrays.values())
    return parse_scheduler(f"multifactor:size={100 + 1000 * (total % 10):.6f},age={1000 * (total % 7):.6f}")


def register():
    if "Toy" not in ENVS:
        ENVS.add("Toy", EnvKind("Toy", "the largest row", LargestRow.schema, ToyOptions, make, scheduler, ("fcfs", "sjf"), "wait"))


if __name__ == "__main__":
    from gpuyard.cli.main import run

    register()
    sys.exit(run(sys.argv[1:]))
