"""Compare schedulers on the same seeds, with paired intervals: what `gpuyard compare` does, from Python."""

from pathlib import Path

from gpuyard import load_cluster, load_workload, parse_scheduler
from gpuyard.experiments.compare import Plan, Source, compare

policies = Path(__file__).with_name("own_policies.py")
demo = Source("demo", load=lambda seed: load_workload("demo:jobs=800,days=2", seed), seeded=True, clusters=(load_cluster("16x8:a100"),))
plan = Plan(
    sources=(demo,),
    schedulers=tuple(map(parse_scheduler, ("saf/fewest/easy", f"{policies}:area_with_patience/fewest/easy", "fcfs/fewest/easy"))),
    metrics=("wait.max", "bsld"),
    seeds=tuple(range(6)),
)
for comparison in compare(plan):
    print(f"{comparison.workload} on {comparison.cluster}, estimates {comparison.estimate}, {len(comparison.seeds)} seeds")
    for line in comparison.lines:
        name = line.scheduler.removeprefix(f"{policies}:")
        wait, slowdown = line.values["wait.max"], line.values["bsld"]
        print(f"  {name:36} wait up to {wait.mean / 3600:4.1f} h, slowdown {slowdown.mean:.2f}")
        if line.change is not None:
            low, high = line.change.low / 3600, line.change.high / 3600
            verdict = "more than luck" if line.change.clear else "may be luck"
            print(f"  {'':36} {line.change.mean / 3600:+.1f} h [{low:+.1f}, {high:+.1f}] against the first: {verdict}")
