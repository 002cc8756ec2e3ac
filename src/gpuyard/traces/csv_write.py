"""A workload as a table with our own column names, which reads back equal."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from gpuyard.model.jobs import LABELS
from gpuyard.model.workload import Workload
from gpuyard.traces.readers.csv import MISSING
from gpuyard.traces.writing import LINES, USUAL, WRITERS, Writer, lost_facts, lost_origin, number_texts, written


def write_csv(workload: Workload, path: Path | str) -> None:
    """Save as CSV (gzip if the name ends in .gz); reading it gives the same jobs, run times, estimates and logged starts.

    Columns in which every job has the usual value are left out; times are seconds with all their digits, the run time is in the clear.
    The same workload gives the same bytes.
    """
    columns = _columns(workload)
    with written(Path(path)) as out:
        out.write((",".join(columns) + "\n").encode())
        rows = zip(*columns.values(), strict=True)
        while block := list(islice(rows, LINES)):
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows(block)
            out.write(text.getvalue().encode())


def _columns(workload: Workload) -> dict[str, Iterator[str]]:
    """Our names → one text per job."""
    jobs = workload.jobs
    found = {"id": map(str, jobs.id.tolist()), "submit": number_texts(jobs.submit)}
    if workload.logged_start is not None:
        found["start"] = number_texts(workload.logged_start)
    found["runtime"] = number_texts(workload.runtime)
    if workload.estimate_source != "requested" or not np.array_equal(jobs.estimate, workload.requested()):
        found["estimate"] = number_texts(jobs.estimate, infinite="inf")
    found["gpus"] = number_texts(jobs.gpus)
    found |= {name: number_texts(getattr(jobs, name)) for name, usual in USUAL.items() if (getattr(jobs, name) != usual).any()}
    for name, labelled in LABELS.items():
        if any(getattr(jobs, labelled)):
            found[name] = map(getattr(jobs, labelled).__getitem__, getattr(jobs, name).tolist())
    return found


def _lost(workload: Workload) -> list[str]:
    odd = {
        label for labelled in LABELS.values() for label in getattr(workload.jobs, labelled) if label in MISSING or label != label.strip()
    }
    odd.discard("")
    shown = ", ".join(repr(label) for label in sorted(odd)[:3])
    return [*([f"the labels {shown} as they are: in a table they are blank or lose blanks"] if odd else []),
            *lost_facts(workload), *lost_origin(workload)]  # fmt: skip


WRITERS[".csv"] = Writer(write_csv, _lost)
