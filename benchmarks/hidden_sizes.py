"""Hidden sizes of a host policy: how fast it trains and decides, how much memory it takes, and how good it gets.

    python benchmarks/hidden_sizes.py [--steps 40k] [--widths 8,16,32,64,128]

Every width is trained in a process of its own with the same seed, workload and number of choices, so that memory is its own. Quality is the
mean wait on validation episodes against the best placement that is not learned. Takes about a minute per width.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORKLOAD = "eda:jobs=256,arrivals=1:3 on hosts:count=20,seed=1"
SETS = ("training.envs=32", "rollout=32", "minibatches=4", "training.validation_episodes=8")
DECISIONS = 2_000


def measured(width: int, steps: str) -> dict[str, float]:
    """Train one width here and measure it."""
    import numpy as np

    from gpuyard.learn.run.plan import TrainingRequest, plan_of
    from gpuyard.learn.run.training import parts_of, train
    from gpuyard.networks.checkpoint import read_checkpoint
    from gpuyard.networks.network import Network

    sets = (*SETS, f"width={width}")
    plan = plan_of(TrainingRequest("PickHost", "ppo", (WORKLOAD,), sets=sets, flags={"training": {"steps": steps}}))
    with tempfile.TemporaryDirectory() as folder:
        outcome = train(plan, Path(folder) / "run", resume=False, say=lambda text: None, watch=lambda trainer: None, parts=parts_of(plan))
        found = read_checkpoint(Path(folder) / "run" / "best.safetensors")
    network = Network.of(found.manifest.network, found.arrays)
    rng = np.random.default_rng(0)
    rows, context = rng.random((20, network.spec.rows), np.float32), rng.random(network.spec.context, np.float32)
    network.scores(rows, context)
    began = time.perf_counter()
    for _ in range(DECISIONS):
        network.scores(rows, context)
    best = min(outcome.baselines.values())
    return {
        "width": width, "weights": sum(array.size for array in found.arrays.values()), "steps/s": outcome.progress.steps_per_second,
        "us a decision": 1e6 * (time.perf_counter() - began) / DECISIONS,
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "wait s": outcome.progress.best, "against the best placement %": 100 * (outcome.progress.best / best - 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", default="40k")
    parser.add_argument("--widths", default="8,16,32,64,128")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measured(asked.one, asked.steps)))
        return
    for k, width in enumerate(asked.widths.split(",")):
        command = [sys.executable, __file__, "--one", width, "--steps", asked.steps]
        line = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
        record = json.loads(line)
        if k == 0:
            print(f"| {' | '.join(record)} |\n|{'--:|' * len(record)}")
        print(f"| {' | '.join(f'{value:,.4g}' for value in record.values())} |", flush=True)


if __name__ == "__main__":
    main()
