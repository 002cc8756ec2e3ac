"""`Workload.from_frame`: pandas, polars and dictionaries, with names, dates and gaps, by the rules of a table read from a file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from gpuyard import Workload, load_workload
from gpuyard.errors import DataError, GpuyardError, WrongTypeError

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")

COLUMNS = {
    "submit": [0.0, 60.0, 120.5],
    "runtime": [30.0, 600.0, 45.0],
    "gpus": [1, 8, 2],
    "walltime": [60.0, None, 90.0],
    "user": ["ann", None, "ben"],
    "partition": ["train", "dev", "train"],
}


@pytest.mark.parametrize("make", [dict, pandas.DataFrame, polars.DataFrame], ids=["dict", "pandas", "polars"])
def test_every_kind_gives_what_the_file_gives(make, tmp_path):
    polars.DataFrame(COLUMNS).write_csv(tmp_path / "frame")
    read = load_workload(str(tmp_path / "frame"), reader="csv")
    made = Workload.from_frame(make(COLUMNS))
    assert made == read
    assert made.jobs.users == ("", "ann", "ben")
    assert [made.jobs.partitions[k] for k in made.jobs.partition] == ["train", "dev", "train"]
    assert made.jobs.walltime.tolist() == [60.0, np.inf, 90.0]


BERLIN = timezone(timedelta(hours=1))
DATES = [datetime(2026, 3, 1, 12, tzinfo=BERLIN), datetime(2026, 3, 1, 13, tzinfo=BERLIN)]
NAIVE = [datetime(2026, 3, 1, 11), datetime(2026, 3, 1, 12)]


@pytest.mark.parametrize(
    "submit",
    [
        NAIVE, DATES, [date.isoformat() for date in DATES], np.array(NAIVE, "datetime64[s]"), pandas.Series(DATES),
        pandas.Series(NAIVE), polars.Series(NAIVE), polars.Series(NAIVE).dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin"),
    ],
    ids=["naive", "zoned", "iso", "numpy", "pandas-zoned", "pandas", "polars", "polars-zoned"],
)  # fmt: skip
def test_dates_of_every_kind_are_the_same_instants(submit):
    made = Workload.from_frame({"submit": submit, "runtime": [timedelta(minutes=5), timedelta(minutes=6)], "gpus": [1, 1]})
    assert made.jobs.submit.tolist() == [0.0, 3600.0]
    assert made.runtime.tolist() == [300.0, 360.0]
    assert made.notes == ("time 0 is 2026-03-01T11:00:00",)


def test_names_and_units_are_mapped():
    frame = pandas.DataFrame({"when": [0, 1], "took": [2, 3], "cards": [1, 4], "who": ["ann", "ben"], "other": [1, 2]})
    made = Workload.from_frame(frame, columns={"submit": "when", "runtime": "took", "gpus": "cards", "user": "who"}, unit="h", name="lab")
    assert (made.name, made.jobs.submit.tolist(), made.runtime.tolist()) == ("lab", [0.0, 3600.0], [7200.0, 10800.0])
    assert made.jobs.users == ("ann", "ben")


def test_time_deltas_do_not_depend_on_the_unit():
    frame = pandas.DataFrame({"submit": [0, 1], "runtime": pandas.to_timedelta([90, 120], unit="s"), "gpus": [1, 1]})
    assert Workload.from_frame(frame, unit="h").runtime.tolist() == [90.0, 120.0]


def test_gaps_drop_rows_and_are_counted():
    frame = pandas.DataFrame(
        {"submit": [0.0, 1.0, None, 3.0], "runtime": [5.0, np.nan, 5.0, 5.0], "gpus": pandas.array([1, 1, 1, None], dtype="Int64")}
    )
    made = Workload.from_frame(frame)
    assert (len(made), dict(made.dropped)) == (1, {"no submit time": 1, "no run time": 1, "no GPU count": 1})


def test_runtime_is_end_minus_start_and_starts_are_kept():
    made = Workload.from_frame({"submit": [0, 5], "start": [2, 9], "end": [12, 10], "gpus": [1, 1]})
    assert made.runtime.tolist() == [10.0, 1.0]
    assert made.logged_start is not None
    assert made.logged_start.tolist() == [2.0, 9.0]


def test_categories_numbers_and_flags_of_every_kind():
    made = Workload.from_frame(
        polars.DataFrame(
            {"submit": [0, 1], "runtime": [1, 1], "gpus": [1, 1], "user": polars.Series(["b", "a"], dtype=polars.Categorical),
             "account": [17, 4], "preemptible": [True, None]}
        )
    )  # fmt: skip
    assert [made.jobs.users[k] for k in made.jobs.user] == ["b", "a"]
    assert [made.jobs.accounts[k] for k in made.jobs.account] == ["17", "4"]
    assert made.jobs.stated["preemptible"][0] == 1.0
    assert np.isnan(made.jobs.stated["preemptible"][1])
    words = Workload.from_frame({"submit": [0, 1], "runtime": [1, 1], "preemptible": ["once", "no"]})
    assert words.jobs.stated["preemptible"].tolist() == [2.0, 0.0]


def test_rows_are_sorted_and_ids_kept():
    made = Workload.from_frame({"id": [7, 3], "submit": [10, 0], "runtime": [1, 2]})
    assert (made.jobs.id.tolist(), made.runtime.tolist()) == ([3, 7], [2.0, 1.0])
    named = Workload.from_frame({"id": ["a", "b"], "submit": [0, 1], "runtime": [1, 2]})
    assert named.notes == ("ids are row numbers: those of the frame are not numbers",)


@pytest.mark.parametrize(
    ("frame", "columns", "says"),
    [
        ({"runtime": [1]}, {}, "frame: no column for 'submit'"),
        ({"submit": [1]}, {}, "frame: no column for 'runtime'"),
        ({"submit": [1], "runtime": [1]}, {"submit": "whn"}, "frame: no column 'whn'"),
        ({"submit": [1], "runtime": [1]}, {"submitt": "submit"}, "unknown column 'submitt'"),
        ({"submit": [1, 2], "runtime": [1]}, {}, "column 'runtime' has 1 values, 'submit' has 2"),
        ({"submit": [0, 1], "runtime": [1, "ten"]}, {}, "frame:2: runtime = 'ten' is not a number"),
        ({"submit": ["2026-01-01", "soon"], "runtime": [1, 1]}, {}, "frame:2: submit = 'soon' is not a date"),
        ({"submit": [0, 1], "runtime": [1, -1]}, {}, "frame:2: runtime = -1 is negative"),
        ({"submit": [0], "runtime": [1], "preemptible": ["maybe"]}, {}, "frame:1: preemptible = 'maybe' is not yes, no or once"),
        ({"id": [1, 1], "submit": [0, 1], "runtime": [1, 1]}, {}, "job id 1 occurs twice"),
        ({"id": ["x", "x"], "submit": [0, 1], "runtime": [1, 1]}, {}, "id 'x' occurs twice"),
        ({"submit": [[0, 1]], "runtime": [1]}, {}, "column 'submit' has 2 dimensions"),
        ({"submit": [], "runtime": []}, {}, "no usable job"),
        ({"submit": [None], "runtime": [1]}, {}, "no usable job"),
    ],
)
def test_faults_are_one_line(frame, columns, says):
    with pytest.raises(GpuyardError) as caught:
        Workload.from_frame(frame, columns=columns)
    assert says in str(caught.value)
    assert isinstance(caught.value, DataError) or "unknown column" in says


def test_two_columns_of_one_name_are_refused():
    frame = pandas.DataFrame([[0, 1, 2]], columns=["submit", "runtime", "runtime"])
    with pytest.raises(DataError, match="column 'runtime' occurs twice"):
        Workload.from_frame(frame)


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (3, "expected a pandas or polars DataFrame, or a dictionary of columns, got int 3"),
        ([{"submit": 1}], "got list"),
        (polars.DataFrame(COLUMNS).lazy(), "hint: call .collect() first"),
        ({"submit": 3, "runtime": [1]}, "frame: column 'submit': expected a list, an array or a series, got int 3"),
    ],
)
def test_what_is_no_frame_is_refused(frame, says):
    with pytest.raises(WrongTypeError) as caught:
        Workload.from_frame(frame)
    assert says in str(caught.value)


def test_an_unknown_unit_is_refused():
    with pytest.raises(GpuyardError, match="unknown unit of time 'hours'"):
        Workload.from_frame(COLUMNS, unit="hours")


def test_a_date_with_a_zone_in_a_list_is_utc():
    made = Workload.from_frame({"submit": [datetime(2026, 1, 1, tzinfo=UTC)], "runtime": [1]})
    assert made.notes == ("time 0 is 2026-01-01T00:00:00",)
