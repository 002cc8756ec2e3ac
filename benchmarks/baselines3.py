"""How many steps a second Stable-Baselines3 learns from on the same environments, one by one as it takes them.

    python benchmarks/baselines3.py [--steps N]

Prints one JSON object: PPO on PickHost (50 hosts, two epochs) and DQN on Switch (one update per 4 steps), with its own MultiInputPolicy of
two layers of 32. Needs stable_baselines3; a process of its own, so that it may be another interpreter than that of the other benchmarks.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import gymnasium as gym
import stable_baselines3
import torch
from gymnasium import Env
from stable_baselines3.common.env_util import make_vec_env

from gpuyard.envs.registration import register_all

LAYERS = {"net_arch": [32, 32]}


def vectorised(name: str, count: int, workload: str, **options: Any) -> Any:
    """`count` environments one after the other in this process: its fastest way for steps this short."""

    def made() -> Env[Any, Any]:
        return gym.make(name, workload=workload, disable_env_checker=True, **options)

    return make_vec_env(made, n_envs=count, seed=0)


def rate(model: Any, steps: int) -> float:
    """Steps a second after a warm-up."""
    model.learn(steps // 4)
    began = time.perf_counter()
    before = model.num_timesteps
    model.learn(steps, reset_num_timesteps=False)
    return float((model.num_timesteps - before) / (time.perf_counter() - began))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=16_000)
    parser.add_argument("--hosts", default="")
    parser.add_argument("--family", default="")
    given = parser.parse_args()
    register_all()
    torch.set_num_threads(1)  # networks this small are slower on several
    common: dict[str, Any] = {"policy": "MultiInputPolicy", "policy_kwargs": LAYERS, "seed": 0, "device": "cpu"}
    hosts = vectorised("gpuyard/PickHost-v0", 16, given.hosts)
    ppo = stable_baselines3.PPO(env=hosts, n_steps=256, batch_size=256, n_epochs=2, **common)
    switch = vectorised("gpuyard/Switch-v0", 4, given.family)
    dqn = stable_baselines3.DQN(
        env=switch, train_freq=1, gradient_steps=1, learning_starts=500, buffer_size=50_000, batch_size=64, **common
    )
    sys.stdout.write(json.dumps({"ppo": rate(ppo, given.steps), "dqn": rate(dqn, given.steps)}) + "\n")


if __name__ == "__main__":
    main()
