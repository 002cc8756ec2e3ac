"""Every request that the schema allows, and many that it does not, gets an answer that is no server error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from support.dashboards import TOKEN, ManyJobs, TriedDashboard

HEAD = {"Authorization": f"Bearer {TOKEN}", "x-gpuyard": "1"}


@pytest.mark.parametrize("examples", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_no_request_is_a_server_error(results: Path, examples: int):
    schemathesis = pytest.importorskip("schemathesis")
    served = TriedDashboard(ManyJobs(running=3, waiting=5, ended=9), results, token=TOKEN, actions=True)
    try:
        schema = schemathesis.openapi.from_url(f"{served.address}/api/openapi.json", headers=HEAD)
        tried = 0
        for operation in schema.get_all_operations():
            made = operation.ok()
            tried += 1

            @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            @given(case=made.as_strategy())
            def ask(case: Any) -> None:
                found = case.call(headers=HEAD)
                assert found.status_code < 500, (case, found.status_code, found.text[:500])

            ask()
        assert tried >= 15
    finally:
        served.stop()
