"""Plays episodes of environments to their ends by a rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.arrays import Array
from gpuyard.envs.base import Observation
from gpuyard.envs.opened import Opened
from gpuyard.envs.vector import EngineEnvs
from gpuyard.errors import NoChoiceError
from gpuyard.model.cluster import Cluster
from gpuyard.model.result import Result
from gpuyard.model.rules import Rules
from gpuyard.model.workload import Workload
from gpuyard.networks.network import Network

Rule = Callable[[EngineEnvs, Observation], int]


@dataclass(frozen=True)
class Played:
    """The outcome of an episode."""

    result: Result
    rewards: tuple[float, ...]  # one per choice, float32
    actions: tuple[int, ...]
    total: float  # sum of the rewards, before they were rounded


def one_episode(opened: Opened, workload: Workload, cluster: Cluster, rules: Rules | None = None) -> EngineEnvs:
    """Make a batch of one environment with one episode, recorded."""
    opened = replace(opened, recorded=True, rules=rules or Rules())
    return EngineEnvs(opened, lambda _: (workload, cluster), [0], 1, threads=1)


def play(envs: EngineEnvs, rule: Rule) -> Played | None:
    """Play the episode of the first environment by a rule; None where there is nothing to choose."""
    try:
        seen = envs.reset(0)
    except NoChoiceError:
        return None
    rewards: list[float] = []
    actions: list[int] = []
    while True:
        actions.append(rule(envs, seen))
        over = envs.choose(np.array([actions[-1]]))
        rewards.append(float(envs.reward[0]))
        if len(over):
            return Played(envs.result(0), tuple(rewards), tuple(actions), envs.counts(0)["return"])


def by_network(network: Network) -> Rule:
    """Choose the highest score among the legal actions; only legal rows are scored."""

    def rule(envs: EngineEnvs, seen: Observation) -> int:
        legal = np.flatnonzero(seen.mask[0])
        rows = seen.rows[0][legal] if envs.rows else seen.rows[0]
        scores = network.scores(rows, seen.context[0])
        return int(legal[int(np.argmax(scores))])

    return rule


def at_random(rng: np.random.Generator) -> Rule:
    """Choose any legal action, all equally likely."""
    return lambda envs, seen: int(rng.choice(np.flatnonzero(seen.mask[0])))


def jobs_in_rows(envs: EngineEnvs) -> Array:
    """Return the indices of the jobs in the rows, where a job is chosen."""
    s = envs.state(0)
    part = s.partitions[int(s.control["open_part"][0])]
    jobs: Array = s.queue_jobs[int(part["head"]) : int(part["tail"])][: envs.rows].copy()
    return jobs
