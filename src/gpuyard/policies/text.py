"""How schedulers and policies are written down: `sjf/best/easy`, `wfp3`, `las:threshold=600`, `./mine.py:rule`."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeVar

import gpuyard.policies.rules  # noqa: F401 - fills the registries
from gpuyard.errors import PolicyError, UsageError, WrongTypeError
from gpuyard.files import is_file, public_names, user_path
from gpuyard.model.units import parse_seconds
from gpuyard.networks.checkpoint import SUFFIX
from gpuyard.policies.learned import (
    FOLDERS,
    is_learned,
    learned_ordering,
    learned_placement,
    learned_rank,
    learned_scheduler,
    learned_switch,
)
from gpuyard.policies.meant import names_file_alone, refuse_file_alone, refuse_misplaced, refuse_run_together, unknown_policy
from gpuyard.policies.ranks import with_table
from gpuyard.policies.schedulers import (
    DECIDERS,
    SWITCHES,
    AnyScheduler,
    Copies,
    Decider,
    Meta,
    Scheduler,
    Several,
    Switch,
    make_decider,
    make_switch,
)
from gpuyard.policies.slots import (
    BACKFILLS,
    DEFAULT_SLOTS,
    FROM_TEXT,
    ORDERINGS,
    PLACEMENTS,
    PREEMPTIONS,
    RANK_SETTINGS,
    Backfill,
    Function,
    Ordering,
    Parametrised,
    Placement,
    Preemption,
    RankRule,
    make_ordering,
    make_placement,
    make_preemption,
    summary_of,
)
from gpuyard.registry import Registry, unknown_name

MOST_DEPTH = 1_000_000_000  # more jobs than any simulation has
P = TypeVar("P", bound=Parametrised)
_DECIDER = re.compile(r"(?P<name>[\w-]+|[^:()]*\.py:\w+)(?::(?P<params>[^()/]*))?(?:\((?P<inner>.*)\))?")
_META = re.compile(r"meta:(?P<rule>[^()]+)\((?P<of>.*)\)(?:@(?P<every>[^@()]+))?")


def parse_ordering(text: str) -> Ordering:
    """`sjf`, `wfp3:power=2`, `./mine.py:rule`, or a checkpoint: `learned:gpu`, `./best.safetensors`."""
    return learned_ordering(text) if is_learned(text) else _parse(text, ORDERINGS, make_ordering)


def parse_placement(text: str) -> Placement:
    """`best`, `./mine.py:rule`, or a checkpoint."""
    return learned_placement(text) if is_learned(text) else _parse(text, PLACEMENTS, make_placement)


def parse_preemption(text: str) -> Preemption:
    """`srpt`, `las:every=60`, `gittins:table=gpu`, `./mine.py:rule`, or a checkpoint."""
    rest, table = with_table(text)
    if table is None and is_learned(text):
        return learned_rank(text)
    found = _parse(rest, PREEMPTIONS, make_preemption)
    if table is None:
        return found
    if not isinstance(found, RankRule) or found.table is None:
        raise UsageError(f"preemption {found.name!r} has no table", hint="gittins does")
    return replace(found, table=table)


def parse_switch(text: str) -> Switch:
    """`backlog:limit=20`, `./mine.py:rule`, or a checkpoint."""
    return learned_switch(text) if is_learned(text) else _parse(text, SWITCHES, make_switch)


def parse_backfill(text: str) -> Backfill:
    """`easy`, or `easy:depth=100`."""
    name, values = _split(text)
    found = BACKFILLS[name]
    for key, value in values.items():
        if key != "depth":
            raise UsageError(f"backfill {name!r} has no parameter {key!r}", hint="it has: depth")
        if not 0 <= value <= MOST_DEPTH or value != int(value):
            raise UsageError(f"backfill {text!r}: depth must be a whole number in 0..{MOST_DEPTH:,}")
        found = replace(found, depth=int(value))
    return found


FROM_TEXT |= {"ordering": parse_ordering, "placement": parse_placement, "backfill": parse_backfill, "preemption": parse_preemption}


def parse_scheduler(text: str) -> AnyScheduler:
    """Return the scheduler that a text names: `sjf/fewest/easy`, `meta:RULE(SCHEDULER, SCHEDULER)[@PERIOD]` or a decider.

    The slots are `ordering[/placement[/backfill[/preemption]]]`; with `meta:` a rule switches between several schedulers.

    A decider is `NAME[:PARAMETER=NUMBER,…][(SCHEDULER)]`, or `./mine.py:CLASS` with the same; one that chooses has several in brackets.
    It may also stand in the place of the placement, see `parse_filled`.
    """
    if is_learned(text) and len(_slash_parts(text)) == 1:
        return learned_scheduler(text, parse_filled)
    decider = _parse_decider(text)
    if decider is not None:
        return decider
    name = text.partition(":")[0].partition("(")[0]
    if "/" not in text and ".py" not in text and not is_learned(text) and name not in (*ORDERINGS, "meta") and name:
        refuse_run_together(text)
        raise unknown_policy("ordering or decider", name, [*ORDERINGS, *DECIDERS])
    if not text.startswith("meta:"):
        return parse_filled(text)
    match = _META.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"scheduler {text!r} is not meta:RULE(SCHEDULER, SCHEDULER …)[@PERIOD]")
    return make_meta(match["rule"], _listed(match["of"]), match["every"] or "0")


def as_scheduler(given: object) -> AnyScheduler:
    """Return the scheduler that something stands for: a text, a checkpoint's path, a plain function (an ordering), or what decides.

    A class with `decide(snapshot)` is made anew for every simulation, an object with it is copied, or asked for a new one by `begin()`.
    """
    if isinstance(given, Scheduler | Meta | Decider):
        return given
    if isinstance(given, str | PathLike):
        return parse_scheduler(fspath(given))
    if isinstance(given, type) and hasattr(given, "decide"):
        return _decider_of(given, given.__name__)
    if hasattr(given, "decide") or hasattr(given, "begin"):
        return make_decider(Copies(given), str(getattr(given, "label", type(given).__name__)), summary_of(type(given)))
    if callable(given) and not isinstance(given, type):
        return Scheduler(given)
    expected = "a text such as 'sjf/fewest/easy', a Scheduler, an ordering function (jobs, j, now), or something with decide(snapshot)"
    raise WrongTypeError("scheduler", expected, given)


def _parse_decider(text: str) -> Decider | None:
    """A decider, if that is what the text names."""
    found, inner = _named_decider(text)
    if found is None or inner is None:
        return found
    if found.inner is None:
        raise UsageError(f"decider {found.name!r} builds on no scheduler, but {inner!r} is given")
    if isinstance(found.inner, Several):
        return replace(found, inner=Several(tuple(parse_slots(text) for text in _listed(inner))))
    return replace(found, inner=parse_slots(inner.strip()))


def _named_decider(text: str) -> tuple[Decider | None, str | None]:
    """Return the decider that a text names, if it does, with its parameters, and what is in brackets behind it."""
    match = _DECIDER.fullmatch(text.strip())
    if match is None or not (match["name"] in DECIDERS or (".py:" in match["name"] and len(_slash_parts(match["name"])) == 1)):
        return None, None
    found = DECIDERS[match["name"]] if match["name"] in DECIDERS else _decider_from_file(match["name"])
    if found is None:
        return None, None
    _, values = _split(f"{found.name}:{match['params'] or ''}")
    return _with_params(found, values, DECIDERS.what), match["inner"]


def parse_filled(text: str) -> Scheduler | Decider:
    """Parse slots as `parse_slots` does, or with a decider as the placement, see `fill_slots`."""
    return fill_slots(_slots_in(text))


def fill_slots(texts: Sequence[str]) -> Scheduler | Decider:
    """Fill the four slots. A decider as the placement builds on the rest: `saf/milp:k=8/easy` is `milp:k=8(saf/fewest/easy)`.

    A placement in brackets, `saf/milp(best)/easy`, is the one that the decider begins with.
    """
    ordering, placement, backfill, preemption = texts
    found, inner = (None, None) if placement.partition(":")[0] in PLACEMENTS else _named_decider(placement)
    made = Scheduler(
        parse_ordering(ordering), parse_placement(inner or DEFAULT_SLOTS[1] if found else placement),
        parse_backfill(backfill), parse_preemption(preemption),
    )  # fmt: skip
    if found is None:
        return made
    if not isinstance(found.inner, Scheduler):
        hint = "take a placement, or a decider that builds on one scheduler, such as milp"
        raise UsageError(f"decider {found.name!r} in the place of a placement: it does not place what an ordering chooses", hint=hint)
    return replace(found, inner=made)


def _listed(text: str) -> list[str]:
    """Schedulers separated by a comma and a space; commas without one belong to parameters."""
    return [part.strip() for part in re.split(r",\s", text) if part.strip()]


def _decider_from_file(name: str) -> Decider | None:
    """`./mine.py:CLASS`; None where it names a function."""
    make = load_function(name)
    return _decider_of(make, _split(name)[0]) if isinstance(make, type) and hasattr(make, "decide") else None


def _decider_of(make: Function, name: str) -> Decider:
    """Make a decider of a class. One whose first argument may be given by position builds on a scheduler."""
    arguments = inspect.signature(make).parameters.values()
    builds_on = any(each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for each in arguments)
    return make_decider(make, name, inner=Scheduler() if builds_on else None)


def make_meta(rule: str, schedulers: Sequence[str], every: str) -> Meta:
    """A meta-scheduler from the texts of a switch rule, of the schedulers and of a period."""
    if len(schedulers) < 2:
        raise UsageError(
            f"meta {rule!r} switches between {len(schedulers)} schedulers", hint="give at least two: --of fcfs --of sjf/best/easy"
        )
    return Meta(tuple(parse_slots(text) for text in schedulers), parse_switch(rule), parse_seconds(every))


def parse_slots(text: str) -> Scheduler:
    """`ordering/placement/backfill/preemption`; what is left out at the end is fewest, none, none."""
    ordering, placement, backfill, preemption = _slots_in(text)
    return Scheduler(parse_ordering(ordering), parse_placement(placement), parse_backfill(backfill), parse_preemption(preemption))


def _slots_in(text: str) -> list[str]:
    """Split a text into its four slots."""
    parts = _slash_parts(text)
    if not 1 <= len(parts) <= 4 or not all(parts):
        raise UsageError(f"scheduler {text!r} is not ordering[/placement[/backfill[/preemption]]]", hint="e.g. sjf/best/easy")
    refuse_misplaced(text, parts)
    return [*parts, *DEFAULT_SLOTS[len(parts) :]]


def _slash_parts(text: str) -> list[str]:
    """Split at slashes, but keep a path to a .py or .safetensors file, which may have slashes of its own, in one piece."""
    parts: list[str] = []
    path = False
    pieces = text.split("/")
    for k, piece in enumerate(pieces):
        if path:
            parts[-1] += "/" + piece
        else:
            path = piece in FOLDERS or _begins_checkpoint(piece, pieces[k + 1 :], len(parts))
            parts.append(piece)
        path = (path and ".py:" not in piece and not piece.endswith(SUFFIX)) or ":table=" in parts[-1]
    return parts


def _begins_checkpoint(piece: str, rest: Sequence[str], slot: int) -> bool:
    """Whether a piece is the first folder of a checkpoint's path: the slot takes checkpoints, and knows no policy of that name."""
    known: Mapping[int, Container[str]] = {0: ORDERINGS, 1: PLACEMENTS, 3: PREEMPTIONS}
    if slot not in known or is_learned(piece) or piece.partition(":")[0] in known[slot]:
        return False
    return any(each.endswith(SUFFIX) for each in rest)


