"""The folder that `gpuyard compare --report` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.cli.common.output import clean, csv_text, json_text, md_text
from gpuyard.cli.compare import describe, side_by_side, table_of
from gpuyard.errors import DataError

if TYPE_CHECKING:
    from gpuyard.experiments.judging.comparison import Comparison


def write_report(comparisons: Sequence[Comparison], folder: Path) -> None:
    """`report.md` with every table and figure, and the same numbers in table.md, table.csv and table.json."""
    from gpuyard.report.comparison import save_comparison

    output = describe(comparisons)
    texts = {
        "table.md": md_text(output.tables),
        "table.csv": csv_text(output.records),
        "table.json": json_text(output.data),
        "report.md": _report(comparisons),
    }
    write_texts(folder, texts)
    for k, comparison in enumerate(comparisons):
        save_comparison(comparison, folder / _figure(k))


def _figure(k: int) -> str:
    return f"comparison-{k + 1}.png"


def _report(comparisons: Sequence[Comparison]) -> str:
    from gpuyard import __version__
    from gpuyard.experiments.judging.answers import answer

    parts = [
        "# Schedulers compared",
        f"Made by gpuyard {__version__}. The numbers are also in `table.csv` and `table.json`, times there in seconds.",
    ]
    for k, comparison in enumerate(comparisons):
        parts.append(f"## {clean(comparison.workload)} on {clean(comparison.cluster)}")
        parts += [clean(sentence) for sentence in answer(comparison)]
        parts.append(f"![means and 95 % intervals]({_figure(k)})")
        parts.append(md_text([table_of(comparison)]))
        parts += [f"- {clean(note)}" for note in comparison.notes]
    parts += [md_text([table]) for table in side_by_side(comparisons)]
    return "\n\n".join(parts) + "\n"


def write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    """File name → text, in a folder that is made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise DataError(f"{folder}: the report cannot be written: {error.strerror or error}") from None
