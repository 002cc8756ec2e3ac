"""PPO of Stable-Baselines3 learns which scheduler to use when, and becomes a scheduler itself.

Needs stable_baselines3 and gpuyard[learn]. Half a minute on one core:

python examples/agent_baselines3.py --out switch.safetensors
gpuyard compare demo --scheduler ./switch.safetensors --scheduler sjf/fewest/easy --scheduler fcfs/fewest/easy
"""

import argparse

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from gpuyard import parse_scheduler, simulate
from gpuyard.envs.registration import register_all
from gpuyard.networks.export import export_network

SETTINGS = {
    "workload": "demo:jobs=400,days=1,load=0.95 on 16x8:a100", "schedulers": ("fcfs/fewest/easy", "sjf/fewest/easy", "saf/fewest/easy"),
    "every": 600.0, "objective": "wait", "baseline": "fcfs/fewest/easy", "bonus": False,
}  # fmt: skip


def made(split: str = "train") -> gym.Env:
    return gym.make("gpuyard/Switch-v0", split=split, disable_env_checker=True, **SETTINGS)


def scores(model: PPO, seen: dict[str, np.ndarray]) -> torch.Tensor:
    """Return what the policy says to observations, (n, schedulers): logarithms of chances, up to a constant."""
    with torch.no_grad():
        tensors, _ = model.policy.obs_to_tensor(seen)
        latent = model.policy.mlp_extractor.forward_actor(model.policy.extract_features(tensors))
        return model.policy.action_net(latent)


def same_choices(model: PPO, file: str, seeds: range = range(3)) -> None:
    """Play episodes with Stable-Baselines3, simulate the same ones with the file: each job must start at the same instant."""
    env = made("validation").unwrapped
    for seed in seeds:
        now, info = env.reset(seed=seed)
        over, choices = False, []
        while not over:
            action, _ = model.predict(now, deterministic=True)
            now, _, over, _, info = env.step(int(action))
            choices.append(int(action))
        episode = env.source.episode(info["episode_facts"]["number"])
        result = simulate(episode.workload, episode.cluster, parse_scheduler(file))
        same = (env.envs.result(0).table["start"] == result.table["start"]).sum()
        counts = np.bincount(choices, minlength=len(env.options.schedulers)).tolist()
        print(f"episode {seed}: choices {counts}; {same} of {len(result.table)} jobs start at the same instant in the engine")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--out", default="switch.safetensors")
    given = parser.parse_args()
    register_all()
    torch.set_num_threads(1)  # networks this small are slower on several
    envs = make_vec_env(made, n_envs=8, seed=0)
    model = PPO(
        "MultiInputPolicy", envs, policy_kwargs={"net_arch": [32, 32]}, n_steps=256, batch_size=256, n_epochs=4, seed=0, device="cpu"
    )
    model.learn(given.steps)
    env = made()
    seen = {name: np.stack([part]) for name, part in env.reset(seed=1)[0].items()}
    export_network(
        given.out, model.policy.state_dict(), env.unwrapped.purpose, act="tanh",
        layers=("mlp_extractor.policy_net", "action_net"),  # the value function stays behind
        inputs=tuple(env.observation_space),  # context, mask: side by side in this order
        seen=seen, scores=scores(model, seen), title="PPO of Stable-Baselines3", steps=model.num_timesteps,
    )  # fmt: skip
    same_choices(model, given.out)
    print(f"{given.out} is a scheduler: gpuyard compare demo --scheduler {given.out}")
