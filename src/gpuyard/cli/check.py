"""`gpuyard check`: checks whether your policy is fit for use."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.output import Format, Output, Table, emit, say
from gpuyard.errors import PolicyError, UsageError

CHECK_FAILED = 3


def check(
    file: Annotated[
        str, typer.Argument(metavar="FILE.py[:NAME]", help="A file with policies, or one function or class of it.", show_default=False)
    ],
    limit: Annotated[str, typer.Option(metavar="TIME", help="End the check after this time.")] = "5m",
    how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:
    """Check your own policies: they compile, are pure, return numbers, and the same numbers compiled and interpreted.

    A class with `decide(snapshot)` must run through generated workloads, twice with the same result. The file is run, as it is when you
    use a policy from it, in a process of its own. Exit code 3: a check failed.
    """
    from gpuyard.model.units import parse_seconds
    from gpuyard.testing.check_file import check_file
    from gpuyard.testing.policy_checks import FAILED

    seconds = parse_seconds(limit)
    if not 0 < seconds < 1e6:
        raise UsageError(f"--limit {limit}: not a time limit", hint="e.g. 5m")
    path, program, wanted = file.partition(".py:")
    report = check_file(f"{path}.py" if program else file, wanted, seconds)
    for note in report.notes:
        say(note)
    if not report.findings:
        raise PolicyError(f"{file}: no policy in the file", hint="e.g. def rule(jobs, j, now): return jobs.estimate[j]")
    records = [vars(finding) for finding in report.findings]
    table = Table(("policy", "check", "", ""), [tuple(r.values()) for r in records], file, frozenset(range(4)))
    emit(Output([table], records, records), how)
    if any(finding.state == FAILED for finding in report.findings):
        raise typer.Exit(CHECK_FAILED)
