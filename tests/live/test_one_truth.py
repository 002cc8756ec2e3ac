"""One truth: the same snapshot file gives identical decisions in a simulation, from the service, on a node and in the Slurm adapter."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.live.test_guards import job

from gpuyard import Simulation, simulate
from gpuyard.live.deciding import decide_now
from gpuyard.live.deployment import running
from gpuyard.live.deployment.modes import MOST_NAMES
from gpuyard.live.node.advice.deciding import _decider
from gpuyard.live.slurm.deploying import SlurmDeployment, SlurmSettings
from gpuyard.live.state.file import SavedSnapshot, parse_snapshot, snapshot_bytes
from gpuyard.live.state.site import SiteState
from gpuyard.live.state.wire import SnapshotWriter
from gpuyard.policies import parse_scheduler
from gpuyard.testing.strategies import random_case
from support.services import TriedService

SCHEDULER = "sjf/fewest/easy"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    made = TriedService(tmp_path_factory.mktemp("service"), "--scheduler", SCHEDULER)
    yield made
    made.close()


@pytest.fixture
def adapter(monkeypatch):
    """What a cycle beside Slurm logs when Slurm reports what a file says."""

    def cycle(saved: SavedSnapshot) -> dict[str, Any]:
        jobs = [replace(job(1), name=saved.name(row)) for row in range(len(saved.snapshot.jobs))]
        monkeypatch.setattr(running, "site_snapshot", lambda *_: saved)
        monkeypatch.setattr(SlurmDeployment, "_read", lambda _: SiteState(saved.snapshot.now, jobs, []))
        return next(SlurmDeployment(parse_scheduler(SCHEDULER), SlurmSettings()).cycles())

    return cycle


@pytest.mark.parametrize("number", range(4))
def test_the_same_file_gives_the_same_decisions_everywhere(number, service, adapter):
    case, scheduler = random_case(number, "rack"), parse_scheduler(SCHEDULER)
    sim, node, writer = Simulation(case.workload, case.cluster, rules=case.rules), _decider(SCHEDULER), SnapshotWriter()
    while (snapshot := sim.advance()) is not None:
        file = snapshot_bytes(SavedSnapshot(snapshot))
        saved = parse_snapshot(file)
        table, places = saved.snapshot.jobs.table, saved.snapshot.cluster.nodes.names
        name_of = dict(zip(table["index"].tolist(), map(saved.name, range(len(table))), strict=True))
        truth = decide_now(saved, scheduler)
        wanted = [(name_of[d.job], d.action.value, [(p.node, p.gpus) for p in d.parts]) for d in truth]

        answer = service.ask("decide", snapshot=json.loads(file))
        told = [(d["job"], d["action"], [(places.index(p["node"]), p["gpus"]) for p in d["parts"]]) for d in answer["decisions"]]
        assert told == wanted

        decided = node(b"".join(writer.write(saved.snapshot)))
        assert [(name_of[d[0]], d[1], [part[:2] for part in d[2]]) for d in decided["decisions"]] == wanted
        assert [name_of[index] for index in decided["order"]] == answer["order"]

        record = adapter(saved)
        starts = [(name, [places[place] for place, _ in parts]) for name, action, parts in wanted if action == "start"]
        assert record["would_start"] == starts[:MOST_NAMES]
        assert record["order"] == answer["order"][:MOST_NAMES]
        sim.apply(truth)
    expected = simulate(case.workload, case.cluster, scheduler, rules=case.rules)
    for column in ("start", "end", "node", "status"):
        np.testing.assert_array_equal(sim.result().table[column], expected.table[column], err_msg=column)
