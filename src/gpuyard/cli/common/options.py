"""Options that several verbs share, each written once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuyard.cli.common import inputs
from gpuyard.cli.common.output import Format


def _option(panel: str, metavar: str | None, text: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel)


_input, _slot, _rule, _output = (partial(_option, panel) for panel in ("Workload", "Scheduler", "Rules", "Output"))


@dataclass
class Settings:
    """Settings of the whole call; they live in the context."""

    verbose: bool = False


def _set_verbose(context: typer.Context, value: bool) -> None:
    settings = context.find_object(Settings)
    if value and settings is not None:
        settings.verbose = True


Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show the traceback of an error.", callback=_set_verbose, expose_value=True, is_eager=True)
]
FormatOption = Annotated[Format, _output("table|json|csv|md", "Format of what goes to stdout.", "--format", "-f")]
Metrics = Annotated[list[str] | None, _output("NAME", "A metric, e.g. wait, bsld.p95; repeatable (`gpuyard list metrics`).", "--metric")]

# ── the workload ──
Reader = Annotated[str | None, _input("NAME", "Format of a file, where neither content nor name shows it (`gpuyard list readers`).")]
Columns = Annotated[list[str] | None, _input("OURS=THEIRS", "A column of a CSV file, e.g. submit=arrival_s; repeatable.", "--column")]
With = Annotated[list[str] | None, _input("NAME=VALUE", "A parameter of the reader or generator, e.g. unit=ms; repeatable.", "--with")]
SpeedsOption = Annotated[
    str | None, _input("FILE[:reference=TYPE]", "Measured speeds of job classes by GPU type (Gavel, Sia, …).", "--speeds")
]
SlurmConf = Annotated[
    Path | None,
    _input(
        "FILE",
        "Simulate this Slurm site's policy: its slurm.conf, or what scontrol show config|partition and sacctmgr -P show qos|assoc print.",
        "--slurm-conf",
    ),
]
Jobs = Annotated[str | None, _input("N", "Only the first N jobs (10k is 10,000).", "--jobs")]
Apply = Annotated[
    list[str] | None,
    _input(
        "NAME:PARAMETER=VALUE",
        "Change the workload (or the cluster), e.g. burst:severity=3; repeatable (`gpuyard list transforms`).",
        "--apply",
    ),
]
Preemptible = Annotated[
    str | None,
    _input(
        "SHARE|COLUMN=LABEL",
        "Let this share of the jobs (0.5, 50%), drawn at random, be stopped, and no other job; or those of a partition, QOS, account,"
        " user or job_class: qos=low.",
        "--preemptible",
    ),
]

# ── the rules ──
Checkpoint = Annotated[
    str, _rule("TIME", "Time between checkpoints of running jobs; 0: no progress is ever lost, inf: a stopped job loses everything.")
]
RestartCost = Annotated[str, _rule("TIME", "Time on the devices that every start after a stop costs.")]
CheckpointCost = Annotated[str, _rule("TIME", "Time that a job which may be stopped needs to write a checkpoint.")]
Drain = Annotated[str, _rule("TIME", "Time on the devices that stopping such a job takes.")]
WalltimeKill = Annotated[bool, _rule(None, "Kill jobs at the limit that they asked for.", "--walltime-kill")]

# ── one scheduler ──
SchedulerOption = Annotated[
    str | None, typer.Option(metavar="S", help="ordering/placement/backfill/preemption, e.g. sjf/best/easy, or a decider, e.g. milp.")
]
OrderingOption = Annotated[str | None, _slot("NAME", "Which job goes next; fcfs unless given.")]
PlacementOption = Annotated[str | None, _slot("NAME", "On which GPUs; fewest unless given.")]
BackfillOption = Annotated[str | None, _slot("NAME", "Which jobs may pass the head of the queue; none unless given.")]
PreemptionOption = Annotated[str | None, _slot("NAME", "Which jobs are stopped for the head; none unless given.")]
MetaOption = Annotated[str | None, _slot("RULE", "Switches between schedulers over time.")]
OfOption = Annotated[list[str] | None, _slot("S", "A scheduler of --meta; repeatable.")]
EveryOption = Annotated[str | None, _slot("TIME", "How often --meta is asked; at every pass unless given.")]

# ── many schedulers ──
SchedulerList = Annotated[
    list[str] | None,
    typer.Option(
        metavar="S", help="sjf/best/easy, a decider such as milp, or meta:RULE(S, S)[@PERIOD]; repeatable; usual ones unless given."
    ),
]
SlotList = Annotated[list[str] | None, _slot("NAME", "Repeatable: every combination of the four slots is compared.")]

# ── what is written ──
By = Annotated[list[str] | None, _output("GROUP", "Also by priority, user, partition, job_class, qos or account; repeatable.", "--by")]
Out = Annotated[Path | None, _output("DIR", "Keep the whole result (`gpuyard show DIR`).", "--out")]
JobsOut = Annotated[Path | None, _output("FILE", "Write a row per job (start, wait, nodes, status …): .csv or .parquet.", "--jobs-out")]
Calibrate = Annotated[
    bool, typer.Option("--calibrate", help="Fit what a log does not say, size and outages, on its first half; judge on the second.")
]
ShowNames = Annotated[
    bool, _output(None, "Keep the names of users in what is written; unless given they are user-1, user-2 …", "--show-names")
]
Plot = Annotated[Path | None, _output("FILE", "Draw Gantt chart, queue and utilisation: .png, .pdf, .svg.")]


_report = partial(typer.Option, "--report", "--out", rich_help_panel="Output")
Report = Annotated[
    Path | None, _report(metavar="DIR|FILE.html", help="Also write a report: a page that prints on two sheets; in a folder also tables.")
]
Page = Annotated[Path | None, _output("DIR|FILE.html", "Also write a report: a page that prints on two sheets.", "--report")]

# ── groups: several options that become one argument of a verb ──
_READING: dict[str, tuple[Any, Any]] = {
    "reader": (Reader, None), "column": (Columns, None), "with_": (With, None), "jobs": (Jobs, None), "apply": (Apply, None),
    "preemptible": (Preemptible, None),
}  # fmt: skip
_RULES: dict[str, tuple[Any, Any]] = {
    "checkpoint": (Checkpoint, "0"), "restart_cost": (RestartCost, "0"), "walltime_kill": (WalltimeKill, False),
    "checkpoint_cost": (CheckpointCost, "0"), "drain": (Drain, "0"),
}  # fmt: skip


def grouped(*, without: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a verb take how workloads are read as one argument `reading`, and the rules of the simulation as `rules`.

    The command line shows the options of each group one by one, in place of the argument, except those in `without`.
    """
    groups: dict[str, tuple[Callable[..., Any], dict[str, tuple[Any, Any]]]] = {
        "reading": (inputs.reading_of, _READING), "rules": (inputs.rules_of, _RULES),
    }  # fmt: skip

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(verb, eval_str=True)
        shown: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            options = groups[parameter.name][1] if parameter.name in groups else {}
            keyword = inspect.Parameter.KEYWORD_ONLY
            made = [inspect.Parameter(n, keyword, default=d, annotation=a) for n, (a, d) in options.items() if n not in without]
            shown += made or [parameter]

        def call(**given: Any) -> None:
            for name, (make, options) in groups.items():
                if name in signature.parameters:
                    given[name] = make(**{each: given.pop(each) for each in options if each not in without})
            verb(**given)

        call.__name__, call.__doc__, call.__module__ = verb.__name__, verb.__doc__, verb.__module__
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
        call.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        return call

    return decorate
