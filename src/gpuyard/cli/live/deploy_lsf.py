"""`gpuyard deploy lsf`: a scheduler beside a real LSF, and the hooks that go with it."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.output import say
from gpuyard.cli.live.deploy import DEFAULT, FAILED, StopOption, _cycles, _end, _guard, _guards, _mode, _show_plan, _time
from gpuyard.errors import UsageError
from gpuyard.registry import unknown_name

if TYPE_CHECKING:
    from gpuyard.live.lsf.deploying import LsfSettings

LOG, DECISIONS = Path("gpuyard-lsf.jsonl"), Path("/run/gpuyard/lsf-decisions")
LEAST_DEADMAN = 180.0  # s: LSF knows minutes
QueueOption = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only jobs of this queue; repeatable.")]


def lsf(
    shadow: Annotated[bool, _mode("--shadow", text="Log what would be done, and change nothing.")] = False,
    order: Annotated[bool, _mode("--order", text="Let waiting jobs stand in the scheduler's order.")] = False,
    place: Annotated[bool, _mode("--place", text="Say when and on which hosts jobs start; needs `gpuyard deploy esub`.")] = False,
    publish: Annotated[bool, _mode("--publish", text="Write decisions for the plugin of LSF's scheduler, and send nothing.")] = False,
    reset: Annotated[bool, _mode("--reset", text="Put every job back, and end.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what --order or --place would send now, and end.")] = False,
    scheduler: options.SchedulerOption = DEFAULT,
    queue: QueueOption = None,
    by: Annotated[str, typer.Option(metavar="btop|aps", help="How the order is set: moves, or system values of an APS queue.")] = "btop",
    decisions: Annotated[Path, typer.Option(metavar="FILE", help="What --publish writes.")] = DECISIONS,
    log: Annotated[Path, typer.Option(metavar="FILE", help="JSON lines, one for each cycle; rotated.")] = LOG,
    metrics: Annotated[Path | None, typer.Option(metavar="FILE", help="Figures for Prometheus's textfile collector.")] = None,
    every: Annotated[str, typer.Option(metavar="TIME", help="From one cycle to the next.")] = "10s",
    cycles: Annotated[int | None, typer.Option(metavar="N", help="End after so many; else at Ctrl-C.", min=1)] = None,
    most: Annotated[int, typer.Option(metavar="N", help="Commands that a cycle sends, at most.", min=1, max=10_000)] = 100,
    deadman: Annotated[str, typer.Option(metavar="TIME", help="--place: after how long a job starts if gpuyard does not live.")] = "10m",
    patience: Annotated[str, typer.Option(metavar="TIME", help="How long a command of LSF may take.")] = "30s",
    lock: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the lock lies, if several machines may run it.")] = None,
    exclude_user: Annotated[
        list[str] | None, _guard("--exclude-user", metavar="NAME", text="Leave this user's jobs alone; repeatable.")
    ] = None,
    exclude_queue: Annotated[
        list[str] | None, _guard("--exclude-queue", metavar="NAME", text="Leave this queue's jobs alone; repeatable.")
    ] = None,
    behind: Annotated[
        int | None, _guard("--behind", metavar="N", text="Places that a job may lose against LSF's own order.", min=0)
    ] = None,
    stop_file: StopOption = None,
    slow: Annotated[str, _guard("--slow", metavar="TIME", text="How long a cycle may take.")] = "30s",
    strikes: Annotated[int, _guard("--strikes", metavar="N", text="Slow or failed cycles in a row that end it.", min=1)] = 5,
    against: Annotated[Path | None, _guard("--against", metavar="LOG", text="Shadow log whose mean wait is the measure.")] = None,
    worse: Annotated[float, _guard("--worse", metavar="X", text="Mean wait, times that of --against, that ends it.", min=1.0)] = 1.5,
    verbose: options.Verbose = False,
) -> None:
    """Let a scheduler work beside this machine's LSF: first only watching, then ordering its queues, then placing its jobs.

    LSF goes on starting jobs by itself, within all its limits; brun is never used. When gpuyard ends, however it ends, the order stays as
    it is, and jobs that wait to be placed start by themselves. --reset puts everything back. Tested beside a stand-in; no LSF was at hand.
    """
    from gpuyard.live.lsf.deploying import MEANS, LsfSettings
    from gpuyard.live.slurm.placing import PlaceSettings

    modes = {"shadow": shadow, "order": order, "place": place, "publish": publish, "reset": reset}
    chosen = [name for name, given in modes.items() if given]
    if len(chosen) != 1:
        raise UsageError("which mode?", hint="one of --shadow, --order, --place, --publish and --reset")
    if by not in MEANS:
        raise unknown_name("means", by, MEANS)
    period, wait, limit = _time("--every", every), _time("--patience", patience), _time("--slow", slow)
    ahead = _time("--deadman", deadman)
    if reset:
        _reset(by, queue or [], decisions, wait)
        return
    if place and ahead < max(6 * period, LEAST_DEADMAN):
        hint = "jobs would start before they are decided"
        raise UsageError(f"--deadman {deadman} is less than six cycles of --every {every} and than three minutes", hint=hint)
    guards = _guards(exclude_user, exclude_queue, behind, stop_file, limit, strikes, against, worse)
    settings = LsfSettings(
        chosen[0], period, most, partitions=tuple(queue or ()), patience=wait, guards=guards, by=by, publish=decisions,
        place=PlaceSettings(ahead, settle=max(20.0, 2 * period)),
    )  # fmt: skip
    _work(settings, scheduler or DEFAULT, log, cycles, metrics, lock, dry_run)


def _work(
    settings: LsfSettings, scheduler: str, log: Path, cycles: int | None, metrics: Path | None, lock: Path | None, dry_run: bool
) -> None:
    """Work until Ctrl-C or SIGTERM."""
    from gpuyard.files import locked
    from gpuyard.live.health import DeploymentFigures
    from gpuyard.live.leader import leading
    from gpuyard.live.log import RotatedLog
    from gpuyard.live.lsf.commands import cluster_of
    from gpuyard.live.lsf.deploying import LsfDeployment
    from gpuyard.policies import parse_scheduler

    kept = RotatedLog(log)
    deployment = LsfDeployment(
        parse_scheduler(scheduler), settings, kept, log.with_name(f"{log.name}.estimates"), DeploymentFigures(metrics)
    )
    deployment.check()
    if dry_run:
        _show_plan(deployment)
        return
    signal.signal(signal.SIGTERM, _end)
    with suppress(KeyboardInterrupt), locked(log.parent / f".{log.name}.lock"):
        if settings.mode == "shadow":
            _cycles(deployment, cycles, kept)
        else:
            with leading(cluster_of(settings.patience), lock):
                _cycles(deployment, cycles, kept)
    stays = {"order": "the order stays as it is", "place": f"waiting jobs start by themselves within {settings.place.deadman:g} s",
             "publish": "the plugin steps aside when the decisions are stale"}  # fmt: skip
    if settings.mode in stays:
        say(f"{stays[settings.mode]}; gpuyard deploy lsf --reset puts every job back")


def _reset(by: str, queues: list[str], decisions: Path, patience: float) -> None:
    from gpuyard.live.lsf.deploying import reset as put_back

    count, failed = put_back(by, queues, decisions, patience)
    for job, why in list(failed.items())[:20]:
        say(f"warning: job {job}: {why}")
    say(f"{count} commands put every job back" + (f", but for {len(failed)} jobs" if failed else ""))
    if failed:
        raise typer.Exit(FAILED)


def esub(
    queue: QueueOption = None,
    deadman: Annotated[str, typer.Option(metavar="TIME", help="After how long a job starts if gpuyard does not live.")] = "10m",
    default: Annotated[str, typer.Option(metavar="NAME", help="The queue of jobs that name none.")] = "",
    admin: Annotated[list[str] | None, typer.Option(metavar="USER", help="May change such jobs, beside root; repeatable.")] = None,
    stop_file: StopOption = None,
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
    ahead = _time("--deadman", deadman)
    sys.stdout.write(hooks.esub(queue, deadman=ahead, admins=admin or (), default=default, stop=stop_file, guard=guard, hold=hold))
