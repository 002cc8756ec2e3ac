"""Training, validation and test workloads are disjoint by construction: by seeds for generators, by time for traces.

| part | seeds of generators | times of a trace, where the text names none | … where it names a range |
|---|---|---|---|
| train | 1,000,000 … 2³¹ − 1 | the first 0.6 of its span | the first 3/4 of the range |
| validation | 500,000 … 999,999 | from 0.6 to 0.8 | the last quarter of the range |
| test | 0 … 99,999 | the last 0.2 | the whole range |

Seeds from 100,000 to 499,999 belong to no part: they are for trying things out. Two workloads of one generator with one seed are
the same data whatever their parameters, because generators draw the same jobs under them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

from gpuyard.errors import DataError
from gpuyard.model.units import format_seconds
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
    """The name of a part, or an error that lists them."""
    found = next((split for split in SPLITS if split == name), None)
    if found is None:
        raise unknown_name("split", name, SPLITS)
    return found


@dataclass(frozen=True)
class Use:
    """Data that was used: seeds of a generator, or a range of times of a trace."""

    kind: Literal["generator", "trace"]
    name: str  # of the generator; of a trace: a hash of its submits and run times, whatever its file is called
    label: str  # for messages
    intervals: tuple[tuple[float, float], ...]  # [from, until): seeds, or s from the origin of the trace

    def describe(self) -> str:
        """`seeds 42–44 of family`, `12d … 30d of log.swf`."""
        if self.kind == "generator":
            return f"seeds {', '.join(_seeds(*interval) for interval in self.intervals)} of {self.label}"
        spans = (f"{format_seconds(begin)} … {format_seconds(end)}" for begin, end in self.intervals)
        return f"{', '.join(spans)} of {self.label}"

    def shares(self, other: Use) -> bool:
        """Whether some of the data is the same."""
        same = (self.kind, self.name) == (other.kind, other.name)
        return same and any(a < d and c < b for a, b in self.intervals for c, d in other.intervals)


def _seeds(first: float, end: float) -> str:
    return f"{int(first)}" if end - first == 1 else f"{int(first)}–{int(end) - 1}"


def intervals_of(seeds: Iterable[int]) -> tuple[tuple[float, float], ...]:
    """Seeds as half-open intervals, ascending; a range is one."""
    if isinstance(seeds, range) and seeds.step == 1:
        return ((seeds.start, seeds.stop),)
    found: list[tuple[float, float]] = []
    for seed in sorted(set(seeds)):
        if found and found[-1][1] == seed:
            found[-1] = (found[-1][0], seed + 1)
        else:
            found.append((seed, seed + 1))
    return tuple(found)


def to_records(uses: Iterable[Use]) -> list[dict[str, Any]]:
    """In JSON's terms, for a manifest."""
    return [asdict(use) | {"intervals": [list(interval) for interval in use.intervals]} for use in uses]


def from_records(records: object, where: str = "manifest") -> tuple[Use, ...]:
    """What `to_records` was given; refuses anything else."""
    try:
        return tuple(_use(record) for record in records)  # type: ignore[attr-defined]
    except (TypeError, ValueError, KeyError, AttributeError):
        raise DataError(f"{where}: what it was trained on cannot be read") from None


def _use(record: Mapping[str, Any]) -> Use:
    kind, name, label = record["kind"], record["name"], record["label"]
    if kind not in ("generator", "trace") or not isinstance(name, str) or not isinstance(label, str):
        raise ValueError
    return Use(kind, name, label, tuple((float(begin), float(end)) for begin, end in record["intervals"]))


def overlap(training: Mapping[str, Any], evaluation: Sequence[Use]) -> str | None:
    """One line that names both where data of `evaluation` was used for training or validation; None where none was.

    `training` is that of a checkpoint's manifest: its `uses` are what `to_records` made.
    """
    for used in from_records(training.get("uses", ())):
        for asked in evaluation:
            if used.shares(asked):
                return f"{asked.describe()} cannot be evaluated on: the policy was trained on {used.describe()}"
    return None
