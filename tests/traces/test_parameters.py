"""Parameters that are ranges."""

from __future__ import annotations

import pytest

from gpuyard.errors import UsageError
from gpuyard.model.units import Range, parse_count, parse_gigabytes, parse_range, parse_seconds
from gpuyard.traces.parameters import CountRange, GigabyteRange, Parameter, SecondsRange, arguments_of

KNOWN = (
    Parameter("cores", CountRange, Range(1, 2)),
    Parameter("memory", GigabyteRange, Range(1, 2)),
    Parameter("duration", SecondsRange, Range(1, 2)),
    Parameter("share", Range, Range(1, 2)),
)


def test_ranges_with_units() -> None:
    found = arguments_of("cores=1:8,memory=512MB:2GB,duration=30s:2h,share=0.25:0.5", "it", KNOWN)
    assert found == {"cores": Range(1, 8), "memory": Range(0.512, 2), "duration": Range(30, 7200), "share": Range(0.25, 0.5)}
    assert arguments_of("1:8", "it", KNOWN) == {"cores": Range(1, 8)}
    assert arguments_of("", "it", KNOWN) == {}
    assert arguments_of("4", "it", KNOWN) == {"cores": Range(4, 4)}


@pytest.mark.parametrize("each", [Range(1, 8), Range(0.1, 1 / 3), Range(5, 5), Range(0, 1e12)])
def test_what_is_written_reads_back(each: Range) -> None:
    assert parse_range(str(each), float) == each
    assert str(Range(1, 8)) == "1:8"
    assert str(Range(4.0, 4.0)) == "4"


@pytest.mark.parametrize(
    "text", ["cores=8:1", "cores=1:", "cores=:8", "cores=1:2:3", "cores=a:b", "cores=1.5:2", "duration=1:inf", "share=nan:1", "cores=-1:2"]
)
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(UsageError, match=f"it: {text.partition('=')[0]}: "):
        arguments_of(text, "it", KNOWN)


def test_ends_are_read_with_their_units() -> None:
    assert parse_range("1k:2k", parse_count) == Range(1000, 2000)
    assert parse_range("1min:1h", parse_seconds) == Range(60, 3600)
    assert parse_range("1GB:1TB", parse_gigabytes) == Range(1, 1000)
