"""`gpuyard report`: the folder of an experiment, or the log of a deployment, as one HTML file."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.output import Format, Output, Table, emit
from gpuyard.errors import UsageError


def report(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR|LOG", help="What `gpuyard run` or `gpuyard deploy` wrote, or a result.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where to write; beside what is read unless given.")] = None,
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", metavar="TEXT", help="For a log: another scheduler than the one that was logged.")
    ] = None,
    how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:
    """Write a report: of an experiment, with figures as PDF and PNG and tables as CSV; or of the log of a deployment.

    The report of a shadow log says what would have been different, how much better, and how that is known.
    Of a result (`gpuyard history --out DIR`, `gpuyard simulate --out DIR`) it is that of `gpuyard compare DIR`, beside it as DIR.html.
    """
    if folder.is_file():
        _shadow(folder, out or folder.with_suffix(".html"), scheduler or "", how)
        return
    if scheduler is not None:
        raise UsageError("--scheduler is for the log of a deployment", hint="an experiment names its own schedulers")
    from gpuyard.model.storage import is_saved

    if is_saved(folder):
        raise typer.Exit(_of_result(context, folder, out, how))
    from gpuyard.experiments.judging.words import lead
    from gpuyard.report.studies import load_study
    from gpuyard.report.writing import write_study

    study = load_study(folder)
    path = write_study(study, out or folder)
    files = [path, *sorted(path.parent.glob("figures/*.pdf")), *sorted(path.parent.glob("csv/*.csv"))]
    words = lead(study.summary)
    records = [{"file": str(file), "bytes": file.stat().st_size} for file in files]
    rows = [(str(record["file"]), f"{record['bytes']:,}") for record in records]
    emit(Output([Table(("file", "bytes"), rows)], {"answer": words, "files": records}, records, [words]), how)


def _shadow(log: Path, out: Path, scheduler: str, how: Format) -> None:
    from gpuyard.experiments.judging.answering.plain import headline
    from gpuyard.report.shadow import known_sentences, seen_sentences, write_shadow

    path, summary, found = write_shadow(log, out, scheduler, shlex.join(["gpuyard", *sys.argv[1:]]))
    words, seen, known = headline(summary), seen_sentences(found), known_sentences(found)
    data = {"answer": words, "seen": seen, "known": known, "file": str(path)}
    emit(Output([], data, [data], [words, *seen, f"written to {path}"]), how)


def _of_result(context: typer.Context, folder: Path, out: Path | None, how: Format) -> int:
    """Compare schedulers on the jobs of a result, write the report of that, and return the exit code."""
    words = ["compare", str(folder), "--report", str(out or folder.with_name(f"{folder.name}.html")), "--format", how.value]
    root = context.find_root()
    return int(root.command.main(args=words, prog_name="gpuyard", standalone_mode=False, obj=root.obj) or 0)
