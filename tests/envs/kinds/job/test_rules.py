"""Whole episodes by several rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuyard.compat.rlscheduler.rules import rlscheduler
from gpuyard.engine.simulation import simulate
from gpuyard.envs.kinds.base import find_env
from gpuyard.envs.kinds.job.kind import PickJob
from gpuyard.envs.kinds.job.rules import RULES, SeveralRules, WholeEpisodes, run_by
from gpuyard.errors import UnknownNameError, UsageError
from gpuyard.features.jobs import JOB
from gpuyard.learn.evolution import Evolution, EvolutionConfig, initial
from gpuyard.metrics import measure
from gpuyard.networks.network import Network
from gpuyard.networks.spec import NetworkSpec
from gpuyard.policies import parse_slots
from gpuyard.policies.learned import network_ordering
from gpuyard.traces.recipes import Workloads

TEXT = "lublin:jobs=96,nodes=64,load=1.0 on 64"
SPEC = NetworkSpec(len(JOB.rows), len(JOB.context), head_layers=(8,))
NAMES = ("none", "easy", "rlscheduler", "rlscheduler-easy")


def envs(rules: tuple[str, ...] = NAMES, **more: object) -> WholeEpisodes:
    options = PickJob(rules=rules, pool=3, baseline="sjf", **more)  # type: ignore[arg-type]
    made = find_env("PickJob").make(Workloads([TEXT]).part("train"), options, 4, 0)
    assert isinstance(made, WholeEpisodes)
    return made


def test_returns_are_the_share_of_the_baseline_that_is_saved() -> None:
    batch, network = envs(), Network.of(SPEC, initial(SPEC, 1))
    found = batch.rollouts(network).returns([network], range(12)).reshape(3, 4)
    scheduler = replace(parse_slots("fcfs/fewest/none"), ordering=network_ordering(network, "x"))
    sjf = parse_slots("sjf/fewest/none")
    for e, episode in enumerate(batch._made):
        for r, name in enumerate(NAMES):
            ours = measure(run_by(name, episode, scheduler, 0), ["bsld"])["bsld"]
            compatible = RULES[name].compatible
            theirs = run_by(name, episode, sjf, 0) if compatible else simulate(*episode, sjf)
            assert found[e, r] == pytest.approx(1 - ours / measure(theirs, ["bsld"])["bsld"], rel=1e-9, abs=1e-12)


def test_returns_do_not_depend_on_the_number_of_threads() -> None:
    batch, networks = envs(), [Network.of(SPEC, initial(SPEC, seed)) for seed in range(5)]

    def found(threads: int) -> tuple[bytes, int]:
        judge = batch.rollouts(networks[0], threads=threads)
        return judge.returns(networks, range(12)).tobytes(), judge.asked

    assert found(1) == found(2) == found(4)


def test_rules_by_name_run_what_they_say() -> None:
    episode = Workloads([TEXT]).part("test").episode(0)
    pair = episode.workload, episode.cluster
    sjf = parse_slots("sjf/fewest/none")
    for name, backfill in (("rlscheduler", False), ("rlscheduler-easy", True)):
        assert run_by(name, pair, sjf, 0) == rlscheduler(episode.workload, 64, "sjf", backfill=backfill)
    assert run_by("easy", pair, sjf, 0).same_bytes(simulate(*pair, parse_slots("sjf/fewest/easy")))


def test_such_environments_cannot_be_stepped() -> None:
    batch = envs(("rlscheduler",))
    with pytest.raises(UsageError, match="as a whole"):
        batch.reset(0)
    with pytest.raises(UsageError, match="as a whole"):
        batch.step(np.zeros(4, np.int32))


def test_refuses_what_the_rules_do_not_know() -> None:
    with pytest.raises(UnknownNameError, match="rules 'eazy'"):
        PickJob(rules=("eazy",))
    network = Network.of(SPEC, initial(SPEC, 1))
    with pytest.raises(UnknownNameError, match="balanced|missed|capped"):
        envs(("rlscheduler",), objective="balanced").rollouts(network)


class Counted:
    """A judge whose return of episode e is 10 e + its own number."""

    def __init__(self, number: int, episodes: int) -> None:
        self.number, self.episodes, self.asked = number, episodes, 0

    def __len__(self) -> int:
        return self.episodes

    def returns(self, networks: object, episodes: list[int]) -> np.ndarray:
        self.asked += len(episodes)
        return np.array([[10.0 * e + self.number for e in episodes]])


def test_each_episode_is_run_by_each_of_the_rules() -> None:
    judge = SeveralRules([Counted(0, 5), Counted(1, 4), Counted(2, 5)])
    assert len(judge) == 12
    network = Network.of(SPEC, initial(SPEC, 1))
    assert judge.returns([network], [7, 0, 5, 11]).tolist() == [[21.0, 0.0, 12.0, 32.0]]
    assert judge.asked == 4
    judge.asked = 0
    assert judge.asked == 0


def test_evolution_begins_with_a_score_and_gets_better() -> None:
    batch = envs(("rlscheduler",))
    config = EvolutionConfig(pairs=6, episodes=3, width=8, sigma=0.1, learning_rate=0.05, first=("estimate=-1", "gpus=-1"), averaging=0.5)
    learner = Evolution(batch, config, 0)
    first = Network.of(*learner.network())
    area = NetworkSpec(SPEC.rows, SPEC.context, head_layers=())
    arrays = dict(initial(area, 0))
    arrays["head.0.weight"] = np.zeros((1, area.rows + area.context), np.float32)
    arrays["head.0.weight"][0, [JOB.rows.index("estimate"), JOB.rows.index("gpus")]] = -1
    judge = batch.rollouts(first)
    began, plain = judge.returns([first, Network.of(area, arrays)], range(3)).mean(axis=1)
    assert began == pytest.approx(plain, abs=0.3)  # but for the small random weights
    for _ in range(15):
        learner.update()
    assert batch.rollouts(first).returns([Network.of(*learner.network())], range(3)).mean() > began
    again = Evolution(batch, config, 0)
    again.restore({name: array.copy() for name, array in learner.save().items()})
    learner.update()
    again.update()
    for name, array in learner.network()[1].items():
        assert np.array_equal(array, again.network()[1][name])


def test_a_score_to_begin_with_must_be_of_features() -> None:
    batch = envs(("rlscheduler",))
    with pytest.raises(UnknownNameError, match="runtime"):
        Evolution(batch, EvolutionConfig(first=("runtime=-1",)), 0)
    with pytest.raises(UsageError, match="FEATURE=NUMBER"):
        Evolution(batch, EvolutionConfig(first=("estimate=short",)), 0)
    with pytest.raises(UsageError, match="network=kernel|features of rows"):
        Evolution(batch, EvolutionConfig(first=("estimate=-1",), network="attention"), 0)


@pytest.mark.parametrize("objective", ["wait", "slowdown", "turnaround"])
def test_every_objective_of_jobs_is_known_in_the_compatibility_mode(objective: str) -> None:
    batch, network = envs(("rlscheduler",), objective=objective), Network.of(SPEC, initial(SPEC, 1))
    found = batch.rollouts(network).returns([network], [0])[0, 0]
    scheduler = replace(parse_slots("fcfs"), ordering=network_ordering(network, "x"))
    ours, theirs = (
        measure(run_by("rlscheduler", batch._made[0], each, 0), [objective])[objective] for each in (scheduler, parse_slots("sjf"))
    )
    assert found == pytest.approx(1 - ours / theirs, rel=1e-9, abs=1e-12)
