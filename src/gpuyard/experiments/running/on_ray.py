"""Work on a Ray cluster: one that is started on this machine, or one that runs elsewhere.

Every machine of the cluster needs gpuyard, of the same version, and the files that the experiment names, at the same paths. Results
travel back to the process that asked, which alone writes.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import socket
from collections import deque
from collections.abc import Iterable
from typing import Any

from gpuyard.errors import GpuyardError, UsageError
from gpuyard.experiments.running.workers import TRIES, MakeWorker, Outcomes, portable
from gpuyard.model.units import shorten

AUTO = "auto"  # the cluster that this machine is part of
TOKEN = "`ray status` says whether it runs; if it wants a token, set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN on other machines"
REACHABLE = 10.0  # s in which a cluster must answer: Ray itself would wait for minutes
_ADDRESS = re.compile(r"(?:ray://)?(?P<host>[\w.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


class OnRay:
    """`address` empty: a cluster of `workers` processes is started here. Else `workers`, or 0 for as many as it has cores."""

    def __init__(self, address: str, workers: int) -> None:
        self._address, self._workers = address, workers
        if address and address != AUTO and not _ADDRESS.fullmatch(address):
            raise UsageError(
                f"--on {shorten(address)} is not a place to run at", hint="local, ray, HOST:PORT or ray://HOST:PORT of a cluster, or auto"
            )
        if importlib.util.find_spec("ray") is None:
            raise UsageError("Ray is not installed", hint="pip install 'gpuyard[ray]'")

    def run(self, make: MakeWorker, numbers: Iterable[int]) -> Outcomes:
        """Yield outcomes as they are done."""
        import ray

        waiting = deque(numbers)
        if not waiting:
            return
        self._connect()
        try:
            count = self._workers or max(int(ray.cluster_resources().get("CPU", 1)), 1)
            yield from _spread(make, waiting, count)
        finally:
            ray.shutdown()

    def _connect(self) -> None:
        import ray

        self._reach()
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
        try:
            if self._address:
                ray.init(address=self._address, **quiet)
            else:
                ray.init(address="local", num_cpus=self._workers, include_dashboard=False, **quiet)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            what = " ".join(str(error).split())[:300]
            raise GpuyardError(f"Ray cluster {self._address or 'of this machine'}: {what}", hint=TOKEN) from None

    def _reach(self) -> None:
        match = _ADDRESS.fullmatch(self._address)
        if match is None:
            return
        try:
            socket.create_connection((match["host"].strip("[]"), int(match["port"])), REACHABLE).close()
        except (OSError, OverflowError) as error:
            what = getattr(error, "strerror", None) or error
            raise GpuyardError(f"Ray cluster {self._address}: no answer: {what}", hint="ray status says whether it runs") from None


def _spread(make: MakeWorker, waiting: deque[int], count: int) -> Outcomes:
    """Give each running actor one task at a time: a cluster may have room for fewer actors than requested.

    Ray restarts an actor that has died, and its task with it.
    """
    import ray

    actor: Any = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=TRIES - 1)(_Actor)
    made = ray.put(make)
    at: dict[Any, tuple[int | None, Any]] = {}  # what is waited for → the task, if it is one, and whose
    for _ in range(min(count, len(waiting))):
        each = actor.remote()
        at[each.ready.remote()] = None, each
    while waiting or any(number is not None for number, _ in at.values()):
        ready, _ = ray.wait(list(at), num_returns=1)
        number, each = at.pop(ready[0])
        found = _outcome(ready[0])
        if waiting:
            following = waiting.popleft()
            at[each.work.remote(made, following)] = following, each
        if number is not None:
            yield number, found


def _outcome(reference: Any) -> Any:
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause if isinstance(error.cause, Exception) else error
        raise portable(cause) from None
    except ray.exceptions.RayError as error:
        raise GpuyardError(f"a worker died {TRIES} times at the same task: {' '.join(str(error).split())[:200]}") from None


class _Actor:
    """A worker in one of Ray's processes."""

    def __init__(self) -> None:
        self._worker: Any = None

    def ready(self) -> None:
        """Return once the process runs."""

    def work(self, make: MakeWorker, number: int) -> Any:
        """Work on a task; the worker is made at the first one, so that its errors are reported like those of any task."""
        self._worker = self._worker or make()
        return self._worker.work(number)
