"""`gpuyard train`: trains a scheduler."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.common import inputs, options
from gpuyard.cli.common.messages import Pace
from gpuyard.cli.common.output import Format, Output, Table, clean, emit, say, short
from gpuyard.errors import UsageError

if TYPE_CHECKING:
    from gpuyard.learn.run.plan import TrainingRequest
    from gpuyard.learn.run.training import Trainer, TrainingOutcome
    from gpuyard.policies.ranks import RunTimesTable

_LEARNING, _RUN = "Learning", "Run"
REFRESH = 0.25  # s between refreshes of the panel
_INTERRUPTED = 130


def train(
    env: Annotated[
        str | None,
        typer.Argument(help="The decision to learn: PickJob, PickHost, Switch, …, an id, gpuyard/PickJob-v1, or rank.", show_default=False),
    ] = None,
    learner: Annotated[str | None, typer.Option(metavar="NAME", help="ppo unless given; dqn, …", rich_help_panel=_LEARNING)] = None,
    network: Annotated[str | None, typer.Option(metavar="kernel|attention", help="Kind of network.", rich_help_panel=_LEARNING)] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[N*]W[OPTIONS][ on C]",
            help="family:shape=base|bursty,gpus=4|8 on {gpus}, log.swf[jobs=256; until=0.8]; repeatable: a mix with weights.",
        ),
    ] = None,
    cluster: Annotated[str | None, typer.Option(metavar="C", help="Cluster of workloads that name none; as for simulate.")] = None,
    validation: Annotated[
        list[str] | None, typer.Option(metavar="W", help="Validate on these instead of held-out parts of --workload; repeatable.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="CHECKPOINT|HEURISTIC",
            help="Start from the weights of learned:NAME or a path, or from an imitation of sjf, best, srpt, … .",
        ),
    ] = None,
    objective: Annotated[
        str | None, typer.Option(metavar="NAME", help="What to optimise: bsld, wait, … .", rich_help_panel=_LEARNING)
    ] = None,
    steps: Annotated[str | None, typer.Option(metavar="N", help="Choices to learn from, e.g. 2M; 1M unless given.")] = None,
    updates: Annotated[int | None, typer.Option(metavar="N", help="Stop after this many updates.")] = None,
    envs: Annotated[int | None, typer.Option(metavar="N", help="Environments stepped together; 64 unless given.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random; 0 unless given.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="runs/ENV-LEARNER-SEED unless given.", rich_help_panel=_RUN)] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the training in --out as if it had never stopped.", rich_help_panel=_RUN)
    ] = False,
    device: Annotated[str | None, typer.Option(metavar="cpu|gpu", help="Where networks are trained.", rich_help_panel=_RUN)] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting, e.g. learning_rate=1e-3; repeatable.", rich_help_panel=_LEARNING),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .toml file of settings, or a training's config.json.", rich_help_panel=_LEARNING)
    ] = None,
    how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:
    """Train a policy on generated workloads or a trace, validate it as a scheduler, keep the best.

    Ctrl-C saves and stops; --resume continues from there.
    """
    if env is not None and env.lower() == "rank" and learner in (None, "gittins"):
        _fit_rank(learner, workload, cluster, set_, out, how)
        return
    from gpuyard.learn.run.plan import TrainingRequest

    request = TrainingRequest(
        env, learner, tuple(workload or ()), cluster, tuple(validation or ()), objective,
        None if seed is None else inputs.check_seed(seed), config, tuple(set_ or ()),
        {
            "training": {"start": start, "steps": steps, "update_limit": updates, "envs": envs},
            "learner": {"network": network, "device": device},
        },
    )  # fmt: skip
    _tell(_run(request, out, resume=resume), how)


def _tell(outcome: TrainingOutcome, how: Format) -> None:
    """Show what came out, and how to go on with a training that was interrupted."""
    emit(describe(outcome), how)
    say_notes(outcome)
    if outcome.interrupted:
        raise typer.Exit(_INTERRUPTED)


def _fit_rank(
    learner: str | None, workload: list[str] | None, cluster: str | None, set_: list[str] | None, out: Path | None, how: Format
) -> None:
    """Count run times by class, write the table, and show it."""
    from gpuyard.files import writing
    from gpuyard.learn.rank import RankFit
    from gpuyard.model.units import parse_assignments, parse_count
    from gpuyard.policies.ranks import GITTINS, write_run_times
    from gpuyard.registry import unknown_name

    if learner not in (None, GITTINS):
        raise UsageError(f"--learner {learner}: a rank is learned by {GITTINS}")
    given = parse_assignments(set_ or (), "--set")
    for name in set(given) - {"classes", "quantiles", "by"}:
        raise unknown_name("setting of gittins", name, ["classes", "quantiles", "by"])
    sizes = {name: parse_count(given[name]) for name in ("classes", "quantiles") if name in given}
    fit = RankFit(tuple(workload or ()), cluster or "", by=given.get("by", ""), **sizes)
    words = [
        "gpuyard",
        "train",
        "rank",
        *(w for each in fit.workloads for w in ("--workload", each)),
        *(w for each in set_ or () for w in ("--set", each)),
    ]
    table = fit.fit(shlex.join(words))
    path = (out or Path("runs") / "rank-gittins") / "best.safetensors"
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_run_times(path, table)
    say(f"use it: --scheduler saf/fewest/easy/gittins:table={path}")
    emit(describe_table(path, table), how)


def describe_table(path: Path, table: RunTimesTable) -> Output:
    """Show the median and the 90th percentile of the run times of each class."""
    from gpuyard.model.units import format_seconds

    what = "requested time" if table.by_walltime else "estimate"
    lower = [0.0, *table.edges.tolist()]
    count = table.quantiles.shape[1]
    at = {"median": count // 2, "p90": min(int(0.9 * count), count - 1)}
    rows = [
        (f"from {format_seconds(low)}", *(format_seconds(row[k]) for k in at.values()))
        for low, row in zip(lower, table.quantiles, strict=True)
    ]
    data = {"file": str(path), "by": what, "edges": table.edges.tolist(), "quantiles": table.quantiles.tolist(), "about": dict(table.about)}
    title = f"{path}: run times of {table.about['jobs']:,} jobs in {len(lower)} classes by {what}"
    flat = [{"from": low, **{name: float(row[k]) for name, k in at.items()}} for low, row in zip(lower, table.quantiles, strict=True)]
    return Output([Table((what, *at), rows, title, frozenset({0}))], data, flat)


def _run(request: TrainingRequest, out: Path | None, *, resume: bool) -> TrainingOutcome:
    from dataclasses import replace

    from gpuyard.learn.run.folder import Folder
    from gpuyard.learn.run.plan import plan_again, plan_of
    from gpuyard.learn.run.training import train as run

    if resume:
        if out is None:
            raise UsageError("--resume needs the folder of a training", hint="give its folder with --out")
        plan = plan_again(Folder.found(out).read_config(), request, str(out))
    else:
        plan = plan_of(replace(request, command=command_of(request)))
    folder = out or Path("runs") / f"{plan.env}-{plan.learner}-{plan.seed}"
    with view() as watch:
        return run(plan, folder, resume=resume, say=say, watch=watch)


def command_of(request: TrainingRequest) -> str:
    """Return the command for the same training, without options that do not change the outcome."""
    words = ["gpuyard", "train", request.env or ""]
    single: dict[str, Any] = {f"--{name}": getattr(request, name) for name in ("learner", "cluster", "objective", "seed")}
    several = {"--workload": request.workloads, "--validation": request.validation, "--set": request.sets}
    names = {"update_limit": "updates"}
    single |= {f"--{names.get(name, name)}": value for table in request.flags.values() for name, value in table.items()}
    single["--config"] = request.file
    for option, value in single.items():
        words += [option, str(value)] if value is not None else []
    for option, values in several.items():
        words += [word for value in values for word in (option, value)]
    return shlex.join(words)


def describe(outcome: TrainingOutcome) -> Output:
    """Show the best and the last policy beside the baselines."""
    from gpuyard.learn.run.folder import BEST, LAST

    at, sign = outcome.progress, -1.0 if outcome.better == "lower" else 1.0
    last = at.curve[-1]
    scores = {BEST: at.best, LAST: last["score"], **outcome.baselines}
    top = max(scores.values(), key=lambda value: sign * value)
    rows = [(name, short(value), _change(at.best, value)) for name, value in scores.items()]
    marked = frozenset((k, 1) for k, value in enumerate(scores.values()) if value == top)
    title = f"{outcome.folder}: {at.update:,} updates, {at.steps:,} steps"
    caption = f"validation, {outcome.better} is better; best at update {at.best_update:,}, last validated at update {int(last['update']):,}"
    table = Table(("policy", outcome.objective, "best is"), rows, title, frozenset({0}), marked, caption)
    data: dict[str, Any] = {
        "folder": str(outcome.folder), "best": str(outcome.folder / BEST), "last": str(outcome.folder / LAST),
        "updates": at.update, "steps": at.steps, "objective": outcome.objective, "better": outcome.better,
        "score": at.best, "score_update": at.best_update, "baselines": dict(outcome.baselines), "curve": at.curve,
        "interrupted": outcome.interrupted, "stopped_early": at.stopped_early,
    }  # fmt: skip
    return Output([table], data, [{"policy": name, outcome.objective: value} for name, value in scores.items()])


def say_notes(outcome: TrainingOutcome) -> None:
    """Say how to go on, or what is easily overlooked: nothing was learned, or a heuristic is still better."""
    at, better = outcome.progress, max if outcome.better == "higher" else min
    hardest = better(outcome.baselines, key=lambda each: outcome.baselines[each]) if outcome.baselines else ""
    if outcome.interrupted:
        say(f"saved; continue with: gpuyard train --resume --out {shlex.quote(str(outcome.folder))}")
    elif at.update and at.best_update == 0:
        say("warning: best.safetensors is untrained: no update was better than the first policy; train longer, or with other settings")
    elif hardest and better(at.best, outcome.baselines[hardest]) != at.best:
        say(f"note: {hardest} is still better than the best policy of this training")


def _change(best: float, value: float) -> str:
    """Return by how much the best policy's score is above or below another, in percent."""
    return "" if value == best or value == 0 or not math.isfinite(value) else f"{100 * (best - value) / abs(value):+z.1f} %"


