"""The exceptions of gpuyard. Every message names the thing and the place, and may end with a hint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
HINT = "; hint: "  # between what is wrong and what to do


class GpuyardError(Exception):
    """Base of everything gpuyard raises on purpose; the CLI prints it as one line and exits with `exit_code`."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.hint = hint
        super().__init__(f"{message}{HINT}{hint}" if hint else message)


class UsageError(GpuyardError):
    """The request itself is wrong (an unknown name, a bad option value)."""

    exit_code = 2


class WrongTypeError(UsageError, TypeError):
    """An argument from Python is of a type that does not fit; the message says what was expected."""

    def __init__(self, what: str, expected: str, given: object, *, hint: str = "") -> None:
        super().__init__(f"{what}: expected {expected}, got {_described(given)}", hint=hint)


def _described(given: object) -> str:
    """Name the type of a value, and the value itself where it is short."""
    if given is None:
        return "None"
    kind = type(given)
    if kind.__module__ == "builtins" and isinstance(given, bool | int | float | str):
        text = repr(given)
        return f"{kind.__name__} {text if len(text) <= 40 else text[:39] + '…'}"
    package = kind.__module__.partition(".")[0]
    return kind.__name__ if package in ("builtins", "gpuyard", "__main__") else f"{package} {kind.__name__}"


class UnknownNameError(UsageError):
    """A name is not in the registry."""


class DataError(GpuyardError):
    """An input from outside is wrong: a trace, a TOML file, a column of values."""


class CheckpointError(DataError):
    """A file with a trained network, or with the state of a training, is damaged, too large, or made for something else."""


class PolicyError(GpuyardError):
    """A policy does not compile, raises, or returns something unusable."""


class SimulationError(GpuyardError):
    """The engine could not go on; the message names the job and the time."""


class NoChoiceError(SimulationError):
    """An episode is over before anything could be chosen in it."""


class LearningError(GpuyardError):
    """Training could not go on; the message names the environment or the update, and the step."""


class SeveralErrors(GpuyardError):
    """Errors that do not depend on each other and were found together; each is shown on lines of its own."""

    def __init__(self, errors: Sequence[GpuyardError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = tuple(errors)
        self.exit_code = max(error.exit_code for error in errors)


@contextmanager
def together() -> Iterator[Callable[..., None]]:
    """Collect the errors of independent checks: what is yielded calls a function, and the errors are raised at the end, all of them.

    with together() as check:
        check(resolve, "bsldd")
        check(parse_scheduler, "sjff")
    """
    found: dict[str, GpuyardError] = {}

    def check(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except GpuyardError as error:
            found.setdefault(str(error), error)

    yield check
    if len(found) == 1:
        raise next(iter(found.values()))
    if found:
        raise SeveralErrors(list(found.values()))
