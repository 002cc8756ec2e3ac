"""`gpuyard train`: learn a scheduler."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.common import inputs, options
from gpuyard.cli.common.output import Format, Output, Table, emit, say, short
from gpuyard.errors import UsageError

if TYPE_CHECKING:
    from gpuyard.learn.run.plan import Request
    from gpuyard.learn.run.training import Outcome

_LEARNING, _RUN = "Learning", "Run"
_INTERRUPTED = 130


def train(
    env: Annotated[
        str | None, typer.Argument(help="What is learned: PickJob, PickHost, Switch, … or an id, gpuyard/PickJob-v0.", show_default=False)
    ] = None,
    learner: Annotated[str | None, typer.Option(metavar="NAME", help="ppo unless given; dqn, …", rich_help_panel=_LEARNING)] = None,
    network: Annotated[
        str | None, typer.Option(metavar="kernel|attention", help="How the policy looks at its choices.", rich_help_panel=_LEARNING)
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[N*]W[OPTIONS][ on C]",
            help="family:shape=base|bursty,gpus=4|8 on {gpus}, log.swf[jobs=256; until=0.8]; repeatable: a mix with weights.",
        ),
    ] = None,
    cluster: Annotated[str | None, typer.Option(metavar="C", help="Of workloads that name none; as for simulate.")] = None,
    validation: Annotated[
        list[str] | None, typer.Option(metavar="W", help="Validate on these instead of held-out parts of --workload; repeatable.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="CHECKPOINT|HEURISTIC",
            help="Begin with the weights of learned:NAME or a path, or with an imitation of sjf, best, srpt, … .",
        ),
    ] = None,
    objective: Annotated[str | None, typer.Option(metavar="NAME", help="What counts: bsld, wait, … .", rich_help_panel=_LEARNING)] = None,
    steps: Annotated[str | None, typer.Option(metavar="N", help="Choices to learn from, e.g. 2M; 1M unless given.")] = None,
    updates: Annotated[int | None, typer.Option(metavar="N", help="Stop after so many updates.")] = None,
    envs: Annotated[int | None, typer.Option(metavar="N", help="Environments stepped together; 64 unless given.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random; 0 unless given.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="runs/ENV-LEARNER-SEED unless given.", rich_help_panel=_RUN)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on in --out as if never stopped.", rich_help_panel=_RUN)] = False,
    device: Annotated[str | None, typer.Option(metavar="cpu|gpu", help="Where networks are trained.", rich_help_panel=_RUN)] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting, e.g. learning_rate=1e-3; repeatable.", rich_help_panel=_LEARNING),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Settings in tables [training], [env], [learner].", rich_help_panel=_LEARNING),
    ] = None,
    how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:
    """Train a policy on generated workloads or a trace, validate it as a scheduler, keep the best.

    Ctrl-C saves and stops; --resume goes on from there.
    """
    from gpuyard.learn.run.plan import Request

    request = Request(
        env, learner, tuple(workload or ()), cluster, tuple(validation or ()), objective,
        None if seed is None else inputs.check_seed(seed), config, tuple(set_ or ()),
        {
            "training": {"start": start, "steps": steps, "update_limit": updates, "envs": envs},
            "learner": {"network": network, "device": device},
        },
    )  # fmt: skip
    outcome = _run(request, out, resume=resume)
    emit(describe(outcome), how)
    if outcome.interrupted:
        say(f"saved; go on with: gpuyard train --resume --out {shlex.quote(str(outcome.folder))}")
        raise typer.Exit(_INTERRUPTED)


def _run(request: Request, out: Path | None, *, resume: bool) -> Outcome:
    from dataclasses import replace

    from gpuyard.cli.train_view import view
    from gpuyard.learn.run.folder import Folder
    from gpuyard.learn.run.plan import plan_again, plan_of
    from gpuyard.learn.run.training import train as run

    if resume:
        if out is None:
            raise UsageError("--resume: which training?", hint="give its folder with --out")
        plan = plan_again(Folder.found(out).read_config(), request, str(out))
    else:
        plan = plan_of(replace(request, command=command_of(request)))
    folder = out or Path("runs") / f"{plan.env}-{plan.learner}-{plan.seed}"
    with view() as watch:
        return run(plan, folder, resume=resume, say=say, watch=watch)


def command_of(request: Request) -> str:
    """The command that asks for the same; without what does not change the outcome."""
    words = ["gpuyard", "train", request.env or ""]
    single: dict[str, Any] = {
        "--learner": request.learner,
        "--cluster": request.cluster,
        "--objective": request.objective,
        "--seed": request.seed,
    }
    several = {"--workload": request.workloads, "--validation": request.validation, "--set": request.sets}
    names = {"update_limit": "updates"}
    single |= {f"--{names.get(name, name)}": value for table in request.flags.values() for name, value in table.items()}
    single["--config"] = request.file
    for option, value in single.items():
        words += [option, str(value)] if value is not None else []
    for option, values in several.items():
        words += [word for value in values for word in (option, value)]
    return shlex.join(words)


def describe(outcome: Outcome) -> Output:
    """The best and the last policy beside the baselines."""
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


def _change(best: float, value: float) -> str:
    """By how much the best policy's score lies above or below another."""
    return "" if value == best or value == 0 or not math.isfinite(value) else f"{100 * (best - value) / abs(value):+z.1f} %"
