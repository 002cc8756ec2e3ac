"""Dates of workloads."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from gpuyard.errors import UsageError
from gpuyard.model.workload import Workload
from gpuyard.traces import load_workload
from gpuyard.traces.origin import date_of, instant, origin_note, origin_of


def dated(note: str = "time 0 is 2017-08-14T23:27:00.5") -> Workload:
    return Workload.build({"submit": [0.0]}, [1.0], name="log", notes=("x", note))


def test_the_note_is_read_back() -> None:
    assert origin_note(956700003.25) == "time 0 is 2000-04-25T22:00:03.250000"
    assert origin_note(-1.0) == "time 0 is 1969-12-31T23:59:59"
    assert origin_note(1e15) == "time 0 is 1000000000000000 s after 1970"
    assert origin_of(dated(origin_note(1e15))) is None
    assert origin_of(dated()) == datetime(2017, 8, 14, 23, 27, 0, 500_000)
    assert date_of(dated(), 86_400.5) == datetime(2017, 8, 15, 23, 27, 1)
    assert date_of(dated(), 1e12) is None
    assert origin_of(dated("time 0 is 2017-99-14T23:27:00")) is None
    assert origin_of(dated("soon")) is None


def test_instants() -> None:
    assert instant("36h", dated()) == 129_600
    assert instant("2017-08-15", dated()) == 1979.5
    assert instant("2017-08-14T23:28", dated()) == 59.5
    assert instant("2017-08-14 23:27:01.5Z", dated()) == 1
    with pytest.raises(UsageError, match="does not say when its time 0 was"):
        instant("2017-08-15", dated("none"))
    with pytest.raises(UsageError, match="is not a date"):
        instant("2017-13-45", dated())
    with pytest.raises(UsageError, match="is not a time"):
        instant("soon", dated())


@pytest.mark.parametrize("header", ["0", "-5", "soon", "9999999999999", "999999999999"])
def test_an_swf_header_without_a_date(tmp_path: Path, header: str) -> None:
    log = tmp_path / "log.swf"
    log.write_text(f"; UnixStartTime: {header}\n1 0 -1 5 4" + " -1" * 13 + "\n")
    assert origin_of(load_workload(str(log))) is None
