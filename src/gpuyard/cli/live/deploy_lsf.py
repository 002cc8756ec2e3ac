"""`gpuyard deploy lsf`: a scheduler beside a real LSF, and the hooks that go with it."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.output import say
from gpuyard.cli.live import deploy as shared
from gpuyard.cli.live.deploy import DEFAULT, FAILED
from gpuyard.errors import UsageError
from gpuyard.registry import unknown_name

if TYPE_CHECKING:
    from gpuyard.live.guards import GuardSettings
    from gpuyard.live.lsf.deploying import LsfSettings

LOG, DECISIONS = Path("gpuyard-lsf.jsonl"), Path("/run/gpuyard/lsf-decisions")
LEAST_DEADMAN = 180.0  # s: LSF knows minutes
Place = Annotated[bool, shared.mode_option("--place", text="Say when and on which hosts jobs start; needs `gpuyard deploy esub`.")]
Publish = Annotated[bool, shared.mode_option("--publish", text="Write decisions for the plugin of LSF's scheduler, and send nothing.")]
Queues = Annotated[list[str] | None, typer.Option("--queue", metavar="NAME", help="Only jobs of this queue; repeatable.")]
Means = Annotated[str, typer.Option(metavar="btop|aps", help="How the order is set: moves, or system values of an APS queue.")]
Decisions = Annotated[Path, typer.Option(metavar="FILE", help="What --publish writes.")]
Patience = Annotated[str, typer.Option(metavar="TIME", help="How long a command of LSF may take.")]
Others = Annotated[
    list[str] | None, shared.guard_option("--exclude-queue", metavar="NAME", text="Leave this queue's jobs alone; repeatable.")
]
Behind = Annotated[
    int | None, shared.guard_option("--behind", metavar="N", text="Places that a job may lose against LSF's own order.", min=0)
]


def lsf(
    shadow: shared.Shadow = False, order: shared.Order = False, place: Place = False, publish: Publish = False,
    reset: shared.Reset = False, dry_run: shared.DryRun = False, scheduler: options.SchedulerOption = DEFAULT, queue: Queues = None,
    means: Means = "btop", decisions: Decisions = DECISIONS, log: shared.Log = LOG, metrics: shared.Metrics = None,
    every: shared.Every = "10s",
    cycles: shared.Cycles = None, most: shared.Most = 100, deadman: shared.Deadman = "10m", patience: Patience = "30s",
    lock: shared.Lock = None, exclude_user: shared.Users = None, exclude_queue: Others = None, behind: Behind = None,
    stop_file: shared.StopFile = None, slow: shared.Slow = "30s", strikes: shared.Strikes = 5, against: shared.Against = None,
    worse: shared.Worse = 1.5, verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """Let a scheduler work beside this machine's LSF: first only watching, then ordering its queues, then placing its jobs.

    LSF goes on starting jobs by itself, within all its limits; brun is never used. When gpuyard ends, however it ends, the order stays as
    it is, and jobs that wait to be placed start by themselves. --reset puts everything back. Tested beside a stand-in; no LSF was at hand.
    """
    from gpuyard.live.deployment.placing import PlaceSettings
    from gpuyard.live.lsf.deploying import MEANS, LsfSettings

    modes = {"shadow": shadow, "order": order, "place": place, "publish": publish, "reset": reset}
    chosen = [name for name, given in modes.items() if given]
    if len(chosen) != 1:
        raise UsageError("which mode?", hint="one of --shadow, --order, --place, --publish and --reset")
    if means not in MEANS:
        raise unknown_name("means", means, MEANS)
    period, wait, limit = shared.time_of("--every", every), shared.time_of("--patience", patience), shared.time_of("--slow", slow)
    ahead = shared.time_of("--deadman", deadman)
    guards = shared.guard_settings(exclude_user, exclude_queue, behind, stop_file, limit, strikes, against, worse)
    if reset:
        _reset(means, queue or [], decisions, guards, wait)
        return
    if place and ahead < max(6 * period, LEAST_DEADMAN):
        hint = "jobs would start before they are decided"
        raise UsageError(f"--deadman {deadman} is less than six cycles of --every {every} and than three minutes", hint=hint)
    settings = LsfSettings(
        chosen[0], period, most, partitions=tuple(queue or ()), patience=wait, by=means, publish=decisions,
        guards=guards, place=PlaceSettings(ahead, settle=max(20.0, 2 * period)),
    )  # fmt: skip
    _work(settings, scheduler or DEFAULT, log, cycles, metrics, lock, dry_run)


def _work(
    settings: LsfSettings, scheduler: str, log: Path, cycles: int | None, metrics: Path | None, lock: Path | None, dry_run: bool
) -> None:
    """Make the deployment, and let it work."""
    from gpuyard.live.health import DeploymentFigures
    from gpuyard.live.leader import leading
    from gpuyard.live.log import RotatedLog
    from gpuyard.live.lsf.commands import cluster_of
    from gpuyard.live.lsf.deploying import LsfDeployment
    from gpuyard.policies import parse_scheduler

    kept = RotatedLog(log), log.with_name(f"{log.name}.estimates"), DeploymentFigures(metrics)
    made = LsfDeployment(parse_scheduler(scheduler), settings, *kept)
    made.check()
    if dry_run:
        shared.show_plan(made)
        return
    shared.run_until_end(made, cycles, nullcontext() if settings.mode == "shadow" else leading(cluster_of(settings.patience), lock))
    if settings.mode in _STAYS:
        queues = "".join(f" --queue {each}" for each in settings.partitions or ("NAME",))
        own = queues + (" --means aps" if settings.by == "aps" else "")
        say(f"{_STAYS[settings.mode]}; gpuyard deploy lsf --reset{own} puts every job back")


_STAYS = {
    "order": "the order stays as it is", "place": "waiting jobs start by themselves when their begin times come",
    "publish": "the plugin steps aside when the decisions are stale",
}  # fmt: skip


def _reset(by: str, queues: list[str], decisions: Path, guards: GuardSettings, patience: float) -> None:
    from gpuyard.live.lsf.deploying import reset as put_back

    count, failed = put_back(by, queues, decisions, guards, patience)
    for job, why in list(failed.items())[:20]:
        say(f"warning: job {job}: {why}")
    say(f"{count} commands put every job back" + (f", but for {len(failed)} jobs" if failed else ""))
    if not queues:
        say("the order of queues stays as it is: --queue NAME puts back that of a queue, in the order of submission")
    if failed:
        raise typer.Exit(FAILED)


def esub(
    queue: Queues = None,
    deadman: Annotated[str, typer.Option(metavar="TIME", help="After how long a job starts if gpuyard does not live.")] = "10m",
    default: Annotated[str, typer.Option(metavar="NAME", help="The queue of jobs that name none.")] = "",
    admin: Annotated[list[str] | None, typer.Option(metavar="USER", help="May change such jobs, beside root; repeatable.")] = None,
    stop_file: shared.StopFile = None,
    guard: Annotated[bool, typer.Option("--guard/--no-guard", help="Keep owners from changing begin time, hosts and description.")] = True,
    hold: Annotated[bool, typer.Option("--hold", help="Hold jobs until they are started, come what may.")] = False,
    plugin: Annotated[bool, typer.Option("--plugin", help="Print epsub.gpuyard instead, which the plugin needs.")] = False,
    verbose: options.Verbose = False,
) -> None:
    """Print the esub.gpuyard that place mode beside LSF needs: jobs of the queues get a begin time and a mark."""
    from gpuyard.live.lsf import hooks

    if not queue:
        raise UsageError("which queues?", hint="--queue NAME")
    if plugin:
        sys.stdout.write(hooks.epsub(queue, stop=stop_file))
        return
    ahead = shared.time_of("--deadman", deadman)
    sys.stdout.write(hooks.esub(queue, deadman=ahead, admins=admin or (), default=default, stop=stop_file, guard=guard, hold=hold))
