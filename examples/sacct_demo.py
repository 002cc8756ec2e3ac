"""Write what `sacct --parsable2` would print of a small GPU cluster, made up: the demo workload under a simulated scheduler.

    python examples/sacct_demo.py > sacct.txt

It stands in for a site's own log where there is none at hand.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np

from gpuyard import load_cluster, load_workload, parse_scheduler, simulate

ORIGIN = datetime(2026, 3, 2)
FIELDS = (
    "JobID", "User", "Account", "Partition", "QOS", "Submit", "Start", "End", "Elapsed", "Timelimit", "State",
    "NNodes", "NCPUS", "ReqTRES", "AllocTRES", "NodeList",
)  # fmt: skip


def main() -> None:
    workload, cluster = load_workload("demo:jobs=2000,load=0.9", 0), load_cluster("16x8:gpu")
    result = simulate(workload, cluster, parse_scheduler("priority/worst/skip:depth=4"), segments=True)
    nodes: dict[int, set[int]] = {}
    for part in result.segments:
        nodes.setdefault(int(part["job"]), set()).add(int(part["node"]))
    print("|".join(FIELDS))
    for j in range(len(workload)):
        print("|".join(row(workload, result, j, sorted(nodes[j]))))


def row(workload, result, j, nodes):  # type: ignore[no-untyped-def]
    """One job as sacct prints it."""
    jobs, start, end = workload.jobs, float(result.table["start"][j]), float(result.table["end"][j])
    gpus = int(jobs.gpus[j])
    tres = f"cpu={8 * gpus},mem={64 * gpus}G,node={len(nodes)},billing={8 * gpus},gres/gpu={gpus},gres/gpu:a100={gpus}"
    state = "COMPLETED" if j % 17 else "FAILED"
    when = [(ORIGIN + timedelta(seconds=round(t))).isoformat() for t in (float(jobs.submit[j]), start, end)]
    elapsed, limit = (clock(t) for t in (round(end) - round(start), float(jobs.walltime[j])))
    names = "gpu[" + ",".join(f"{n:02d}" for n in nodes) + "]" if len(nodes) > 1 else f"gpu{nodes[0]:02d}"
    user = jobs.users[jobs.user[j]]
    return (
        str(1000 + j), user, "lab" + str(jobs.user[j] % 4), "gpu", "normal", *when, elapsed, limit, state,
        str(len(nodes)), str(8 * gpus), tres, tres, names,
    )  # fmt: skip


def clock(seconds: float) -> str:
    if not np.isfinite(seconds):
        return "UNLIMITED"
    days, rest = divmod(round(seconds), 86400)
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


if __name__ == "__main__":
    main()
