"""`gpuyard run`: runs an experiment from its TOML file to results in a folder; after an interruption the same call continues."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.messages import every_pause, progress_lines
from gpuyard.cli.common.output import Format, Output, Table, emit, say, short
from gpuyard.cli.common.tables import comparison_table
from gpuyard.cli.node.real import run_real
from gpuyard.errors import UsageError
from gpuyard.extras import require

if TYPE_CHECKING:
    from gpuyard.experiments.design.spec import Experiment
    from gpuyard.experiments.judging.summary import Summary
    from gpuyard.experiments.running.runner import Progress, RunOutcome
    from gpuyard.experiments.running.workers import Backend

_RUN = "Run"
REAL = "real"  # the study that runs jobs on this machine instead of simulating them
_SHORT_LIST = 12  # values of an axis that are shown


def run(
    experiment: Annotated[
        str,
        typer.Argument(
            help="NAME (`gpuyard list experiments`), FILE.toml, experiment.json, or `real`: jobs on this machine.", show_default=False
        ),
    ],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="results/NAME unless given.", rich_help_panel=_RUN)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run the short form: minutes become seconds.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Check it and say what would be run. Nothing is run, nor are the programs that it names: they are not checked.",
            rich_help_panel=_RUN,
        ),
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A value that the file leaves open, e.g. traces=DIR; repeatable."),
    ] = None,
    on: Annotated[
        str,
        typer.Option(
            metavar="local|ray|auto|HOST:PORT", help="Processes here, a Ray cluster started here, or one that runs.", rich_help_panel=_RUN
        ),
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Processes; the numbers do not depend on it.", rich_help_panel=_RUN)
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="Also write the report (`gpuyard report DIR`).", rich_help_panel=_RUN)] = False,
    how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:
    """Run an experiment: every combination of its axes, with results in a folder.

    If it is interrupted or killed, the same command continues where it stopped and ends with the same numbers.
    """
    if experiment == REAL:
        if dry_run or report or workers or on != "local":
            raise UsageError("run real: --dry-run, --report, --on and --workers are for simulated experiments")
        run_real(out or _folder(REAL, quick), _values(set_ or ()), how, quick=quick)
        return
    require("polars")
    backend = None if dry_run or on != "local" else _begun(workers)
    from gpuyard.experiments.running.runner import backend_of, experiment_named
    from gpuyard.experiments.running.runner import run as run_all

    found = experiment_named(experiment, quick=quick, values=_values(set_ or ()))
    _check_figures(found)
    if dry_run:
        emit(describe_plan(found), how)
        return
    folder = out or _folder(found.name, quick)
    backend = backend or backend_of(on, workers)
    command = _command(experiment, quick=quick, values=set_ or ())
    with _progress() as progress:
        try:
            outcome = run_all(found, folder, backend, command=command, progress=progress)
        except KeyboardInterrupt:
            say(f"{folder}: finished Runs are kept; the same command resumes")
            raise
    _tell(outcome, folder)
    show_results(folder, how)
    if report:
        _report(folder)


def _folder(name: str, quick: bool) -> Path:
    return Path("results") / (name + ("-quick" if quick else ""))


def _report(folder: Path) -> None:
    from gpuyard.report.writing import write_report

    say(f"report: {write_report(folder)}")


def _begun(workers: int | None) -> Backend:
    """Return the workers on this machine. Their processes start before anything of weight is loaded here, and load it at the same time."""
    from gpuyard.experiments.running.workers import Processes, check_workers, local

    backend = local(check_workers(workers))
    if isinstance(backend, Processes):
        backend.begin()
    return backend


def show_results(folder: Path, how: Format) -> None:
    """Show the results of a completed experiment."""
    from gpuyard.experiments.judging.summary import summarise
    from gpuyard.experiments.running.results import load_results

    emit(describe(summarise(load_results(folder))), how)


def _check_figures(experiment: Experiment) -> None:
    """Refuse unknown figures now, not when everything has run."""
    from gpuyard.experiments.design.spec import placed
    from gpuyard.report.studies import FIGURES

    for name in experiment.figures:
        with placed(f"{experiment.name}: figures"):
            FIGURES[name]


def _values(texts: Sequence[str]) -> dict[str, str]:
    made = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise UsageError(f"--set {text!r} is not NAME=VALUE")
        made[name] = value
    return made


def _command(experiment: str, *, quick: bool, values: Sequence[str]) -> str:
    """Return the command that gives the same numbers; where it runs and with how many workers does not matter."""
    parts = ["gpuyard", "run", experiment, *(["--quick"] if quick else []), *(part for text in values for part in ("--set", text))]
    return shlex.join(parts)


def _tell(outcome: RunOutcome, folder: Path) -> None:
    from gpuyard.model.units import format_seconds

    new = outcome.runs - outcome.done_before
    if not new:
        say(f"{folder}: complete already, {outcome.runs:,} Runs")
        return
    before = f" ({outcome.done_before:,} were there)" if outcome.done_before else ""
    trained = f", {outcome.trained} agents trained" if outcome.trained else ""
    say(f"{new:,} Runs in {format_seconds(outcome.seconds)}{before}{trained}; results in {folder}")


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show one bar on stderr, or a line every ten seconds where that is no terminal: first agents, then Runs."""
    if not sys.stderr.isatty():
        lines = {"agents": progress_lines("training agents"), "runs": progress_lines("runs")}
        last: list[tuple[str, int, int]] = []

        def tell(what: str, done: int, total: int) -> None:
            last[:] = [("agents" if what == "agents" else "runs", done, total)]
            lines[last[0][0]](done, total)

        def again() -> None:
            for each in tuple(last):
                tell(*each)

        with every_pause(again):
            yield tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("preparing", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description="training agents" if what == "agents" else "runs", completed=done, total=total)

        yield show


