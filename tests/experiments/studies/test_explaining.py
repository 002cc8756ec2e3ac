"""What is said of policies whose weights are known."""

from __future__ import annotations

import math

import pytest

from gpuyard.errors import UsageError
from gpuyard.experiments.studies.evaluation import contender
from gpuyard.experiments.studies.explaining import THIRDS, explain, steps
from gpuyard.experiments.studies.stage import CURVES, GRID
from gpuyard.features.devices import DEVICE
from gpuyard.features.jobs import JOB
from support.checkpoints import write_linear

GANGS = "gangs:jobs=60,load=1.5 on 16"


def features_of(explanation):
    return {feature.name: feature for feature in explanation.features}


def test_a_policy_that_looks_at_estimates_alone(tmp_path):
    path = write_linear(
        tmp_path / "sjf.safetensors", "job", {"estimate": -1.0}, {"placement": "fewest", "backfill": "none"}, workloads=[GANGS]
    )
    found = explain(contender(str(path)), episodes=3)
    features = features_of(found)
    assert found.features[0].name == "estimate"
    assert features["estimate"].changed > 0.3 and features["estimate"].worse > 0.1
    assert all(feature.changed == feature.worse == 0 for name, feature in features.items() if name != "estimate")
    curve = features["estimate"].curve
    assert len(curve) == GRID and features["estimate"].of == "is put before others"
    assert list(curve) == sorted(curve, reverse=True) and curve[0] > 0.9 and curve[-1] < 0.1
    best = found.likeness[0]
    assert (best.name, best.same) == ("sjf", 1.0) and best.rank == pytest.approx(1.0) and best.decisions > 10
    assert len(features) == len(JOB.rows) + len(JOB.context) and not found.actions


def test_the_same_seed_gives_the_same_explanation(tmp_path):
    weights = {"estimate": -1.0, "wait": 0.5, "waiting": 1.0}
    path = write_linear(tmp_path / "a.safetensors", "job", weights, {"placement": "fewest", "backfill": "none"}, workloads=[GANGS])
    one, two = (explain(contender(str(path)), episodes=2, seed=5) for _ in range(2))
    assert one.features == two.features and one.likeness == two.likeness


def test_a_switch_that_always_chooses_one(tmp_path):
    path = write_linear(
        tmp_path / "a.safetensors", "switch", [{"bias": 0.0}, {"bias": 1.0}, {"bias": 0.5}],
        {"schedulers": ["fcfs", "sjf", "edf"], "period": 60.0}, objective="balanced",
        workloads=["family:shape=base|bursty,gpus=2|4,horizon=1200 on {gpus}"],
    )  # fmt: skip
    found = explain(contender(str(path)), episodes=4)
    assert all(feature.changed == feature.worse == 0 for feature in found.features)
    assert found.actions == ("fcfs", "sjf", "edf")
    assert [regime.name for regime in found.regimes] == ["all", "shape=base", "shape=bursty", "gpus=2", "gpus=4"]
    assert all(regime.shares == (0.0, 1.0, 0.0) and regime.entropy == 0 for regime in found.regimes)
    assert sum(regime.decisions for regime in found.regimes[1:3]) == found.regimes[0].decisions == found.decisions
    assert len(found.over_time) == len(found.times) and list(found.times) == sorted(found.times)
    assert set(found.over_time) == {(0.0, 1.0, 0.5)}


def test_a_switch_that_looks_at_the_queue(tmp_path):
    path = write_linear(
        tmp_path / "a.safetensors", "switch", [{"bias": 0.2}, {"waiting": 1.0}], {"schedulers": ["fcfs", "sjf"], "period": 60.0},
        objective="balanced", workloads=["family:shape=bursty,gpus=4,horizon=1200 on 4"],
    )  # fmt: skip
    found = explain(contender(str(path)), episodes=2)
    assert found.features[0].name == "waiting" and found.features[0].changed > 0.05
    assert found.features[0].of in ("chooses sjf", "chooses fcfs")
    assert {found.features[0].curve[0], found.features[0].curve[-1]} == {0.0, 1.0}
    assert 0 < found.regimes[0].entropy < 1
    chosen = [max(range(2), key=lambda k: scores[k]) for scores in found.over_time]
    assert set(chosen) == {0, 1}


def test_hosts_are_likened_to_placements(tmp_path):
    path = write_linear(
        tmp_path / "a.safetensors", "host", {"cores_left": -1.0, "memory": 0.01}, {"ordering": "fcfs", "backfill": "none"},
        objective="wait", workloads=["eda:jobs=60"], cluster="hosts:count=6,seed={seed}",
    )  # fmt: skip
    found = explain(contender(str(path)), episodes=2)
    features = features_of(found)
    assert found.features[0].name == "cores_left"
    assert {name for name, feature in features.items() if feature.changed > 0} <= {"cores_left", "memory"}
    assert "core_use (situation)" in features and "core_use" in features
    assert all(0 <= each.same <= 1 and math.isnan(each.rank) and each.decisions > 0 for each in found.likeness)


