"""Typed parameters of readers, generators, transforms and estimate sources, taken from the signature: a new one needs no parsing code."""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, get_args, get_origin

from gpuyard.errors import GpuyardError, UsageError
from gpuyard.model.units import Range, parse_count, parse_gigabytes, parse_range, parse_seconds
from gpuyard.model.units import parse_assignments as parse_assignments
from gpuyard.registry import unknown_name

Made = TypeVar("Made")
Seconds = Annotated[float, "seconds"]  # a time; as text also `2h`, `30min`
CountRange = Annotated[Range, "counts"]  # whole numbers; as text `1:8`
SecondsRange = Annotated[Range, "seconds"]  # as text `30s:2h`
GigabyteRange = Annotated[Range, "gigabytes"]  # as text `512MB:16GB`


@dataclass(frozen=True)
class Parameter:
    """A keyword argument with a default; `kind` is its annotation."""

    name: str
    kind: Any
    default: Any

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the allowed names, or nothing where any value is allowed."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def textual(self) -> bool:
        """Whether it can be written as text; a table of columns or of limits cannot."""
        return isinstance(self.default, (str, int, float, Range))


@dataclass(frozen=True)
class Registered(Generic[Made]):
    """A function that is known by name and whose keyword arguments can be written as text."""

    name: str
    title: str
    function: Callable[..., Made]
    parameters: tuple[Parameter, ...]
    what: ClassVar[str] = ""  # its kind, as messages say it

    def call(self, given: str | Mapping[str, Any], *arguments: Any) -> Made:
        """Call the function; `given` holds the keyword arguments, as `NAME=VALUE,…`, as a lone VALUE or by name."""
        what = f"{self.what} {self.name}"
        keywords = arguments_of(given, what, self.parameters) if isinstance(given, str) else resolve(what, self.parameters, given)
        return self.function(*arguments, **keywords)


def parameters_of(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """Return the keyword-only arguments of `function`, in order."""
    hints = typing.get_type_hints(function, include_extras=True)
    signature = inspect.signature(function)
    keyword = [p for p in signature.parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    return tuple(Parameter(p.name, hints[p.name], p.default) for p in keyword)


def arguments_of(text: str, what: str, known: tuple[Parameter, ...]) -> dict[str, Any]:
    """Parse keyword arguments from `NAME=VALUE,…`; a lone VALUE belongs to the first parameter."""
    if text and "=" not in text and known:
        text = f"{known[0].name}={text}"
    return resolve(what, known, parse_assignments(text, what))


def resolve(what: str, known: tuple[Parameter, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert texts or values to keyword arguments; refuse unknown names and values of the wrong kind."""
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


_PARSERS: dict[Any, Callable[[str], Any]] = {
    int: parse_count,
    float: _number,
    Seconds: parse_seconds,
    Range: lambda text: parse_range(text, _number),
    CountRange: lambda text: parse_range(text, parse_count),
    SecondsRange: lambda text: parse_range(text, parse_seconds),
    GigabyteRange: lambda text: parse_range(text, parse_gigabytes),
}
