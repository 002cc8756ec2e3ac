"""A cluster file with partitions, a quota and outages; jobs with shares of GPUs, gangs and CPU work; checkpoints."""

from pathlib import Path

import numpy as np

from gpuyard import Rules, Workload, load_cluster, parse_scheduler, simulate
from gpuyard.metrics import measure, measure_by
from gpuyard.model.result import REASONS

cluster = load_cluster(str(Path(__file__).with_name("lab.toml")))
rng = np.random.default_rng(0)
count = 300
partition = rng.choice(2, count, p=(0.7, 0.3))
gpus = np.where(partition == 0, rng.choice([1.0, 4.0, 8.0, 16.0, 32.0], count), rng.choice([0.0, 0.25, 0.5, 1.0], count))
workload = Workload.build(
    {
        "submit": np.sort(rng.uniform(0, 86400, count)),
        "gpus": gpus,
        "cpus": np.where(gpus == 0, 8.0, 4.0 * gpus),
        "chunk": np.where(gpus >= 1, np.minimum(gpus, 8), 1),
        "walltime": rng.choice([1800.0, 3600.0, 14400.0], count),
        "priority": rng.integers(0, 3, count),
        "partition": partition,
    },
    runtime=rng.lognormal(7.3, 1.0, count),
    name="a day in the lab",
    partitions=("train", "dev"),
)

rules = Rules(walltime_kill=True, checkpoint=600.0, restart_cost=60.0)
for text in ("fcfs/fewest/easy", "priority/fewest/easy/priority"):
    result = simulate(workload, cluster, parse_scheduler(text), rules=rules)
    numbers = measure(result, ["wait", "utilization", "killed.sum", "failures", "preemptions.sum", "cost"])
    print(text, {name: round(value, 2) for name, value in numbers.items()})
    for group in measure_by(result, ["wait"], by="partition"):
        print(f"  {group['partition']:6} {group['jobs']:4} jobs, mean wait {group['wait'] / 60:.0f} min")
    refused = result.table["reason"][result.table["reason"] > 0]
    print("  rejected:", {REASONS[code]: int((refused == code).sum()) for code in np.unique(refused)})
