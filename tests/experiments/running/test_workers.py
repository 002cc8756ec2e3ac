"""Workers: the same outcomes whoever does the work, errors that arrive, processes that end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuyard.errors import DataError, GpuyardError, UsageError
from gpuyard.experiments.running.workers import TRIES, Here, Processes, check_workers

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _workers_find_this_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is handed to a fresh process is found there by the name of its module."""
    monkeypatch.syspath_prepend(str(ROOT))


@dataclass(frozen=True)
class Squares:
    """Makes itself; tasks below 0 are for what can go wrong."""

    folder: str = ""

    def __call__(self) -> Squares:
        return self

    def work(self, number: int) -> object:
        """The square and who did it."""
        if number == -1:
            raise DataError("the file x", hint="look for it")
        if number == -2:
            raise KeyError("two\nlines")
        if number == -3:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == -4:
            marks = list(Path(self.folder).iterdir())
            (Path(self.folder) / str(len(marks))).touch()
            if len(marks) < TRIES - 1:
                os.kill(os.getpid(), signal.SIGKILL)
        if number == -5:
            time.sleep(600)
        return number * number, os.getpid()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def test_every_task_is_done_once_by_some_worker() -> None:
    found = list(Processes(2).run(Squares(), range(20)))
    assert sorted((number, square) for number, (square, _) in found) == [(k, k * k) for k in range(20)]
    workers = {pid for _, (_, pid) in found}
    assert os.getpid() not in workers
    assert len(workers) == 2
    assert until(lambda: not any(alive(pid) for pid in workers))
    assert [(number, square) for number, (square, _) in Here().run(Squares(), range(4))] == [(0, 0), (1, 1), (2, 4), (3, 9)]


def test_processes_that_were_begun_before_do_the_work_and_those_too_many_end() -> None:
    backend = Processes(2)
    backend.begin()
    begun = {worker.process.pid for worker in backend._begun}
    found = list(backend.run(Squares(), [3]))
    assert [(number, square) for number, (square, _) in found] == [(3, 9)]
    assert {pid for _, (_, pid) in found} < begun
    assert until(lambda: not any(alive(pid) for pid in begun))
    again = list(backend.run(Squares(), [4]))  # there are none left: new ones start
    assert [(number, square) for number, (square, _) in again] == [(4, 16)]
    assert not {pid for _, (_, pid) in again} & begun


def test_nothing_to_do_starts_nothing() -> None:
    def never() -> object:
        raise AssertionError

    assert list(Here().run(never, [])) == []
    assert list(Processes(2).run(never, [])) == []


@pytest.mark.parametrize("backend", [Here(), Processes(2)], ids=["here", "processes"])
def test_an_error_of_ours_arrives_as_it_was(backend: Here | Processes) -> None:
    with pytest.raises(DataError, match="^the file x; hint: look for it$") as raised:
        list(backend.run(Squares(), [1, -1, 2]))
    assert raised.value.hint == "look for it"
    assert raised.value.exit_code == DataError.exit_code


def test_any_other_error_is_one_line() -> None:
    with pytest.raises(GpuyardError, match=r"^a worker failed: KeyError: 'two\\nlines'$"):
        list(Processes(2).run(Squares(), [-2]))


def test_a_worker_that_dies_is_replaced_and_its_task_done_again(tmp_path: Path) -> None:
    found = dict(Processes(2).run(Squares(str(tmp_path)), [3, -4, 5, 6]))
    assert {number: square for number, (square, _) in found.items()} == {3: 9, -4: 16, 5: 25, 6: 36}
    assert len(list(tmp_path.iterdir())) == TRIES


def test_a_task_that_always_kills_its_worker_is_given_up() -> None:
    with pytest.raises(GpuyardError, match=f"died {TRIES} times at the same task, number -3.*exit code -9.*--workers 1"):
        list(Processes(2).run(Squares(), [1, -3, 2]))


def test_closing_early_ends_workers_that_are_busy() -> None:
    outcomes = Processes(2).run(Squares(), [1, -5, -5, -5])
    _, (_, pid) = next(outcomes)
    outcomes.close()
    assert until(lambda: not alive(pid))


ORPHANS = """
import sys
sys.path.insert(0, {here!r})
from test_workers import Squares
from gpuyard.experiments.running.workers import Processes
if __name__ == "__main__":
    for number, (square, pid) in Processes(2).run(Squares(), [1, 2, 3, 4, -5, -5]):
        print(pid, flush=True)
"""


def test_no_worker_outlives_a_killed_parent(tmp_path: Path) -> None:
    """Not even one that is in the middle of a task of ten minutes."""
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS.format(here=str(Path(__file__).parent)))
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = {int(process.stdout.readline()) for _ in range(4)}
        assert all(alive(pid) for pid in pids)
        process.kill()
    assert until(lambda: not any(alive(pid) for pid in pids))


def test_numbers_of_workers() -> None:
    from gpuyard.experiments.running.runner import backend_of  # not above: the processes import this module, and it imports much

    assert check_workers(1) == 1
    assert 1 <= check_workers(None) <= 8
    assert isinstance(backend_of("local", 1), Here)
    assert isinstance(backend_of("local", 2), Processes)
    for count in (0, -1, 100_000):
        with pytest.raises(UsageError, match="--workers"):
            backend_of("local", count)
