"""The reference page of the policies: `python -m gpuyard.policies.reference_page > docs/reference/policies.md`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from gpuyard.policies import BACKFILLS, DECIDERS, ORDERINGS, PLACEMENTS, PREEMPTIONS, SWITCHES
from gpuyard.registry import Registry

INTRODUCTION = """\
# Policies

Made by `python -m gpuyard.policies.reference_page`; do not edit.

A scheduler is written `ordering/placement/backfill/preemption`, for example `sjf/best/easy/none`. What is left out at the end is
`fewest`, `none`, `none`. A parameter follows a colon: `easy:depth=100`, `las:threshold=7200,every=300`. A policy of one's own is
named by its file and function: `./mine.py:rule` ([how to write one](../guides/first-policy.md)).

Everywhere, lower goes first. Ties go to the job that was submitted first, then to the one that comes first in the workload; among
nodes to the lower number. `gpuyard show NAME` prints a policy's code. What each rule does exactly is said in
[the semantics](../concepts/semantics.md).
"""

# Of gpuyard.engine.slots.SCORES; `free` are the wholly free devices of a node.
SCORE_FORMULAS = {
    "first": "0",
    "free": "free",
    "minus-free": "−free",
    "random": "hash of (seed, job, its preemptions, node), in [0, 1)",
    "fastest": "−speed of the node's type for the job's class",
    "lexicographic": "64·free + rank of the node's type by (speed for the job's class, price)",
    "whole-last": "2²⁶·(0 on a device that is shared already, 1 on a node in use, 2 on a whole node) + free",
    "load": "the share in use of the GPUs, the cpus or the memory, whichever is largest",
    "remainder": "free GPU share + free cpus, each as a part of the largest node's",
    "fragments": "growth of the expected fragment in tenths of a GPU, then the GPU share left free",
}


def _ours(registry: Registry[Any]) -> list[Any]:
    """The built-in ones: a user's program may have registered others."""
    every = [policy for _, policy in registry.items()]
    made = [getattr(policy, "function", None) or getattr(policy, "make", None) for policy in every]
    return [policy for policy, by in zip(every, made, strict=True) if by is None or by.__module__.startswith("gpuyard.")]


def _text(policy: Any) -> str:
    """The whole docstring on one line."""
    return " ".join(inspect.cleandoc(policy.function.__doc__ or "").split()) if policy.function is not None else ""


def _params(policy: Any) -> str:
    shown = [f"`{name}={value:g}`" for name, value in policy.params]
    if getattr(policy, "every", 0.0) > 0:
        shown.append(f"`every={policy.every:g}` s")
    return ", ".join(shown)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def _orderings() -> str:
    rows = [(f"`{p.name}`", p.title, _text(p), "yes" if p.reads_clock else "", _params(p), p.source) for p in _ours(ORDERINGS)]
    about = (
        "Which job goes next. An ordering that reads the clock is keyed at every pass, for every job that waits; one that does not\n"
        "is keyed once, when the job enters the queue, and is faster for that."
    )
    return f"## Orderings\n\n{about}\n\n" + _table(("name", "is", "key", "reads the clock", "parameters", "source"), rows)


def _placements() -> str:
    rows = [(f"`{p.name}`", p.title, SCORE_FORMULAS[p.score], p.span) for p in _ours(PLACEMENTS)]
    about = (
        "On which nodes. A job goes whole onto the best node that has room for it; only where there is none it is spread: by `score`\n"
        "(nodes in order, each giving all its room) or over the `fewest` nodes. `free` are the wholly free devices of the node."
    )
    return f"## Placements\n\n{about}\n\n" + _table(("name", "is", "score", "spread by"), rows)


def _backfills() -> str:
    rows = [(f"`{p.name}`", p.title, "" if p.name == "none" else _params(p)) for p in _ours(BACKFILLS)]
    about = (
        "Who may start before the head of the queue, the first job that does not fit. `depth` limits how many jobs behind the head\n"
        "are looked at; 0 is all of them."
    )
    return f"## Backfill rules\n\n{about}\n\n" + _table(("name", "is", "parameters"), rows)


def _preemptions() -> str:
    rows = [(f"`{p.name}`", p.title, _text(p), _params(p)) for p in _ours(PREEMPTIONS)]
    about = (
        "Which running jobs are stopped for the head: those whose score is higher than its own, the highest first, if that makes\n"
        "room for it. Any of them takes `every=SECONDS`, a timer that causes passes while somebody waits."
    )
    return f"## Preemption rules\n\n{about}\n\n" + _table(("name", "is", "score", "parameters"), rows)


def _switches() -> str:
    rows = [(f"`{p.name}`", p.title, _text(p), _params(p)) for p in _ours(SWITCHES)]
    about = (
        "Which of several schedulers is used from now on, counted from 0:\n"
        "`gpuyard simulate demo --meta backlog:limit=20 --of fcfs/fewest/easy --of sjf/fewest/easy --every 10m`."
    )
    return f"## Switch rules\n\n{about}\n\n" + _table(("name", "is", "choice", "parameters"), rows)


def _deciders() -> str:
    rows = [
        (f"`{p.name}`", p.title, " ".join(inspect.cleandoc(p.make.__doc__ or "").split()), ", ".join(f"`{k}={v:g}`" for k, v in p.params),
         f"`{p.inner.label}`" if p.inner else "")
        for p in _ours(DECIDERS)
    ]  # fmt: skip
    about = (
        "Schedulers that are asked at every decision, with the whole queue before them: `milp:k=32,limit=0.2(sjf/fewest/easy)`. In\n"
        "brackets is the scheduler that one builds on. [How they work, and how to write one](../guides/milp-and-deciders.md)."
    )
    return f"## Deciders\n\n{about}\n\n" + _table(("name", "is", "what it does", "parameters", "builds on"), rows)


def page() -> str:
    """The whole page as Markdown."""
    return "\n".join((INTRODUCTION, _orderings(), _placements(), _backfills(), _preemptions(), _switches(), _deciders()))


if __name__ == "__main__":
    sys.stdout.write(page())