# ── what is shown while the training runs ──


@contextmanager
def view() -> Iterator[Callable[[Trainer], None]]:
    """Yield a function that shows the trainer after each update: a live panel on a terminal, else a line every ten seconds, on stderr."""
    if not sys.stderr.isatty():
        yield _paced(Pace(), lambda trainer: say(", ".join(map(" ".join, facts(trainer, nearest=True)))))
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield _paced(Pace(REFRESH, at_once=True), lambda trainer: live.update(_grid(trainer), refresh=True))


def _paced(pace: Pace, show: Callable[[Trainer], None]) -> Callable[[Trainer], None]:
    """Show the trainer only where the pause is over."""
    return lambda trainer: show(trainer) if pace.due() else None


def _grid(trainer: Trainer) -> Any:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for name, value in facts(trainer):
        grid.add_row(Text(clean(name), style="dim"), Text(clean(value)))
    return grid


def facts(trainer: Trainer, *, nearest: bool = False) -> list[tuple[str, str]]:
    """Return names and texts to show; with all baselines, or only the nearest: the hardest one to beat."""
    at, plan = trainer.progress, trainer.plan
    return [
        ("update", f"{at.update:,}" + (f" of {limit:,}" if (limit := plan.training.update_limit) else "")),
        ("steps", f"{at.steps:,} of {plan.training.steps:,}"),
        ("steps/s", short(at.steps_per_second)),
        ("return", short(at.metrics.get("return", math.nan))),
        (trainer.validator.objective, _scores(trainer, nearest)),
        ("time", _times(trainer)),
        ("left", _left(trainer)),
    ]


