"""`gpuyard deploy slurm`: a scheduler beside a real Slurm."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.output import say
from gpuyard.errors import UsageError

if TYPE_CHECKING:
    from gpuyard.live.slurm.deploying import DeploySettings

FAILED = 1
DEFAULT = "sjf/fewest/easy"
app = typer.Typer(name="deploy", no_args_is_help=True, help="Let a scheduler work beside a batch system.")


def _mode(*names: str, text: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel="Mode: one of them")


@app.command("slurm")
def slurm(
    shadow: Annotated[bool, _mode("--shadow", text="Log what would be done, and change nothing.")] = False,
    order: Annotated[bool, _mode("--order", text="Let waiting jobs stand in the scheduler's order, by site factors.")] = False,
    reset: Annotated[bool, _mode("--reset", text="Set every site factor back to 0, and end.")] = False,
    scheduler: options.SchedulerOption = DEFAULT,
    log: Annotated[Path, typer.Option(metavar="FILE", help="JSON lines, one for each cycle; rotated.")] = Path("gpuyard-slurm.jsonl"),
    every: Annotated[str, typer.Option(metavar="TIME", help="From one cycle to the next.")] = "10s",
    cycles: Annotated[int | None, typer.Option(metavar="N", help="End after so many; else at Ctrl-C.", min=1)] = None,
    most: Annotated[int, typer.Option(metavar="N", help="Site factors that a cycle sets, at most.", min=1, max=10_000)] = 100,
    within: Annotated[int, typer.Option(metavar="N", help="The largest site factor, up or down.", min=1, max=2_000_000_000)] = 1_000_000,
    partition: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only jobs of this partition; repeatable.")] = None,
    patience: Annotated[str, typer.Option(metavar="TIME", help="How long a command of Slurm may take.")] = "30s",
    verbose: options.Verbose = False,
) -> None:
    """Let a scheduler work beside this machine's Slurm: first only watching, then ordering its queue.

    Slurm goes on starting jobs by itself, within all its limits, and nothing is ever held: when gpuyard ends, however it ends, the order
    stays as it is, and --reset takes it back. One squeue a cycle; the rest is read every tenth.
    """
    from gpuyard.live.slurm.deploying import DeploySettings
    from gpuyard.model.units import parse_seconds

    if shadow + order + reset != 1:
        raise UsageError("which mode?", hint="one of --shadow, --order and --reset")
    period, wait = parse_seconds(every), parse_seconds(patience)
    if not 0 < period < 86_400 or not 0 < wait < 3600:
        raise UsageError(f"--every {every}, --patience {patience}: not times that make sense", hint="e.g. --every 10s --patience 30s")
    if reset:
        _reset(wait)
    else:
        _work(DeploySettings(order, period, most, within, tuple(partition or ()), wait), scheduler or DEFAULT, log, cycles)


def _work(settings: DeploySettings, scheduler: str, log: Path, cycles: int | None) -> None:
    """Work until Ctrl-C or SIGTERM."""
    from gpuyard.files import locked
    from gpuyard.live.log import RotatedLog
    from gpuyard.live.slurm.deploying import Deployment
    from gpuyard.policies import parse_scheduler

    kept = RotatedLog(log)
    deployment = Deployment(parse_scheduler(scheduler), settings, kept, log.with_name(f"{log.name}.estimates"))
    deployment.check()
    signal.signal(signal.SIGTERM, _end)
    with locked(log.parent / f".{log.name}.lock"):
        mode = "order" if settings.order else "shadow"
        say(f"{deployment.scheduler.label}, {mode} mode, every {settings.every:g} s; log: {log}; Ctrl-C ends it")
        with suppress(KeyboardInterrupt):  # the usual end
            for record in deployment.cycles(cycles):
                _tell(record)
                if kept.problem:
                    say(f"warning: {kept.problem}")
    if settings.order:
        say("the order stays as it is; gpuyard deploy slurm --reset takes it back")


def _end(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _reset(patience: float) -> None:
    from gpuyard.live.slurm.deploying import reset as put_back

    count, failed = put_back(patience)
    for job, why in list(failed.items())[:20]:
        say(f"warning: job {job}: {why}")
    say(f"site factors of {count - len(failed)} jobs set to 0" + (f", {len(failed)} not" if failed else ""))
    if failed:
        raise typer.Exit(FAILED)


def _tell(record: Mapping[str, Any]) -> None:
    """Say one line about a cycle."""
    if "error" in record:
        say(f"warning: cycle {record['cycle']}: {record['error']}")
        return
    updates = len(record["updates"]) - len(record["failed"])
    line = f"cycle {record['cycle']}: {record['running']} run, {record['waiting']} wait; {record['out_of_order']} out of order, "
    line += f"{updates} site factors {'to set' if record['mode'] == 'shadow' else 'set'}"
    line += f", {record['left']} left for later" if record["left"] else ""
    sys.stdout.write(f"{line}; {sum(record['seconds'].values()):.2g} s\n")
    sys.stdout.flush()
