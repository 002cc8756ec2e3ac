"""Rules by which whole episodes with an open ordering are run: those of gpuyard, or of the RLScheduler paper's simulator, with and without
backfilling. A policy that is judged by several of them learns to do without any one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NoReturn

import numpy as np

from gpuyard.arrays import Array
from gpuyard.compat.rlscheduler.networks import learned_chooser
from gpuyard.compat.rlscheduler.rules import RLSCHEDULER_ORDERINGS, Chooser, columns, rlscheduler, run
from gpuyard.engine.rows.sums import SHORT
from gpuyard.engine.simulation import simulate
from gpuyard.engine.slots import BACKFILLS as BACKFILL_CODES
from gpuyard.envs.base import Instance, Judge, Observation, Step
from gpuyard.envs.opened import Opened
from gpuyard.envs.rollout import Rollouts
from gpuyard.envs.threads import map_on_threads
from gpuyard.envs.vector import EngineEnvs
from gpuyard.errors import UsageError
from gpuyard.model.result import Result
from gpuyard.model.workload import Workload
from gpuyard.networks.network import Network
from gpuyard.policies import Scheduler
from gpuyard.policies.slots import BACKFILLS
from gpuyard.registry import unknown_name


@dataclass(frozen=True)
class RuleSet:
    """Whose rules, and which backfilling."""

    backfill: str
    compatible: bool = False  # those of the compatibility mode: a counter of processors, a committed head, …


RULES: Mapping[str, RuleSet] = MappingProxyType(
    {
        "none": RuleSet("none"), "skip": RuleSet("skip"), "easy": RuleSet("easy"),
        "rlscheduler": RuleSet("none", compatible=True), "rlscheduler-easy": RuleSet("easy", compatible=True),
    }
)  # fmt: skip


def check_rules(names: Sequence[str]) -> None:
    """Refuse an unknown name."""
    for name in names:
        if name not in RULES:
            raise unknown_name("rules", name, list(RULES))


def run_by(rules: str, episode: Instance, scheduler: Scheduler, seed: int) -> Result:
    """The episode by these rules: the scheduler's ordering, and for gpuyard's own rules its placement."""
    found, (workload, cluster) = RULES[rules], episode
    if found.compatible:
        ordering = scheduler.ordering
        chosen = learned_chooser(ordering.network) if isinstance(ordering.network, Network) else ordering.name
        return rlscheduler(workload, int(cluster.gpus), chosen, backfill=found.backfill != "none")
    return simulate(workload, cluster, replace(scheduler, backfill=BACKFILLS[found.backfill]), seed=seed)


# ── what happened in the compatibility mode, in the terms of objectives ──


def _slowdown(wait: Array, runtime: Array) -> Array:
    zero = (runtime == 0).astype(float)  # a job that takes no time counts as one of a second, as in the metric
    slowdown: Array = (wait + runtime + zero) / (runtime + zero)
    return slowdown


TERMS: Mapping[str, Callable[[Array, Array], Array]] = MappingProxyType(
    {
        "bsld": lambda wait, runtime: np.maximum((wait + runtime) / np.maximum(runtime, SHORT), 1.0),
        "slowdown": _slowdown,
        "wait": lambda wait, runtime: wait,
        "queue_time": lambda wait, runtime: wait,  # in all, it is the same
        "turnaround": lambda wait, runtime: wait + runtime,
    }
)


class CompatibleRollouts:
    """Whole episodes by the rules of the compatibility mode; a return is minus the objective, as a share of the baseline's, plus one."""

    def __init__(self, episodes: Sequence[Instance], weights: Mapping[str, float], baseline: str, *, backfill: bool, threads: int) -> None:
        for name, weight in weights.items():
            if weight and name not in TERMS:
                raise unknown_name("term of an objective by the rules of rlscheduler:", name, list(TERMS))
        self._weights = {name: weight for name, weight in weights.items() if weight}
        self._backfill = backfill
        self._threads = max(threads, 1)
        self._pool = [(columns(workload, int(cluster.gpus)), int(cluster.gpus)) for workload, cluster in episodes]
        self._scales = [self._scale(workload, int(cluster.gpus), baseline) for workload, cluster in episodes]
        self.asked = 0

    def _scale(self, workload: Workload, processors: int, baseline: str) -> tuple[float, float]:
        if not baseline:
            return 1.0 / max(len(workload), 1), 0.0
        ordering = baseline.partition("/")[0]
        if ordering not in RLSCHEDULER_ORDERINGS:
            raise unknown_name("baseline by the rules of rlscheduler:", ordering, RLSCHEDULER_ORDERINGS)
        found = rlscheduler(workload, processors, ordering, backfill=self._backfill)
        paid = self._paid(found.table["start"] - workload.jobs.submit, workload.runtime)
        return (1.0 / abs(paid), 1.0 if paid < 0 else -1.0) if paid else (1.0, 0.0)

    def _paid(self, wait: Array, runtime: Array) -> float:
        return sum(weight * float(TERMS[name](wait, runtime).sum()) for name, weight in self._weights.items())

    def __len__(self) -> int:
        return len(self._pool)

    def returns(self, networks: Sequence[Network], episodes: Sequence[int]) -> Array:
        """(networks, episodes)."""
        tasks = [(learned_chooser(network), episode) for network in networks for episode in episodes]
        found = map_on_threads(lambda task: self._run(*task), tasks, self._threads)
        self.asked += sum(asked for _, asked in found)
        return np.array([value for value, _ in found]).reshape(len(networks), len(episodes))

    def _run(self, chooser: Chooser, episode: int) -> tuple[float, int]:
        pristine, processors = self._pool[episode]
        jobs = pristine.copy()
        asked = run(jobs, processors, chooser, backfill=self._backfill)
        scale, bonus = self._scales[episode]
        return self._paid(jobs["start"] - jobs["submit"], jobs["run"]) * scale + bonus, asked


