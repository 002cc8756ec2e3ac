"""Policies that an experiment trains before its Runs: one task for each agent and training seed.

What comes back is the best checkpoint and the curve of its training. Locally a training goes on where it was interrupted, for its folder
lies in that of the experiment; elsewhere it starts again.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.errors import UsageError
from gpuyard.experiments.design.spec import AgentSpec, Experiment, placed
from gpuyard.model.units import shorten
from gpuyard.policies.learned import PROGRAM

if TYPE_CHECKING:
    from gpuyard.learn.run.plan import TrainingPlan


@dataclass(frozen=True)
class Trained:
    """A checkpoint file, and how it was made."""

    label: str
    checkpoint: bytes
    curve: tuple[dict[str, float], ...]  # update, steps, return, score at each validation
    objective: str
    steps: int
    seconds: float


def labels_of(experiment: Experiment) -> list[tuple[str, str, int]]:
    """List (label, agent, training seed) of all agents on the axis `schedulers`."""
    return [
        (f"{name}-{seed}", name, seed)
        for name, agent in experiment.agents.items()
        if name in experiment.axes.schedulers
        for seed in agent.seeds
    ]


@dataclass(frozen=True)
class AgentTrainer:
    """Makes the worker that trains; `folder` is where trainings are kept, if it is there."""

    agents: tuple[tuple[str, AgentSpec, int], ...]  # label, settings, training seed
    folder: str

    def __call__(self) -> AgentTrainer:
        return self

    def work(self, number: int) -> Trained:
        """Train the agent with that number."""
        label, agent, seed = self.agents[number]
        kept = Path(self.folder)
        if kept.is_dir():
            return train_agent(label, agent, seed, kept / f"{label}.training")
        with tempfile.TemporaryDirectory(prefix="gpuyard-training-") as folder:
            return train_agent(label, agent, seed, Path(folder) / label)


def train_agent(label: str, agent: AgentSpec, seed: int, folder: Path) -> Trained:
    """Train as `gpuyard train` does; Ctrl-C stops between updates and leaves a training that can be resumed."""
    from gpuyard.learn.run.training import train

    began = time.perf_counter()
    resume = (folder / "config.json").exists()
    outcome = train(_plan(label, agent, seed), folder, resume=resume, say=lambda text: None, watch=lambda trainer: None)
    if outcome.interrupted:
        raise KeyboardInterrupt
    at = outcome.progress
    return Trained(
        label, (folder / "best.safetensors").read_bytes(), tuple(at.curve), outcome.objective, at.steps, time.perf_counter() - began
    )


def _plan(label: str, agent: AgentSpec, seed: int) -> TrainingPlan:
    from gpuyard.learn.run.plan import TrainingRequest, plan_of

    flags: dict[str, Any] = {"training": {"start": agent.start or None, "steps": agent.steps, "name": label.lower()}}
    return plan_of(
        TrainingRequest(
            agent.env, agent.learner, agent.workloads, agent.cluster or None, (), agent.objective or None, seed, None, agent.settings, flags
        )
    )


def check_agents(experiment: Experiment) -> None:
    """Refuse settings that training would refuse."""
    for label, name, seed in labels_of(experiment):
        agent = experiment.agents[name]
        with placed(f"{experiment.name}: [agents.{name}]"):
            program = next((text for text in (*agent.settings, agent.start) if PROGRAM in text), "")
            if program:
                raise UsageError(f"{shorten(program)} names a program: a checkpoint that does is not run", hint="use built-in policies")
            _plan(label, agent, seed)


def trainer_of(experiment: Experiment, labels: Sequence[str], folder: Path) -> AgentTrainer:
    """Make the trainer of the agents that are not trained yet."""
    chosen = [(label, experiment.agents[name], seed) for label, name, seed in labels_of(experiment) if label in labels]
    return AgentTrainer(tuple(chosen), str(folder))
