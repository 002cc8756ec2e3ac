"""A policy gradient in plain PyTorch learns which waiting job goes next, and becomes a scheduler.

Needs torch and gpuyard[learn]. Three minutes on one core:

python examples/agent_torch.py --out agent.safetensors
gpuyard compare demo --scheduler ./agent.safetensors --scheduler sjf/fewest/easy --scheduler fcfs/fewest/easy
"""

import argparse

import gymnasium as gym
import numpy as np
import torch

from gpuyard import parse_scheduler, simulate
from gpuyard.envs.registration import register_all
from gpuyard.networks.export import export_network

ENV = "gpuyard/PickJob-v0"
SETTINGS = {
    "workload": "demo:jobs=400,days=1,load=0.95 on 16x8:a100", "backfill": "easy", "objective": "wait", "window": 64,
    "baseline": "fcfs/fewest/easy", "bonus": False,
}  # fmt: skip


def network(width: int = 32) -> torch.nn.Sequential:
    """Score one job from its features and those of the queue; the same network is applied to each waiting job."""
    tanh, linear = torch.nn.Tanh, torch.nn.Linear
    return torch.nn.Sequential(linear(8 + 9, width), tanh(), linear(width, width), tanh(), linear(width, 1))


def logits(policy: torch.nn.Module, seen: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return a score for each row, (n, rows), very low where the mask is 0."""
    rows, context = seen["rows"], seen["context"]
    both = torch.cat([rows, context[:, None, :].expand(-1, rows.shape[1], -1)], -1)
    return policy(both)[..., 0].masked_fill(seen["mask"] == 0, -1e9)


def tensors(seen: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.as_tensor(part) for name, part in seen.items()}


def train(steps: int, count: int = 64, rollout: int = 64) -> tuple[torch.nn.Sequential, dict[str, np.ndarray], gym.vector.VectorEnv]:
    """Proximal policy optimisation (Schulman et al. 2017) with a value that sees the queue alone."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # networks this small are slower on several
    env = gym.make_vec(ENV, num_envs=count, vectorization_mode="vector_entry_point", facts=False, pool=128, **SETTINGS)
    policy, value = network(), torch.nn.Sequential(torch.nn.Linear(9, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=1e-3)
    now, _ = env.reset(seed=0)
    for update in range(max(1, steps // (count * rollout))):
        kept, rewards, ends = [], [], []
        for _ in range(rollout):
            with torch.no_grad():
                chances = torch.distributions.Categorical(logits=logits(policy, tensors(now)))
            action = chances.sample()
            kept.append((tensors(now), action, chances.log_prob(action)))
            now, reward, over, _, _ = env.step(action.numpy())
            rewards.append(reward)
            ends.append(over)
        seen = {name: torch.cat([each[0][name] for each in kept]) for name in kept[0][0]}
        action, before = (torch.cat([each[k] for each in kept]) for k in (1, 2))
        with torch.no_grad():
            values = value(seen["context"])[..., 0].numpy().reshape(rollout, count)
            last = value(torch.as_tensor(now["context"]))[..., 0].numpy()
        gain = advantages(np.array(rewards), np.array(ends), values, last).reshape(-1)
        target = torch.as_tensor(gain + values.reshape(-1), dtype=torch.float32)
        gain = torch.as_tensor((gain - gain.mean()) / (gain.std() + 1e-8), dtype=torch.float32)
        for part in [part for _ in range(4) for part in torch.randperm(len(action)).split(1024)]:
            chances = torch.distributions.Categorical(logits=logits(policy, {name: each[part] for name, each in seen.items()}))
            ratio = (chances.log_prob(action[part]) - before[part]).exp()
            clipped = torch.minimum(ratio * gain[part], ratio.clamp(0.8, 1.2) * gain[part])
            error = (value(seen["context"][part])[..., 0] - target[part]) ** 2
            loss = (0.5 * error - clipped - 0.003 * chances.entropy()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if update % 20 == 0:
            print(f"update {update}: mean reward {np.mean(rewards):.5f}", flush=True)
    return policy, now, env


def advantages(rewards: np.ndarray, ends: np.ndarray, values: np.ndarray, last: np.ndarray, discount: float = 0.995) -> np.ndarray:
    """Return generalised advantage estimates with λ = 0.95, (steps, envs)."""
    found, running, following = np.zeros_like(rewards), np.zeros(len(last)), last
    for t in reversed(range(len(rewards))):
        goes_on = 1.0 - ends[t]
        running = rewards[t] + discount * following * goes_on - values[t] + discount * 0.95 * goes_on * running
        found[t], following = running, values[t]
    return found


def same_choices(policy: torch.nn.Module, file: str, seeds: range = range(3)) -> None:
    """Play episodes with torch, simulate the same ones with the file: each job must start at the same instant."""
    env = gym.make(ENV, split="validation", **{**SETTINGS, "backfill": "none", "window": 400}).unwrapped  # all that wait are in sight
    for seed in seeds:
        now, info = env.reset(seed=seed)
        over, choices = False, 0
        while not over:
            with torch.no_grad():
                action = int(logits(policy, tensors({name: part[None] for name, part in now.items()}))[0].argmax())
            now, _, over, _, info = env.step(action)
            choices += 1
        episode = env.source.episode(info["episode_facts"]["number"])
        result = simulate(episode.workload, episode.cluster, parse_scheduler(f"{file}/fewest/none"))
        same = (env.envs.result(0).table["start"] == result.table["start"]).sum()
        print(f"episode {seed}: {choices} choices by torch; {same} of {len(result.table)} jobs start at the same instant in the engine")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--out", default="agent.safetensors")
    given = parser.parse_args()
    register_all()
    policy, now, env = train(given.steps)
    with torch.no_grad():
        scores = logits(policy, tensors(now))
    export_network(
        given.out, policy.state_dict(), env.purpose, act="tanh", seen=now, scores=scores, title="PPO in plain PyTorch", steps=given.steps
    )
    same_choices(policy, given.out)
    print(f"{given.out} is a scheduler: gpuyard compare demo --scheduler {given.out}")
