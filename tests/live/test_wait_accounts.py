"""The accounts of waits of a real cluster are those of a simulation, and reach the scheduler."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gpuyard import Simulation, Workload, load_cluster, parse_scheduler
from gpuyard.live.estimator import WaitAccounts
from gpuyard.live.node.core import Node, NodeSettings
from gpuyard.live.node.devices import NoGpus
from gpuyard.live.node.jobs import RunState, Submission
from gpuyard.live.state.wire import SnapshotReader, SnapshotWriter


def mixed(jobs: int = 120) -> Workload:
    rng = np.random.default_rng(4)
    runtime = rng.lognormal(6.0, 1.5, jobs)
    columns = {"submit": np.sort(rng.uniform(0, 150.0 * jobs, jobs)), "gpus": rng.choice([1, 2, 4], jobs), "estimate": 2.0 * runtime}
    return Workload.build({**columns, "preemptible": rng.choice([0.0, 1.0], jobs)}, runtime)


def test_the_accounts_are_those_of_a_simulation():
    workload = mixed()
    simulation, decider = Simulation(workload, load_cluster("4"), every=60.0), parse_scheduler("saf/fewest/easy/gittins").begin()
    seen = []
    while (snapshot := simulation.advance()) is not None:
        seen.append((snapshot.now, snapshot.excess))
        simulation.apply(decider.decide(snapshot))
    table = simulation.result().table
    delay = table["end"] - workload.jobs.submit - np.minimum(workload.runtime, table["ran"])
    area, stoppable = workload.jobs.estimate * workload.jobs.gpus, workload.jobs.stated["preemptible"] > 0
    accounts, order = WaitAccounts(), np.lexsort((np.arange(len(workload)), table["end"])).tolist()
    for now, excess in seen:
        while order and table["end"][order[0]] <= now:
            j = order.pop(0)
            accounts.add(float(delay[j]), float(area[j]), bool(stoppable[j]))
        assert accounts.excess == excess
    assert len({excess for _, excess in seen}) > 50


@pytest.mark.parametrize("excess", [0.0, -0.25, 1.5, math.inf])
def test_it_reaches_the_process_of_the_scheduler(excess: float):
    snapshot = Simulation(mixed(), load_cluster("4")).advance()
    sent = replace(snapshot, excess=excess)
    assert SnapshotReader().read(b"".join(map(bytes, SnapshotWriter().write(sent)))).excess == excess


def test_a_node_keeps_them_from_one_start_to_the_next(tmp_path):
    def begun() -> Node:
        return Node(tmp_path, NodeSettings(scheduler="plain", cpus=2), NoGpus())

    node = begun()
    for preemptible, wait in ((True, 5000.0), (False, 100.0)):
        (number,) = node.submit(Submission(("true",), cwd="/", cpus=1.0, estimate=100.0, preemptible=preemptible).plain(), "", "me")
        node.commit()
        job = node.book.jobs[number]
        start = job.submit + wait
        node.book.put(replace(job, state=RunState.done, start=start, end=start + 60.0, exit_code=0))
        node.commit()
    expected = (5000.0 - 600.0) / 2550.0 - 1.0
    assert node.accounts.excess == pytest.approx(expected)
    node.close()
    node = begun()
    assert node.accounts.excess == pytest.approx(expected)
    node.close()
