"""`gpuyard deploy`: a scheduler beside a real batch system."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.output import say
from gpuyard.errors import UsageError

if TYPE_CHECKING:
    from gpuyard.live.deployment.running import Deployment, DeploySettings
    from gpuyard.live.guards import GuardSettings

FAILED = 1
NOT_WELL = 3
DEFAULT = "sjf/fewest/easy"
LOG = Path("gpuyard-slurm.jsonl")
app = typer.Typer(name="deploy", no_args_is_help=True, help="Let a scheduler work beside a batch system.")


def mode_option(*names: str, text: str) -> Any:
    """Return an option that chooses a mode."""
    return typer.Option(*names, help=text, rich_help_panel="Mode: one of them")


def guard_option(*names: str, metavar: str, text: str, **more: Any) -> Any:
    """Return an option that sets a guard."""
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel="Guards", **more)


Shadow = Annotated[bool, mode_option("--shadow", text="Log what would be done, and change nothing.")]
Order = Annotated[bool, mode_option("--order", text="Let waiting jobs stand in the scheduler's order.")]
Place = Annotated[bool, mode_option("--place", text="Say when and on which nodes jobs start; needs `gpuyard deploy lua`.")]
Reset = Annotated[bool, mode_option("--reset", text="Put every job back, but for those that are excluded, and end.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what --order or --place would send now, and end.")]
Log = Annotated[Path, typer.Option(metavar="FILE", help="JSON lines, one for each cycle; rotated.")]
Metrics = Annotated[Path | None, typer.Option(metavar="FILE", help="Figures for Prometheus's textfile collector.")]
Every = Annotated[str, typer.Option(metavar="TIME", help="From one cycle to the next.")]
Cycles = Annotated[int | None, typer.Option(metavar="N", help="End after so many; else at Ctrl-C.", min=1)]
Most = Annotated[int, typer.Option(metavar="N", help="Updates that a cycle sends, at most.", min=1, max=10_000)]
Within = Annotated[int, typer.Option(metavar="N", help="The largest site factor, up or down.", min=1, max=2_000_000_000)]
Partitions = Annotated[list[str] | None, typer.Option("--partition", metavar="NAME", help="Only jobs of this partition; repeatable.")]
Deadman = Annotated[str, typer.Option(metavar="TIME", help="Place mode: after how long a job starts if gpuyard does not live.")]
Patience = Annotated[str, typer.Option(metavar="TIME", help="How long a command of Slurm may take.")]
Wake = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Begin a cycle as soon as this file is touched, as EpilogSlurmctld may do.")
]
Lock = Annotated[Path | None, typer.Option(metavar="DIR", help="Where the lock lies, if several machines may run it.")]
Users = Annotated[list[str] | None, guard_option("--exclude-user", metavar="NAME", text="Leave this user's jobs alone; repeatable.")]
Others = Annotated[
    list[str] | None, guard_option("--exclude-partition", metavar="NAME", text="Leave this partition's jobs alone; repeatable.")
]
Behind = Annotated[int | None, guard_option("--behind", metavar="N", text="Places that a job may lose against Slurm's own order.", min=0)]
StopFile = Annotated[Path | None, guard_option("--stop-file", metavar="FILE", text="While it exists, the site's own policy holds.")]
Slow = Annotated[str, guard_option("--slow", metavar="TIME", text="How long a cycle may take.")]
Strikes = Annotated[int, guard_option("--strikes", metavar="N", text="Slow or failed cycles in a row that end it.", min=1)]
Against = Annotated[Path | None, guard_option("--against", metavar="LOG", text="Shadow log whose mean wait is the measure.")]
Worse = Annotated[float, guard_option("--worse", metavar="X", text="Mean wait, times that of --against, that ends it.", min=1.0)]


@app.command("slurm")
def slurm(
    shadow: Shadow = False, order: Order = False, place: Place = False, reset: Reset = False, dry_run: DryRun = False,
    scheduler: options.SchedulerOption = DEFAULT, log: Log = LOG, metrics: Metrics = None, every: Every = "10s", cycles: Cycles = None,
    most: Most = 100, within: Within = 1_000_000, partition: Partitions = None, deadman: Deadman = "10m", patience: Patience = "30s",
    wake: Wake = None, lock: Lock = None, exclude_user: Users = None, exclude_partition: Others = None, behind: Behind = None,
    stop_file: StopFile = None,
    slow: Slow = "30s", strikes: Strikes = 5, against: Against = None, worse: Worse = 1.5, verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """Let a scheduler work beside this machine's Slurm: first only watching, then ordering its queue, then placing its jobs.

    Slurm goes on starting jobs by itself, within all its limits, and nothing is ever held: when gpuyard ends, however it ends, the order
    stays as it is, and jobs that wait to be placed start by themselves. --reset puts everything back.
    """
    from gpuyard.live.deployment.placing import PlaceSettings
    from gpuyard.live.slurm.deploying import SlurmSettings

    chosen = [name for name, given in (("shadow", shadow), ("order", order), ("place", place), ("reset", reset)) if given]
    if len(chosen) != 1:
        raise UsageError("which mode?", hint="one of --shadow, --order, --place and --reset")
    period, wait, limit, ahead = (time_of(name, text) for name, text in (
        ("--every", every), ("--patience", patience), ("--slow", slow), ("--deadman", deadman)
    ))  # fmt: skip
    guards = guard_settings(exclude_user, exclude_partition, behind, stop_file, limit, strikes, against, worse)
    if reset:
        _reset(wait, guards, partition or [])
        return
    settings = SlurmSettings(
        chosen[0], period, most, tuple(partition or ()), wait, wake, guards, PlaceSettings(ahead, settle=max(20.0, 2 * period)), within
    )
    if place and ahead < 6 * period:
        raise UsageError(f"--deadman {deadman} is less than six cycles of --every {every}", hint="jobs would start before they are decided")
    _work(settings, scheduler or DEFAULT, log, cycles, metrics, lock, dry_run)


def time_of(name: str, text: str) -> float:
    """Return the time that an option gives, in s."""
    from gpuyard.model.units import parse_seconds

    found = parse_seconds(text)
    if not 0 < found <= 86_400:
        raise UsageError(f"{name} {text}: not a time that makes sense", hint="e.g. --every 10s --patience 30s")
    return found


def guard_settings(
    users: list[str] | None, partitions: list[str] | None, behind: int | None, stop_file: Path | None, slow: float, strikes: int,
    against: Path | None, worse: float,
) -> GuardSettings:  # fmt: skip
    """Return the guards that the options set."""
    from gpuyard.live.guards import GuardSettings, usual_wait

    return GuardSettings(
        frozenset(users or ()), frozenset(partitions or ()), behind, stop_file=stop_file, slow=slow, strikes=strikes,
        usual_wait=None if against is None else usual_wait(against), worse=worse,
    )  # fmt: skip


def _work(
    settings: DeploySettings, scheduler: str, log: Path, cycles: int | None, metrics: Path | None, lock: Path | None, dry_run: bool
) -> None:
    """Work until Ctrl-C or SIGTERM."""
    from gpuyard.live.health import DeploymentFigures
    from gpuyard.live.leader import leading
    from gpuyard.live.log import RotatedLog
    from gpuyard.live.slurm.commands import cluster_name
    from gpuyard.live.slurm.deploying import SlurmDeployment
    from gpuyard.policies import parse_scheduler

    memory, figures = log.with_name(f"{log.name}.estimates"), DeploymentFigures(metrics)
    deployment = SlurmDeployment(parse_scheduler(scheduler), settings, RotatedLog(log), memory, figures)
    deployment.check()
    if dry_run:
        show_plan(deployment)
        return
    alone = nullcontext() if settings.mode == "shadow" else leading(cluster_name(settings.patience), lock)
    run_until_end(deployment, cycles, alone)
    if settings.mode != "shadow":
        stays = (
            "the order stays as it is"
            if settings.mode == "order"
            else f"waiting jobs start by themselves within {settings.place.deadman:g} s"
        )
        say(f"{stays}; gpuyard deploy slurm --reset puts every job back")


def run_until_end(deployment: Deployment, cycles: int | None, alone: AbstractContextManager[None]) -> None:
    """Work until the end; `alone` sees to it that there is no other. Shadows may be many: they change nothing."""
    from gpuyard.files import locked

    signal.signal(signal.SIGTERM, _end)
    log = deployment.log
    assert log is not None
    with suppress(KeyboardInterrupt), locked(log.path.parent / f".{log.path.name}.lock"), alone:
        _cycles(deployment, cycles)


def _cycles(deployment: Deployment, count: int | None) -> None:
    settings, log, figures = deployment.settings, deployment.log, deployment.figures
    assert log is not None
    say(f"{deployment.scheduler.label}, {settings.mode} mode, every {settings.every:g} s; log: {log.path}; Ctrl-C ends it")
    for record in deployment.cycles(count):
        _tell(record)
        for problem in (log.problem, figures.problem if figures else ""):
            if problem:
                say(f"warning: {problem}")


def _end(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _reset(patience: float, guards: GuardSettings, partitions: list[str]) -> None:
    from gpuyard.live.slurm.deploying import reset as put_back

    count, failed = put_back(patience, guards, frozenset(partitions))
    for job, why in list(failed.items())[:20]:
        say(f"warning: job {job}: {why}")
    say(f"{count - len(failed)} jobs put back" + (f", {len(failed)} not" if failed else ""))
    if failed:
        raise typer.Exit(FAILED)


def show_plan(deployment: Deployment) -> None:
    """Print what a cycle would send."""
    from gpuyard.cli.common.output import Format, Output, Table, emit

    saved, planned = deployment.plan_once()
    rows = [(each.job, each.change or each.verb) for each in planned.updates]
    mode = deployment.settings.mode
    line = f"{len(rows)} updates would be sent beside {len(saved.snapshot.waiting)} waiting jobs; nothing was sent."
    records = [{"job": job, "change": change} for job, change in rows]
    table = Table(("job", "change"), rows, f"{deployment.scheduler.label}, {mode} mode, would send", frozenset({0, 1}))
    emit(Output([table] if rows else [], {"updates": records, **planned.facts}, records, [line]), Format.table)


def _tell(record: Mapping[str, Any]) -> None:
    """Say one line about a cycle."""
    if record.get("tripped") or record.get("stopped"):
        why = record["tripped"] or "the stop file exists"
        say(f"warning: the site's own policy holds: {why}")
    if "error" in record:
        say(f"warning: cycle {record['cycle']}: {record['error']}")
        return
    updates = len(record["updates"]) - len(record["failed"])
    line = f"cycle {record['cycle']}: {record['running']} run, {record['waiting']} wait; "
    line += f"{len(record['placed'])} placed" if "placed" in record else f"{record['out_of_order']} out of order"
    line += f", {updates} updates {'sent' if record['acts'] else 'to send'}"
    line += f", {record['left']} left for later" if record["left"] else ""
    sys.stdout.write(f"{line}; {sum(record['seconds'].values()):.2g} s\n")
    sys.stdout.flush()


# ── what goes with it ──


@app.command("lua")
def lua(
    partition: Partitions = None,
    deadman: Deadman = "10m",
    operator: Annotated[list[int] | None, typer.Option(metavar="UID", help="May change such jobs, beside root; repeatable.")] = None,
    stop_file: StopFile = None,
    verbose: options.Verbose = False,
) -> None:
    """Print the job_submit.lua that place mode needs: jobs of the partitions get a begin time, which only gpuyard moves."""
    from gpuyard.live.slurm.dead_man import hook

    sys.stdout.write(hook(partition or (), deadman=time_of("--deadman", deadman), operators=operator or (), stop_file=stop_file))


@app.command("unit", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def unit(
    context: typer.Context,
    user: Annotated[str, typer.Option(metavar="NAME", help="Who runs it: SlurmUser, or an operator.")] = "slurm",
) -> None:
    """Print a systemd unit for a deployment: gpuyard deploy unit slurm --order --log /var/log/gpuyard/slurm.jsonl …"""
    from gpuyard.live.unit import unit_text

    sys.stdout.write(unit_text(context.args, user))


@app.command("health")
def health(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="The log of a deployment.")] = LOG,
    verbose: options.Verbose = False,
) -> None:
    """Say whether a deployment is well, by the last line of its log; exit code 3 if not."""
    from gpuyard.live.health import health_of

    found = health_of(log)
    sys.stdout.write(f"{'well' if found.well else 'not well'}: {found.words}\n")
    if not found.well:
        raise typer.Exit(NOT_WELL)
