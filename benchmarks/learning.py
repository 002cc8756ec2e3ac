"""How fast environments are stepped and learners learn: everything in one run, with the same work done plainly beside it.

    python benchmarks/learning.py [--quick]

`bench.py` puts these lines into its page. Stable-Baselines3 is measured beside ours where it is installed; SB3_PYTHON may name another
interpreter that has it. Each speed is the median of some repetitions after a warm-up; compiling is not in it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numba
import numpy as np

from gpuyard.envs.base import Instance
from gpuyard.envs.kinds.job.kind import OpenOrdering
from gpuyard.envs.opened import Opened
from gpuyard.envs.rollout import Rollouts
from gpuyard.envs.vector import EngineEnvs
from gpuyard.learn.evolution import initial
from gpuyard.learn.parts.presets import network_for
from gpuyard.learn.run.plan import TrainingRequest, plan_of
from gpuyard.learn.run.training import parts_of
from gpuyard.model.cluster_file import load_cluster
from gpuyard.networks.network import Network
from gpuyard.policies import parse_scheduler
from gpuyard.traces import load_workload
from latency import in_numpy

HERE = Path(__file__).resolve().parent
JOBS = ("lublin:jobs=256,nodes=256,load=1.0,requests=exact", "32x8:gpu")
HOSTS = "eda:jobs=400,arrivals=0.6:1.6,requests=exact on hosts:count=50,cores=16:32,memory=64:256,seed={seed}"
FAMILY = "family:shape=base|bursty|diurnal|shifted_diurnal,intensity=low|medium|high,gpus=2|4|8|16 on {gpus}"
ENVS, WINDOW = 256, 128


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def random_legal(mask: Any, draws: Any, out: Any) -> None:
    """One of the legal actions of each environment, each as likely; `draws`: large random numbers."""
    for e in range(len(mask)):
        legal = 0
        for a in range(mask.shape[1]):
            legal += mask[e, a]
        left = draws[e] % legal
        a = left  # there are at least so many before it
        for b in range(left):
            left -= mask[e, b]
        while left > 0 or not mask[e, a]:
            left -= mask[e, a]
            a += 1
        out[e] = a


def job_episode(seed: int) -> Instance:
    return load_workload(JOBS[0], seed), load_cluster(JOBS[1])


def median_rate(task: Callable[[], int], repetitions: int) -> float:
    """Units a second: `task` returns how many it did."""
    task()
    rates = []
    for _ in range(repetitions):
        began = time.perf_counter()
        done = task()
        rates.append(done / (time.perf_counter() - began))
    return statistics.median(rates)


def job_steps(threads: int) -> Callable[[], int]:
    """Steps of 256 environments with random legal choices, choosing included."""
    opened = Opened(OpenOrdering(), parse_scheduler("fcfs/fewest/none").program(), window=WINDOW)
    envs = EngineEnvs(opened, job_episode, range(1_000_000, 1_000_128), ENVS, threads=threads)
    seen = envs.reset(0)
    rng = np.random.default_rng(0)
    actions = np.zeros(ENVS, np.int32)

    def steps() -> int:
        nonlocal seen
        draws = rng.integers(0, 1 << 30, (200, ENVS))
        for k in range(200):
            random_legal(seen.mask, draws[k], actions)
            seen = envs.step(actions).observation
        return 200 * ENVS

    return steps


def plain_job_steps() -> Callable[[], int]:
    """The same environment one by one behind Gymnasium's own vector class."""
    import gymnasium as gym

    from gpuyard.envs.registration import register_all

    register_all()
    made = [lambda: gym.make("gpuyard/PickJob-v0", workload=f"{JOBS[0]} on {JOBS[1]}", disable_env_checker=True) for _ in range(16)]
    envs = gym.vector.SyncVectorEnv(made)
    seen, _ = envs.reset(seed=0)
    rng = np.random.default_rng(0)
    actions = np.zeros(16, np.int32)

    def steps() -> int:
        nonlocal seen
        for _ in range(50):
            random_legal(seen["mask"] > 0, rng.integers(0, 1 << 30, 16), actions)
            seen, *_ = envs.step(actions)
        return 50 * 16

    return steps


def learner_steps(env: str, learner: str, workload: str, *sets: str) -> Callable[[], int]:
    """Choices that a learner makes and learns from, environments and all."""
    settings = tuple(f"training.{text}" if text.startswith(("envs", "steps", "validation")) else text for text in sets)
    request = TrainingRequest(env=env, learner=learner, workloads=(workload,), sets=(*settings, "training.validation_episodes=1"))
    agent = parts_of(plan_of(request)).learner

    def steps() -> int:
        before = agent.steps
        while agent.steps - before < 16_000:
            agent.update()
        return agent.steps - before

    return steps


