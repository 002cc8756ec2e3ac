"""Work done by several threads: each item once, results and errors in the order of the items."""

from __future__ import annotations

import threading

import pytest

from gpuyard.envs.threads import map_on_threads


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_each_item_is_done_once_and_found_in_its_place(count: int, threads: int):
    done: list[int] = []

    def square(item: int) -> int:
        done.append(item)
        return item * item

    assert map_on_threads(square, range(count), threads) == [k * k for k in range(count)]
    assert sorted(done) == list(range(count))


def test_as_many_threads_work_at_once_and_are_over_after_it():
    together = threading.Barrier(3, timeout=10)  # passed by three at a time alone
    before = threading.active_count()
    seen = map_on_threads(lambda _: (together.wait(), threading.get_ident())[1], range(3), 3)
    assert len(set(seen)) == 3 and threading.get_ident() in seen
    assert threading.active_count() == before


def test_of_several_errors_that_of_the_first_item_is_raised():
    later_failed = threading.Event()
    begun: list[int] = []

    def fail(item: int) -> None:
        begun.append(item)
        if item == 0:
            later_failed.wait(10)
        try:
            raise ValueError(f"item {item}")
        finally:
            if item == 1:
                later_failed.set()

    with pytest.raises(ValueError, match="item 0"):
        map_on_threads(fail, range(50), 2)
    assert sorted(begun) == [0, 1]


def test_an_error_of_one_thread_ends_the_work():
    begun: list[int] = []

    def fail(item: int) -> None:
        begun.append(item)
        raise KeyError(item)

    with pytest.raises(KeyError, match="0"):
        map_on_threads(fail, range(50), 1)
    assert begun == [0]
