from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import DataError
from gpuyard.traces import Limits, load_workload, reader_of


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, Any]:
    detail = [{"ip": f"m{k}", "gpus": [f"gpu{g}" for g in range(count)]} for k, count in enumerate(gpus)]
    return {"start_time": start, "end_time": end, "detail": detail}


def job(number: int, submitted: str | None, *attempts: dict[str, Any]) -> dict[str, Any]:
    return {
        "status": "Pass", "vc": f"vc{number % 2}", "jobid": f"application_{number}", "attempts": list(attempts),
        "submitted_time": submitted, "user": f"user{number}",
    }  # fmt: skip


SAMPLE = [
    job(1, "2017-10-09 07:00:10", attempt("2017-10-09 07:01:00", "2017-10-09 07:01:30", 4),
        attempt("2017-10-09 07:02:00", "2017-10-09 07:02:05", 4, 4)),
    job(2, "2017-10-09 07:00:00", attempt("2017-10-09 07:00:05", None, 1), attempt("2017-10-09 07:00:20", "2017-10-09 07:00:21", 3, 1)),
    job(3, "2017-10-09 07:00:00", attempt(None, "2017-10-09 07:00:21", 2)),
    job(4, "2017-10-09 07:00:00"),
    job(5, None, attempt("2017-10-09 07:00:05", "2017-10-09 07:00:06", 1)),
    job(6, "2017-10-09 07:00:00", attempt("2017-10-09 07:00:05", "2017-10-09 07:00:06")),
]  # fmt: skip


@pytest.mark.parametrize("indent", [None, 4])
def test_every_attempt_with_both_times_counts(write: Callable[..., str], indent: int | None) -> None:
    path = write(json.dumps(SAMPLE, indent=indent))
    assert reader_of(Path(path)).name == "philly"
    work = load_workload(path)
    assert work.jobs.submit.tolist() == [0, 10]
    assert work.jobs.id.tolist() == [2, 1]
    assert work.runtime.tolist() == [1, 35]
    assert work.jobs.gpus.tolist() == [4, 8]
    assert work.jobs.chunk.tolist() == [1, 4]
    assert work.logged_start is not None
    assert work.logged_start.tolist() == [20, 60]
    assert [work.jobs.users[k] for k in work.jobs.user] == ["user2", "user1"]
    assert [work.jobs.partitions[k] for k in work.jobs.partition] == ["vc0", "vc1"]
    assert work.dropped == {"no run time": 2, "no submit time": 1, "no GPU count": 1}
    assert work.preset == "philly"


def changed(**entries: Any) -> list[dict[str, Any]]:
    return [SAMPLE[0], {**SAMPLE[1], **entries}]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (changed(submitted_time="soon"), "job 2: submitted_time = 'soon' is not a timestamp"),
        (changed(submitted_time=5), "job 2: submitted_time = '5' is not a timestamp"),
        (changed(submitted_time="2017-10-09 07:00:00+02:00"), "is not a local time"),
        (changed(submitted_time="1066-10-14 09:00:00"), "is not a local time after 1970"),
        (changed(attempts=7), "job 2: attempts is not a list"),
        (changed(attempts=[{**attempt("2017-10-09 07:00:05", "2017-10-09 07:00:06"), "detail": [{"gpus": 3}]}]), "detail is not a list"),
        ([SAMPLE[0], 5], "job 2: is not an object"),
        ([SAMPLE[3]], r"no usable job \(1 with no run time\)"),
    ],
)  # fmt: skip
def test_a_wrong_job_is_named(write: Callable[..., str], rows: list[Any], says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        load_workload(write(json.dumps(rows)))
    assert "\n" not in str(caught.value)


def test_what_is_no_json_is_refused(write: Callable[..., str]) -> None:
    text = json.dumps(SAMPLE)
    with pytest.raises(DataError, match="not JSON"):
        load_workload(write(text[:-5]))
    with pytest.raises(DataError, match="nested too deeply"):
        load_workload(write(text[:-1] + "," + "[" * 100_000))
    with pytest.raises(DataError, match="text after the end of the list"):
        load_workload(write(text + "5"))
    with pytest.raises(DataError, match="more than 2 jobs"):
        load_workload(write(text), limits=Limits(rows=2))


def test_odd_attempts_cost_no_more_than_themselves(write: Callable[..., str]) -> None:
    backward = attempt("2017-10-09 07:00:05", "2017-10-09 07:00:04", 8)
    rows = [
        {**SAMPLE[0], "attempts": [backward, *SAMPLE[0]["attempts"]]},
        {**SAMPLE[1], "attempts": [backward]},
        {**SAMPLE[1], "submitted_time": "2017-10-10 07:00:00"},
    ]
    work = load_workload(write(json.dumps(rows)))
    assert work.jobs.id.tolist() == [1]
    assert work.runtime.tolist() == [35]
    assert work.dropped == {"end before start": 1, "start before submit": 1}
    assert work.notes[-1] == "1 attempts end before they start: they are left out"


def test_values_across_the_edges_of_what_is_decoded_at_once(write: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(SAMPLE)
    expected = load_workload(write(text))
    for first in range(1, 40):
        monkeypatch.setattr("gpuyard.traces.readers.json_text._WINDOWS", (first, 1 << 20))
        assert load_workload(write(text)).runtime.tolist() == expected.runtime.tolist()
    monkeypatch.setattr("gpuyard.traces.readers.json_text._WINDOWS", (16, 64))
    with pytest.raises(DataError, match="a value of more than 64 characters"):
        load_workload(write(text))
