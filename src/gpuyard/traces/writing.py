"""Write a workload to a file, whole or not at all, in the format that its name asks for."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.files import Stream, replacing, writing
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import save_cluster
from gpuyard.model.jobs import LABELS
from gpuyard.model.workload import Workload
from gpuyard.traces.origin import origin_of


@dataclass(frozen=True)
class Writer:
    """An outside format: `function(workload, path)` saves, `lost(workload)` lists what the format cannot hold."""

    function: Callable[[Workload, Path], None]
    lost: Callable[[Workload], list[str]]


# Values that mean "not stated".
USUAL = {"walltime": np.inf, "deadline": np.inf, "priority": 0.0, "cpus": 0.0, "memory": 0.0, "transfer": 0.0, "chunk": 1}
WRITERS: dict[str, Writer] = {}  # by suffix
LINES = 10_000  # encoded at a time
_ZIP_LEVEL = 6  # 9 takes 1.4 to 2.5 times as long for 0.1 to 1 % less


def writer_of(path: Path) -> Writer:
    """Return the writer for a name such as `jobs.csv.gz`."""
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix not in WRITERS:
        hint = "end the name with " + " or ".join(f"{known}[.gz]" for known in sorted(WRITERS))
        raise UsageError(f"{path}: in which format?", hint=hint)
    return WRITERS[suffix]


def write_workload(workload: Workload, path: Path | str) -> list[str]:
    """Save in the format that the name asks for (`.swf`, `.csv`, each also `.gz`); return what the format could not hold, in words."""
    path = Path(path)
    writer = writer_of(path)
    writer.function(workload, path)
    return writer.lost(workload)


def write_environment(workload: Workload, cluster: Cluster, folder: Path) -> list[str]:
    """Save jobs and hosts as `jobs.csv` and `cluster.toml`, which every command reads; return what the first could not hold."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    save_cluster(cluster, folder / "cluster.toml")
    return write_workload(workload, folder / "jobs.csv")


@contextmanager
def written(path: Path) -> Iterator[Stream]:
    """Open a stream whose bytes become the file at the end of the block, if it does not raise; gzip if the name ends in .gz.

    The same bytes give the same file.
    """
    with replacing(path) as raw:
        if path.suffix == ".gz":
            with gzip.GzipFile(filename="", mode="wb", compresslevel=_ZIP_LEVEL, fileobj=raw, mtime=0) as zipped:
                yield zipped
        else:
            yield raw


def number_texts(values: Array, unknown: str = "", infinite: str | None = None) -> Iterator[str]:
    """Write whole numbers without a point, others with all digits; NaN as `unknown`, infinity as `infinite` or else as `unknown`."""
    finite = np.isfinite(values)
    if finite.all() and (values == np.floor(values)).all() and (np.abs(values) < 2.0**53).all():
        return map(str, values.astype(np.int64).tolist())
    odd = {"nan": unknown, "inf": unknown if infinite is None else infinite}
    return (odd[text] if text in odd else text.removesuffix(".0") for text in map(repr, values.tolist()))


def write_lines(out: Stream, lines: Iterator[str]) -> None:
    """Write many lines, some thousand at a time: a call for each would take longer than to make them."""
    while block := "".join(islice(lines, LINES)):
        out.write(block.encode())


def lost_facts(workload: Workload, machines: int = 0) -> list[str]:
    """List the facts that no table of jobs holds; `machines` is how many nodes the format can hold."""
    lost = [f"how many rows were dropped when it was read: {sum(workload.dropped.values()):,}"] if workload.dropped else []
    lost += ["the nodes that the trace shows"] if len(workload.machines) > machines else []
    told = workload.estimate_source in ("requested", "given") or np.array_equal(workload.jobs.estimate, workload.requested())
    lost += [] if told else ["the source of its estimates"]
    return lost


def lost_origin(workload: Workload) -> list[str]:
    """List the date of time 0 as lost, if there is one."""
    return [] if origin_of(workload) is None else ["the date of time 0"]


def lost_columns(workload: Workload, kept: frozenset[str]) -> list[str]:
    """List the columns with content that a format with only the columns `kept` leaves out."""
    filled = [name for name, value in USUAL.items() if (getattr(workload.jobs, name) != value).any()]
    filled += ["estimate"] if not np.array_equal(workload.jobs.estimate, workload.requested()) else []
    filled += [name for name, labelled in LABELS.items() if any(getattr(workload.jobs, labelled))]
    return [name for name in filled if name not in kept]
