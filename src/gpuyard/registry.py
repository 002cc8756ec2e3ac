"""Registries map names to things; an unknown name raises an error that suggests the nearest known one."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from gpuyard.errors import UnknownNameError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
LONGEST = 100  # characters of a name in a hint
MOST_LISTED = 1000  # characters of a hint that lists names


class Registry(Generic[T]):
    """An insertion-ordered mapping that refuses duplicates and suggests near names."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._things: dict[str, T] = {}
        self._by_hand: dict[str, str] = {}  # name → function of a notebook or a script that has it

    def add(self, name: str, thing: T) -> None:
        if name in self._things:
            raise ValueError(f"{self.what} {name!r} is registered twice")
        self._things[name] = thing

    def register(self, name: str, make: Callable[[F], T]) -> Callable[[F], F]:
        """Return a decorator that adds `make(function)` under `name` and leaves the function itself unchanged.

        A cell of a notebook is run again after every change: there a function takes the place of the one that it was.
        """

        def decorate(function: F) -> F:
            made, mine = make(function), function.__qualname__ if function.__module__ == "__main__" else ""
            if mine and self._by_hand.get(name) == mine:
                self._things[name] = made
                return function
            self.add(name, made)
            self._by_hand[name] = mine
            return function

        return decorate

    def __getitem__(self, name: str) -> T:
        try:
            return self._things[self.spelt(name)]
        except KeyError:
            raise unknown_name(self.what, name, self._things) from None

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.spelt(name) in self._things

    def spelt(self, name: str) -> str:
        """Return the name as it is registered, if it is, in British or American spelling."""
        return respelt(name, self._things)

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)

    def items(self) -> Iterator[tuple[str, T]]:
        return iter(self._things.items())


def respelt(name: str, known: Iterable[str]) -> str:
    """Return the known name that differs by British or American spelling alone (`utilisation`, `utilization`), or the name itself."""
    if name in known or "ation" not in name:
        return name
    return next((each for each in known if american(each) == american(name)), name)


def american(name: str) -> str:
    """Return a name in the spelling that names of metrics have."""
    return name.replace("isation", "ization")


def unknown_name(what: str, name: str, known: Iterator[str] | dict[str, T] | tuple[str, ...] | list[str]) -> UnknownNameError:
    """Return the error for an unknown `name`; its hint is the nearest known name, or all of them."""
    names = [each if len(each) <= LONGEST else each[:LONGEST] + "…" for each in known]  # names may come from a file that we did not write
    near = difflib.get_close_matches(name[:LONGEST].lower(), names, n=1, cutoff=0.5)
    listed = ", ".join(names)
    known_names = f"known: {listed if len(listed) <= MOST_LISTED else listed[:MOST_LISTED] + ' …'}" if names else "there are none"
    return UnknownNameError(f"unknown {what} {name!r}", hint=f"did you mean {near[0]!r}?" if near else known_names)
