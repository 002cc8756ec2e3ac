"""`python -m gpuyard.workbench KIND`: run one job of real work."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gpuyard.errors import GpuyardError, UsageError
from gpuyard.workbench.task import KINDS, SCALES, TaskRequest
from gpuyard.workbench.work import WorkRequest, tell, work


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return the exit code; what it did goes to stdout as one line of JSON."""
    try:
        tell(work(request_of(arguments)))
    except GpuyardError as error:
        sys.stderr.write(f"workbench: error: {error}\n")
        return error.exit_code
    return 0


def request_of(arguments: Sequence[str] | None = None) -> WorkRequest:
    """Read the command line."""
    given = _parser().parse_args(arguments)
    if given.steps < 0 or not 0 <= given.seconds < 1e9 or not 0 <= given.every < 1e9:
        raise UsageError("--steps, --seconds and --every are numbers from 0")
    task = TaskRequest(given.kind, given.library, given.device, given.scale, given.seed, given.threads)
    return WorkRequest(task, given.steps, given.seconds, given.checkpoint, given.every)


def _parser() -> argparse.ArgumentParser:
    kinds = "; ".join(f"{name}: {text}" for name, text in KINDS.items())
    parser = argparse.ArgumentParser(
        "python -m gpuyard.workbench",
        description="Run real work of one kind. SIGUSR1 and SIGTERM save the state and end it; the same command goes on from there.",
    )
    parser.add_argument("kind", choices=list(KINDS), metavar="KIND", help=kinds)
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="steps in all")
    parser.add_argument("--seconds", type=float, default=0.0, metavar="S", help="seconds of steps in all")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="where the state is kept; if it is there, the work goes on from it")
    parser.add_argument("--every", type=float, default=0.0, metavar="S", help="also write the checkpoint every S seconds")
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--library", choices=("auto", "torch", "jax", "numpy"), default="auto")
    parser.add_argument("--scale", choices=("auto", *SCALES), default="auto", help="work of a step; large on a GPU unless given")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of torch on the CPU")
    return parser


if __name__ == "__main__":
    sys.exit(main())