def _split(text: str) -> tuple[str, dict[str, float]]:
    """A name (or file:function) and its parameters."""
    name, values = text, ""
    if ".py:" in text:
        path, _, rest = text.partition(".py:")
        function, _, values = rest.partition(":")
        inside = "/" in path and not path.startswith((".", "/", "~"))  # a label must tell it from slots
        name = f"{'./' if inside else ''}{path}.py:{function}"
    elif ":" in text:
        name, _, values = text.partition(":")
    params: dict[str, float] = {}
    for item in filter(None, values.split(",")):
        key, _, value = item.partition("=")
        params[key.strip()] = _number(value, f"{text!r}: {item!r} is not parameter=number")
    return name, params


def _number(text: str, complaint: str) -> float:
    """A number, or a time such as `10m` in seconds."""
    try:
        value = float(text)
    except ValueError:
        try:
            value = parse_seconds(text)
        except UsageError:
            raise UsageError(complaint) from None
    if value != value:
        raise UsageError(complaint)
    return value


def _parse(text: str, registry: Registry[P], make: Callable[[Function, str], P]) -> P:
    if names_file_alone(text):
        refuse_file_alone(text)
    name, values = _split(text)
    if ".py:" not in name and name not in registry:
        raise unknown_policy(registry.what, name, list(registry))
    found = _from_file(name, registry, make) if ".py:" in name else registry[name]
    return _with_params(found, values, registry.what)


