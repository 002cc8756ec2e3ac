"""Finds what could stand at the end of an incomplete command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

from gpuyard.live.node.jobs import CHECKPOINT_SIGNALS

FILE = Path(__file__).parent / "names.json"
SLOTS = ("orderings", "placements", "backfills", "preemptions")


class VerbParameter(Protocol):
    """An option or argument of a verb, as its parser has it."""

    name: str
    opts: Sequence[str]
    multiple: bool
    nargs: int
    help: str | None
    hidden: bool
    is_flag: bool
    param_type_name: str


class VerbParser(Protocol):
    """The parser of a verb, or of a group of verbs, which has `commands`."""

    params: Sequence[VerbParameter]


@dataclass(frozen=True)
class Candidates:
    """Words that could be typed, with what they are, and whether a file or a folder could stand there too."""

    words: Mapping[str, str] = field(default_factory=dict)
    files: bool = False
    goes_on: bool = False  # a word may be continued: no blank after it

    def text(self, prefix: str = "", cut: int = 0) -> str:
        """Return a line with what else is possible, and a line for each word that begins so, without its first `cut` letters."""
        flags = [name for name, on in (("files", self.files), ("goes-on", self.goes_on)) if on]
        lines = [f"{word[cut:]}\t{' '.join(about.split())}" for word, about in self.words.items() if word.startswith(prefix)]
        return "\n".join([" ".join(flags), *lines]) + "\n"


@cache
def names() -> dict[str, dict[str, dict[str, Any]]]:
    """Return kind → name → title and parameters."""
    found: dict[str, dict[str, dict[str, Any]]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def candidates(words: Sequence[str], current: str, command: VerbParser) -> Candidates:
    """Return what could stand in place of `current` after `words`, which begin behind the program's name."""
    rest = list(words)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = getattr(command, "commands")[rest.pop(0)]  # noqa: B009 - a group of verbs has them
    inner = getattr(command, "commands", None)
    if inner is not None:
        verbs = {name: each.get_short_help_str(80) for name, each in inner.items() if not each.hidden}
        return Candidates(verbs | _options(command, rest) if current.startswith("-") else verbs)
    option, value = _open_option(command, rest, current)
    if option is not None:
        found = _values(option, value)
        lead = current[: len(current) - len(value)]
        return Candidates({lead + word: about for word, about in found.words.items()}, found.files, found.goes_on)
    if current.startswith("-"):
        return Candidates(_options(command, rest))
    places = [each for each in command.params if each.param_type_name == "argument"]
    at = len(_positional(command, rest))
    if at < len(places) or (places and places[-1].nargs == -1):
        return _values(places[min(at, len(places) - 1)], current)
    return Candidates()


# ── the command line ──


def _option_of(command: VerbParser, word: str) -> VerbParameter | None:
    return next((each for each in command.params if word in getattr(each, "opts", ()) and each.param_type_name == "option"), None)


def _open_option(command: VerbParser, words: Sequence[str], current: str) -> tuple[VerbParameter | None, str]:
    """Return the option whose value is being typed, and what there is of the value."""
    name, equals, value = current.partition("=")
    if current.startswith("--") and equals:
        return _option_of(command, name), value
    last = _option_of(command, words[-1]) if words else None
    return (last, current) if last is not None and not last.is_flag else (None, "")


def _positional(command: VerbParser, words: Sequence[str]) -> list[str]:
    """Return the words that are arguments: neither options nor their values."""
    found, skip = [], False
    for word in words:
        option = _option_of(command, word.partition("=")[0]) if word.startswith("-") else None
        if not skip and option is None and not word.startswith("-"):
            found.append(word)
        skip = not skip and option is not None and not option.is_flag and "=" not in word
    return found


def _options(command: VerbParser, words: Sequence[str]) -> dict[str, str]:
    """List the options that were not given yet, or may be given again."""
    return {
        max(each.opts, key=len): each.help or ""
        for each in command.params
        if each.param_type_name == "option" and not each.hidden and (each.multiple or not set(each.opts) & set(words))
    }


# ── values ──


def _values(parameter: VerbParameter, text: str) -> Candidates:
    """Return the values of an option or argument, by its name."""
    make = VALUES.get(parameter.name)
    return make(text) if make is not None else Candidates()


def _titles(*kinds: str) -> dict[str, str]:
    return {name: str(each["is"]) for kind in kinds for name, each in names()[kind].items()}


def _named(*kinds: str, files: bool = False, text: str) -> Candidates:
    """Return the names of some kinds; behind `name:` the parameters of that name."""
    head, colon, rest = text.partition(":")
    for kind in kinds:
        known = names()[kind].get(head)
        if colon and known is not None:
            before = text[: len(text) - len(rest.rpartition(",")[2])]
            return Candidates({f"{before}{name}=": str(known["is"]) for name in known.get("parameters", ())}, goes_on=True)
    return Candidates(_titles(*kinds), files)


