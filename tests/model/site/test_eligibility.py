"""Which jobs may be offered to a policy, and the names of the reasons."""

from __future__ import annotations

import pytest

from gpuyard.model.site.eligibility import NEVER, REASONS, Conditions, why_not


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        (Conditions(), ""),
        (Conditions(held=True, begin=99), "held"),
        (Conditions(begin=10.5), "begin"),
        (Conditions(begin=10.0), ""),
        (Conditions(after=(1,)), ""),
        (Conditions(after=(1, 2)), "after-failed"),
        (Conditions(after=(3,)), "after"),
        (Conditions(after_any=(2,)), ""),
        (Conditions(after_any=(3,)), "after"),
        (Conditions(after=(2,), after_any=(3,)), "after-failed"),
        (Conditions(array=5, array_limit=3), "array-limit"),
        (Conditions(array=5, array_limit=4), ""),
        (Conditions(array=6, array_limit=1), ""),
    ],
)
def test_the_reason(conditions, reason):
    assert why_not(conditions, 10.0, {1: True, 2: False}, {5: 3}) == reason
    assert not reason or reason in REASONS


def test_only_known_reasons_are_for_ever():
    assert set(REASONS) >= NEVER
