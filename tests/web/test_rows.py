"""Jobs by pages: what a page has is what sorting and filtering all jobs by hand would give."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from gpuyard.errors import UsageError
from gpuyard.web.rows import GROUPS, MOST_ROWS, SORTS, STATES, JobRows, Query, QueueRow
from support.dashboards import NOW, row_of

STATE = some.sampled_from(STATES)


def numbers_of(page: dict[str, Any]) -> list[int]:
    at = page["columns"].index("number")
    return [row[at] for row in page["rows"]]


def by_hand(jobs: dict[int, QueueRow], query: Query, now: float) -> list[int]:
    """Sort the slow way. Ties go by number."""
    found = [each for each in jobs.values() if each.state in GROUPS[query.group] and query.user in ("", each.user)]
    words = query.search.strip().casefold()
    found = [
        each for each in found if any(words in text.casefold() for text in (each.label, each.name, each.user, each.reason, each.place))
    ]

    def key(each: QueueRow) -> Any:
        if query.sort == "wait":
            return (each.start or each.end or now) - each.submit
        if query.sort == "ran":
            return (each.end or now) - each.start if each.start else 0.0
        value = getattr(each, query.sort)
        return value.casefold() if isinstance(value, str) else value

    found.sort(key=lambda each: each.number)
    return [each.number for each in sorted(found, key=key, reverse=query.descending)]


@given(
    some.lists(some.tuples(some.integers(1, 60), STATE, some.sampled_from(["", "a", "B", "b<script>", "ä"])), max_size=40),
    some.sets(some.integers(1, 60)), some.sampled_from([each for each in SORTS if each != "rank"]), some.booleans(),
    some.sampled_from(list(GROUPS)), some.sampled_from(["", "b", "USER-3", "7"]),
)  # fmt: skip
def test_a_page_is_what_sorting_by_hand_gives(changes: Any, gone: set[int], sort: str, descending: bool, group: str, search: str):
    rows, jobs = JobRows(), dict[int, QueueRow]()
    for number, state, name in changes:
        jobs[number] = row_of(number, state, name)
        rows.put([jobs[number]])
    rows.remove(gone)
    jobs = {number: each for number, each in jobs.items() if number not in gone}
    query = Query(group, sort, descending, search)
    expected = by_hand(jobs, query, NOW)
    if sort in ("label", "name", "user", "state", "reason", "place", "partition") and descending:
        expected = [each.number for each in sorted((jobs[n] for n in expected), key=lambda each: each.number)]
        expected.sort(key=lambda number: getattr(jobs[number], sort).casefold(), reverse=True)
    page = rows.page(query, NOW)
    assert numbers_of(page) == expected[:MOST_ROWS] and page["total"] == len(expected)
    assert rows.page(query, NOW, first=3, count=2)["rows"] == page["rows"][3:5]
    assert sum(rows.counts().values()) == len(jobs) == len(rows)


def test_the_queue_stands_in_the_order_of_the_scheduler():
    rows = JobRows()
    rows.put([row_of(1, "DONE"), row_of(2, "PENDING"), row_of(3, "PENDING"), row_of(4, "PENDING"), row_of(5, "RUNNING")])
    rows.explain({2: "it is held"}, [4, 3])
    page = rows.page(Query(), NOW)
    assert numbers_of(page) == [5, 4, 3, 2, 1]
    assert [row[-1] for row in page["rows"]] == [None, 1, 2, None, None]
    found = rows.get(2)
    assert found is not None and found["reason"] == "it is held"
    rows.explain({}, [2])
    found = rows.get(2)
    assert found is not None and (found["reason"], found["rank"]) == ("", 1)
    rows.remove([5])
    assert rows.get(5) is None and numbers_of(rows.page(Query(), NOW))[0] == 2


def test_who_has_started_since_the_scheduler_was_asked_has_no_place():
    rows = JobRows()
    rows.put([row_of(1, "RUNNING"), row_of(2, "PENDING"), row_of(3, "DONE"), row_of(4, "PENDING")])
    assert rows.waiting([1, 2, 9, 3, 4]) == [False, True, False, False, True]
    rows.explain({1: "late", 2: "it is held", 9: "unknown"}, [1, 2, 9, 3, 4])
    found = [rows.get(number) or {} for number in (1, 2, 3, 4)]
    assert [each["rank"] for each in found] == [None, 1, None, 2]
    assert [each["reason"] for each in found] == ["", "it is held", "", ""]


def test_no_page_is_larger_than_100_kb():
    """Each row of the longest texts, of four bytes a letter, in 130,000 jobs."""
    long = replace(row_of(1, "PENDING"), name="𝕁" * 5000, user="𝕌" * 200, reason="ℝ" * 900, place="ℙ" * 900)
    rows = JobRows()
    rows.put(replace(long, number=k + 1, label=str(k)) for k in range(300))
    seen: list[int] = []
    while len(seen) < 300:
        page = rows.page(Query(sort="number"), NOW, first=len(seen))
        assert page["rows"] and len(json.dumps(page, ensure_ascii=False).encode()) < 100_000
        seen += numbers_of(page)
    assert seen == list(range(1, 301))


def test_a_version_changes_with_every_change_and_the_oldest_are_known():
    rows = JobRows()
    versions = [rows.version]
    rows.put([row_of(k, "DONE") for k in range(1, 6)])
    versions.append(rows.version)
    rows.remove([1])
    versions.append(rows.version)
    assert len(set(versions)) == 3
    ends = {number: found["end"] for number in range(2, 6) if (found := rows.get(number))}
    assert rows.oldest(2) == sorted(ends, key=lambda number: ends[number])[:2]
    rows.clear()
    assert len(rows) == 0 and rows.page(Query(), NOW)["rows"] == []


@pytest.mark.parametrize(("name", "value"), [("group", "some"), ("sort", "__class__")])
def test_an_unknown_group_or_column_is_refused(name: str, value: str):
    with pytest.raises(UsageError, match="is not a"):
        Query(**{name: value})  # type: ignore[arg-type]
