"""The class and registry of metrics, the aggregations, and `measure`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import wraps
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar, overload

import numpy as np

from gpuyard.arrays import Array, quantiles
from gpuyard.errors import UsageError, WrongTypeError
from gpuyard.metrics.facts import STACKING, stacked
from gpuyard.model.result import Result
from gpuyard.model.units import parse_assignments
from gpuyard.registry import Registry, respelt, unknown_name

Kind: TypeAlias = Literal["job", "node", "run"]
Better: TypeAlias = Literal["lower", "higher", "neither"]
Function: TypeAlias = Callable[[Result], Array] | Callable[[Result], float]
F = TypeVar("F", Callable[[Result], Array], Callable[[Result], float])
Values: TypeAlias = dict[str, Array]  # metric name → (jobs,), (nodes,) or () float64


@dataclass(frozen=True)
class Metric:
    """A metric with everything that tables and the reference page say about it."""

    name: str
    title: str
    unit: str  # "1" for shares and ratios
    better: Better
    kind: Kind  # one value per job, per node or per run
    function: Function
    formula: str = ""
    source: str = ""
    covers: str = ""  # which jobs, and how those that never ended enter
    missing: str = ""  # when it is nan
    grouped: bool = False  # kind "run": may be taken over some of the jobs, because it reads their rows only
    reproducible: bool = True  # False: a wall-clock figure, another at every run
    segments: bool = False  # exact only for a run that kept which job held which devices when
    parameters: type[Any] | None = None  # a frozen dataclass of numbers, the function's second argument: `balanced:deadline=2`

    @property
    def description(self) -> str:
        """Return the function's docstring as one paragraph."""
        return " ".join((self.function.__doc__ or "").split())

    def with_parameters(self, arguments: str) -> Metric:
        """Return the metric with the parameters of a text such as `deadline=2,power=0`; the others keep their defaults."""
        if not arguments:
            return self
        known = [each.name for each in fields(self.parameters)] if self.parameters is not None else []
        given = parse_assignments(arguments, f"metric {self.name}")
        given = {respelt(name, known): value for name, value in given.items()}
        for name in given:
            if name not in known:
                raise unknown_name(f"parameter of metric {self.name!r}:", name, known)
        if self.parameters is None or not given:
            return self
        chosen = self.parameters(**{name: _number(value, f"metric {self.name}: {name}") for name, value in given.items()})
        function: Any = self.function
        made = wraps(function)(lambda result: function(result, chosen))
        return replace(self, name=f"{self.name}:{arguments}", title=f"{self.title} ({arguments})", function=made)


