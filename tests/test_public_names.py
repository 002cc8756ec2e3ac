"""What version 0.1.0 showed in its README, docs and examples still works: imports, environment ids and programs.

The lists are pinned: they were collected from that version, and a name leaves them only with a version that says so.
"""

from __future__ import annotations

import importlib
import importlib.util
from importlib.metadata import entry_points

import pytest

NAMES = {
    "gpuyard.envs.registration": "register_all",
    "gpuyard.envs.vector": "EngineEnvs",
    "gpuyard.experiments.compare": "Plan Source compare",
    "gpuyard.metrics": "counts measure measure_by metric",
    "gpuyard.model.cluster_file": "cluster_from_dict cluster_to_dict describe_cluster load_cluster",
    "gpuyard.model.jobs": "JOB",
    "gpuyard.model.result": "REASONS",
    "gpuyard.model.speeds": "load_speeds",
    "gpuyard.policies": "make_ordering parse_switch",
    "gpuyard.testing.reference": "",
    "gpuyard.traces": "apply generator transform write_csv write_swf",
}
TOP = (  # `gpuyard.__all__` of that version
    "Action Cluster Decision GpuyardError Jobs Meta Part Result Rules Scheduler Simulation Snapshot Workload load_cluster load_workload "
    "ordering parse_scheduler placement preemption simulate switch with_estimate"
)
ENVIRONMENTS = ("gpuyard/PickDevice-v0", "gpuyard/PickHost-v0", "gpuyard/PickJob-v0", "gpuyard/PickJob-v1", "gpuyard/Switch-v0")


@pytest.mark.parametrize("module", NAMES)
def test_a_shown_import_works(module: str):
    home = importlib.import_module(module)
    assert [name for name in NAMES[module].split() if not hasattr(home, name)] == []


def test_the_public_names_are_still_offered():
    gpuyard = importlib.import_module("gpuyard")
    assert set(TOP.split()) <= set(gpuyard.__all__)
    assert [name for name in gpuyard.__all__ if not hasattr(gpuyard, name)] == []


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_id_is_known(name: str):
    gymnasium = pytest.importorskip("gymnasium")
    importlib.import_module("gpuyard.envs.registration")
    spec = gymnasium.spec(name)
    assert callable(gymnasium.envs.registration.load_env_creator(spec.entry_point))
    if spec.vector_entry_point is not None:
        assert callable(gymnasium.envs.registration.load_env_creator(spec.vector_entry_point))


def test_the_program_can_be_started_by_name_and_as_a_module():
    (script,) = [entry for entry in entry_points(group="console_scripts") if entry.name == "gpuyard"]
    assert callable(script.load())
    assert importlib.util.find_spec("gpuyard.__main__") is not None
