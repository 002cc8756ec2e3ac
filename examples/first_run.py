"""One workload, one cluster, one scheduler: simulate, then look at numbers, groups and jobs."""

import gpuyard as gy

result = gy.simulate("demo", "16x8:a100", "sjf/fewest/easy")

print(f"{result.workload.name} on {result.cluster.name} under {result.scheduler}: {gy.counts(result)}")
for name, value in gy.measure(result, ["wait", "wait.max", "bsld", "utilization", "deadline_met"]).items():
    print(f"{name:14}{value:12,.3f}")

print("\nby kind of job")
for group in gy.measure_by(result, ["wait", "bsld"], by="job_class"):
    print(f"{group['job_class']:14}{group['jobs']:6,} jobs {group['wait'] / 60:8.1f} min {group['bsld']:8.2f}")

longest = result.jobs().sort("wait", descending=True).row(0, named=True)
print(f"\njob {longest['id']} of {longest['user']} waited longest, {longest['wait'] / 3600:.1f} h; it asked for {longest['gpus']:g} GPUs")
