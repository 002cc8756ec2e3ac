"""What all figures on paper share: colours, files without dates, scales."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito (2008): told apart with any kind of colour vision. Black is left out.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
GREY = "#666666"
LOG_FROM = 8.0  # largest over smallest from which the scale is logarithmic


def new_figure(width: float, height: float) -> Figure:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    matplotlib.rcParams.update(
        {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "gpuyard", "pdf.fonttype": 42}
    )
    return Figure(figsize=(width, height), layout="constrained")


def write_figure(figure: Figure, target: Path | BinaryIO, kind: str = "") -> None:
    """As the suffix of the path says, or as `kind`. Without dates inside, so that the same run gives the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    kind = kind or (target.suffix.lower().lstrip(".") if isinstance(target, Path) else "png")
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    try:
        figure.savefig(target, dpi=200, metadata=dates.get(kind), format=kind)
    except OSError as error:
        raise DataError(f"{target}: the figure cannot be written: {error.strerror or error}") from None


def scale_to(axes: Axes, values: Array) -> None:
    """A logarithmic scale where all values are positive and lie far apart."""
    from matplotlib.ticker import LogLocator

    shown = values[np.isfinite(values)]
    if len(shown) and shown.min() > 0 and shown.max() > LOG_FROM * shown.min():
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=6))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")


def scale_differences_to(axes: Axes, values: Array) -> float:
    """A scale on both sides of 0 that is logarithmic beyond where most values lie, if some lie far from them; returns from where, or 0."""
    from matplotlib.ticker import FixedLocator, NullLocator

    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    if not len(sizes):
        return 0.0
    usual = 10.0 ** np.floor(np.log10(np.median(sizes)))
    if sizes.max() <= LOG_FROM * usual:
        return 0.0
    axes.set_xscale("symlog", linthresh=usual, linscale=1.0)
    steps = [usual / 2] + [usual * factor * 10.0**k for k in range(int(np.log10(sizes.max() / usual)) + 1) for factor in (1.0, 3.0)]
    low, high = (float(end) for end in (np.nanmin(values), np.nanmax(values)))
    ticks = [tick for tick in (*(-step for step in steps[::-1]), 0.0, *steps) if min(low, 0.0) <= tick <= max(high, 0.0)]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:,g}")
    return float(usual)
