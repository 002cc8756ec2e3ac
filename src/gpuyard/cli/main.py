"""The `gpuyard` command: where it begins, and what happens to errors.

`submit`, which scripts call in loops, does without the parser of the other verbs, which takes 0.2 s to load.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys

from gpuyard.cli.common.messages import say, say_error
from gpuyard.errors import GpuyardError

INTERRUPTED = 130
COLLECTIONS = (20_000, 20, 20)  # of Python's garbage; with its own thresholds it goes through all that is imported again and again


def run(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code. An error is a line on stderr, and one with a hint; `-v` adds the traceback."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["submit"]:
        from gpuyard.cli.node.asked import submit_at_once

        done = submit_at_once(words[1:])
        if done is not None:
            return done
    return _run_verb(words)


def _run_verb(words: list[str]) -> int:
    """Run any verb by its parser, and return the exit code."""
    from gpuyard.cli.common.options import Settings
    from gpuyard.cli.completion import verb as completing
    from gpuyard.cli.verbs import command

    gc.set_threshold(*COLLECTIONS)
    atexit.register(gc.freeze)  # else the interpreter looks for garbage in all that is imported before it ends, 0.1 s
    settings = Settings()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show ★ gets a question mark, not an error
    if words[:1] == [completing.CALL]:
        return completing.complete(words[1:], command())
    try:
        code = command()(args=words, prog_name="gpuyard", standalone_mode=False, obj=settings)
    except Exception as error:
        return _failed(error, settings.verbose)
    if code == INTERRUPTED:
        say("interrupted")
        sys.stdout.flush()
        os._exit(INTERRUPTED)  # threads inside a kernel do not notice it and would be waited for
    return code if isinstance(code, int) else 0


def _failed(error: Exception, verbose: bool) -> int:
    """Say what went wrong; return the exit code."""
    from gpuyard.cli.common.usage import usage_error
    from gpuyard.extras import missing

    if verbose:
        import traceback

        traceback.print_exc()
    known = error if isinstance(error, GpuyardError) else usage_error(error)
    if isinstance(error, ModuleNotFoundError):
        known = known or missing(error)
    if known is None:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        known = GpuyardError(f"{what}; this is a bug in gpuyard", hint="add -v for the traceback")
    say_error(known)
    return known.exit_code


if __name__ == "__main__":
    sys.exit(run())
