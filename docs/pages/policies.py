"""The reference page of the policies: `python docs/pages/policies.py > docs/reference/policies.md`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gpuyard.policies import BACKFILLS, DECIDERS, ORDERINGS, PLACEMENTS, PREEMPTIONS, SWITCHES
from gpuyard.registry import Registry

INTRODUCTION = """\
# Policies

Made by `python docs/pages/policies.py`; do not edit.

A scheduler is written `ordering/placement/backfill/preemption`, for example `sjf/best/easy/none`. The defaults at the end are
`fewest`, `none`, `none`. A parameter follows a colon: `easy:depth=100`, `las:threshold=7200,every=300`. Your own policy is named
by its file and function: `./mine.py:rule` ([how to write one](../guides/first-policy.md)).

Everywhere, lower goes first. Ties go to the job that was submitted first, then to the one that comes first in the workload; among
nodes to the lower number. `gpuyard show NAME` prints a policy's code. [The semantics](../concepts/semantics.md)
say exactly what each rule does.
"""

# Of gpuyard.engine.slots.SCORES; `free` is explained above the table of placements.
SCORE_FORMULAS = {
    "first": "0",
    "free": "free",
    "minus-free": "−free",
    "random": "hash of (seed, job, its preemptions, node), in [0, 1)",
    "fastest": "−speed of the node's type for the job's class",
    "lexicographic": "64·free + rank of the node's type by (speed for the job's class, price)",
    "whole-last": "2²⁶ (for a job without GPUs 2⁵⁰)·(0 on a device that is shared already, 1 on a node in use, 2 on a whole node) + free",
    "load": "the share in use of the GPUs, the cpus or the memory, whichever is largest",
    "remainder": "free GPU share + free cpus, each as a part of the largest node's",
    "fragments": "growth of the expected fragment in tenths of a GPU, then the GPU share left free",
}


def _ours(registry: Registry[Any]) -> list[Any]:
    """Return the built-in policies; a user's program may have registered others."""
    every = [policy for _, policy in registry.items()]
    made = [getattr(policy, "function", None) or getattr(policy, "make", None) for policy in every]
    return [policy for policy, by in zip(every, made, strict=True) if by is None or by.__module__.startswith("gpuyard.")]


def _text(policy: Any) -> str:
    """Return the whole docstring on one line."""
    function = policy.make if hasattr(policy, "make") else policy.function
    return " ".join(inspect.cleandoc(function.__doc__ or "").split()) if function is not None else ""


def _params(policy: Any) -> str:
    shown = [f"`{name}={value:g}`" for name, value in policy.params]
    if getattr(policy, "every", 0.0) > 0 and "every" not in dict(policy.params):
        shown.append(f"`every={policy.every:g}` s")
    return ", ".join(shown)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def _section(title: str, about: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return f"## {title}\n\n{about}\n\n" + _table(("name", "is", *header), rows)


def _sections() -> Iterator[str]:
    yield _section(
        "Orderings",
        "Which job goes next. An ordering that does not read the clock is keyed once, when the job enters the queue. One that does is\n"
        "keyed at every pass: for every job that waits, or, where its keys can only fall as time passes, for the few that might be next.\n"
        "`gpuyard show NAME` and `gpuyard check FILE` say which it is.",
        ("key", "reads the clock", "parameters", "source"),
        [(f"`{p.name}`", p.title, _text(p), "yes" if p.reads_clock else "", _params(p), p.source) for p in _ours(ORDERINGS)],
    )
    yield _section(
        "Placements",
        "On which nodes. A job goes whole onto the best node that has room for it; otherwise it is spread: by `score` (nodes in\n"
        "order, each giving all its room) or over the `fewest` nodes. `free` are the wholly free devices of the node; for a job that asks\n"
        "for no GPUs, its free cores in millionths. Among nodes without GPUs, `fgd` and `fastest` take the first that fits.",
        ("score", "spread by"),
        [(f"`{p.name}`", p.title, SCORE_FORMULAS[p.score], p.span) for p in _ours(PLACEMENTS)],
    )
    yield _section(
        "Backfill rules",
        "Which jobs may start before the head of the queue, the first job that does not fit. `depth` limits how many jobs behind\n"
        "the head are considered; 0 is all of them.",
        ("parameters",),
        [(f"`{p.name}`", p.title, "" if p.name == "none" else _params(p)) for p in _ours(BACKFILLS)],
    )


def _other_sections() -> Iterator[str]:
    yield _section(
        "Preemption rules",
        "Which running jobs are stopped for the head: those whose score is higher than its own, the highest first, if that makes\n"
        "room for it. Every rule takes `every=SECONDS`, a timer that causes passes while a job waits.",
        ("score", "parameters"),
        [(f"`{p.name}`", p.title, _text(p), _params(p)) for p in _ours(PREEMPTIONS)],
    )
    yield _section(
        "Switch rules",
        "Which of several schedulers is used from now on, counted from 0:\n"
        "`gpuyard simulate demo --meta backlog:limit=20 --of fcfs/fewest/easy --of sjf/fewest/easy --every 10m`.",
        ("choice", "parameters"),
        [(f"`{p.name}`", p.title, _text(p), _params(p)) for p in _ours(SWITCHES)],
    )
    yield _section(
        "Deciders",
        "Schedulers that are asked at every decision, with the whole queue before them: `milp:k=32,limit=0.2(sjf/fewest/easy)`. The\n"
        "scheduler on which one builds is in brackets. [How they work, and how to write one](../guides/milp-and-deciders.md).",
        ("what it does", "parameters", "builds on"),
        [(f"`{p.name}`", p.title, _text(p), _params(p), f"`{p.inner.label}`" if p.inner else "") for p in _ours(DECIDERS)],
    )


def page() -> str:
    """Return the whole page as Markdown."""
    return "\n".join((INTRODUCTION, *_sections(), *_other_sections()))


if __name__ == "__main__":
    sys.stdout.write(page())
