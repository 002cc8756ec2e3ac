"""A learned rank: with a score of 0 it is the table; it is trained, judged and explained; and it gives the same bytes as plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpuyard import parse_scheduler, simulate
from gpuyard.engine.simulation import Simulation
from gpuyard.envs.kinds.base import find_env
from gpuyard.envs.reward import MIX_SECONDS
from gpuyard.errors import CheckpointError, UsageError
from gpuyard.experiments.studies.evaluation import Held, contender, evaluate
from gpuyard.experiments.studies.explaining import explain
from gpuyard.experiments.studies.judged import held_at
from gpuyard.features.ranks import RANK
from gpuyard.learn.run.plan import TrainingRequest, plan_of
from gpuyard.learn.run.training import parts_of
from gpuyard.metrics import measure
from gpuyard.model.workload import Workload
from gpuyard.networks.network import Network
from gpuyard.networks.spec import NetworkSpec
from gpuyard.policies.learned import network_rank
from gpuyard.policies.ranks import NamedTable
from gpuyard.traces.recipes import Workloads, episode_number
from support.checkpoints import write_linear

TEXT = "lublin:jobs=120,nodes=32,load=1.1[apply=preemptible:share=0.7,checkpoint=600,restart=60] on 4x8:gpu"
CHOICES = {"placement": "fewest", "table": "auto"}
WEIGHTS = {"gpus": 3.0, "wait": -6.0, "unsaved": -4.0, "user_usage": 2.0, "running": -1.0, "backlog": 1.0, "requested": 2.0, "stops": 9.0}
CHILD = "import sys; sys.path[:0] = sys.argv[1:3]; from test_rank import bytes_of; print(bytes_of(sys.argv[3], jobs=40))"


def linear(folder: Path, weights=WEIGHTS, **more) -> str:
    return str(write_linear(folder / "rank.safetensors", "rank", weights, more.pop("choices", CHOICES), workloads=[TEXT], **more))


def run(preemption: str, number: int = 0, *, jobs: int = 120):
    episode = Workloads([TEXT.replace("jobs=120", f"jobs={jobs}")]).part("test").episode(number)
    return simulate(episode.workload, episode.cluster, parse_scheduler(f"saf/fewest/easy/{preemption}"))


def bytes_of(path: str, *, jobs: int) -> str:
    return run(path, jobs=jobs).table.tobytes().hex()


@pytest.mark.parametrize("table", ["auto", "gpu"])
def test_a_score_of_0_is_the_table(tmp_path: Path, table: str):
    path = linear(tmp_path, {}, choices={**CHOICES, "table": table})
    for number in range(3):
        by_table, by_network = run(f"gittins:table={table}", number), run(path, number)
        assert by_network.table.tobytes() == by_table.table.tobytes() and by_table.table["preemptions"].sum() > 0


def test_a_network_changes_who_runs_and_nothing_where_no_job_may_be_stopped(tmp_path: Path):
    path = linear(tmp_path)
    assert not run(path).same_bytes(run("gittins"))
    episode = Workloads(["lublin:jobs=120,nodes=32,load=1.1 on 4x8:gpu"]).part("test").episode(0)
    runs = [simulate(episode.workload, episode.cluster, parse_scheduler(text)) for text in (path, "saf/fewest/easy")]
    assert runs[0].same_bytes(runs[1])


def test_interpreted_it_gives_the_same_bytes(tmp_path: Path):
    path = linear(tmp_path)
    here, support = Path(__file__).parent, Path(__file__).parents[3]
    command = [sys.executable, "-c", CHILD, str(here), str(support), path]
    done = subprocess.run(command, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == bytes_of(path, jobs=40) != run("gittins", jobs=40).table.tobytes().hex()


def test_decisions_from_snapshots_are_those_of_the_engine(tmp_path: Path):
    episode = Workloads([TEXT]).part("test").episode(0)
    scheduler = parse_scheduler(linear(tmp_path))
    whole = simulate(episode.workload, episode.cluster, scheduler)
    simulation = Simulation(episode.workload, episode.cluster, every=60.0)
    decider = scheduler.begin()
    while (snapshot := simulation.advance()) is not None:
        simulation.apply(decider.decide(snapshot))
    assert simulation.result().table.tobytes() == whole.table.tobytes()


def test_the_future_is_not_seen(tmp_path: Path):
    """Other run times of jobs that have not ended change nothing that has happened by then."""
    episode = Workloads([TEXT]).part("test").episode(0)
    scheduler = parse_scheduler(linear(tmp_path))
    first = simulate(episode.workload, episode.cluster, scheduler)
    time = float(np.quantile(first.table["end"], 0.3))
    late = first.table["end"] > time
    longer = np.where(late, episode.workload.runtime * 3.0, episode.workload.runtime)
    changed: Workload = replace(episode.workload, runtime=longer)
    again = simulate(changed, episode.cluster, scheduler)
    before = first.table["start"] <= time
    assert (first.table["start"][before] == again.table["start"][before]).all() and before.sum() > 20


def test_it_is_trained_from_the_table_judged_and_explained(tmp_path: Path):
    sets = ("env.pool=4", "env.threads=1", "learner.pairs=2", "learner.episodes=2", "learner.width=8", "training.validation_episodes=2")
    request = TrainingRequest(env="rank", learner="evolution", workloads=(TEXT,), sets=(*sets, "training.start=gittins"))
    parts = parts_of(plan_of(request))
    spec, arrays = parts.learner.network()
    assert parts.validator(spec, arrays) == parts.validator.baselines["saf/fewest/easy/gittins"] == parts.validator(spec, arrays)
    assert np.isfinite(parts.learner.update()["return"]) and parts.learner.steps > 100
    assert any(not np.array_equal(each, arrays[name]) for name, each in parts.learner.network()[1].items())

    made = contender(linear(tmp_path, objective="mix"))
    assert made.scheduler.label == f"saf/fewest/easy/{made.text}"
    [found] = evaluate([made], Held(batches=2))
    assert {line.scheduler for line in found.lines} >= {"saf/fewest/easy/gittins", "saf/fewest/easy", "saf/fewest/easy/las-log2"}
    explanation = explain(made, episodes=2)
    by_name = {feature.name: feature for feature in explanation.features}
    assert explanation.decisions > 10 and set(by_name) >= set(RANK.rows)
    assert by_name["wait"].changed > 0 and by_name["attained"].changed == by_name["attained"].worse == 0


@pytest.mark.parametrize("objective", ["mix", "p99", "bsld"])
def test_what_evolution_earns_is_what_the_metric_says(objective: str):
    kind = find_env("Rank")
    options = kind.options(objective=objective, pool=2, threads=1)
    source = Workloads([TEXT]).part("train")
    envs = kind.make(source, options, 2, 0)
    spec = NetworkSpec(len(RANK.rows), len(RANK.context), head_layers=(), value_layers=())
    network = Network.of(spec, {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()})
    [[earned, _]] = envs.rollouts(network).returns([network], [0, 1])
    episode = source.episode(episode_number(0, 0, 0))
    result = simulate(episode.workload, episode.cluster, parse_scheduler(options.by_table))
    found = measure(result, ["bsld", "turnaround", "waiting.p99"])
    expected = {"mix": found["bsld"] + found["turnaround"] / MIX_SECONDS, "p99": found["waiting.p99"], "bsld": found["bsld"]}
    assert -earned == pytest.approx(expected[objective])
    assert kind.objective_for(objective, options).measure(result) == pytest.approx(expected[objective])


SHAPES = {
    "rows.mean": (len(RANK.rows),), "rows.scale": (len(RANK.rows),), "context.mean": (len(RANK.context),),
    "context.scale": (len(RANK.context),), "head.0.weight": (1, len(RANK.rows) + len(RANK.context)), "head.0.bias": (1,),
}  # fmt: skip


def test_a_feature_held_at_a_value_is_no_longer_seen():
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    spec = NetworkSpec(len(RANK.rows), len(RANK.context), head_layers=(), value_layers=())
    network = Network.of(spec, arrays)
    rows, context = rng.normal(size=(5, len(RANK.rows))).astype(np.float32), rng.normal(size=len(RANK.context)).astype(np.float32)
    for k, of_row in ((2, True), (3, False)):
        held = Network.of(spec, held_at(network, k, of_row, 0.7))
        others = rows.copy(), context.copy()
        (others[0][:, k] if of_row else others[1][k : k + 1])[...] = 0.7
        np.testing.assert_allclose(held.scores(rows, context), network.scores(*others), rtol=1e-4, atol=1e-5)


def test_what_does_not_fit_is_refused_in_a_line(tmp_path: Path):
    path = linear(tmp_path)
    with pytest.raises(UsageError, match="orders and backfills by itself"):
        parse_scheduler(f"sjf/fewest/easy/{path}")
    job = write_linear(tmp_path / "job.safetensors", "job", {"estimate": -1.0}, {"placement": "fewest", "backfill": "none"})
    with pytest.raises(UsageError, match="decides about a job, not about a rank"):
        parse_scheduler(f"saf/fewest/easy/{job}")
    with pytest.raises(UsageError, match="decides about a rank, not about a job"):
        parse_scheduler(f"{path}/fewest/easy")
    with pytest.raises(UsageError, match="unknown table of run times 'nowhere'"):
        parse_scheduler(linear(tmp_path, choices={**CHOICES, "table": "nowhere"}))
    with pytest.raises(CheckpointError, match="not the name of a policy"):
        parse_scheduler(linear(tmp_path, choices={**CHOICES, "table": 3}))
    pooled = NetworkSpec(len(RANK.rows), len(RANK.context), head_layers=(), value_layers=(), pool="mean")
    shapes = {**SHAPES, "head.0.weight": (1, 2 * len(RANK.rows) + len(RANK.context))}
    network = Network.of(pooled, {name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    with pytest.raises(UsageError, match="pools over jobs; hint: --network kernel"):
        network_rank(network, "pooled", NamedTable("hpc"))


def test_nothing_can_be_stepped():
    kind = find_env("gpuyard/Rank-v0")
    envs = kind.make(Workloads([TEXT]).part("train"), kind.options(pool=1), 2, 0)
    with pytest.raises(UsageError, match="whole episodes, not step by step; hint: --learner evolution"):
        envs.reset(0)
    jobs = find_env("PickJob")
    with pytest.raises(UsageError, match="objective p99: .*; hint: take evolution"):
        jobs.make(Workloads([TEXT]).part("train"), jobs.options(objective="p99", pool=1), 1, 0).reset(0)
