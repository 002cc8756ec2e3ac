from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import UsageError
from gpuyard.model.units import (
    format_bytes,
    format_gigabytes,
    format_seconds,
    parse_count,
    parse_gigabytes,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0", 0),
        ("1.5", 1.5),
        ("1e3", 1000),
        ("30s", 30),
        ("2h", 7200),
        (" 2 H ", 7200),
        ("1d12h", 129_600),
        ("1h 30m", 5400),
        ("1.5h", 5400),
        ("2 hours 5 min", 7500),
        ("1w", 604_800),
        ("250ms", 0.25),
        ("12us", 12e-6),
        ("12µs", 12e-6),
        ("1:30:00", 5400),
        ("30:00", 1800),
        ("1-00:00:00", 86_400),
        ("1-12", 129_600),
        ("1-12:30", 131_400),
        ("0:00:01.5", 1.5),
        ("100:00:00", 360_000),
        ("inf", math.inf),
    ],
)
def test_parse_seconds(text: str, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "h",
        "2x",
        "-1",
        "-2h",
        "1h1h",
        "5m2h",
        "1:60:00",
        "1:00:60",
        "1:30.5",
        "1-",
        "1:2:3:4",
        "nan",
        "1e13",
        "1e999",
        "٣s",
        "2h!",
        "s2",
        "1__0",
    ],
)
def test_parse_seconds_refuses(text: str) -> None:
    with pytest.raises(UsageError, match=r"hint|more than"):
        parse_seconds(text)


def test_a_long_text_is_cut_in_the_message() -> None:
    with pytest.raises(UsageError) as caught:
        parse_seconds("x" * 100_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "gigabytes"),
    [
        ("80GB", 80),
        ("80", 80),
        ("80G", 80),
        ("80gib", 85.89934592),
        ("512MB", 0.512),
        ("2TB", 2000),
        ("1.5 TB", 1500),
        ("1000kB", 0.001),
        ("5B", 5e-9),
    ],
)
def test_parse_gigabytes(text: str, gigabytes: float) -> None:
    assert parse_gigabytes(text) == pytest.approx(gigabytes)


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "80XB", "80GBs", "nan", "inf", "1e12", "9999999PB"])
def test_parse_gigabytes_refuses(text: str) -> None:
    with pytest.raises(UsageError):
        parse_gigabytes(text)


@pytest.mark.parametrize(
    ("text", "count"), [("256", 256), ("1k", 1000), ("2M", 2_000_000), ("1.5k", 1500), ("1_000", 1000), ("1G", 10**9), ("1.1k", 1100)]
)
def test_parse_count(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "k", "-1", "1.5", "1.0005k", "nan", "1e3", "99999999G", "1__0", "_1"])
def test_parse_count_refuses(text: str) -> None:
    with pytest.raises(UsageError):
        parse_count(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5025, "1h 24m"),
        (0, "0s"),
        (45, "45s"),
        (4.2, "4.2s"),
        (59.7, "1m"),
        (61, "1m 1s"),
        (3599.9, "1h"),
        (7200, "2h"),
        (86_399.9, "1d"),
        (183_600, "2d 3h"),
        (0.32, "320ms"),
        (0.99999, "1s"),
        (12e-6, "12us"),
        (1e-12, "0s"),
        (-90, "-1m 30s"),
        (math.inf, "inf"),
        (math.nan, "nan"),
    ],
)
def test_format_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@given(st.floats(1e-6, 1e9))
def test_what_is_formatted_reads_back_within_its_last_digit(seconds: float) -> None:
    assert parse_seconds(format_seconds(seconds)) == pytest.approx(seconds, rel=0.03)


@given(st.text(max_size=20))
def test_no_text_gives_another_error(text: str) -> None:
    for parse in (parse_seconds, parse_gigabytes, parse_count):
        with contextlib.suppress(UsageError):
            assert parse(text) >= 0


def test_sizes_and_counts() -> None:
    assert [format_bytes(n) for n in (0, 512, 1e6, 1.536e12, 999_999)] == ["0 B", "512 B", "1 MB", "1.54 TB", "1 MB"]
    assert format_gigabytes(80) == "80 GB"
