"""A scheduler beside one LSF: what a deployment reads, sends and gives back there. All else is as beside a Slurm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuyard.live.deployment.modes import Mode, Update
from gpuyard.live.deployment.running import REREAD, Deployment, DeploySettings, NoRightError
from gpuyard.live.estimator import keep
from gpuyard.live.guards import GuardSettings
from gpuyard.live.lsf.commands import no_right, read_lsf, send, went
from gpuyard.live.lsf.modes import LsfOrder, LsfPlace, LsfPublish, put_back, release_marked, resumed
from gpuyard.live.lsf.publishing import DecisionFile, PublishSettings
from gpuyard.live.lsf.text import LsfTables
from gpuyard.live.state.site import SiteState

MEANS = ("btop", "aps")


@dataclass(frozen=True)
class LsfSettings(DeploySettings):
    """How a deployment beside LSF works; `partitions` are queues, and a further mode is publish."""

    by: str = "btop"  # of MEANS: how the order is set
    publish: Path = Path("/run/gpuyard/lsf-decisions")

    def made(self) -> Mode:
        """Return the mode."""
        queues = frozenset(self.partitions)
        if self.mode == "place":
            return LsfPlace(self.guards, self.place, queues, self.every)
        if self.mode == "publish":
            times = PublishSettings(stale=3 * self.every + self.patience, new=max(60.0, 6 * self.every))
            return LsfPublish(self.guards, queues, DecisionFile(self.publish, times), self.place.settle)
        return LsfOrder(self.guards, queues, self.mode, self.by, self.most)


@dataclass
class LsfDeployment(Deployment):
    """One scheduler at work beside one LSF."""

    _tables: LsfTables | None = field(default=None, repr=False)

    def check(self) -> None:
        """Refuse an LSF in which this mode cannot work."""
        self.mode.check({}, read_lsf(self.settings.patience)[0])

    def _read(self) -> SiteState:
        """Read the jobs, and from time to time hosts and queues; in modes that place, hosts too in every cycle."""
        now = self.clock()
        fresh = self._clock_was_set(now) or self._ground is None or self._cycle % REREAD == 0
        known = None if fresh or self.mode.reads_nodes else self._tables
        state, tables = read_lsf(self.settings.patience, known)
        if known is None:
            self._tables = tables
        if fresh and self.memory is not None and self._cycle:
            keep(self.estimator, self.memory)
        quiet = state.nodes if known is None else [replace(node, used=0) for node in state.nodes]  # which GPUs were in use is no longer so
        self._ground = replace(state, now=now, nodes=quiet)
        return self._ground

    def _deliver(self, updates: Sequence[Update]) -> dict[str, str]:
        """Send updates, or publish."""
        if isinstance(self.mode, LsfPublish):
            self.mode.publish()
        failed = send(updates, self.settings.patience)
        send(resumed(updates, failed), self.settings.patience)
        if no_right(failed):
            raise NoRightError("this user may not change other users' jobs", hint="run it as an administrator of LSF (bparams, lsb.users)")
        return failed

    def _went(self, why: str) -> bool:
        return went(why)


def reset(
    by: str, queues: Sequence[str], publish: Path | None, guards: GuardSettings, patience: float = 30.0
) -> tuple[int, Mapping[str, str]]:
    """Put everything back: marks, hosts and begin times of ours, what is published, and the order of these queues alone.

    The order of others may be their administrator's own work. Return how many commands that took, and who refused.
    """
    if publish is not None:
        DecisionFile(publish).withdraw()
    marked, some = release_marked(patience)
    count, others = put_back(by, frozenset(queues), guards, patience) if queues else (0, {})
    return marked + count, {**some, **others}
