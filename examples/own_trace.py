"""Your own table, with its own names and units, read as a workload and written as SWF."""

import tempfile
from pathlib import Path

from gpuyard import load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.metrics import measure
from gpuyard.traces import write_swf

TABLE = """\
job,arrived,started,ended,limit_min,cards,who
1,2026-03-02T08:00:00Z,2026-03-02T08:00:05Z,2026-03-02T09:10:00Z,120,8,ann
2,2026-03-02T08:01:00Z,2026-03-02T09:10:01Z,2026-03-02T13:00:00Z,300,16,ben
3,2026-03-02T08:02:30Z,2026-03-02T08:02:31Z,2026-03-02T08:20:00Z,30,1,cem
4,2026-03-02T08:03:00Z,,,60,2,dia
5,2026-03-02T08:30:00Z,2026-03-02T08:30:02Z,2026-03-02T09:15:00Z,60,4,ann
"""
COLUMNS = {"id": "job", "submit": "arrived", "start": "started", "end": "ended", "walltime": "limit_min", "gpus": "cards", "user": "who"}

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "jobs.csv"
    path.write_text(TABLE, encoding="utf-8")
    workload = load_workload(str(path), columns=COLUMNS, unit="min")
    print(f"{len(workload)} jobs, dropped: {dict(workload.dropped)}, users: {workload.jobs.users}")
    write_swf(workload, Path(folder) / "jobs.swf.gz")
    again = load_workload(str(Path(folder) / "jobs.swf.gz"))

assert (again.runtime == workload.runtime).all()
logged = workload.logged_start - workload.jobs.submit
for text in ("fcfs", "sjf/fewest/easy"):
    result = simulate(workload, load_cluster("2x8:a100"), parse_scheduler(text))
    print(f"{text}: mean wait {measure(result, ['wait'])['wait']:.0f} s; in the log {logged.mean():.0f} s")
