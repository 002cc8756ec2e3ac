"""The page of the policies is what the registries say."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuyard.policies import BACKFILLS, DECIDERS, ORDERINGS, PLACEMENTS, PREEMPTIONS, SWITCHES
from gpuyard.policies.reference_page import page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "policies.md"
BUILT_IN = "gpuyard."


def test_the_reference_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m gpuyard.policies.reference_page > docs/reference/policies.md"


@pytest.mark.parametrize("registry", [ORDERINGS, PLACEMENTS, BACKFILLS, PREEMPTIONS, SWITCHES, DECIDERS], ids=lambda r: r.what)
def test_every_built_in_policy_is_on_it(registry) -> None:
    text = page()
    for name, policy in registry.items():
        function = getattr(policy, "function", None) or getattr(policy, "make", None)
        if function is None or function.__module__.startswith(BUILT_IN):
            assert f"| `{name}` |" in text