def test_workloads_without_a_choice_and_checkpoints_without_workloads(tmp_path):
    slots = {"placement": "fewest", "backfill": "none"}
    path = write_linear(tmp_path / "a.safetensors", "job", {"estimate": -1.0}, slots)
    with pytest.raises(UsageError, match="does not say which workloads"):
        explain(contender(str(path)))
    found = explain(contender(str(path)), [GANGS], episodes=1)
    assert found.workloads == GANGS and found.episodes == 1


HEAVY = "tasks:jobs=40,gap=0.3 on tasks"


def device_policy(path, weights, workload="tasks:jobs=40,memory=0.1:2|4:7 on tasks"):
    return contender(str(write_linear(path, "device", weights, {}, objective="turnaround", workloads=[workload])))


def test_a_device_choice_that_looks_at_queues_alone(tmp_path):
    found = explain(device_policy(tmp_path / "a.safetensors", {"waiting_log2": -1.0, "idle": 0.1}, HEAVY), episodes=4)
    features = features_of(found)
    assert {name for name, feature in features.items() if feature.changed > 0} == {"idle", "waiting_log2"}
    assert features["idle"].worse > 0.1 and features["idle"].of == "is put before others"
    assert features["idle"].curve[0] < features["idle"].curve[-1]
    assert found.actions == ("cpu", "gpu") and found.decisions == 160 and not found.likeness and not found.over_time
    assert len(features) == len(DEVICE.rows) + len(DEVICE.context)


def test_choices_of_devices_by_run_and_by_situation(tmp_path):
    found = explain(device_policy(tmp_path / "a.safetensors", {"gpu": 1.0, "memory_share": -1e-3}), episodes=4)
    regimes = {regime.name: regime for regime in found.regimes}
    assert regimes["all"].shares == (0.0, 1.0) and regimes["all"].entropy == 0.0
    for group in (["memory=0.1:2", "memory=4:7"], [f"intensity: {third} third" for third in THIRDS]):
        assert sum(regimes[name].decisions for name in group) == found.decisions == 160
    idle = [name for name in regimes if name.startswith("idle_gpus=")]
    assert sum(regimes[name].decisions for name in idle) == 160 and 2 <= len(idle) <= 3


def test_what_decides_between_cpu_and_gpu_is_shown(tmp_path):
    """By a feature of the rows: one of the situation adds the same to every row of a linear policy."""
    found = explain(device_policy(tmp_path / "a.safetensors", {"gpu": 0.2, "memory_share": -1.0}), episodes=4)
    regimes = {regime.name: regime for regime in found.regimes}
    low, high = regimes["memory: lowest third"].shares[1], regimes["memory: highest third"].shares[1]
    assert low == 1.0 and high < 0.5  # a task that fills much of a GPU's memory goes to a CPU
    assert {name for name, feature in features_of(found).items() if feature.changed > 0} == {"gpu", "memory_share"}


def test_episodes_without_a_choice_are_left_out_and_counted(tmp_path):
    slots = {"placement": "fewest", "backfill": "none"}
    path = write_linear(tmp_path / "a.safetensors", "job", {"estimate": -1.0}, slots)
    found = explain(contender(str(path)), [GANGS, "gangs:jobs=1 on 16"], episodes=4)
    assert (found.episodes, found.empty) == (2, 2)
    assert found.decisions > 0 and found.features[0].name == "estimate" and found.likeness[0].name == "sjf"
    with pytest.raises(UsageError, match=r"none of 3 episodes leaves it a choice; hint: .*more load.*--workload"):
        explain(contender(str(path)), ["gangs:jobs=1 on 16"], episodes=3)


def test_progress_goes_on_to_the_end_of_the_work(tmp_path):
    path = write_linear(
        tmp_path / "a.safetensors", "job", {"estimate": -1.0}, {"placement": "fewest", "backfill": "none"}, workloads=[GANGS]
    )
    heard: list[int] = []
    each = contender(str(path))
    explain(each, episodes=2, progress=heard.append)
    assert heard == sorted(heard) and heard[0] == 1 and heard[-1] <= steps(each, 2)
    runs = 2 * (1 + len(JOB.rows) + len(JOB.context))
    assert {1, 2, runs, runs + 1} <= set(heard) and len([done for done in heard if done > runs + CURVES]) > 20