# ── what would be run ──


def describe_plan(experiment: Experiment) -> Output:
    """Show the axes and how many Runs their product is; raise errors about anything wrong."""
    from gpuyard.experiments.running.agents import labels_of
    from gpuyard.experiments.running.runner import checked

    prepared = checked(experiment, programs=False)
    axes = {name: values for name, values in vars(experiment.axes).items() if values and tuple(values) != ("",)}
    rows = [(name, str(len(values)), _listed(values)) for name, values in axes.items()]
    rows += [(f"varied: {name}", str(len(values)), _listed(values)) for name, values in experiment.vary.items()]
    rows += [("places on what is varied", str(len(experiment.places)), "")] if experiment.vary else []
    if prepared.kind.has_workloads:
        product = "workloads × clusters × changes × estimates" + (" × places" if experiment.vary else "")
        rows.append((product, str(len(prepared.cells)), ""))
    agents = labels_of(experiment)
    if agents:
        rows.append(("agents to train", str(len(agents)), _listed([label for label, _, _ in agents])))
    programs = [experiment.text_of(entry.name) for entry in prepared.programs]
    if programs:
        rows.append(("programs, not checked", str(len(programs)), _listed(programs)))
    rows.append(("Runs", f"{prepared.runs:,}", ""))
    data = {
        "experiment": experiment.record(),
        "runs": prepared.runs,
        "units": len(prepared.units),
        "agents": [label for label, _, _ in agents],
    }
    table = Table(("axis", "values", ""), rows, experiment.title, left=frozenset({0, 2}))
    return Output([table], data, [{"axis": row[0], "values": row[1]} for row in rows])


def _listed(values: Sequence[Any]) -> str:
    texts = [str(value) or "(none)" for value in values]
    return ", ".join(texts[:_SHORT_LIST]) + (f", … ({len(texts) - _SHORT_LIST} more)" if len(texts) > _SHORT_LIST else "")


# ── what came out ──


def describe(summary: Summary) -> Output:
    """Show a table for each objective, one of degradation under changes, and the answer in words."""
    from gpuyard.experiments.judging.words import findings, lead
    from gpuyard.report.tables import table_rows

    tables = [comparison_table(summary, table) for table in summary.tables]
    if summary.degradations:
        tables.append(_degradation_table(summary))
    records = table_rows(summary.tables)
    text = [lead(summary), *findings(summary)]
    data = {"answer": text, "tables": records, "notes": list(summary.notes)}
    return Output(tables, data, records, [*text, *(f"note: {note}" for note in summary.notes)])


def _degradation_table(summary: Summary) -> Table:
    """Show schedulers × kinds of change for the first objective, as means over severities."""
    objective = summary.table.objective
    kinds = list(dict.fromkeys(each.kind for each in summary.degradations))
    rows = []
    for name in summary.results.schedulers:
        mine: Mapping[str, list[float]] = {
            kind: [d.share.mean for d in summary.degradations if (d.objective, d.scheduler, d.kind) == (objective, name, kind)]
            for kind in kinds
        }
        rows.append([name, *(f"{short(100 * sum(values) / len(values), '+')} %" for values in mine.values())])
    return Table(
        ("scheduler", *kinds),
        rows,
        f"{objective}: how much worse under changes, mean over severities",
        caption="against the same runs without the change",
    )
