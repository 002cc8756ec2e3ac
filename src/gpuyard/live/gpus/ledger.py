"""The books of what each job has used: the energy of its GPUs, how busy they were, and how much memory was taken.

The energy of a GPU is divided evenly among the jobs that hold it at that moment, idle power included. So the parts of the jobs add up
to what the GPU has used while any job held it. Between two readings the last power is taken to go on; the next reading corrects it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuyard.live.node.devices import GpuReading, GpuUse

MOST_WATTS = 3000.0  # of one GPU


@dataclass
class Meter:
    """The energy of one GPU."""

    watts: float = 0.0
    utilisation: float = 0.0
    used: float = 0.0  # GB
    counter: float | None = None  # J, at the last reading
    guessed: float = 0.0  # J divided since then, by the last power
    told: float = 0.0  # s, when it was last read
    seen: float = 0.0  # s, up to when they have been divided
    jobs: set[int] = field(default_factory=set)  # that hold it


@dataclass
class Account:
    """The part of one job."""

    uuids: tuple[str, ...]
    joules: float = 0.0
    busy: float = 0.0  # utilisation × s, over its GPUs
    seconds: float = 0.0  # over its GPUs
    memory: float = 0.0  # GB


class Ledger:
    """Divides what the GPUs use among jobs. Times are seconds of one clock that never goes back."""

    def __init__(self) -> None:
        self._meters: dict[str, Meter] = {}
        self._accounts: dict[int, Account] = {}

    def took(self, now: float, readings: Sequence[GpuReading], counters: Sequence[float | None]) -> None:
        """Take over a reading of all GPUs, with their energy counters where they have one (J)."""
        for reading, counter in zip(readings, counters, strict=True):
            meter = self._meters.setdefault(reading.uuid, Meter(told=now, seen=now))
            self._divide(meter, now)
            if counter is not None and meter.counter is not None:
                used = counter - meter.counter
                if 0 <= used <= MOST_WATTS * (now - meter.told) + 1.0:  # else the counter began again, as with a new driver
                    self._give(meter, used - meter.guessed)
            meter.counter, meter.guessed = counter, 0.0
            meter.watts, meter.utilisation, meter.told = reading.watts, reading.utilisation, now
            meter.used = max(reading.memory - reading.free, 0.0) if not reading.lost else 0.0
            for job in meter.jobs:
                self._accounts[job].memory = max(self._accounts[job].memory, meter.used)

    def began(self, now: float, job: int, uuids: Sequence[str]) -> None:
        """Let a job hold these GPUs; one that does already goes on."""
        if job in self._accounts:
            return
        self._accounts[job] = Account(tuple(uuids))
        for uuid in uuids:
            meter = self._meters.setdefault(uuid, Meter(told=now, seen=now))
            self._divide(meter, now)
            meter.jobs.add(job)

    def ended(self, now: float, job: int) -> GpuUse:
        """Return what the job has used, and forget it."""
        account = self._accounts.get(job)
        if account is None:
            return GpuUse()
        for uuid in account.uuids:
            self._divide(self._meters[uuid], now)
            self._meters[uuid].jobs.discard(job)
        del self._accounts[job]
        busy = account.busy / account.seconds if account.seconds > 0 else 0.0
        return GpuUse(max(account.joules, 0.0), busy, account.memory)

    def _divide(self, meter: Meter, now: float) -> None:
        """Divide what was used since the last time, by the last power."""
        span = max(now - meter.seen, 0.0)
        meter.seen = max(now, meter.seen)
        meter.guessed += meter.watts * span
        self._give(meter, meter.watts * span)
        for job in meter.jobs:
            self._accounts[job].busy += meter.utilisation * span
            self._accounts[job].seconds += span

    def _give(self, meter: Meter, joules: float) -> None:
        for job in meter.jobs:
            self._accounts[job].joules += joules / len(meter.jobs)
