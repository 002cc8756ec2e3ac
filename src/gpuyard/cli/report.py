"""`gpuyard report`: the folder of an experiment as one HTML file, figures and CSVs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.output import Format, Output, Table, emit


def report(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder that `gpuyard run` wrote, or a result.", show_default=False)],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where to write; the folder itself unless given.")] = None,
    how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:
    """Write the report of an experiment: a page that prints on two sheets, figures as PDF and PNG, tables as CSV.

    Of a result (`gpuyard history --out DIR`, `gpuyard simulate --out DIR`) it is that of `gpuyard compare DIR`, beside it as DIR.html.
    """
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


def _of_result(context: typer.Context, folder: Path, out: Path | None, how: Format) -> int:
    """Compare schedulers on the jobs of a result, write the report of that, and return the exit code."""
    words = ["compare", str(folder), "--report", str(out or folder.with_name(f"{folder.name}.html")), "--format", how.value]
    root = context.find_root()
    return int(root.command.main(args=words, prog_name="gpuyard", standalone_mode=False, obj=root.obj) or 0)
