"""`gpuyard node`: starts, stops and shows the daemon that runs jobs on this machine."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.messages import say
from gpuyard.cli.common.output import Format, Output, Table, emit, rich_parts
from gpuyard.cli.node.common import Folder, clock
from gpuyard.errors import UsageError
from gpuyard.live.node.api import node_folder
from gpuyard.live.node.client import NodeClient

if TYPE_CHECKING:
    from gpuyard.live.node.core import NodeSettings

app = typer.Typer(
    name="node", no_args_is_help=True, help="Run a queue for the GPUs of this machine, under any scheduler.", rich_markup_mode="markdown"
)
Scheduler = Annotated[
    str | None, typer.Option(metavar="S", help="Who decides, e.g. sjf/fewest/easy, learned:hpc/fewest/easy, ./mine.py:rule.")
]
Share = Annotated[int | None, typer.Option(metavar="N", help="Jobs that may share a GPU.", min=1, max=64)]
Cpus = Annotated[int | None, typer.Option(metavar="N", help="Cores for jobs; without a GPU, CPU slots. All unless given.", min=1, max=4096)]
Patience = Annotated[str | None, typer.Option(metavar="TIME", help="How long the scheduler may take before another takes over.")]
Template = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=MODULE,…", help="Keep a process that has imported these modules; jobs with --template NAME begin there."),
]
Foreground = Annotated[bool, typer.Option("--foreground", help="Stay in this process, as systemd wants it.")]
_RELATIVE = re.compile(r"(^|[(,]\s*|/)(?=\.\.?/)")
_PAUSE = 1.0  # s between looks of --watch


@app.command("start")
def start(
    scheduler: Scheduler = None, share: Share = None, cpus: Cpus = None, patience: Patience = None, template: Template = None,
    foreground: Foreground = False, folder: Folder = None, verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """Start the node, and say what it manages. Options that are not given are as they were the last time."""
    from gpuyard.live.node import starting

    place = node_folder(folder)
    kept = starting.kept_settings(place)
    settings = _changed(kept, scheduler, share, cpus, patience, template)
    running = starting.reachable(place)
    if running is not None:
        if settings != kept:
            hint = "gpuyard node stop, then start again: jobs go on meanwhile"
            raise UsageError(f"a node runs already (process {running['pid']}), with other settings", hint=hint)
        say(f"a node runs already (process {running['pid']}): {starting.described(running)}; scheduler {running['scheduler']}")
        return
    if foreground:
        from gpuyard.live.node.daemon import serve

        serve(place, settings, ready=lambda daemon: say(f"node in {place}; Ctrl-C stops it, jobs go on"))
        return
    status = starting.start_node(place, settings)
    say(f"node started (process {status['pid']}): {starting.described(status)}; scheduler {status['scheduler']}")
    adopted = sum(status["jobs"].values())
    if adopted:
        say(f"it has taken back {_jobs_text(status['jobs'])}")


def _changed(
    kept: NodeSettings, scheduler: str | None, share: int | None, cpus: int | None, patience: str | None, template: Sequence[str] | None
) -> NodeSettings:
    """Return the settings with those that were given."""
    from gpuyard.model.units import parse_seconds

    given: dict[str, Any] = {"share": share, "cpus": cpus, "patience": None if patience is None else parse_seconds(patience)}
    if scheduler is not None:
        given["scheduler"] = _checked(scheduler)
    if template is not None:
        pairs = [each.partition("=") for each in template]
        if any(not (name.isidentifier() and modules) for name, _, modules in pairs):
            raise UsageError("--template: not NAME=MODULE,MODULE", hint="e.g. --template torch=torch,numpy")
        given["templates"] = {name: modules.split(",") for name, _, modules in pairs}
    return replace(kept, **{name: value for name, value in given.items() if value is not None})


def _checked(text: str) -> str:
    """Refuse a scheduler that cannot be had; paths become absolute, because the daemon runs in another folder."""
    from gpuyard.live.node.advice.advisor import PLAIN

    if text == PLAIN:
        return text
    from gpuyard.policies import parse_scheduler

    found = _RELATIVE.sub(lambda match: f"{match[1]}{Path.cwd()}/", text)
    parse_scheduler(found)
    return found


@app.command("stop")
def stop(folder: Folder = None, verbose: options.Verbose = False) -> None:
    """Stop the node. Jobs that run go on, and the next `gpuyard node start` takes them back."""
    from gpuyard.live.node.starting import stop_node

    status = stop_node(node_folder(folder))
    say("node stopped")
    left = {state: count for state, count in status["jobs"].items() if count}
    if left:
        say(f"{_jobs_text(left)}: what runs goes on, what waits will wait; gpuyard node start takes them back")


def _jobs_text(counts: Mapping[str, int]) -> str:
    order = ("RUNNING", "STARTING", "PENDING")
    return ", ".join(f"{counts[state]} {state}" for state in order if counts.get(state))


@app.command("drain")
def drain(folder: Folder = None, verbose: options.Verbose = False) -> None:
    """Start no further job, also after a restart, until `gpuyard node resume`. What runs goes on."""
    with NodeClient(folder) as client:
        client.call("drain")
        counts = client.call("status")["jobs"]
    say(f"the node starts nothing more; {counts.get('RUNNING', 0) + counts.get('STARTING', 0)} jobs still run")


@app.command("resume")
def resume(folder: Folder = None, verbose: options.Verbose = False) -> None:
    """Start jobs again after `gpuyard node drain`."""
    with NodeClient(folder) as client:
        client.call("resume")
    say("the node starts jobs again")


# ── status ──


@app.command("status")
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every second, until Ctrl-C.")] = False,
    prometheus: Annotated[str | None, typer.Option(metavar="FILE|-", help="Write the figures as text for Prometheus.")] = None,
    folder: Folder = None, how: options.FormatOption = Format.table, verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """Show the GPUs or CPU slots, who uses them, the jobs, and the scheduler with its trouble, if it has any."""
    with NodeClient(folder) as client:
        if prometheus is not None:
            _write_prometheus(client.call("status"), prometheus)
        elif watch:
            _watch(client)
        else:
            emit(_status_output(client.call("status")), how)


def _status_output(found: Mapping[str, Any]) -> Output:
    records = [{name: _joined(value) for name, value in each.items()} for each in found["devices"]]
    return Output([_device_table(found)], dict(found), records, _status_lines(found))


def _joined(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _device_table(found: Mapping[str, Any]) -> Table:
    if not found["devices"]:
        busy = f"{found['busy']:g}"
        return Table(("CPU slots", "busy", "free"), [(str(found["slots"]), busy, f"{found['slots'] - found['busy']:g}")], left=frozenset())
    header = ("GPU", "name", "state", "busy", "memory", "power", "temperature", "jobs", "foreign processes")
    shown = len(header) if any(each["strangers"] for each in found["devices"]) else len(header) - 1
    return Table(header[:shown], [_device_row(each)[:shown] for each in found["devices"]], left=frozenset({0, 1, 2, 7, 8}))


def _device_row(each: Mapping[str, Any]) -> tuple[str, ...]:
    state = "lost" if each["lost"] else str(each["state"]).removeprefix("gpu-")
    used = f"{each['memory'] - each['free']:.1f} of {each['memory']:.0f} GB"
    figures = (f"{each['utilisation']:.0%}", used, f"{each['watts']:.0f} W", f"{each['celsius']:.0f} °C")
    return (str(each["index"]), each["name"], state, *figures, *(", ".join(map(str, each[name])) for name in ("jobs", "strangers")))


def _status_lines(found: Mapping[str, Any]) -> list[str]:
    counts = found["jobs"]
    lines = [f"jobs: {_jobs_text(counts) or 'none'}{'; the node is being drained and starts nothing' if found['draining'] else ''}"]
    used = "" if found["used"] == found["scheduler"] else f", in its place {found['used']}"
    lines.append(f"scheduler: {found['scheduler']}{used}{'' if found['ready'] else ' (not asked yet, or being loaded)'}")
    if found["trouble"]:
        lines.append(f"trouble: {found['trouble']}")
    lines += [f"GPU {each['index']}: {each['lost']}" for each in found["devices"] if each["lost"]]
    if found["gpu_problem"]:
        lines.append(f"{'GPUs' if found['devices'] else 'no GPU'}: {found['gpu_problem']}")
    cold = [name for name, warm in found["templates"].items() if not warm]
    lines += [f"template {name}: not warm yet" for name in cold]
    lines.append(f"node: process {found['pid']}, {found['folder']}")
    return lines


def _watch(client: NodeClient) -> None:
    """Show the status each second in the place of the last one, until Ctrl-C; what matters most comes first, for small screens."""
    if not sys.stdout.isatty():
        raise UsageError("--watch needs a terminal", hint="gpuyard node status -f json tells it once")
    from rich.console import Group
    from rich.live import Live

    found = client.call("status")  # a node that does not answer is told on the usual screen
    try:
        with Live(screen=True, auto_refresh=False) as live:
            while True:
                head = [f"{clock(found['now'], found['now'])}   Ctrl-C ends it", *_status_lines(found), ""]
                parts = [Output([], {}, [], head), Output([_device_table(found)], {}, [], [])]
                live.update(Group(*(piece for each in parts for piece in rich_parts(each, live.console.width))), refresh=True)
                time.sleep(_PAUSE)
                found = client.call("status")
    except KeyboardInterrupt:
        return


def _write_prometheus(found: Mapping[str, Any], target: str) -> None:
    from gpuyard.files import write_bytes
    from gpuyard.live.gpus import prometheus_text
    from gpuyard.live.node.devices import GpuProcess, GpuReading

    known = ("index", "uuid", "name", "memory", "free", "utilisation", "watts", "celsius", "lost")
    readings = [
        GpuReading(**{name: each[name] for name in known}, processes=tuple(map(GpuProcess, each["processes"]))) for each in found["devices"]
    ]
    text = prometheus_text(readings, found)
    if target == "-":
        sys.stdout.write(text)
    else:
        write_bytes(Path(target), text.encode())


# ── decisions, unit ──


@app.command("decisions")
def decisions(
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="How many.", min=1, max=100_000)] = 20,
    folder: Folder = None, how: options.FormatOption = Format.table, verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """Show the scheduler's last decisions with their reasons, and those that could not be carried out, newest first."""
    with NodeClient(folder) as client:
        found = client.call("decisions", limit=limit)["decisions"]
    records = [dict(zip(("time", "job", "action", "reason"), each, strict=True)) for each in found]
    now = time.time()
    rows = [(clock(each["time"], now), str(each["job"]), each["action"], each["reason"]) for each in records]
    emit(Output([Table(("time", "job", "decision", "reason"), rows, left=frozenset({0, 2, 3}))], records, records), how)


@app.command("unit")
def unit(
    scheduler: Scheduler = None, share: Share = None, cpus: Cpus = None, patience: Patience = None, template: Template = None,
    folder: Folder = None, verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """Print a systemd unit that starts the node with the machine, and say how to install it."""
    from gpuyard.live.node.core import NodeSettings
    from gpuyard.live.node.starting import unit_text

    usual = NodeSettings()
    settings = asdict(_changed(usual, scheduler, share, cpus, patience, template))
    given = {name: value for name, value in settings.items() if value != asdict(usual)[name]}
    templates = given.pop("templates", {})
    words = [word for name, value in given.items() for word in (f"--{name}", f"{value:g}" if isinstance(value, float) else str(value))]
    words += [word for name, modules in templates.items() for word in ("--template", f"{name}={','.join(modules)}")]
    sys.stdout.write(unit_text(["node", "start", "--foreground", "--folder", str(node_folder(folder)), *words]))
    say("to install it: mkdir -p ~/.config/systemd/user && gpuyard node unit > ~/.config/systemd/user/gpuyard-node.service")
    say("to start it: gpuyard node stop; systemctl --user enable --now gpuyard-node")
    say("without lingering the node ends when you log out: loginctl enable-linger")
