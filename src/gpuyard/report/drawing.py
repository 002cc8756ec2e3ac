"""Parts shared by all figures on paper: fonts, and files without dates."""

from __future__ import annotations

from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from gpuyard.errors import DataError
from gpuyard.extras import needing_extras

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SHOWN = 80.0  # dots per inch on a screen; drawn with twice as many


@cache
def _kind() -> type[Figure]:
    """Return the class of figures, which show themselves in a notebook whatever the backend."""
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        def _repr_png_(self) -> tuple[bytes, dict[str, float]]:
            stream = BytesIO()
            self.savefig(stream, format="png", dpi=2 * SHOWN, facecolor="white")
            return stream.getvalue(), {"width": self.get_figwidth() * SHOWN}

    return NotebookFigure


def new_figure(width: float, height: float) -> Figure:
    with needing_extras():
        import matplotlib

    matplotlib.rcParams.update(
        {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "gpuyard", "pdf.fonttype": 42}
    )
    return _kind()(figsize=(width, height), layout="constrained")


def write_figure(figure: Figure, target: Path | BinaryIO, kind: str = "") -> None:
    """Write in the format of the path's suffix, or of `kind`; without dates, so that the same run gives the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    kind = kind or (target.suffix.lower().lstrip(".") if isinstance(target, Path) else "png")
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    try:
        figure.savefig(target, dpi=200, metadata=dates.get(kind), format=kind)
    except OSError as error:
        raise DataError(f"{target}: the figure cannot be written: {error.strerror or error}") from None
