"""The folders that `gpuyard evaluate --report` and `gpuyard explain --report` write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.cli.common.output import Output, clean, csv_text, json_text, md_text
from gpuyard.cli.report import write_texts

if TYPE_CHECKING:
    from gpuyard.experiments.judging.comparison import Comparison
    from gpuyard.experiments.studies.explaining import Explanation

SUFFIXES = (".png", ".pdf")


def write_evaluation(comparisons: Sequence[Comparison], output: Output, challengers: Sequence[str], folder: Path) -> None:
    """`report.md`, the tables, and for each workload a figure: means, and paired differences to the best baseline."""
    from gpuyard.report.learned import save_evaluation

    names = [f"evaluation-{k + 1}" for k in range(len(comparisons))]
    _write_texts("Checkpoints evaluated", output, names, folder)
    for name, comparison in zip(names, comparisons, strict=True):
        save_evaluation(comparison, challengers, [folder / f"{name}{suffix}" for suffix in SUFFIXES])


def write_explanations(explanations: Sequence[Explanation], output: Output, folder: Path) -> None:
    """`report.md`, the tables, and for each checkpoint a figure, of a switch two."""
    from gpuyard.report.learned import has_values_over_time, over_time_name, save_explanation

    names = [f"explanation-{k + 1}" for k in range(len(explanations))]
    figures = [
        figure
        for name, explanation in zip(names, explanations, strict=True)
        for figure in ((name, over_time_name(name)) if has_values_over_time(explanation) else (name,))
    ]
    _write_texts("What policies look at", output, figures, folder)
    for name, explanation in zip(names, explanations, strict=True):
        save_explanation(explanation, [folder / f"{name}{suffix}" for suffix in SUFFIXES])


def _write_texts(title: str, output: Output, figures: Sequence[str], folder: Path) -> None:
    from gpuyard import __version__

    parts = [f"# {title}", f"Made by gpuyard {__version__}. The numbers are also in `table.csv` and `table.json`, times there in seconds."]
    parts += [clean(sentence) for sentence in output.text]
    parts += [f"![{name}]({name}.png)" for name in figures]
    parts += [md_text([table]) for table in output.tables]
    texts = {
        "report.md": "\n\n".join(parts) + "\n",
        "table.md": md_text(output.tables),
        "table.csv": csv_text(output.records),
        "table.json": json_text(output.data),
    }
    write_texts(folder, texts)
