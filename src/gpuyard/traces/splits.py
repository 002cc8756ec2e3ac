"""Training, validation and test workloads are disjoint by construction: by seeds for generators, by time for traces.

| part | seeds of generators | times of a trace, where the text names none | … where it names a range |
|---|---|---|---|
| train | 1,000,000 … 2³¹ − 1 | the first 0.6 of its span | the first 3/4 of the range |
| validation | 500,000 … 999,999 | from 0.6 to 0.8 | the last quarter of the range |
| test | 0 … 99,999 | the last 0.2 | the whole range |

Where validation has texts of its own (`--validation`), a range that a text names is used as a whole for its purpose.
Seeds from 100,000 to 499,999 belong to no part: they are for trying things out. Two workloads of one generator with one seed are
the same data whatever their parameters, because generators draw the same jobs under them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np

from gpuyard.model.units import format_seconds
from gpuyard.model.workload import Workload
from gpuyard.networks.manifest import TrainingRecord, Use
from gpuyard.registry import unknown_name

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
SEEDS: Mapping[Split, range] = MappingProxyType(
    {"train": range(1_000_000, 2**31), "validation": range(500_000, 1_000_000), "test": range(100_000)}
)
SHARES: Mapping[Split, tuple[float, float]] = MappingProxyType({"train": (0.0, 0.6), "validation": (0.6, 0.8), "test": (0.8, 1.0)})
SHARES_OF_RANGE: Mapping[Split, tuple[float, float]] = MappingProxyType(
    {"train": (0.0, 0.75), "validation": (0.75, 1.0), "test": (0.0, 1.0)}
)


def check_split(name: str) -> Split:
    """Return the name of a part, or raise an error that lists them."""
    found = next((split for split in SPLITS if split == name), None)
    if found is None:
        raise unknown_name("split", name, SPLITS)
    return found


TRACE_MARK = "#"  # in the text of a use: what follows is a hash of the trace's content, whatever its file is called


def uses_of_seeds(text: str, seeds: Iterable[int]) -> tuple[Use, ...]:
    """Return the uses of a generator's seeds, one for each stretch of consecutive seeds."""
    if isinstance(seeds, range) and seeds.step == 1:
        return (Use(text, seeds=(seeds.start, seeds.stop - 1)),)
    found: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if found and found[-1][1] == seed - 1:
            found[-1][1] = seed
        else:
            found.append([seed, seed])
    return tuple(Use(text, seeds=(first, last)) for first, last in found)


def content_of(log: Workload) -> str:
    """Hash when jobs came and how long they ran: what a log is, whatever its file is called."""
    return hashlib.sha256(np.ascontiguousarray(log.jobs.submit).tobytes() + log.runtime.tobytes()).hexdigest()[:16]


def use_of_times(text: str, content: str, begin: float, end: float) -> Use:
    """Return the use of times of a trace, s from its origin, without the end; `content` is a hash of what is in it."""
    return Use(f"{text}{TRACE_MARK}{content}", times=(begin, end))


def data_of(use: Use) -> str:
    """Return the identity of data: the name of a generator, or the hash of a trace."""
    if use.times is not None:
        return use.workload.rpartition(TRACE_MARK)[2]
    return re.split(r"[:\[\s]", use.workload, maxsplit=1)[0]


def describe(use: Use) -> str:
    """Describe a use: `seeds 42–44 of family`, `12d … 30d of log.swf`."""
    if use.times is not None:
        begin, end = map(format_seconds, use.times)
        return f"{begin} … {end} of {use.workload.rpartition(TRACE_MARK)[0]}"
    first, last = use.seeds or (0, 0)
    return f"{f'seeds {first}–{last}' if last > first else f'seed {first}'} of {use.workload}"


def share_data(one: Use, other: Use) -> bool:
    """Return whether some of the data is the same."""
    if data_of(one) != data_of(other):
        return False
    if one.times is not None and other.times is not None:
        return one.times[0] < other.times[1] and other.times[0] < one.times[1]
    if one.seeds is not None and other.seeds is not None:
        return one.seeds[0] <= other.seeds[1] and other.seeds[0] <= one.seeds[1]
    return False


def overlap(training: TrainingRecord, evaluation: Sequence[Use]) -> str | None:
    """Return one line that names both uses where data of `evaluation` was trained or validated on; None where none was.

    `training` is that of a checkpoint's manifest.
    """
    for purpose, uses in (("trained", training.workloads), ("validated", training.validation)):
        shared = common(uses, evaluation)
        if shared is not None:
            return f"{describe(shared[1])} cannot be evaluated on: the policy was {purpose} on {describe(shared[0])}"
    return None


def has_seen(training: TrainingRecord, log: Workload, jobs: Workload) -> bool:
    """Return whether some of the `jobs`, a log or a part of it, were there when a policy was trained or validated on the log."""
    spans = [use.times for use in (*training.workloads, *training.validation) if use.times is not None and data_of(use) == content_of(log)]
    submit = log.jobs.submit
    return any(np.isin(log.jobs.id[(submit >= begin) & (submit < end)], jobs.jobs.id).any() for begin, end in spans)


def common(some: Iterable[Use], others: Sequence[Use]) -> tuple[Use, Use] | None:
    """Return the first two uses, one of each, that share data."""
    return next(((one, other) for one in some for other in others if share_data(one, other)), None)
