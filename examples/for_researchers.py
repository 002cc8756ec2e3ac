"""For researchers: an experiment in Python. From which load on is it sure that short jobs first pays, and does the tail pay for it?"""

# %% A metric of your own: what share of the jobs waited longer than they ran.
import numpy as np

import gpuyard as gy
from gpuyard.metrics import metric


@metric("impatient", title="jobs that waited longer than they ran", unit="1", better="lower", formula="wait > run time")
def impatient(result):
    """1 for a job that waited longer than it ran, else 0."""
    waited = result.table["start"] - result.workload.jobs.submit
    return np.where(np.isnan(waited), np.nan, waited > result.workload.runtime)


# %% The same seeds for both schedulers, so that differences are paired. The interval says what is more than luck.
SHORT, TODAY = "sjf/fewest/easy", "fcfs/fewest/easy"
for load in (0.7, 0.9, 1.1):
    workload = f"demo:jobs=600,days=2,load={load}"
    found = gy.compare([TODAY, SHORT], workload, "16x8:a100", metrics=["impatient", "wait.p99"], seeds=6)
    line, today = found.table.line(SHORT), found.table.line(TODAY)
    change, tail = line.change, line.values["wait.p99"].mean / max(today.values["wait.p99"].mean, 1.0)
    verdict = "surely fewer" if change.clear and change.mean < 0 else "may be luck"
    print(f"load {load}: {today.values['impatient'].mean:.1%} impatient with {TODAY}, {100 * change.mean:+.1f} points with {SHORT} "
          f"[{100 * change.low:+.1f}, {100 * change.high:+.1f}]: {verdict}; 99th percentile of waits × {tail:.2f}")  # fmt: skip

# %% Each run as a frame, for statistics of your own; `result.save("run")` keeps it with how it was made.
result = gy.simulate("demo:jobs=600,days=2", "16x8:a100", SHORT, seed=3)
print(result.summary(["wait", "bsld", "utilization"]))
print(result.jobs().group_by("job_class").len().sort("job_class"))

# %% Larger studies are TOML files: `gpuyard run core --quick`, and docs/guides/experiments.md.