def _in_file(text: str) -> Candidates | None:
    """Return the functions of a Python file, `./mine.py:rule`; the file is not run."""
    path, colon, _ = text.partition(".py:")
    if not colon:
        return None
    from gpuyard.files import public_names, user_path

    return Candidates({f"{path}.py:{name}": "" for name in public_names(user_path(f"{path}.py"))}, goes_on=True)


def _policy(kind: str, text: str) -> Candidates:
    return _in_file(text) or Candidates(dict(_with_learned(kind, text)), files=True)


def _with_learned(kind: str, text: str) -> Iterator[tuple[str, str]]:
    found = _named(kind, text=text)
    yield from found.words.items()
    if kind != "backfills" and not found.goes_on:
        yield from _titles("learned").items()


def _scheduler(text: str) -> Candidates:
    """Return what could fill the slot that is being typed; a decider or a trained policy stands alone."""
    own = _in_file(text)
    if own is not None:
        return own
    if text.startswith((".", "/", "~")):
        return Candidates(files=True)
    before, slash, last = text.rpartition("/")
    slot = before.count("/") + 1 if slash else 0
    if slot >= len(SLOTS):
        return Candidates()
    found = _named(SLOTS[slot], *(["deciders"] if slot == 0 else []), text=last).words
    if slot == 0 and ":" not in last.removeprefix("learned:"):
        found = {**found, **_titles("learned")}
    return Candidates({before + slash + word: about for word, about in found.items()}, files=not slash, goes_on=slot + 1 < len(SLOTS))


def _metric(text: str) -> Candidates:
    stem, dot, _ = text.partition(".")
    if dot and stem in names()["metrics"]:
        return Candidates({f"{stem}.{each}": "" for each in names()["aggregations"]})
    return Candidates(_titles("metrics"))


def _workload(text: str) -> Candidates:
    found = _named("workloads", files=True, text=text)
    datasets = {f"dataset:{name}": about for name, about in _titles("datasets").items()}
    return found if found.goes_on else Candidates({**found.words, **datasets}, files=True)


def _anything(text: str) -> Candidates:
    kinds = [kind for kind in names() if kind not in ("kinds", "aggregations", "groupings")]
    return Candidates(_titles(*kinds), files=True)


def _fixed(*words: str) -> Callable[[str], Candidates]:
    return lambda text: Candidates(dict.fromkeys(words, ""))


def _kinds(*kinds: str, files: bool = False) -> Callable[[str], Candidates]:
    return lambda text: _named(*kinds, files=files, text=text)


def _files(text: str) -> Candidates:
    return _in_file(text) or Candidates(files=True)


# Parameter of a verb → what it may be. A test sees to it that none is forgotten.
VALUES: Mapping[str, Callable[[str], Candidates]] = {
    "workload": _workload, "generator": _kinds("workloads"), "files": _workload, "source": _workload, "validation": _workload,
    "cluster": _kinds("clusters", files=True), "scheduler": _scheduler, "against": _scheduler, "baseline": _scheduler, "of": _scheduler,
    "ordering": partial(_policy, "orderings"), "placement": partial(_policy, "placements"), "backfill": partial(_policy, "backfills"),
    "preemption": partial(_policy, "preemptions"), "meta": partial(_policy, "switches"), "metric": _metric,
    "reader": _kinds("readers"), "estimate": _kinds("estimates"), "apply": _kinds("transforms"), "by": _kinds("groupings"),
    "kind": _kinds("kinds"), "name": _anything, "names": _kinds("datasets"), "env": _kinds("environments"), "learner": _kinds("learners"),
    "objective": _kinds("objectives"), "experiment": _kinds("experiments", files=True), "checkpoint": _kinds("learned", files=True),
    "start": _kinds("learned", "orderings", "placements", files=True), "network": _fixed("kernel", "attention"),
    "device": _fixed("cpu", "gpu"), "split": _fixed("test", "validation", "train"), "on": _fixed("local", "ray", "auto"),
    "how": _fixed("table", "json", "csv", "md"), "signal": _fixed(*CHECKPOINT_SIGNALS), "command": _files, "cwd": _files,
    "prometheus": _files, "change": _kinds("changes"),
    "shell": _fixed("bash", "zsh", "fish"), "file": _files, "snapshot": _files, "log": _files, "folder": _files,
    "out": _files, "plot": _files, "serve": _files, "token": _files, "decisions": _files, "metrics": _files, "stop_file": _files,
    "wake": _files,
    "lock": _files, "means": _fixed("btop", "aps"),
    "report": _files, "results": _files, "config": _files, "speeds": _files, "slurm_conf": _files, "library": _files, "jobs_out": _files,
}  # fmt: skip
