"""Compare schedulers on the same seeds, with paired intervals: what `gpuyard compare` does, from Python."""

from pathlib import Path

import gpuyard as gy

policies = Path(__file__).with_name("own_policies.py")
schedulers = ["saf/fewest/easy", f"{policies}:area_with_patience/fewest/easy", "fcfs/fewest/easy"]
comparison = gy.compare(schedulers, "demo:jobs=800,days=2", "16x8:a100", metrics=["wait.max", "bsld"], seeds=6, baseline="saf/fewest/easy")

print(f"{comparison.workload} on {comparison.cluster}, estimates {comparison.estimate}, {len(comparison.seeds)} seeds")
for line in comparison.lines:
    name = line.scheduler.removeprefix(f"{policies}:")
    wait, slowdown = line.values["wait.max"], line.values["bsld"]
    print(f"  {name:36} wait up to {wait.mean / 3600:4.1f} h, slowdown {slowdown.mean:.2f}")
    if line.change is not None:
        low, high = line.change.low / 3600, line.change.high / 3600
        verdict = "more than luck" if line.change.clear else "may be luck"
        print(f"  {'':36} {line.change.mean / 3600:+.1f} h [{low:+.1f}, {high:+.1f}] against the first: {verdict}")
