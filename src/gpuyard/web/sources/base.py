"""The form in which a source tells the collector what it sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpuyard.errors import UsageError
from gpuyard.web.rows import QueueRow


@dataclass(frozen=True)
class GpuNow:
    """A GPU, or another device, at an instant; None: not measured."""

    name: str  # GPU 0
    kind: str  # NVIDIA H200
    state: str  # free, busy, gpu-lost, gpu-foreign
    jobs: Sequence[str] = ()
    utilisation: float | None = None  # 0 … 1
    memory: float | None = None  # GB used
    total: float = 0.0  # GB
    watts: float | None = None
    celsius: float | None = None


@dataclass(frozen=True)
class HeldSpan:
    """A stretch of time in which a job held devices. Times are s since 1970; end 0: it still does."""

    job: int
    label: str
    name: str
    rows: Sequence[int]  # of `Glance.devices`
    start: float
    end: float


@dataclass(frozen=True)
class Glance:
    """All that a source has to tell at one look; jobs that have not changed may be left out."""

    now: float  # s since 1970, by its clock
    title: str  # of what it is a look at
    scheduler: str = ""
    trouble: str = ""  # what is wrong, for people
    notes: Sequence[str] = ()
    fresh: bool = False  # what was known before does not count any more
    whole: bool = False  # `rows` and `held` are all there are: what is missing is gone
    rows: Sequence[QueueRow] = ()
    reasons: Mapping[int, str] | None = None  # why jobs wait; None: as before
    order: Sequence[int] | None = None  # the first waiting jobs as the scheduler looks at them; None: as before
    keys: Sequence[float] = ()  # by which it orders them, lower first; for a network minus its score
    total: float = 0.0  # devices
    busy: float = 0.0
    unit: str = "GPU"
    devices: Sequence[str] = ()  # names of the rows of the Gantt chart
    held: Sequence[HeldSpan] = ()
    gpus: Sequence[GpuNow] = ()
    decisions: Sequence[Mapping[str, Any]] | None = None  # newest first; None: as before
    loading: int = 0  # jobs that have still to be read


@dataclass(frozen=True)
class PastReadings:
    """Readings of before the dashboard was started."""

    times: Sequence[float] = ()
    values: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)  # utilisation … → a row per GPU


class LiveSource(Protocol):
    """Looks at a cluster. It is called from one thread at a time, and may take some seconds."""

    every: float  # s between looks
    can_act: bool

    def look(self) -> Glance:
        """Return what has changed; GpuyardError: it cannot be reached."""

    def detail(self, number: int) -> Mapping[str, Any]:
        """Return what more is known of a job: why it waits, when it may start, what it runs."""

    def output(self, number: int, most: int) -> str:
        """Return the end of what a job has written."""

    def act(self, action: str, number: int) -> None:
        """Cancel, hold, release or top a job."""

    def past(self, since: float) -> PastReadings:
        """Return readings of before."""

    def close(self) -> None:
        """Let go of what it holds."""


ACTIONS = ("cancel", "hold", "release", "top")


class LooksOnly:
    """A source that can only be looked at."""

    every = 5.0
    can_act = False

    def detail(self, number: int) -> Mapping[str, Any]:
        """Know nothing more."""
        return {}

    def output(self, number: int, most: int) -> str:
        """Have no output of jobs."""
        raise UsageError("the output of jobs is not known here")

    def act(self, action: str, number: int) -> None:
        """Refuse."""
        raise UsageError("this cluster can only be looked at")

    def past(self, since: float) -> PastReadings:
        """Remember nothing."""
        return PastReadings()

    def close(self) -> None:
        """Hold nothing."""
