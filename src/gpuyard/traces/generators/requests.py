"""Requested times: the limits that people type into job scripts, drawn for run times that are known.

The popularity of values is that of D. Tsafrir, Y. Etsion, D. G. Feitelson, "Modeling user runtime estimates" (JSSPP 2005): twenty
round values serve 89 % of the jobs, the largest that is allowed is the most popular, and the r-th has 14.05·exp(−0.178·r) + 0.463 %.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from gpuyard.arrays import Array
from gpuyard.traces.generators.sampling import stream

Requests = Literal["typical", "exact"]  # exact: no requested times, so that estimates are the run times

POPULAR = 20  # values
COVERED = 0.89  # of the jobs request one of them
TOO_SHORT = 0.02  # of the jobs run longer than they requested; 0 to 10 % in six public logs
STEP = 300.0  # s, of the other values
# s, after the largest allowed the most popular first: the order in the logs of CTC-SP2, SDSC-SP2 and KTH-SP2, taken together.
USUAL = np.array([
    300, 3600, 600, 7200, 14400, 1800, 900, 10800, 21600, 43200, 1200, 28800, 36000, 60, 18000, 86400, 64800, 120, 5400, 2400,
    172800, 2700, 32400, 259200, 54000, 25200, 50400, 240, 180, 72000, 129600, 216000, 345600, 432000, 604800,
], float)  # fmt: skip


def typical_requests(seed: int, name: str, runtime: Array, longest: float) -> Array:
    """Draw the requested time of each job: (jobs,) s. `longest` is what the jobs may take; the site allows the next usual value.

    A job requests a usual value e that is not below its run time with a probability in proportion to popularity(e) / √e. The root
    makes long requests rarer for short jobs: with it the rank correlation of request and run time is 0.73 to 0.79 and the median
    ratio 3.1 to 5.5 on the run times of three logs, whose own are 0.67 to 0.75 and 2.4 to 6.4; without it, 0.47 to 0.55 and 7 to 21.
    Of the jobs 11 % request another multiple of five minutes between the two, and 2 % the usual value below their run time.
    The draws have a random stream of their own: nothing else in the workload depends on them.
    """
    values, weight = _site(longest)
    popular, other, place = stream(seed, f"{name}/requests").random((3, len(runtime)))
    edges = np.concatenate(([0.0], np.cumsum(weight)))
    least = np.minimum(np.searchsorted(values, runtime, side="left"), len(values) - 1)
    drawn = np.searchsorted(edges, edges[least] + popular * (edges[-1] - edges[least]), side="right") - 1
    request = values[np.minimum(drawn, len(values) - 1)]
    odd = np.ceil((runtime + place * (request - runtime)) / STEP) * STEP
    request = np.where(other < 1 - COVERED, np.minimum(odd, request), request)
    short = (other >= 1 - TOO_SHORT) & (least > 0)
    asked: Array = np.where(short, values[least - 1], request)
    return asked


def _site(longest: float) -> tuple[Array, Array]:
    """Return the usual values of a site, ascending, and their weights."""
    limit = float(np.min(USUAL[longest <= USUAL], initial=np.ceil(longest / 86400) * 86400))
    values = np.concatenate(([limit], USUAL[limit > USUAL]))[:POPULAR]
    share = 14.0491 * np.exp(-0.177531 * np.arange(1, POPULAR + 1)) + 0.462513  # per cent
    share[0] = 100 * COVERED - share[1:].sum()
    order = np.argsort(values)
    return values[order], (share[: len(values)] / np.sqrt(values))[order]
