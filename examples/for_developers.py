"""For developers: the engine from outside. Stop it at each decision, check the laws, and compare it with the slow, obvious simulator."""

# %% One decision at a time. A scheduler that drives a real cluster sees the same snapshots and gives the same decisions.
import gpuyard as gy
from gpuyard.testing.conformance import compare_with_reference
from gpuyard.testing.invariants import check_invariants
from gpuyard.testing.strategies import random_case

workload, cluster, scheduler = gy.load_workload("gangs:jobs=200,nodes=4"), gy.load_cluster("4x8:a100"), gy.parse_scheduler("sjf/best/easy")
simulation = gy.Simulation(workload, cluster, seed=1)
while (snapshot := simulation.advance()) is not None:
    simulation.apply(scheduler.decide(snapshot))
stepped = simulation.result()
print(f"decided from outside: {gy.counts(stepped)}")

# %% Run at once, inside the compiled loop, it is the same, byte for byte.
result = gy.simulate(workload, cluster, scheduler, seed=1)
assert (result.table == stepped.table).all()

# %% No result may break a law: no GPU twice at a time, no work lost or made up, no start before the submit.
check_invariants(result.table, result.segments, workload, cluster, gy.Rules())

# %% The reference simulator is plain Python, written from docs/concepts/semantics.md alone. On random cases both must agree.
for seed in range(20):
    differences = compare_with_reference(random_case(seed), scheduler, gy.simulate, seed)
    assert not differences, differences
print("20 random cases: the engine and the reference agree")
