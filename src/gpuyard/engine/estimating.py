"""Estimates made inside a simulation: lets the kernels make them, or stops and asks an estimator."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.model.estimator import Estimator, Predictor, Rolling
from gpuyard.model.jobs import Jobs


def with_estimates(s: st.State, jobs: Jobs, predictor: Predictor) -> st.State:
    """Return a state in which estimates are made: compiled if that is possible, else by an `EstimatesOutside`."""
    s.control["estimating"] = 1
    if isinstance(predictor, Rolling):
        return s.replace(recent_work=_recent_work(s.control, jobs, predictor))
    s.control["next_estimate"] = jobs.submit[0] if len(jobs) else np.inf
    return s.replace(table=s.table.copy())  # estimates are written into it


def _recent_work(control: Array, jobs: Jobs, rolling: Rolling) -> Array:
    """Return what the kernels remember of each user, and let the control row count what had ended before."""
    control["rolling"] = rolling.last
    recent = np.zeros((len(jobs.users), 1 + rolling.last))
    if rolling.past is not None:
        control["observed"], control["observed_jobs"] = rolling.past.total, rolling.past.count
        for user, name in enumerate(jobs.users):
            known = rolling.past.last_of(name, rolling.last)
            recent[user, 0], recent[user, 1 : 1 + len(known)] = len(known), known
    return recent.ravel()


class EstimatesOutside:
    """Asks the estimator of one simulation whenever this stops for it: tells it who has ended, and notes its answers."""

    def __init__(self, jobs: Jobs, predictor: Predictor) -> None:
        self._jobs = jobs
        self._estimator: Estimator = predictor.begin(jobs)
        self._period = predictor.period(jobs)
        self._told = np.zeros(len(jobs), bool)

    def make(self, s: st.State) -> None:
        """Estimate the submissions of the stretch that begins now, and set when the next one begins."""
        jobs, control, first = self._jobs, s.control, int(s.control["next_job"][0])
        now = float(jobs.submit[first])
        status = s.rows["status"][:first]
        new = np.flatnonzero(((status == st.DONE) | (status == st.KILLED)) & ~self._told[:first])
        self._told[new] = True
        ended = new[np.argsort(s.result["end"][new], kind="stable")]
        if len(ended):
            self._estimator.observe(now, jobs.with_table(jobs.table[ended]), s.result["end"][ended], s.rows["done"][ended])
        stop = max(int(np.searchsorted(jobs.submit, now + self._period)), int(np.searchsorted(jobs.submit, now, "right")))
        s.table["estimate"][first:stop] = self._estimator.estimate(now, jobs.with_table(jobs.table[first:stop]))
        control["next_estimate"] = jobs.submit[stop] if stop < len(jobs) else np.inf
