"""Typed parameters of readers and generators, taken from the signature: a new one needs no parsing code."""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from gpuyard.errors import GpuyardError, UsageError
from gpuyard.model.units import parse_count, parse_seconds
from gpuyard.registry import unknown_name

Seconds = Annotated[float, "seconds"]  # a time; as text also `2h`, `30min`


@dataclass(frozen=True)
class Parameter:
    """A keyword argument with a default; `kind` is its annotation."""

    name: str
    kind: Any
    default: Any

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed names, where there is a fixed set of them."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()


def parameters_of(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """The keyword-only arguments of `function`, in order."""
    hints = typing.get_type_hints(function, include_extras=True)
    signature = inspect.signature(function)
    keyword = [p for p in signature.parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    return tuple(Parameter(p.name, hints[p.name], p.default) for p in keyword)


def parse_assignments(text: str, what: str) -> dict[str, str]:
    """`a=1,b=two` → names and texts."""
    found: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = (p.strip() for p in part.partition("="))
        if not equals or not name or not value:
            raise UsageError(f"{what}: {part!r} is not NAME=VALUE")
        if name in found:
            raise UsageError(f"{what}: parameter {name!r} is given twice")
        found[name] = value
    return found


def resolve(what: str, known: tuple[Parameter, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments from texts or values; refuses unknown names and values of the wrong kind."""
    by_name = {p.name: p for p in known}
    for name in given:
        if name not in by_name:
            raise unknown_name(f"parameter of {what}", name, list(by_name))
    return {name: _convert(what, by_name[name], value) for name, value in given.items()}


def _convert(what: str, parameter: Parameter, value: Any) -> Any:
    label = f"{what}: {parameter.name}"
    if parameter.choices:
        if value not in parameter.choices:
            raise unknown_name(f"value of {label}", str(value), parameter.choices)
        return value
    parse = _PARSERS.get(parameter.kind)
    if parse is None:
        return value
    try:
        return parse(value if isinstance(value, str) else str(value))
    except GpuyardError as error:
        raise UsageError(f"{label}: {error}") from None


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a number") from None
    if not math.isfinite(value):
        raise UsageError(f"{text!r} is not a finite number")
    return value


_PARSERS: dict[Any, Callable[[str], Any]] = {int: parse_count, float: _number, Seconds: parse_seconds}