def _scores(trainer: Trainer, nearest: bool) -> str:
    at, by = trainer.progress, trainer.validator
    shown = {name: value for name, value in by.baselines.items() if value}
    if nearest and shown:
        top = (min if by.better == "lower" else max)(shown, key=lambda name: shown[name])
        shown = {top: shown[top]}
    against = "; ".join(f"{100 * (at.best - value) / abs(value):+z.1f} % to {name}" for name, value in shown.items())
    return f"{short(at.curve[-1]['score'])} (best {short(at.best)} at update {at.best_update:,}" + (f": {against})" if against else ")")


def _times(trainer: Trainer) -> str:
    whole = trainer.progress.elapsed or 1.0
    return " ".join(f"{name} {100 * seconds / whole:.0f} %" for name, seconds in trainer.progress.seconds.items())


def _left(trainer: Trainer) -> str:
    from gpuyard.model.units import format_seconds

    at, training = trainer.progress, trainer.plan.training
    left = max(training.steps - at.steps, 0)
    if training.update_limit and at.update:
        left = min(left, (training.update_limit - at.update) * at.steps // at.update)
    busy = sum(at.seconds[name] for name in ("env", "act", "learn"))
    besides = at.elapsed / busy if busy > 0 else 1.0  # validation and saving
    return format_seconds(left / at.steps_per_second * besides) if at.steps_per_second > 0 else "–"
