"""A scheduler beside one Slurm: what a deployment reads, sends and gives back there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from gpuyard.live.deployment.modes import Mode, Update
from gpuyard.live.deployment.running import JUMP, REREAD, Deployment, DeploySettings, NoRightError
from gpuyard.live.estimator import keep
from gpuyard.live.guards import GuardSettings
from gpuyard.live.slurm.commands import SlurmError, configuration, no_right, read_jobs, read_nodes, read_slurm, send, went
from gpuyard.live.slurm.means import MEANS
from gpuyard.live.slurm.modes import OrderMode, SlurmPlace, release_all
from gpuyard.live.slurm.text import KnownRows
from gpuyard.live.state.site import SiteState


@dataclass(frozen=True)
class SlurmSettings(DeploySettings):
    """How a deployment beside Slurm works."""

    within: int = 1_000_000  # the largest site factor, up or down

    def made(self) -> Mode:
        """Return the mode."""
        if self.mode == "place":
            return SlurmPlace(self.guards, self.place, frozenset(self.partitions), self.every)
        return OrderMode(self.guards, self.within, frozenset(self.partitions), self.mode)


@dataclass
class SlurmDeployment(Deployment):
    """One scheduler at work beside one Slurm."""

    _rows: KnownRows = field(default_factory=dict, repr=False)  # of squeue, as it answered last

    def check(self) -> None:
        """Refuse a Slurm in which this mode cannot work."""
        patience = self.settings.patience
        self.mode.check(configuration(patience), read_slurm(patience))

    def _read(self) -> SiteState:
        """Read the queue, and from time to time the rest; all of it when the clock was set."""
        settings, now = self.settings, self.clock()
        if self._clock_was_set(now):
            self._ground = None
        if self._ground is None or self._cycle % REREAD == 0:
            self._ground = read_slurm(settings.patience, ended=True, placing=self.mode.placing)
            ahead = self._ground.system_now - self.clock()  # it was asked last
            if self.memory is not None and self._cycle:
                keep(self.estimator, self.memory)
            self.mode.reread(settings.patience)
            if settings.mode == "place" and abs(ahead) > JUMP:
                hint = "begin times would come at the wrong moment: let NTP set both"
                raise SlurmError(f"slurmctld's clock is {ahead:+.0f} s from this machine's", hint=hint)
            return replace(self._ground, now=now)
        jobs = read_jobs(settings.patience, ended=True, placing=self.mode.placing, known=self._rows)
        quiet = [replace(node, used=0) for node in self._ground.nodes]  # which GPUs were in use then is no longer so
        nodes = read_nodes(settings.patience) if self.mode.reads_nodes else quiet
        return replace(self._ground, now=now, jobs=jobs, nodes=nodes)

    def _deliver(self, updates: Sequence[Update]) -> dict[str, str]:
        failed = send(updates, self.settings.patience)
        if no_right(failed):
            hint = "run it as SlurmUser or root, or as an operator of Slurm's accounting"
            raise NoRightError("this user may not change other users' jobs", hint=hint)
        return failed

    def _went(self, why: str) -> bool:
        return went(why)


def reset(
    patience: float = 30.0, guards: GuardSettings | None = None, partitions: frozenset[str] = frozenset()
) -> tuple[int, Mapping[str, str]]:
    """Put every job back, whatever mode it was changed by; return how many updates that took, and who did not take his.

    The order of jobs that the guards leave to the site, or that are in other `partitions`, is not touched. All lose our marks.
    """
    config = configuration(patience)
    count, failed = 0, dict[str, str]()
    kind = config.get("PriorityType", "")
    touches = partial((guards or GuardSettings()).touches, partitions=partitions)
    steps: list[Callable[[float], tuple[int, Mapping[str, str]]]] = [partial(MEANS[kind]().reset, touches=touches)] if kind in MEANS else []
    steps.append(partial(release_all, settle=0.0))  # jobs are marked also when the hook is gone
    for step in steps:
        number, some = step(patience)
        count, failed = count + number, failed | dict(some)
    return count, failed
