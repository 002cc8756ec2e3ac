"""Checks the policies of a user's file in a process of its own, which is ended when it takes too long.

A policy may loop without end, also in compiled code, which nothing inside a process can stop, or crash. The process writes one line of
JSON for each thing that it has to say, so that nothing it found is lost.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError, PolicyError, UsageError
from gpuyard.registry import unknown_name
from gpuyard.testing.policy_checks import FAILED, Finding, check_decider, check_policy, kind_of

_POLICIES = "(jobs, j, now), (nodes, n, jobs, j) or (system, now)"


@dataclass(frozen=True)
class FileReport:
    """The findings about a file's policies, and notes about functions that are not policies."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


def check_file(path: str, wanted: str, limit: float) -> FileReport:
    """Check all policies of a file, or the one that is wanted, within `limit` seconds."""
    said, code = _in_a_process(path, wanted, limit)
    for each in said:
        if "error" in each:
            raise (UsageError if each["code"] == UsageError.exit_code else PolicyError)(each["error"])
    findings = [Finding(**each["finding"]) for each in said if "finding" in each]
    last = next((each["checking"] for each in reversed(said) if "checking" in each), Path(path).name)
    if code is None:
        findings.append(Finding(last, "time", FAILED, f"not done within {limit:g} s: does a loop end?"))
    elif code:
        findings.append(Finding(last, "runs", FAILED, f"ends the process: {_ending(code)}"))
    return FileReport(tuple(findings), tuple(each["note"] for each in said if "note" in each))


def _in_a_process(path: str, wanted: str, limit: float) -> tuple[list[dict[str, Any]], int | None]:
    """Return what a process of its own says about a file, and its exit code; None: it was ended after `limit` seconds."""
    command = [sys.executable, "-m", __name__, path, wanted]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=limit, check=False)
        lines, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        lines, code = late.stdout or b"", None
    return [json.loads(line) for line in lines.splitlines()], code


def _ending(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


# ── in the process of its own ──


def said_about(path: str, wanted: str) -> Iterator[dict[str, Any]]:
    """Yield what there is to say about the policies of a file, an error that ends the check last."""
    try:
        yield from _check(path, wanted)
    except GpuyardError as error:
        yield {"error": str(error), "code": error.exit_code}


def _check(path: str, wanted: str) -> Iterator[dict[str, Any]]:
    from gpuyard.policies.text import load_module

    for name, thing in _own(load_module(Path(path)), path, wanted).items():
        yield {"checking": name}
        kind = None if inspect.isclass(thing) else kind_of(thing)
        if kind is None and not inspect.isclass(thing):
            yield {"note": f"{name}({', '.join(inspect.signature(thing).parameters)}): not a policy; those take {_POLICIES}"}
            continue
        for finding in check_decider(thing, name) if kind is None else check_policy(thing, name, kind):
            yield {"finding": asdict(finding)}


def _own(module: Any, path: str, wanted: str) -> dict[str, Any]:
    """Return what is to be checked by name: the one thing that is wanted, or all public functions and deciders of the file."""
    own = {
        name: thing
        for name, thing in vars(module).items()
        if (inspect.isfunction(thing) or hasattr(thing, "decide")) and getattr(thing, "__module__", "") == module.__name__
        if not name.startswith("_")
    }
    if not wanted:
        return own
    if wanted not in own:
        raise unknown_name(f"function in {path}", wanted, list(own))
    return {wanted: own[wanted]}


def main() -> None:
    """Write what is found to stdout, and what the user's file prints to stderr."""
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        for said in said_about(*sys.argv[1:3]):
            print(json.dumps(said), file=out, flush=True)


if __name__ == "__main__":
    main()
