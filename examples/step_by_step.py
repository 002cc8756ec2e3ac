"""A scheduler that is asked at every decision: a small search over orders of the queue, beside an ordinary one.

At each decision it tries the orders of the first waiting jobs and starts what the best of them would start.
A solver or a network takes the same place.
"""

from itertools import permutations

from gpuyard import Action, Decision, Simulation, Snapshot, load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.metrics import measure


class Search:
    """Among the orders of the first `width` waiting jobs by area, the one that puts the most GPUs to use now."""

    label = "search"

    def __init__(self, width: int = 5) -> None:
        self.width = width

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        jobs = snapshot.jobs
        free = int(snapshot.free_gpus().sum())
        rows = sorted(snapshot.waiting.tolist(), key=lambda row: (jobs.estimate[row] * jobs.gpus[row], row))[: self.width]
        plans = [self._started(order, jobs.gpus, free) for order in permutations(rows)]
        best = max(plans, key=lambda taken: sum(jobs.gpus[row] for row in taken))
        return [Decision(int(jobs.index[row]), Action.START) for row in best]

    @staticmethod
    def _started(order, gpus, free: int) -> list[int]:
        """The jobs that start in this order, up to the first that does not fit. Gangs here may be spread: counting is enough."""
        taken = []
        for row in order:
            if gpus[row] > free:
                break
            free -= int(gpus[row])
            taken.append(row)
        return taken


workload = load_workload("gangs:jobs=400,nodes=4,load=0.95")
cluster = load_cluster("4x8:a100")
for scheduler in (Search(), parse_scheduler("saf"), parse_scheduler("saf/fewest/easy")):
    result = simulate(workload, cluster, scheduler)
    print(f"{result.scheduler:24}", {name: round(value, 2) for name, value in measure(result, ["bsld", "utilization"]).items()})

# The loop itself, when something should happen between decisions.
simulation = Simulation(workload, cluster)
decisions = 0
while (snapshot := simulation.advance()) is not None:
    made = Search().decide(snapshot)
    simulation.apply(made)
    decisions += len(made)
print(f"{decisions} decisions, the last at {simulation.now:,.0f} s; complete: {(simulation.result().table['end'] > 0).all()}")
