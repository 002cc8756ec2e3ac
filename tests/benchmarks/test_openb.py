"""The openb protocol: its fragment by hand, what it does without the files, and one order of arrival with them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from gpuyard import Cluster, Workload, load_cluster, parse_scheduler, simulate

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "openb.py"


@pytest.fixture(scope="module")
def openb() -> ModuleType:
    spec = importlib.util.spec_from_file_location("openb", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_fragmented_by_hand(openb: ModuleType):
    """Requests: 0.75 twice, 0.5 once, a whole device once, on a node with two devices. The first pod leaves 0.25 and 1: 0.25 are too small
    for everyone. The second leaves 0.25 and 0.25, which nobody can use; the others do not fit."""
    workload = Workload.build({"submit": [0.0, 1.0, 2.0, 3.0], "gpus": [0.75, 0.75, 0.5, 1.0]}, np.full(4, openb.FOREVER))
    result = simulate(workload, Cluster.uniform(1, 2), parse_scheduler("lcfs/first"), segments=True)
    assert [round(openb.fragmented(result, until), 4) for until in (1, 2, 3, 4)] == [0.25, 0.5, 0.5, 0.5]


def test_arrivals_are_the_list_once_and_then_drawn(openb: ModuleType):
    pods = Workload.build({"submit": np.arange(3.0), "gpus": [1.0, 2.0, 0.5], "chunk": [1, 2, 1], "cpus": np.ones(3)}, np.ones(3))
    workload = openb.arrivals(pods, 3, seed=1)
    assert sorted(workload.jobs.gpus[:3].tolist()) == [0.5, 1.0, 2.0]
    assert workload.jobs.gpus.sum() <= 1.3 * 3 + 1e-6
    assert workload == openb.arrivals(pods, 3, seed=1)


def test_a_folder_without_the_files(openb: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    assert openb.main([str(tmp_path)]) == 2
    monkeypatch.setattr(openb, "FOLDER", tmp_path)
    assert openb.main([]) == 0
    assert "nothing is compared" in capsys.readouterr().err


def test_one_order_of_arrival_is_near_the_published_values(openb: ModuleType, shared: Path):
    folder = shared / "traces" / "alibaba"
    cluster, pods = load_cluster("openb"), openb.pods_in(folder / openb.PODS)
    assert (len(cluster.nodes), cluster.gpus, len(pods)) == (1213, 6212, 8152)
    workload = openb.arrivals(pods, cluster.gpus, 0)
    found = {policy: openb.measure(workload, cluster, placement, 0) for policy, (placement, _) in openb.PUBLISHED.items()}
    for policy, (_, published) in openb.PUBLISHED.items():
        assert np.abs(np.subtract(found[policy], published)).max() < 1.5, policy  # a single order: sd of random up to 0.5
    assert found["random"][1] < found["best fit"][1] < found["FGD"][1]
