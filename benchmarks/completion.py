"""How long a shell waits for a completion: `python benchmarks/completion.py [--calls N]`; each call is a process, as in a shell.

The time of the processor is what counts: other work on the machine does not add to it.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time

BREAKS = " \t\n\"'><=;|&(:"
LINES = ("gpuyard ", "gpuyard simulate demo --sch", "gpuyard compare demo --scheduler sjf/fewest/e", "gpuyard show ", "gpuyard simulate ")
MOST = 0.3  # s


def _used() -> float:
    """Return the processor's seconds that ended children have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Print the medians of some calls for each line; 1 if a median is above 0.3 s."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20)
    calls = parser.parse_args().calls
    slow = False
    for line in LINES:
        seconds: list[tuple[float, float]] = []
        for _ in range(calls + 1):
            began, used = time.perf_counter(), _used()
            subprocess.run([sys.executable, "-m", "gpuyard", "__complete", "bash", line, BREAKS], capture_output=True, check=True)
            seconds.append((_used() - used, time.perf_counter() - began))
        cpu, clock = (statistics.median(each) for each in zip(*seconds[1:], strict=True))  # the first reads the files from the disk
        slow |= cpu > MOST
        print(f"{line!r:50} median {cpu:.3f} s of the processor, {clock:.3f} s by the clock")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
