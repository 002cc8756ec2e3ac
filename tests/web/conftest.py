"""Dashboards of a node, of many jobs, and folders of results and trainings, each made once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.experiments.design.spec import parse_experiment
from gpuyard.experiments.running.runner import backend_of, run
from gpuyard.web.sources.node import NodeSource
from support.dashboards import TOKEN, ManyJobs, TriedDashboard
from support.nodes import TriedNode

ATTACK = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
SMALL = """
title = "%s"
question = "Who waits?"
figures = ["objective", "versus"]
[axes]
workloads = ["family:shape=bursty,intensity=low,gpus=2 on 2"]
schedulers = ["fcfs", "srpt"]
seeds = "0-1"
objectives = ["slowdown"]
[judge]
challengers = ["srpt"]
baseline = "fcfs"
"""


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two experiments, one that was begun, and a training under way. Titles are attacks."""
    folder = tmp_path_factory.mktemp("results")
    for name, title in (("one", ATTACK), ("two", "Second")):
        run(parse_experiment(SMALL % title, f"{name}.toml"), folder / name, backend_of("local", 1))
    record = json.loads((folder / "two" / "experiment.json").read_text())
    (folder / "begun").mkdir()
    record["experiment"]["title"] = "Begun"
    (folder / "begun" / "experiment.json").write_text(json.dumps(record))
    (folder / "damaged").mkdir()
    (folder / "damaged" / "experiment.json").write_text("{")
    training = folder / "trainings" / "first"
    training.mkdir(parents=True)
    (training / "config.json").write_text(json.dumps({"env": "PickJob", "learner": {"name": "ppo", "rate": 0.001}}))
    rows = [json.dumps({"update": k, "steps": 64 * k, "return": -100.0 / (k + 1), "loss": "nan", "note": ATTACK}) for k in range(900)]
    (training / "metrics.jsonl").write_text("\n".join(rows) + '\n{"update": 900, "ste')
    return folder


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TriedNode]:
    """A node with four CPU slots."""
    made = TriedNode(tmp_path / "node")
    yield made.start()
    assert "Traceback" not in made.close()


@pytest.fixture
def dashboard(node: TriedNode, results: Path) -> Iterator[TriedDashboard]:
    """The dashboard of that node, with a token and leave to act."""
    served = TriedDashboard(NodeSource(node.folder), results, token=TOKEN, actions=True)
    yield served
    served.stop()


@pytest.fixture(scope="module")
def crowd(results: Path) -> Iterator[TriedDashboard]:
    """A dashboard of 30,000 waiting and 100,000 ended jobs, all of which are called an attack."""
    served = TriedDashboard(ManyJobs(running=4, waiting=30_000, ended=100_000, name=ATTACK), results)
    yield served
    served.stop()
