"""Train the models of device choice that come with the package (`forest`, `regressor`, `online`, `linucb-device`) and write their file.

    python benchmarks/devices.py [FILE]

2,000 compute-heavy tasks with seed 1,000,000: the training workload of seed 0 in the study `shift`. The forest is smaller than the study's
(20 trees of depth 10), so that the file stays below 0.5 MB. Takes about ten seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gpuyard import load_cluster
from gpuyard.experiments.studies.shift import ShiftConfig
from gpuyard.learn.devices import ForestConfig, train_devices
from gpuyard.policies.deciders.learning.strategies import SHIPPED

FOREST = ForestConfig(trees=20, max_depth=10, min_samples_leaf=4)


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else SHIPPED
    train_devices(ShiftConfig().trained(0), load_cluster("tasks"), 0, FOREST).save(target)
    print(f"{target}: {target.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
