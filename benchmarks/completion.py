"""How long a shell waits for a completion: `python benchmarks/completion.py [--calls N]`; each call is a process, as in a shell."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

BREAKS = " \t\n\"'><=;|&(:"
LINES = ("gpuyard ", "gpuyard simulate demo --sch", "gpuyard compare demo --scheduler sjf/fewest/e", "gpuyard show ", "gpuyard simulate ")
MOST = 0.3  # s


def main() -> int:
    """Print the median and the slowest of some calls for each line; 1 if a median is above 0.3 s."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20)
    calls = parser.parse_args().calls
    slow = False
    for line in LINES:
        seconds = []
        for _ in range(calls + 1):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-m", "gpuyard", "__complete", "bash", line, BREAKS], capture_output=True, check=True)
            seconds.append(time.perf_counter() - began)
        del seconds[0]  # reads the files from the disk
        slow |= statistics.median(seconds) > MOST
        print(f"{line!r:50} median {statistics.median(seconds):.3f} s, slowest {max(seconds):.3f} s")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
