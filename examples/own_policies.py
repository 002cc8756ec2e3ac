"""Your own policies, one for each slot that takes a function. Lower goes first, everywhere.

gpuyard check examples/own_policies.py
gpuyard compare demo --ordering ./examples/own_policies.py:area_with_patience --ordering saf --backfill easy
"""


def area_with_patience(jobs, j, now, patience=6.0):
    """Ordering: least GPU-time first; a job that has waited `patience` hours goes before all others, in order of submission."""
    if now - jobs.submit[j] > patience * 3600.0:
        return jobs.submit[j] - 1e12
    return jobs.estimate[j] * jobs.gpus[j]


def spread_gangs(nodes, n, jobs, j):
    """Placement: whole-node gangs from the emptiest node, everything else from the fullest."""
    if jobs.gpus[j] >= nodes.gpus[n]:
        return -nodes.free[n]
    return nodes.free[n]


def paid_first(jobs, j, now, grace=1800.0):
    """Preemption: higher priorities stop lower ones, but no job that has run for less than `grace` seconds."""
    if jobs.status[j] == 2 and now - jobs.run_start[j] < grace:
        return -1e9
    return -jobs.priority[j]


def long_queue(system, now, hours=2.0):
    """Switch: the second scheduler while the queue holds more than `hours` of work for the whole cluster."""
    return 1 if system.work > hours * 3600.0 * system.gpus else 0
