"""Errors that do not depend on each other are found together."""

from __future__ import annotations

import pytest

from gpuyard.errors import DataError, SeveralErrors, UsageError, together


def fail(kind: type[DataError] | type[UsageError], text: str) -> None:
    raise kind(text, hint="look again")


def test_one_error_is_itself():
    with pytest.raises(DataError, match=r"^a; hint: look again$"), together() as check:
        check(fail, DataError, "a")
        check(str, 1)


def test_several_errors_are_all_there_once_each():
    with pytest.raises(SeveralErrors) as raised, together() as check:
        for text in ("a", "b", "a"):
            check(fail, DataError, text)
    assert [str(error) for error in raised.value.errors] == ["a; hint: look again", "b; hint: look again"]
    assert raised.value.exit_code == 1


def test_wrong_usage_among_them_decides_the_exit_code():
    with pytest.raises(SeveralErrors) as raised, together() as check:
        check(fail, DataError, "a")
        check(fail, UsageError, "b")
    assert raised.value.exit_code == 2


def test_nothing_wrong_and_bugs_pass():
    with together() as check:
        check(str, 1)
    with pytest.raises(ZeroDivisionError), together() as check:
        check(lambda: 1 / 0)
