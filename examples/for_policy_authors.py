"""For authors of policies: from an idea to a verdict. Short jobs first, but nobody should wait for ever."""

# %% An ordering: lower goes first. It sees what a real scheduler sees, never how long the job will run.
import gpuyard as gy


def ageing(jobs, j, now, hours=8.0):
    """The estimate, divided by how long the job has waited in units of `hours`."""
    return jobs.estimate[j] / (1.0 + ((now - jobs.submit[j]) / (hours * 3600.0)) ** 2)


# %% A plain function stands wherever a scheduler or a slot does. It is compiled the first time.
mine = gy.Scheduler(ordering=ageing, backfill="easy")
result = gy.simulate("demo", "16x8:a100", mine)
print(result)

# %% Beside what it should improve on: the mean, and the longest wait, which is the point of it.
found = gy.compare([mine, "sjf/fewest/easy", "fcfs/fewest/easy"], metrics=["waiting", "waiting.max"], seeds=6)
print(found)

# %% Whom does it treat worst? Frames have names: whose jobs are these, and how wide?
worst = result.jobs().sort("wait", descending=True).select("id", "user", "job_class", "gpus", "walltime", "wait")
print(worst.head(5))

# %% In a file, `./mine.py:ageing:hours=4` is the same on the command line; `gpuyard check ./mine.py` looks for mistakes.