def evolution_choices() -> Callable[[], int]:
    """Choices by networks inside the engine."""
    opened = Opened(OpenOrdering(), parse_scheduler("fcfs/fewest/none").program())
    spec = network_for(OpenOrdering.schema, WINDOW, "kernel", width=16)
    networks = [Network.of(spec, initial(spec, seed)) for seed in range(4)]
    rollouts = Rollouts(opened, [job_episode(seed) for seed in range(1_000_000, 1_000_016)], networks[0])

    def choices() -> int:
        before = rollouts.asked
        rollouts.returns(networks, range(16))
        return rollouts.asked - before

    return choices


def plain_choices() -> Callable[[], int]:
    """The same choices outside of the engine: the Gymnasium environment, and the network in numpy."""
    import gymnasium as gym

    from gpuyard.envs.registration import register_all

    register_all()
    env = gym.make("gpuyard/PickJob-v0", workload=f"{JOBS[0]} on {JOBS[1]}", disable_env_checker=True)
    spec = network_for(OpenOrdering.schema, WINDOW, "kernel", width=16)
    best = in_numpy(spec, initial(spec, 0))
    seen, _ = env.reset(seed=0)

    def choices() -> int:
        nonlocal seen
        for _ in range(500):
            legal = np.flatnonzero(seen["mask"])
            seen, _, over, _, _ = env.step(np.int64(legal[best(seen["rows"][legal], seen["context"])]))
            if over:
                seen, _ = env.reset()
        return 500

    return choices


def baselines3(steps: int) -> dict[str, float]:
    """Steps a second of Stable-Baselines3's learners, where it is installed: here, or for the interpreter that SB3_PYTHON names."""
    interpreter = sys.executable if find_spec("stable_baselines3") else os.environ.get("SB3_PYTHON", "")
    if not interpreter:
        return {}
    script = [interpreter, str(HERE / "baselines3.py"), "--steps", str(steps), "--hosts", HOSTS.format(seed=1), "--family", FAMILY]
    paths = os.pathsep.join([str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(script, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


Found = tuple[str, str, str, str]  # what, measured, target, note


def times(ours: float, theirs: float | None, who: str) -> str:
    """A note: how many times as fast; empty where there is nothing to compare with."""
    return f"{who}: {theirs:,.0f}, {ours / theirs:,.0f} × as many here" if theirs else ""


def env_lines(repetitions: int) -> list[Found]:
    both, one = median_rate(job_steps(2), repetitions), median_rate(job_steps(1), repetitions)
    plain = median_rate(plain_job_steps(), repetitions) if find_spec("gymnasium") else None
    what = f"PickJob: {ENVS} environments, window {WINDOW} × 8, random legal choices"
    note = "; ".join(filter(None, (f"one thread: {one:,.0f}", times(both, plain, "behind Gymnasium's SyncVectorEnv, one by one"))))
    return [(what, f"{both:,.0f} steps/s", "≥ 2,000,000 steps/s", note)]


def learner_lines(repetitions: int) -> list[Found]:
    host = learner_steps("PickHost", "ppo", HOSTS, "env.pool=64", "envs=256", "learner.network=host", "learner.epochs=2")
    ppo = median_rate(host, repetitions)
    meta = learner_steps("Switch", "dqn", FAMILY, "env.pool=96", "envs=64", "learner.steps_per_update=4", "learner.double=true")
    dqn = median_rate(meta, repetitions)
    theirs = baselines3(2_000 * repetitions)
    who = "Stable-Baselines3's, environments one by one"
    return [
        (
            "PPO end to end: PickHost, 50 hosts, about 2,500 weights, two epochs", f"{ppo:,.0f} steps/s", "≥ 15,000 steps/s",
            times(ppo, theirs.get("ppo"), who),
        ),
        (
            "DQN end to end: Switch, one update per 4 steps", f"{dqn:,.0f} steps/s", "≥ 8,000 steps/s",
            times(dqn, theirs.get("dqn"), who),
        ),
    ]  # fmt: skip


def evolution_lines(repetitions: int) -> list[Found]:
    ours = median_rate(evolution_choices(), repetitions)
    plain = median_rate(plain_choices(), repetitions) if find_spec("gymnasium") else None
    note = times(ours, plain, "with Gymnasium and the network in numpy")
    return [("evolution strategies: choices by networks inside the engine", f"{ours:,.0f} choices/s", "≥ 3,000,000 choices/s", note)]


def lines(repetitions: int = 5) -> list[Found]:
    """Everything, as `bench.py` takes it."""
    return [*env_lines(repetitions), *learner_lines(repetitions), *evolution_lines(repetitions)]


def main() -> None:
    for what, measured, target, note in lines(2 if "--quick" in sys.argv else 5):
        print(f"{what:75} {measured:>22}   {target:22} {note}")


if __name__ == "__main__":
    main()
