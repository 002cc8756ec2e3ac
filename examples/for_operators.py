"""For people who run a cluster: would another scheduler have served the users of this log better, and who would have paid for it?"""

# %% Your log: what `sacct` or `lsb.acct` prints, SWF, a CSV file. Without one, five days are made up.
import gpuyard as gy

LOG, CLUSTER = "", "16x8:a100"

if LOG:
    log = gy.load_workload(LOG)
else:
    jobs = gy.simulate("demo", CLUSTER, "fcfs/fewest/easy").jobs()  # a frame, as pandas.read_csv would give
    log = gy.Workload.from_frame(jobs.select("submit", "start", "end", "gpus", "walltime", "user"), name="five days, made up")
print(log)

# %% What happened, beside what other schedulers would have given: the best first, and what is sure about it.
found = gy.compare(["fcfs/fewest/easy", "sjf/fewest/easy", "saf/fewest/easy", "learned:hpc/fewest/easy"], log, CLUSTER)
print(found)

# %% Who gains and who pays: each user's mean wait, as it is and as it would be.
today, best = gy.simulate_many(log, CLUSTER, ["fcfs/fewest/easy", "saf/fewest/easy"])
waits = today.summary("wait", by="user").join(best.summary("wait", by="user"), on="user", suffix="_new")
for user, before, after in waits.sort("jobs", descending=True).head(6).select("user", "wait", "wait_new").rows():
    print(f"{user:5} {before / 60:6.0f} min {after / 60:6.0f} min   {'longer' if after > before else 'shorter'}")

# %% The day when most jobs waited. A notebook shows a figure by itself; `figure.savefig("day.png")` keeps it.
best = gy.simulate(log, CLUSTER, "saf/fewest/easy")
figure = best.gantt()
print("drawn:", *(axis.get_ylabel() for axis in figure.axes if axis.get_ylabel()))