class SeveralRules:
    """Each episode by each of several rules: number e × judges + j is episode e by the j-th."""

    def __init__(self, judges: Sequence[Judge]) -> None:
        self._judges = tuple(judges)
        self._before = 0

    @property
    def asked(self) -> int:
        """How often networks were asked in all."""
        return self._before + sum(judge.asked for judge in self._judges)

    @asked.setter
    def asked(self, value: int) -> None:
        for judge in self._judges:
            judge.asked = 0
        self._before = value

    def __len__(self) -> int:
        return len(self._judges) * min(len(judge) for judge in self._judges)

    def returns(self, networks: Sequence[Network], episodes: Sequence[int]) -> Array:
        """(networks, episodes)."""
        found = np.zeros((len(networks), len(episodes)))
        numbers = np.asarray(episodes)
        for j, judge in enumerate(self._judges):
            mine = np.flatnonzero(numbers % len(self._judges) == j)
            if len(mine):
                found[:, mine] = judge.returns(networks, (numbers[mine] // len(self._judges)).tolist())
        return found


class WholeEpisodes(EngineEnvs):
    """Environments whose episodes can only be run as a whole, by each of several rules."""

    def __init__(
        self, opened: Opened, source: Callable[[int], Instance], seeds: Sequence[int], count: int, rules: tuple[str, ...], baseline: str, *,
        threads: int,
    ) -> None:  # fmt: skip
        super().__init__(opened, source, seeds, 1, threads=1)
        self.count = count
        self.rules = rules
        self._baseline = baseline
        self._threads = threads

    def reset(self, seed: int) -> Observation:
        self._refuse()

    def step(self, actions: Array) -> Step:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UsageError(f"rules {', '.join(self.rules)}: episodes are run as a whole", hint="train with --learner evolution")

    def rollouts(self, like: Network, *, threads: int = 0) -> Judge:
        """Make rollouts under every rule, judged together."""
        return SeveralRules([self._judge(RULES[name], like, threads or self._threads) for name in self.rules])

    def _judge(self, rules: RuleSet, like: Network, threads: int) -> Judge:
        opened = self.opened
        if rules.compatible:
            weights, backfill = opened.objective.weights, rules.backfill != "none"
            return CompatibleRollouts(self._made, weights, self._baseline, backfill=backfill, threads=threads)
        slot = replace(opened.program.slots[0], backfill=BACKFILL_CODES[rules.backfill])
        return Rollouts(replace(opened, program=replace(opened.program, slots=(slot,))), self._made, like, threads=threads)
