"""Readers and generators by name, and the one function that turns a text into a Workload."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from gpuyard.errors import DataError, UsageError
from gpuyard.model.workload import Workload
from gpuyard.registry import Registry, unknown_name
from gpuyard.traces.datasets import DATASETS, fetch
from gpuyard.traces.opening import Head, head_of
from gpuyard.traces.parameters import Parameter, parameters_of, parse_assignments, resolve

Function = Callable[..., Workload]
Sniff = Callable[[Head], bool]


@dataclass(frozen=True)
class Reader:
    """An outside format: `function(path, **parameters)` makes a Workload of a file.

    `sniff` tells the format by the first lines; the globs decide where no reader's does.
    """

    name: str
    globs: tuple[str, ...]
    title: str
    function: Function
    parameters: tuple[Parameter, ...]
    sniff: Sniff | None = None


@dataclass(frozen=True)
class Generator:
    """A synthetic workload: `function(seed, **parameters)`."""

    name: str
    title: str
    function: Function
    parameters: tuple[Parameter, ...]


READERS: Registry[Reader] = Registry("reader")
GENERATORS: Registry[Generator] = Registry("workload generator")


def reader(name: str, *, glob: str | Sequence[str] = (), title: str, sniff: Sniff | None = None) -> Callable[[Function], Function]:
    """Register `function(path: Path, *, parameter=default …) -> Workload` for files that `sniff` knows, or that match `glob`.

    Readers are asked in the order in which they are registered.
    """

    def register(function: Function) -> Function:
        globs = (glob,) if isinstance(glob, str) else tuple(glob)
        READERS.add(name, Reader(name, globs, title, function, parameters_of(function), sniff))
        return function

    return register


def generator(name: str, *, title: str) -> Callable[[Function], Function]:
    """Register `function(seed: int, *, parameter=default …) -> Workload`.

    Annotations say how a text is read: int, float, `Seconds` (`2h`), a `Literal` of names.
    """

    def register(function: Function) -> Function:
        GENERATORS.add(name, Generator(name, title, function, parameters_of(function)))
        return function

    return register


def load_workload(text: str, seed: int = 0, *, reader: str | None = None, **options: Any) -> Workload:
    """A Workload from a file (`trace.swf.gz`), a generator (`family:shape=bursty,intensity=high`) or a public `dataset:NAME`.

    `seed` matters to generators only. `options` are parameters of the reader or generator; they win over those in
    the text. `reader` names the format of a file whose name does not tell. A known generator's name wins over a
    file of the same name; write `./demo` for the file.
    """
    name, _, arguments = text.partition(":")
    if reader is None and name in GENERATORS:
        return _generate(GENERATORS[name], text, seed, parse_assignments(arguments, f"generator {name}") | options)
    if reader is None and options.get("columns"):
        reader = "csv"  # who names columns means a table, whatever else knows its content
    chosen = READERS[reader] if reader is not None else None
    if name == "dataset":
        return replace(_read(fetch(arguments), chosen or _reader_of_dataset(arguments), options), name=text)
    path = Path(text).expanduser()
    if not os.path.exists(path):  # noqa: PTH110 - unlike Path.exists it never raises
        raise _not_found(text, path, name)
    return _read(path, chosen, options)


def _reader_of_dataset(name: str) -> Reader | None:
    return READERS[DATASETS[name].reader] if DATASETS[name].reader else None


def _read(path: Path, chosen: Reader | None, options: dict[str, Any]) -> Workload:
    found = chosen or reader_of(path)
    return found.function(path, **resolve(f"reader {found.name}", found.parameters, options))


def _generate(found: Generator, text: str, seed: int, given: dict[str, Any]) -> Workload:
    if seed < 0:
        raise UsageError(f"seed = {seed} is negative")
    made = found.function(seed, **resolve(f"generator {found.name}", found.parameters, given))
    return replace(made, name=text)


def reader_of(path: Path) -> Reader:
    """The reader for a file: the first that knows its content, else the first whose glob its name matches."""
    head = head_of(path)
    readers = [found for _, found in READERS.items()]
    told = (found for found in readers if head is not None and found.sniff is not None and found.sniff(head))
    named = (found for found in readers if any(fnmatch(path.name.lower(), glob) for glob in found.globs))
    chosen = next(told, None) or next(named, None)
    if chosen is None and path.is_dir():
        raise DataError(f"{path}: is a directory, not a file")
    if chosen is None and head is not None and not head.lines:
        raise DataError(f"{path}: the file is empty")
    if chosen is None and head is None:
        raise UsageError(f"{path}: its content cannot be looked at beforehand", hint="name the reader (--reader sacct), or give a file")
    if chosen is None:
        raise UsageError(
            f"{path}: neither its content nor its name is of a known format", hint=f"name the reader; known: {', '.join(READERS)}"
        )
    return chosen


def _not_found(text: str, path: Path, name: str) -> Exception:
    if not any(mark in name for mark in "/\\.~"):
        return unknown_name("workload", name, list(GENERATORS))
    try:
        siblings = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        siblings = []
    near = difflib.get_close_matches(path.name, siblings, n=1)
    hint = f"did you mean {str(path.parent / near[0])!r}?" if near else "give a file, or a generator: " + ", ".join(GENERATORS)
    return DataError(f"{text}: no such file", hint=hint)
