"""On a Ray cluster of this machine: the same bytes, also when a worker is killed; errors as anywhere else.

A cluster takes seconds to start, so there are few tests here, and each does a lot.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuyard.engine.compiler.entry import engine
from gpuyard.errors import DataError, GpuyardError, UsageError
from gpuyard.experiments.design.spec import load_experiment
from gpuyard.experiments.running.on_ray import OnRay
from gpuyard.experiments.running.results import load_results
from gpuyard.experiments.running.runner import backend_of, run
from gpuyard.experiments.running.store import CURVES, RUNS
from gpuyard.experiments.running.workers import Here

pytest.importorskip("ray", reason="Ray is not installed")


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The short form of the study, in this process."""
    engine()
    folder = tmp_path_factory.mktemp("core") / "results"
    run(load_experiment("core", quick=True), folder, Here())
    return folder


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # a cluster that is started here is not looked for elsewhere
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    yield


def actors() -> list[int]:
    """Processes of Ray that do our work, and belong to this process's cluster."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                title = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if title.startswith(b"ray::_Actor") and descends(int(entry.name), os.getpid()):
                found.append(int(entry.name))
    return found


def descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False


def test_core_on_two_processes_of_ray_gives_the_same_bytes_even_if_one_is_killed(core: Path, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(what: str, done: int, total: int) -> None:
        if 0 < done < total and not killed:
            busy = actors()
            assert len(busy) == 2
            killed.append(busy[0])
            os.kill(busy[0], signal.SIGKILL)

    outcome = run(load_experiment("core", quick=True), tmp_path / "results", OnRay("", 2), progress=kill)
    assert killed
    assert outcome.runs == 128
    for name in (RUNS, CURVES):
        assert (tmp_path / "results" / name).read_bytes() == (core / name).read_bytes()
    assert len(load_results(tmp_path / "results").manifests) == 128
    end = time.monotonic() + 20
    while actors() and time.monotonic() < end:
        time.sleep(0.1)
    assert not actors()


@dataclass(frozen=True)
class Odd:
    """Makes itself."""

    def __call__(self) -> Odd:
        return self

    def work(self, number: int) -> int:
        """The number, or an error."""
        if number == 3:
            raise DataError("the file x", hint="look for it")
        return number


def test_more_workers_than_there_is_room_for_do_not_hang_and_errors_arrive_as_they_were() -> None:
    import ray

    from gpuyard.experiments.running.on_ray import _spread

    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        from collections import deque

        done = threading.Event()
        found: list[int] = []

        def work() -> None:
            found.extend(number for number, _ in _spread(Odd(), deque([0, 1, 2, 4]), 4))
            done.set()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert done.wait(60), "waits for actors that the cluster has no room for"
        assert sorted(found) == [0, 1, 2, 4]
        with pytest.raises(DataError, match="^the file x; hint: look for it$") as raised:
            list(_spread(Odd(), deque([3]), 1))
        assert type(raised.value) is DataError
        assert raised.value.hint == "look for it"
        with pytest.raises(GpuyardError, match="Ray cluster of this machine"):  # one process has one cluster
            next(OnRay("", 1).run(Odd(), [1]))
    finally:
        ray.shutdown()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "[::1]:1", "127.0.0.1:99999"])
def test_a_cluster_that_is_not_there(address: str) -> None:
    with pytest.raises(GpuyardError, match="no answer.*hint: ray status") as raised:
        next(OnRay(address, 1).run(Odd(), [1]))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("address", ["lcoal", "a b:1", "http://x:1", "x:", ":1", "x:123456"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(UsageError, match="--on.*local, ray"):
        backend_of(address, None)


def test_nothing_to_do_starts_no_cluster() -> None:
    assert list(OnRay("127.0.0.1:1", 1).run(Odd(), [])) == []
