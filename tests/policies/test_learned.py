"""Checkpoints as schedulers: what they say of themselves is not trusted further than it must be."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from gpuyard import load_cluster, load_workload, simulate
from gpuyard.compat.rlscheduler.networks import learned_chooser
from gpuyard.engine.state import OUTPUTS
from gpuyard.errors import CheckpointError, UsageError
from gpuyard.experiments.studies.evaluation import contender
from gpuyard.features.hosts import HOST
from gpuyard.features.jobs import JOB_TYPES
from gpuyard.model.cluster_file import cluster_from_dict
from gpuyard.model.workload import Workload
from gpuyard.networks.network import Network
from gpuyard.networks.spec import NetworkSpec
from gpuyard.policies import parse_scheduler, parse_slots
from gpuyard.policies.learned import checkpoint_of, learned_scheduler, network_ordering
from gpuyard.testing.reference.network import random_arrays
from support.checkpoints import write_linear


@pytest.mark.parametrize(
    "choices",
    [
        {"placement": "./own.py:rule", "backfill": "none"},
        {"placement": "best", "backfill": "none/./own.py:rule"},
        {"placement": "best", "backfill": "none", "more": [{"deep": "own.py:rule"}]},
    ],
)
def test_a_checkpoint_cannot_have_a_program_run(tmp_path, monkeypatch, choices):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("open('was-run', 'w')\n\ndef rule(nodes, n, jobs, j):\n    return 0.0\n")
    write_linear(tmp_path / "job.safetensors", "job", {"estimate": -1.0}, choices)
    with pytest.raises(CheckpointError, match="names a program"):
        parse_scheduler("./job.safetensors")
    with pytest.raises(CheckpointError, match="names a program"):
        checkpoint_of("./job.safetensors")
    assert not (tmp_path / "was-run").exists()
    assert parse_slots("./job.safetensors/./own.py:rule/none").placement.name == "./own.py:rule"  # who uses it may name one


@pytest.mark.parametrize("count", [3, OUTPUTS + 1])
def test_a_switch_has_as_many_schedulers_as_its_network_and_no_more_than_the_engine_has_room_for(tmp_path, count):
    rules = [{"bias": 1.0}] * count
    path = write_linear(tmp_path / "switch.safetensors", "switch", rules, {"schedulers": ["fcfs"] * count, "period": 0.0})
    with pytest.raises(UsageError, match=f"chooses among {count} schedulers, and 2 are given"):
        parse_scheduler(f"meta:{path}(fcfs, sjf)")
    if count > OUTPUTS:
        with pytest.raises(UsageError, match=f"at most {OUTPUTS}"):
            parse_scheduler(str(path))
    else:
        assert len(parse_scheduler(str(path)).schedulers) == count


def test_a_network_is_used_only_where_its_features_are():
    spec = NetworkSpec(len(HOST.rows), len(HOST.context), head_layers=(4,))
    with pytest.raises(UsageError, match="a job decision has"):
        network_ordering(Network.of(spec, random_arrays(spec, np.random.default_rng(0))), "hosts")


def test_checkpoints_of_both_versions_of_pick_job_are_orderings(tmp_path):
    first = write_linear(tmp_path / "v0.safetensors", "job", {"estimate": -1.0}, {"placement": "fastest"})
    second = write_linear(tmp_path / "v1.safetensors", "job", {"time_now": -1.0}, {"placement": "fastest"}, schema=JOB_TYPES)
    assert [contender(str(path)).kind.id for path in (first, second)] == ["gpuyard/PickJob-v0", "gpuyard/PickJob-v1"]
    workload, cluster = load_workload("poisson:jobs=80,gpus=96,load=1.5", seed=2), load_cluster("hetero-demo")
    plain, typed, shortest = (simulate(workload, cluster, parse_scheduler(text)) for text in (str(first), str(second), "sjf/fastest/none"))
    assert plain.table["start"].tolist() == shortest.table["start"].tolist()
    assert typed.table["start"].tolist() != plain.table["start"].tolist()
    with pytest.raises(UsageError, match="sees GPU types, and by the rules of rlscheduler there are none"):
        learned_chooser(str(second))


def test_features_of_no_version_are_refused(tmp_path):
    other = replace(JOB_TYPES, rows=(*JOB_TYPES.rows[:-1], "colour"))
    path = write_linear(tmp_path / "other.safetensors", "job", {}, {}, schema=other)
    with pytest.raises(CheckpointError, match="colour"):
        checkpoint_of(str(path))


def test_a_copy_of_a_network_has_weights_of_its_own():
    spec = NetworkSpec(3, 2, head_layers=(4,))
    network = Network.of(spec, random_arrays(spec, np.random.default_rng(0)))
    rows, context = np.ones((5, 3), np.float32), np.ones(2, np.float32)
    expected, copied = network.scores(rows, context), copy.deepcopy(network)
    network.floats[:] = np.nan  # as if the memory were used by somebody else
    assert np.array_equal(copied.scores(rows, context), expected)
    assert np.array_equal(replace(copied).scores(rows, context), expected)


@pytest.mark.parametrize("period", [10**400, float("inf"), float("nan"), "60", None])
def test_a_period_is_a_number_of_seconds(tmp_path, period):
    path = write_linear(tmp_path / "switch.safetensors", "switch", [{}, {}], {"schedulers": ["fcfs", "sjf"], "period": period})
    with pytest.raises(CheckpointError, match="not a number of seconds"):
        parse_scheduler(str(path))


@pytest.mark.parametrize("where", ["host", "sjf", "best", "deep/er", ".hidden"])
@pytest.mark.parametrize(
    "decision, slots", [("job", {"placement": "best", "backfill": "easy"}), ("host", {"ordering": "sjf", "backfill": "skip"})]
)
def test_a_path_without_a_dot_is_put_in_its_slot(tmp_path, monkeypatch, where, decision, slots):
    monkeypatch.chdir(tmp_path)
    (tmp_path / where).mkdir(parents=True)
    write_linear(tmp_path / where / "best.safetensors", decision, {}, slots)
    text = f"{where}/best.safetensors"
    label = f"./{text}/best/easy" if decision == "job" else f"sjf/./{text}/skip"
    assert learned_scheduler(text, parse_slots).label == contender(text).scheduler.label == label
    assert parse_scheduler(label).label == label


def test_a_path_without_a_dot_in_the_text_of_a_scheduler(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "host").mkdir(parents=True)
    write_linear(tmp_path / "runs" / "host" / "best.safetensors", "host", {}, {"ordering": "fcfs", "backfill": "none"})
    write_linear(tmp_path / "runs" / "job.safetensors", "job", {}, {})
    for ordering in ("fcfs", "multifactor:age=2", "runs/job.safetensors", "./runs/job.safetensors"):
        made = parse_scheduler(f"{ordering}/runs/host/best.safetensors/easy")
        assert made.placement.name == "./runs/host/best.safetensors" and made.backfill.name == "easy"
        assert parse_scheduler(made.label).label == made.label
    with pytest.raises(UsageError, match="unknown placement 'wurst'"):
        parse_scheduler("runs/job.safetensors/wurst/easy")


def test_of_a_folder_the_checkpoint_in_it_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "first").mkdir()
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        checkpoint_of("first")
    for name in ("a", "best", "last"):
        write_linear(tmp_path / "first" / f"{name}.safetensors", "job", {}, {})
    with pytest.raises(CheckpointError, match=r"'first' is a folder, not a checkpoint; hint: did you mean first/best.safetensors\?"):
        checkpoint_of("first")


def test_a_second_process_compiles_no_network_anew():
    """What an entry closes over is part of its key in numba's disk cache: a compiled function among it would miss in every process."""
    code = (
        "from gpuyard.policies import parse_scheduler\nfor name in ('meta', 'hpc', 'hosts'): parse_scheduler(f'learned:{name}').program()"
    )
    watched = """
from gpuyard.engine.compiler.diskcache import PrivateCache
found = []
load, PrivateCache.save_overload = PrivateCache.load_overload, lambda *given: print("compiled")
PrivateCache.load_overload = lambda *given: found.append(load(*given)) or found[-1]
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    again = subprocess.run(
        [sys.executable, "-c", f"{watched}{code}\nprint(len(found), None in found)"], check=True, capture_output=True, text=True
    )
    assert re.fullmatch(r"[1-9][0-9]* False\n", again.stdout)


@pytest.mark.parametrize("backfill", ["easy", "skip"])
def test_what_is_found_for_one_job_holds_for_those_that_ask_for_the_same_and_for_no_others(backfill):
    """A millionth of a MB makes each request another one, and changes nothing else: then every job is looked at for itself."""
    rng, count = np.random.default_rng(5), 300
    kinds = rng.integers(0, 6, count)
    columns = {
        "submit": np.sort(rng.uniform(0, 400, count)), "estimate": rng.uniform(10, 900, count),
        "gpus": np.array([1, 2, 4, 8, 1, 16])[kinds], "chunk": np.array([1, 2, 4, 8, 1, 8])[kinds],
        "cpus": np.array([4.0, 8.0, 8.0, 16.0, 0.0, 32.0])[kinds],
        "job_class": rng.integers(0, 2, count), "user": rng.integers(0, 5, count),
    }  # fmt: skip
    memory = np.array([8.0, 8.0, 64.0, 32.0, 0.0, 64.0])[kinds]
    nodes = [
        {"count": 12, "gpus": 8, "type": "fast", "cpus": 64, "memory": 256},
        {"count": 9, "gpus": 4, "type": "slow", "cpus": 24, "memory": 96},
    ]
    cluster = cluster_from_dict({"nodes": nodes, "types": {"fast": {"speed": 2.0}, "slow": {"speed": 0.7}}})
    labels = {"users": tuple("abcde"), "classes": ("x", "y")}
    apart = memory + 1e-9 * np.arange(count) * (memory > 0)
    made = [
        simulate(
            Workload.build({**columns, "memory": each}, columns["estimate"] * 0.8, **labels), cluster, f"learned:hpc/fewest/{backfill}"
        )
        for each in (memory, apart)
    ]
    assert made[0].table["start"].tolist() == made[1].table["start"].tolist()
    assert made[0].table["node"].tolist() == made[1].table["node"].tolist()
    assert len(set(made[0].table["start"].tolist())) > count / 2
