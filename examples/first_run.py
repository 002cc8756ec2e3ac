"""One workload, one cluster, one scheduler: simulate, then look at numbers, groups and jobs."""

from gpuyard import load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.metrics import counts, measure, measure_by

workload = load_workload("demo", seed=0)
cluster = load_cluster("16x8:a100")
result = simulate(workload, cluster, parse_scheduler("sjf/fewest/easy"))

print(f"{result.workload.name} on {result.cluster.name} under {result.scheduler}: {counts(result)}")
for name, value in measure(result, ["wait", "wait.max", "bsld", "utilization", "deadline_met"]).items():
    print(f"{name:14}{value:12,.3f}")

print("\nby kind of job")
for group in measure_by(result, ["wait", "bsld"], by="job_class"):
    print(f"{group['job_class']:14}{group['jobs']:6,} jobs {group['wait'] / 60:8.1f} min {group['bsld']:8.2f}")

longest = int((result.table["start"] - workload.jobs.submit).argmax())
print(f"\njob {workload.jobs.id[longest]} waited longest; it asked for {workload.jobs.gpus[longest]:g} GPUs")