def _from_file(name: str, registry: Registry[P], make: Callable[[Function, str], P]) -> P:
    """A policy from a user's file: as its decorator says if it has one, else as the plain function it is."""
    function = load_function(name)
    decorated = (policy for _, policy in registry.items() if getattr(policy, "function", None) is function)
    found = next(decorated, None)
    return make(function, name) if found is None else replace(found, name=name)  # type: ignore[type-var]


def _with_params(found: P, values: Mapping[str, float], what: str) -> P:
    params = dict(found.params)
    changes: dict[str, Any] = {}
    own = [
        field for field in ("every", *RANK_SETTINGS) if field in getattr(found, "__dataclass_fields__", {})
    ]  # settings of the slot itself
    for key, value in values.items():
        if key in own:
            changes[key] = value
        elif key in params:
            params[key] = value
        else:
            raise unknown_name(f"parameter of {what} {found.name!r}:", key, [*params, *own])
    return replace(found, params=tuple(params.items()), **changes)  # type: ignore[type-var]


def load_function(text: str) -> Function:
    """The function named by `file.py:function`. The file is the user's own program and is run."""
    path_text, _, name = text.rpartition(":")
    module = load_module(Path(path_text))
    function = getattr(module, name, None)
    if not callable(function):
        raise unknown_name(f"function in {path_text}", name, public_names(user_path(path_text)))
    return getattr(function, "py_func", function)  # type: ignore[no-any-return]  # numba's own decorator is taken off again


_modules: dict[Path, Any] = {}


def load_module(path: Path) -> Any:
    """Import a user's policy file, once: its decorators register names."""
    found = user_path(str(path))
    if not is_file(found):
        raise PolicyError(f"{path}: no such policy file")
    whole = found.resolve()
    if whole not in _modules:
        _modules[whole] = _import(path, whole)
    return _modules[whole]


def _import(path: Path, whole: Path) -> Any:
    name = f"gpuyard_user_{path.stem}_{len(_modules)}"
    spec = importlib.util.spec_from_file_location(name, whole)
    if spec is None or spec.loader is None:
        raise PolicyError(f"{path}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise PolicyError(f"{path}: cannot be loaded: {type(error).__name__}: {error}") from error
    return module
