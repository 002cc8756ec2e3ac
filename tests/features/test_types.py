"""What PickJob-v1 sees of GPU types, on a case worked out by hand; and that what PickJob-v0 sees has stayed."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard import Workload, load_cluster
from gpuyard.envs.kinds.job.kind import PickTypedJob
from gpuyard.features.jobs import JOB, JOB_TYPES
from gpuyard.features.numbers import TIME
from gpuyard.model.cluster import Cluster
from support.playing import one_episode

CLUSTER = """
[[nodes]]
count = 1
gpus = 4
type = "quick"
[[nodes]]
count = 2
gpus = 4
type = "medium"
[[nodes]]
count = 1
gpus = 8
type = "slow"
[types.quick]
speed = 4.0
[types.medium]
speed = 2.0
[types.slow]
speed = 1.0
"""


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    path = tmp_path / "three.toml"
    path.write_text(CLUSTER)
    return load_cluster(str(path))


def seen(cluster: Cluster, gpus: list[float], types: list[str]) -> tuple[list[dict[str, float]], dict[str, float]]:
    """The rows of all but the first job, which runs, and the context. Jobs are estimated at 1023 s and come together, second by second."""
    count, labels = len(gpus), sorted(set(types))
    columns = {"gpus": gpus, "gpu_type": [labels.index(each) for each in types], "estimate": np.full(count, 1023.0), "cpus": np.ones(count)}
    workload = Workload.build({"submit": np.minimum(np.arange(count), 1.0), **columns}, np.full(count, 1023.0), gpu_types=labels)
    envs = one_episode(PickTypedJob(placement="fastest", window=8).left_open(), workload, cluster)
    found = envs.reset(0)
    rows = [dict(zip(JOB_TYPES.rows, row.tolist(), strict=True)) for row in found.rows[0]][: count - 1]
    return rows, dict(zip(JOB_TYPES.context, found.context[0].tolist(), strict=True))


def test_types_and_speeds_by_hand(cluster):
    (any_two, any_six, slow, quick, most), context = seen(cluster, [3, 2, 6, 8, 4, 16], ["", "", "", "slow", "quick", "medium|slow"])
    # three of the four quick GPUs are taken; one quick, eight medium and eight slow ones are free
    assert [context[name] for name in ("fast_free", "middle_free", "slow_free")] == [0.25, 1.0, 1.0]
    assert [context[name] for name in ("fast_size", "slow_size")] == pytest.approx([4 / 20, 8 / 20])
    assert context["free_speed"] == pytest.approx((4 + 8 * 2 + 8) / 17 / 4)
    assert [row["usable"] for row in (any_two, slow, quick, most)] == pytest.approx([1.0, 0.4, 0.2, 0.8])
    assert [row["of_usable"] for row in (any_two, slow, quick, most)] == pytest.approx([1 / 17, 0.5, 1.0, 0.5])
    # two GPUs would be one quick and a medium one: a gang runs at its slowest GPU's speed
    assert [row["speed_now"] for row in (any_two, any_six, slow, quick, most)] == [0.5, 0.5, 1.0, 0.0, 0.5]
    assert [row["of_fastest"] for row in (any_two, any_six, slow, quick, most)] == pytest.approx([0.5, 1 / 6, 1.0, 0.25, 0.5])
    assert [row["spread"] for row in (any_two, slow, quick, most)] == [0.25, 1.0, 1.0, 0.5]
    assert slow["time_best"] == slow["time_now"] == slow["estimate"] == pytest.approx(10 * TIME)  # log2 of 1024
    assert any_two["time_best"] == pytest.approx(8 * TIME, abs=0.01)
    assert any_two["time_now"] == pytest.approx(9 * TIME, abs=0.01)
    assert quick["time_now"] == quick["time_best"] == any_two["time_best"]  # it cannot start now


def test_a_cpu_job_runs_the_same_everywhere(cluster):
    (cpu, _), _ = seen(cluster, [3, 0, 16], ["", "", ""])
    assert (cpu["speed_now"], cpu["spread"], cpu["of_fastest"], cpu["time_now"]) == (1.0, 1.0, 1.0, cpu["estimate"])


def test_the_features_of_the_first_version_have_stayed():
    assert JOB.hash == "7bf1fa746f90810b"  # of the checkpoints that are out there
    assert JOB_TYPES.rows[: len(JOB.rows)] == JOB.rows
    assert JOB_TYPES.context[: len(JOB.context)] == JOB.context
