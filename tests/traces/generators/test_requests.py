"""Requested times of generated jobs look like those in logs, and change nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from gpuyard import load_workload
from gpuyard.errors import UsageError
from gpuyard.traces.generators.requests import POPULAR, USUAL, typical_requests

GENERATORS = ("lublin:jobs=4000", "poisson:jobs=4000", "eda:jobs=4000")
LIMIT = 64_800.0  # s


def drawn(jobs: int = 20_000, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Run times over three decades, as in logs, and the times requested for them."""
    runtime = np.exp(np.random.default_rng(5).normal(6.5, 2.0, jobs)).clip(1.0, LIMIT)
    return runtime, typical_requests(seed, "test", runtime, LIMIT)


def test_twenty_round_values_serve_most_jobs() -> None:
    """Logs: 70 to 96 % of the jobs request one of the twenty most frequent values, of hundreds that occur."""
    _, request = drawn()
    values, counts = np.unique(request, return_counts=True)
    top = values[np.argsort(-counts)][:POPULAR]
    assert 0.85 <= np.sort(counts)[-POPULAR:].sum() / len(request) <= 0.97
    assert len(values) > 60
    assert set(top) <= {*USUAL, LIMIT}


def test_the_largest_that_is_allowed_is_among_the_most_requested() -> None:
    _, request = drawn()
    values, counts = np.unique(request, return_counts=True)
    assert values[-1] == LIMIT
    assert np.sort(counts)[-3] <= counts[-1]
    assert counts[-1] > 0.08 * len(request)


def test_most_requests_are_too_long_and_a_few_too_short() -> None:
    """Logs: median request ÷ run time 2 to 8; 0 to 10 % run longer than they requested."""
    runtime, request = drawn()
    assert 0.01 <= (request < runtime).mean() <= 0.03
    assert 2.5 <= np.median(request / runtime) <= 8
    assert (request < 1.5 * runtime).mean() > 0.1


def test_long_jobs_request_longer_times_but_a_request_says_little_about_the_run_time() -> None:
    """Logs: rank correlation 0.34 to 0.75, mean of the smaller over the larger of the two 0.30 to 0.47."""
    runtime, request = drawn()
    assert 0.5 <= spearmanr(runtime, request)[0] <= 0.8
    assert 0.25 <= (np.minimum(runtime, request) / np.maximum(runtime, request)).mean() <= 0.5


def test_a_run_beyond_the_limit_requests_the_limit() -> None:
    request = typical_requests(0, "test", np.full(500, 10 * LIMIT), LIMIT)
    assert request.max() == LIMIT
    assert (request == LIMIT).mean() > 0.95


@pytest.mark.parametrize(("longest", "limit"), [(50.0, 60.0), (600.0, 600.0), (13_000.0, 14_400.0), (1e6, 12 * 86_400.0)])
def test_the_site_allows_the_next_usual_value(longest: float, limit: float) -> None:
    request = typical_requests(0, "test", np.linspace(1.0, longest, 3000), longest)
    assert request.max() == limit
    assert request.min() >= 60.0


@pytest.mark.parametrize("text", GENERATORS)
def test_requests_change_no_other_column(text: str) -> None:
    typical, exact = load_workload(text, 3), load_workload(f"{text},requests=exact", 3)
    assert np.isfinite(typical.jobs.walltime).all()
    assert np.isinf(exact.jobs.walltime).all()
    for column in ("submit", "gpus", "cpus", "memory", "priority", "deadline", "index"):
        np.testing.assert_array_equal(getattr(typical.jobs, column), getattr(exact.jobs, column))
    np.testing.assert_array_equal(typical.runtime, exact.runtime)


@pytest.mark.parametrize("text", GENERATORS)
def test_what_generated_jobs_request_is_told(text: str) -> None:
    typical, exact = load_workload(text, 3), load_workload(f"{text},requests=exact", 3)
    assert (typical.estimates, typical.all_notes) == ("requested", ())
    assert (exact.estimates, exact.all_notes) == ("exact", ("no requested times: estimates are the run times",))
    assert 0 < (typical.jobs.estimate < typical.runtime).mean() < 0.05
    assert len(np.unique(typical.jobs.estimate)) < 400


@pytest.mark.parametrize("text", ["family", "family:variant=gang", "family:variant=hetero", "tasks"])
def test_families_that_are_exact_by_definition_say_so(text: str) -> None:
    made = load_workload(text, 3)
    assert made.estimates == "exact"
    np.testing.assert_array_equal(made.jobs.estimate, made.runtime)


@pytest.mark.parametrize("text", ["demo", "gangs:jobs=200", "family:variant=estimate"])
def test_families_with_requested_times_say_so(text: str) -> None:
    assert load_workload(text, 3).estimates == "requested"


def test_an_unknown_kind_of_requests_is_refused() -> None:
    with pytest.raises(UsageError, match="requests"):
        load_workload("lublin:requests=none")


def test_seeds_draw_other_requests_and_the_same_seed_the_same() -> None:
    runtime, first = drawn(seed=1)
    assert (first == typical_requests(1, "test", runtime, LIMIT)).all()
    assert (first != typical_requests(2, "test", runtime, LIMIT)).any()
