"""Sources of estimates that predict run times from jobs that have ended, inside each simulation; and how good estimates are."""

from __future__ import annotations

import numpy as np

from gpuyard.model.estimator import SHORTEST, Rolling
from gpuyard.model.workload import Workload
from gpuyard.traces.estimates.boosting import Boosting
from gpuyard.traces.estimates.sources import estimate_source


@estimate_source("rolling", title="the mean of the user's last run times to have ended (Tsafrir, Etsion and Feitelson 2007)", inside=True)
def rolling(workload: Workload, seed: int, *, last: int = 2) -> Rolling:
    """Average the user's last run times: the next job tends to take as long."""
    return Rolling(last)


@estimate_source("boosting", title="gradient-boosted trees on user, size, limit, partition, hour and history (scikit-learn)", inside=True)
def boosting(workload: Workload, seed: int, *, refits: int = 10) -> Boosting:
    """Predict the median of the log run time with a model that is fitted up to `refits` times, each time to the jobs that have ended."""
    return Boosting(refits)


def accuracy(workload: Workload) -> dict[str, float]:
    """Measure the estimates: `ratio` is the median of estimate / run time, `agreement` the mean of the smaller over the larger of the
    two (1 is perfect; Tsafrir et al. 2007), `below` the share of jobs that ran longer than their estimate."""
    run, guess = np.maximum(workload.runtime, SHORTEST), np.maximum(workload.jobs.estimate, SHORTEST)
    known = np.isfinite(guess)
    run, guess = run[known], guess[known]
    if not len(run):
        return {"ratio": np.nan, "agreement": np.nan, "below": np.nan}
    agreement = float((np.minimum(run, guess) / np.maximum(run, guess)).mean())
    return {"ratio": float(np.median(guess / run)), "agreement": agreement, "below": float((guess < run).mean())}
