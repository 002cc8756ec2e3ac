"""`gpuyard check`: checks whether your policy is fit for use."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.output import Format, Output, Table, emit, say
from gpuyard.errors import PolicyError
from gpuyard.registry import unknown_name

CHECK_FAILED = 3


def check(
    file: Annotated[
        str, typer.Argument(metavar="FILE.py[:FUNCTION]", help="A file with policies, or one function of it.", show_default=False)
    ],
    how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:
    """Check your own policies: they compile, are pure, return numbers, and the same numbers compiled and interpreted.

    The file is run, as it is when you use a policy from it. Exit code 3: a check failed.
    """
    from gpuyard.testing.policy_checks import FAILED, check_policy, kind_of

    findings = []
    for name, function in _functions(file).items():
        kind = kind_of(function)
        if kind is None:
            say(f"{name}{_signature(function)}: not a policy; those take (jobs, j, now), (nodes, n, jobs, j) or (system, now)")
        else:
            findings += check_policy(function, name, kind)
    if not findings:
        raise PolicyError(f"{file}: no policy in the file", hint="e.g. def rule(jobs, j, now): return jobs.estimate[j]")
    records = [vars(finding) for finding in findings]
    table = Table(("policy", "check", "", ""), [tuple(r.values()) for r in records], file, frozenset(range(4)))
    emit(Output([table], records, records), how)
    if any(finding.state == FAILED for finding in findings):
        raise typer.Exit(CHECK_FAILED)


def _functions(file: str) -> dict[str, Callable[..., Any]]:
    """Return the functions to check by name: the one that is named, or all public ones that the file defines."""
    from gpuyard.policies.text import load_module

    path, _, wanted = file.partition(".py:")
    module = load_module(Path(f"{path}.py" if wanted else file))
    own: dict[str, Callable[..., Any]] = {
        name: thing
        for name, thing in vars(module).items()
        if inspect.isfunction(thing) and thing.__module__ == module.__name__ and not name.startswith("_")
    }
    if not wanted:
        return own
    if wanted not in own:
        raise unknown_name(f"function in {path}.py", wanted, list(own))
    return {wanted: own[wanted]}


def _signature(function: Callable[..., Any]) -> str:
    return f"({', '.join(inspect.signature(function).parameters)})"
