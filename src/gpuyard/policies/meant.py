"""Sees what a scheduler that cannot be read was meant to be: a policy in the wrong slot, another separator, a file without a function."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence

from gpuyard.errors import PolicyError, UsageError
from gpuyard.files import is_file, public_names, user_path
from gpuyard.policies.schedulers import DECIDERS
from gpuyard.policies.slots import BACKFILLS, DEFAULT_SLOTS, ORDERINGS, PLACEMENTS, PREEMPTIONS, RankRule
from gpuyard.registry import unknown_name

_KINDS = ("an ordering", "a placement", "a backfill rule", "a preemption rule")
_KNOWN: Sequence[Container[str]] = (ORDERINGS, PLACEMENTS, BACKFILLS, PREEMPTIONS)
_UNDER_A_RANK = ("saf", "fewest", "easy")  # what a rank rule extends
OTHER_NAMES: Mapping[str, str] = {  # by which people know them
    "fifo": "fcfs", "lifo": "lcfs", "spt": "sjf", "sjn": "sjf", "shortest": "sjf", "lpt": "ljf", "longest": "ljf", "srtf": "srpt",
    "edd": "edf", "fairshare": "multifactor", "slurm": "multifactor", "bestfit": "best", "best-fit": "best", "worstfit": "worst",
    "worst-fit": "worst", "firstfit": "first", "first-fit": "first", "pack": "packing", "spread": "worst", "backfill": "easy",
    "easy-backfill": "easy", "aggressive": "easy", "ilp": "milp", "mip": "milp",
}  # fmt: skip


def _name(part: str) -> str:
    return part.partition(":")[0]


def _homes(part: str) -> list[int]:
    """Return the slots that know a policy of that name."""
    return [slot for slot, known in enumerate(_KNOWN) if _name(part) in known]


def refuse_misplaced(text: str, parts: Sequence[str]) -> None:
    """Refuse a policy in a slot that is not its own, and write the scheduler as it was probably meant: `sjf/easy` is `sjf/fewest/easy`."""
    for slot, part in enumerate(parts):
        homes = _homes(part)
        if homes and slot not in homes:
            meant = _arranged(parts)
            raise UsageError(
                f"scheduler {text!r}: {_name(part)} is {_KINDS[homes[0]]}, not {_KINDS[slot]}",
                hint=f"write {meant}" if meant else "write ordering/placement/backfill/preemption",
            )
        if not homes and slot != 1 and _name(part) in DECIDERS:
            places = DECIDERS[_name(part)].inner is not None
            whole = f"{part}, or fcfs/{part}/easy" if places else part
            raise UsageError(f"scheduler {text!r}: {_name(part)} is a decider, not {_KINDS[slot]}", hint=f"write {whole}")


def refuse_run_together(text: str) -> None:
    """Refuse `sjf+easy`, `sjf-easy` and the like, and a single policy that is not an ordering, where all parts are known."""
    if _homes(text):
        refuse_misplaced(text, [text])
    parts = [part for part in re.split(r"[+,\s]+|-(?=[a-z])|_", text) if part]
    meant = _arranged(parts) if len(parts) > 1 and all(_homes(part) for part in parts) else ""
    if meant:
        raise UsageError(f"scheduler {text!r} is not ordering[/placement[/backfill[/preemption]]]", hint=f"write {meant}")


def refuse_file_alone(text: str) -> None:
    """Refuse a file without the name of a function in it, and list its functions. The file is not run."""
    path = text[: text.index(".py") + 3]
    if not is_file(user_path(path)):
        raise PolicyError(f"{path}: no such policy file")
    names = public_names(user_path(path))
    if not names:
        raise PolicyError(f"{path}: defines no function", hint="e.g. def rule(jobs, j, now): return jobs.estimate[j]")
    raise UsageError(f"{path}: which function of the file?", hint=f"it has {', '.join(names[:10])}: write {path}:{names[0]}")


def names_file_alone(text: str) -> bool:
    """Whether a text is a Python file without the name of a function in it."""
    return re.search(r"\.py(?![\w:.])", text) is not None


def _arranged(parts: Sequence[str]) -> str:
    """Return the parts, each in a slot that knows it, what nobody knows where it stands; empty where two belong in the same slot."""
    slots: dict[int, str] = {}
    for place, part in enumerate(parts):
        free = [slot for slot in _homes(part) or [place] if slot not in slots]
        if not free:
            return ""
        slots[place if place in free else max(free)] = part
    usual = _UNDER_A_RANK if 3 in slots and isinstance(PREEMPTIONS[_name(slots[3])], RankRule) else DEFAULT_SLOTS
    return "/".join(slots[slot] if slot in slots else usual[slot] for slot in range(max(slots) + 1))


def unknown_policy(what: str, name: str, known: Sequence[str]) -> UsageError:
    """Return the error for a name that is not known, with the name that we have for the same thing, or the nearest one."""
    other = OTHER_NAMES.get(name.lower())
    if other in known:
        return UsageError(f"unknown {what} {name!r}", hint=f"it is called {other!r} here")
    return unknown_name(what, name, list(known))