def _number(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise UsageError(f"{what}={text} is not a finite number")
    return value


METRICS: Registry[Metric] = Registry("metric")


def metric(
    name: str, *, unit: str, better: Better, title: str = "", kind: Kind = "job", formula: str = "", source: str = "", covers: str = "",
    missing: str = "", grouped: bool = False, reproducible: bool = True, segments: bool = False,
    parameters: type[Any] | None = None,
) -> Callable[[F], F]:  # fmt: skip
    """Register a function Result → (jobs,) array, (nodes,) array or float, as `kind` says; nan where it does not apply."""
    if "." in name:
        raise UsageError(f"metric name {name!r} has a dot", hint="what follows a dot is the aggregation, as in wait.p95")
    facts = (formula, source, covers, missing, grouped, reproducible, segments, parameters)
    return METRICS.register(name, lambda function: Metric(name, title or name, unit, better, kind, function, *facts))


def _percentile(share: float) -> Callable[[Array], Array]:
    level = np.array([share / 100.0])
    return lambda values: quantiles(values, level)[..., 0]


AGGREGATIONS: Mapping[str, Callable[[Array], Array]] = MappingProxyType(  # over the last axis
    {
        "mean": lambda values: values.mean(axis=-1),
        "p50": _percentile(50),
        "p95": _percentile(95),
        "p99": _percentile(99),
        "max": lambda values: values.max(axis=-1),
        "min": lambda values: values.min(axis=-1),
        "std": lambda values: values.std(axis=-1),
        "sum": lambda values: values.sum(axis=-1),
    }
)


def aggregate(values: Array, aggregation: str) -> float:
    """Return one number from the values that apply (nan are left out); nan if there are none."""
    if aggregation not in AGGREGATIONS:
        raise unknown_name("aggregation", aggregation, list(AGGREGATIONS))
    applicable = values[~np.isnan(values)]
    return float(AGGREGATIONS[aggregation](applicable)) if len(applicable) else np.nan


def is_metric(name: str) -> bool:
    """Return whether a text begins with the name of a metric; its aggregation and parameters may still be wrong."""
    return name.partition(":")[0].partition(".")[0] in METRICS


def resolve(name: str) -> tuple[Metric, str]:
    """`wait.p95` → (the metric `wait`, "p95"); without a dot the mean, and "" for a metric with one value per run.

    Parameters follow a colon: `balanced:deadline=2,power=0`.
    """
    path, _, arguments = name.partition(":")
    stem, _, aggregation = path.partition(".")
    found = METRICS[stem].with_parameters(arguments)
    if found.kind == "run":
        if aggregation:
            raise UsageError(f"metric {name!r}: {stem} is one value per run", hint=f"ask for {stem!r}")
        return found, ""
    aggregation = aggregation or "mean"
    if aggregation not in AGGREGATIONS:
        raise unknown_name(f"aggregation in metric {name!r}:", aggregation, list(AGGREGATIONS))
    return found, aggregation


def values_of(result: Result, found: Metric) -> Array:
    """Return the metric's values as float64: (jobs,), (nodes,) or (); another shape is refused."""
    values = np.asarray(found.function(result), dtype=np.float64)
    shape = {"job": result.table.shape, "node": (len(result.cluster.nodes),), "run": ()}[found.kind]
    if values.shape != shape:
        raise UsageError(f"metric {found.name!r} gave an array of shape {values.shape}; one value per {found.kind} is {shape}")
    return values


@overload
def measure(result: Result, names: str) -> float: ...  # type: ignore[overload-overlap]  # a text is also many texts
@overload
def measure(result: Result, names: Iterable[str]) -> dict[str, float]: ...
def measure(result: Result, names: str | Iterable[str]) -> float | dict[str, float]:
    """Return one number for one name (`measure(result, "bsld")`), or numbers by name in the order asked for.

    Each metric is computed once, whatever aggregations are taken of it.
    """
    if not isinstance(result, Result):
        raise WrongTypeError("measure", "a Result", result, hint="simulate(workload, cluster, scheduler) gives one")
    if isinstance(names, str):
        return measure_many([result], [names])[0][names]
    return measure_many([result], names)[0]


def listed(names: Iterable[str]) -> list[str]:
    """List the names of metrics; refuse what is not one."""
    expected = "the name of a metric, or a list of them"
    if not isinstance(names, Iterable):
        raise WrongTypeError("metrics", expected, names)
    listed = [names] if isinstance(names, str) else list(names)
    for name in listed:
        if not isinstance(name, str):
            raise WrongTypeError("metrics", expected, name)
    return listed


def measure_many(results: Sequence[Result], names: Iterable[str]) -> list[dict[str, float]]:
    """Return what `measure` returns for each result, to the bit; short runs of the same jobs are measured sooner together."""
    wanted = [(name, *resolve(name)) for name in listed(names)]
    stack = stacked(results)
    values: dict[str, Sequence[Array] | Array] = {}
    measured: list[dict[str, float]] = [{} for _ in results]
    for name, found, aggregation in wanted:
        if found.name not in values:
            if stack is not None and found.function in STACKING:
                values[found.name] = values_of(stack, found)
            else:
                values[found.name] = [values_of(result, found) for result in results]
        for numbers, value in zip(measured, _aggregated(values[found.name], aggregation), strict=True):
            numbers[name] = value
    return measured


def _aggregated(values: Sequence[Array] | Array, aggregation: str) -> list[float]:
    """Return a number per result; from values that are stacked, (results, jobs), all at once where all of them apply."""
    if not aggregation:
        return [float(one) for one in values]
    if isinstance(values, np.ndarray) and not np.isnan(values).any():
        numbers: list[float] = AGGREGATIONS[aggregation](values).tolist()
        return numbers
    return [aggregate(each, aggregation) for each in values]
