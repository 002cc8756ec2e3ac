"""The door from the nouns up to `gpuyard.notebook`, where they become frames, figures and HTML.

The model imports numpy and nothing else of weight. What a person wants to see of a noun needs more: metrics, polars, pandas, matplotlib. So
a noun only says that it can be shown; the room above is loaded when somebody looks. This is the only import against the arrows.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def above(module: str) -> Any:
    """Load a module of `gpuyard.notebook`."""
    return import_module(f"gpuyard.notebook.{module}")


class Displayed:
    """A noun that shows itself: a small table in a notebook, a few lines in a terminal."""

    def __init_subclass__(cls) -> None:
        cls.__repr__ = Displayed.__repr__  # type: ignore[method-assign]  # in the class itself, so that `dataclass` writes no other

    def _repr_html_(self) -> str:
        return str(above("html").html_of(self))

    def __repr__(self) -> str:
        return str(above("lines").text_of(self))
