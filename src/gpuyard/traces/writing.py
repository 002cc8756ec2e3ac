"""Writing a workload to a file: the format by its name, all of it or nothing."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError, UsageError
from gpuyard.model.jobs import LABELS
from gpuyard.model.workload import Workload
from gpuyard.traces.opening import Stream
from gpuyard.traces.origin import origin_of


@dataclass(frozen=True)
class Writer:
    """An outside format: `function(workload, path)` saves, `lost(workload)` tells what of the workload the format has no place for."""

    function: Callable[[Workload, Path], None]
    lost: Callable[[Workload], list[str]]


# What a column holds where nothing was said.
USUAL = {"walltime": np.inf, "deadline": np.inf, "priority": 0.0, "cpus": 0.0, "memory": 0.0, "transfer": 0.0, "chunk": 1}
WRITERS: dict[str, Writer] = {}  # by suffix
LINES = 10_000  # turned into bytes at a time
_ZIP_LEVEL = 6  # 9 takes 1.4 to 2.5 times as long for 0.1 to 1 % less


def writer_of(path: Path) -> Writer:
    """The writer for a name such as `jobs.csv.gz`."""
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix not in WRITERS:
        hint = "end the name with " + " or ".join(f"{known}[.gz]" for known in sorted(WRITERS))
        raise UsageError(f"{path}: in which format?", hint=hint)
    return WRITERS[suffix]


def write_workload(workload: Workload, path: Path | str) -> list[str]:
    """Save as the name says (`.swf`, `.csv`, each also `.gz`); returns what the format could not hold, in words."""
    path = Path(path)
    writer = writer_of(path)
    writer.function(workload, path)
    return writer.lost(workload)


@contextmanager
def written(path: Path) -> Iterator[Stream]:
    """A stream whose bytes become the file at the end, if there was no error; gzip if the name ends in .gz.

    They go to a file beside it first, so that a half file is never seen under the name. The same bytes give the same file.
    """
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: is there and is not a file")
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("xb") as raw:
            if path.suffix == ".gz":
                with gzip.GzipFile(filename="", mode="wb", compresslevel=_ZIP_LEVEL, fileobj=raw, mtime=0) as zipped:
                    yield zipped
            else:
                yield raw
        os.replace(beside, path)  # noqa: PTH105 - what is there gives way in one step
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        beside.unlink(missing_ok=True)


def number_texts(values: Array, unknown: str = "", infinite: str | None = None) -> Iterator[str]:
    """Whole numbers without a point, others with all their digits; `unknown` for NaN and, unless told otherwise, for infinity."""
    finite = np.isfinite(values)
    if finite.all() and (values == np.floor(values)).all() and (np.abs(values) < 2.0**53).all():
        return map(str, values.astype(np.int64).tolist())
    odd = {"nan": unknown, "inf": unknown if infinite is None else infinite}
    return (odd[text] if text in odd else text.removesuffix(".0") for text in map(repr, values.tolist()))


def write_lines(out: Stream, lines: Iterator[str]) -> None:
    """Many lines, some thousand at a time: a call for each would take longer than to make them."""
    while block := "".join(islice(lines, LINES)):
        out.write(block.encode())


def lost_facts(workload: Workload, machines: int = 0) -> list[str]:
    """What no table of jobs holds; `machines` is how many nodes the format has a place for."""
    lost = [f"how many rows were dropped when it was read: {sum(workload.dropped.values()):,}"] if workload.dropped else []
    lost += ["the nodes that the trace shows"] if len(workload.machines) > machines else []
    lost += ["the source of its estimates"] if workload.estimate_source not in ("requested", "given") else []
    return lost


def lost_origin(workload: Workload) -> list[str]:
    """The date of time 0, where there is one and the format has no place for it."""
    return [] if origin_of(workload) is None else ["the date of time 0"]


def lost_columns(workload: Workload, kept: frozenset[str]) -> list[str]:
    """The columns with something in them that a format which has only those `kept` leaves out."""
    filled = [name for name, value in USUAL.items() if (getattr(workload.jobs, name) != value).any()]
    filled += ["estimate"] if not np.array_equal(workload.jobs.estimate, workload.requested()) else []
    filled += [name for name, labelled in LABELS.items() if any(getattr(workload.jobs, labelled))]
    return [name for name in filled if name not in kept]
