"""SWF as the RLScheduler paper's simulator reads it (Zhang et al., SC 2020); for comparisons with its published numbers only."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.workload import Workload
from gpuyard.traces.checks import Rows, check_ids, check_values
from gpuyard.traces.opening import DEFAULT_LIMITS, Limits
from gpuyard.traces.readers.swf import _KEPT, _read_table

UNKNOWN_RUN = 10.0  # s, in place of a negative run time


def load_rlscheduler(path: Path | str, *, limits: Limits = DEFAULT_LIMITS) -> Workload:
    """The jobs by their rules: processors = the larger of fields 5 and 8; requested time = field 9, or the run time where it is −1.

    Run times below 0 count as 10 s, of 0 the job is dropped. Their simulator goes by job number: a log in which that is not the order of
    submission is refused. The requested time becomes the walltime and so the estimate.
    """
    path = Path(path)
    table, lines = _read_table(path, limits, {})
    columns, rows = {name: table[:, k] for k, name in enumerate(_KEPT)}, Rows(path, lines)
    check_ids(rows, columns["id"])
    run = np.where(columns["run"] < 0, UNKNOWN_RUN, columns["run"])
    kept = np.flatnonzero(run != 0)
    kept = kept[np.argsort(columns["id"][kept], kind="stable")]
    dropped = {"run time 0": len(run) - len(kept)} if len(kept) < len(run) else {}
    gpus = np.maximum(columns["allocated"], columns["requested"])[kept]
    submit, run = columns["submit"][kept], run[kept]
    requested = np.where(columns["time"][kept] == -1, run, columns["time"][kept])
    _check(rows.take(kept), {"submit": submit, "runtime": run, "gpus": gpus, "walltime": requested})
    if len(kept) == 0:
        raise DataError(f"{path}: no usable job")
    shown = {"id": columns["id"][kept], "submit": submit, "gpus": gpus, "walltime": requested}
    return Workload.build(shown, run, name=path.name, dropped=dropped)


def _check(rows: Rows, columns: dict[str, Array]) -> None:
    check_values(rows, columns)
    gpus, submit = columns["gpus"], columns["submit"]
    rows.refuse(gpus < 1, "processors", gpus, "is below 1")
    rows.refuse(np.diff(submit, prepend=-np.inf) < 0, "submit time", submit, "is before that of the job with the number before")
