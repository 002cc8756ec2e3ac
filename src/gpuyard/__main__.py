"""`python -m gpuyard` is the command line."""

import sys

from gpuyard.cli.main import run

sys.exit(run())
