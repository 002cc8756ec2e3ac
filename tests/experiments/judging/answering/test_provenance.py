"""What jobs ask for is named after the log: GPUs, processors or whole nodes."""

from __future__ import annotations

import pytest

from gpuyard import load_cluster
from gpuyard.experiments.judging.answering.names import plain_title
from gpuyard.experiments.judging.answering.provenance import provenance_of
from gpuyard.model.workload import Workload


@pytest.mark.parametrize(
    ("cluster", "device"), [("16x8:a100", "GPUs"), ("100", "processors"), ("4x16:cpu", "processors"), ("8x1:node", "nodes")]
)
def test_devices_by_their_own_name(cluster: str, device: str) -> None:
    workload = Workload.build({"submit": [0.0], "gpus": [1.0]}, [5.0])
    found = provenance_of(workload, load_cluster(cluster), "", generated=False)
    assert found.device == device
    assert plain_title("utilization", found.device) == f"{device} busy"
    assert plain_title("wait", found.device) == "mean wait"
