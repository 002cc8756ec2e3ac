"""The registries of readers and generators, and the function that turns a text into a Workload."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, ClassVar

from gpuyard.errors import DataError, UnknownNameError, UsageError
from gpuyard.extras import needing_extras
from gpuyard.files import user_path
from gpuyard.model.result import Result
from gpuyard.model.storage import is_saved
from gpuyard.model.workload import Workload
from gpuyard.packed import plain_name
from gpuyard.registry import Registry, unknown_name
from gpuyard.traces.datasets import DATASETS, fetch
from gpuyard.traces.opening import DEFAULT_LIMITS, Head, blocks, head_of
from gpuyard.traces.parameters import Registered, parameters_of, parse_assignments

Function = Callable[..., Workload]
Sniff = Callable[[Head], bool]


@dataclass(frozen=True)
class Reader(Registered[Workload]):
    """A file format: `function(path, **parameters)` reads a file into a Workload.

    `sniff` recognises the format by its first lines; where no reader does, the globs decide, and after them who asks to be `last`.
    """

    globs: tuple[str, ...] = ()
    sniff: Sniff | None = None
    last: bool = False
    what: ClassVar[str] = "reader"


@dataclass(frozen=True)
class Generator(Registered[Workload]):
    """A synthetic workload: `function(seed, **parameters)` makes it."""

    what: ClassVar[str] = "generator"


READERS: Registry[Reader] = Registry("reader")
GENERATORS: Registry[Generator] = Registry("workload generator")


def reader(
    name: str, *, glob: str | Sequence[str] = (), title: str, sniff: Sniff | None = None, last: bool = False
) -> Callable[[Function], Function]:
    """Register `function(path: Path, *, parameter=default …) -> Workload` for files that `sniff` recognises or `glob` matches.

    Readers are tried in the order in which they are registered, those that are `last` after all names. A glob is for names without
    the suffix of a packing such as `.gz`.
    """
    globs = (glob,) if isinstance(glob, str) else tuple(glob)
    return READERS.register(name, lambda function: Reader(name, title, function, parameters_of(function), globs, sniff, last))


def generator(name: str, *, title: str) -> Callable[[Function], Function]:
    """Register `function(seed: int, *, parameter=default …) -> Workload`.

    Annotations say how a text is parsed: int, float, `Seconds` (`2h`), a `Literal` of names.
    """
    return GENERATORS.register(name, lambda function: Generator(name, title, function, parameters_of(function)))


def load_workload(text: str, seed: int = 0, *, reader: str | None = None, **options: Any) -> Workload:
    """Load a workload from a file (`trace.swf.gz`), a generator (`family:shape=bursty,intensity=high`) or a public `dataset:NAME`.

    Only generators use `seed`. `options` are parameters of the reader or generator; they override those in the text.
    `reader` names the format where neither content nor name shows it. A generator's name takes precedence over a file
    of the same name; write `./demo` for the file.
    """
    name, _, arguments = text.partition(":")
    if reader is None and name in GENERATORS:
        return _generate(GENERATORS[name], text, seed, parse_assignments(arguments, f"generator {name}") | options)
    if reader is None and options.get("columns"):
        reader = "csv"  # named columns mean a table, whatever other reader recognises the content
    chosen = READERS[reader] if reader is not None else None
    if name == "dataset":
        return replace(_read(fetch(arguments), chosen or _reader_of_dataset(arguments), options), name=text)
    path = user_path(text)
    if not os.path.exists(path):  # noqa: PTH110 - unlike Path.exists it never raises
        raise _not_found(text, path, name)
    return _read(path, chosen, options)


def check_workload(text: str, reader: str | None = None) -> None:
    """Refuse a text that names neither a generator nor a dataset nor a file, and an unknown reader. Nothing is read."""
    name, _, arguments = text.partition(":")
    if reader is not None:
        READERS[reader]
    elif name in GENERATORS:
        return
    path = user_path(text)
    if name == "dataset":
        DATASETS[arguments]
    elif not os.path.exists(path):  # noqa: PTH110 - unlike Path.exists it never raises
        raise _not_found(text, path, name)


def _reader_of_dataset(name: str) -> Reader | None:
    return READERS[DATASETS[name].reader] if DATASETS[name].reader else None


def _read(path: Path, chosen: Reader | None, options: dict[str, Any]) -> Workload:
    if is_saved(path):
        if chosen is not None or any(options.values()):
            raise UsageError(f"{path}: is a result, which needs no reader and no columns")
        return replace(Result.load(path).workload, name=path.name, preset=str(path))
    found = chosen or reader_of(path)
    with needing_extras():
        return found.call(options, path)


def _generate(found: Generator, text: str, seed: int, given: dict[str, Any]) -> Workload:
    if seed < 0:
        raise UsageError(f"seed = {seed} is negative")
    return replace(found.call(given, seed), name=text)


def reader_of(path: Path) -> Reader:
    """Return the first reader that recognises the content of a file, else the first whose glob matches its name."""
    head = head_of(path)
    readers = [found for _, found in READERS.items()]
    name = plain_name(path.name.lower())
    recognised = [found for found in readers if head is not None and found.sniff is not None and found.sniff(head)]
    named = [found for found in readers if any(fnmatch(name, glob) for glob in found.globs)]
    chosen = next(iter((*(found for found in recognised if not found.last), *named, *recognised)), None)
    if chosen is None and path.is_dir():
        raise DataError(f"{path}: is a directory, not a file")
    if chosen is None and head is None and path.is_file():
        next(blocks(path, DEFAULT_LIMITS))  # raises what is wrong with it, such as a packing that cannot be read
    if chosen is None and head is not None and not head.lines:
        raise DataError(f"{path}: the file is empty")
    if chosen is None and head is None:
        raise UsageError(f"{path}: cannot look at the content in advance", hint="name the reader (--reader sacct), or give a file")
    if chosen is None:
        raise UsageError(
            f"{path}: neither the content nor the name matches a known format", hint=f"name the reader; known: {', '.join(READERS)}"
        )
    return chosen


def _not_found(text: str, path: Path, name: str) -> Exception:
    if not any(mark in name for mark in "/\\.~"):
        if name in DATASETS:
            return UnknownNameError(f"unknown workload {name!r}", hint=f"it is a public dataset: dataset:{name}")
        return unknown_name("workload", name, list(GENERATORS))
    try:
        siblings = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        siblings = []
    near = difflib.get_close_matches(path.name, siblings, n=1)
    hint = f"did you mean {str(path.parent / near[0])!r}?" if near else "give a file, or a generator: " + ", ".join(GENERATORS)
    return DataError(f"{text}: no such file", hint=hint)
