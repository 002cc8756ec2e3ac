"""A client nobody here wrote: Stable-Baselines3 trains on every environment as it is."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from gpuyard.envs.registration import IDS, register_all

stable_baselines3 = pytest.importorskip("stable_baselines3", reason="stable_baselines3 is not installed")


@pytest.fixture(autouse=True)
def ids() -> None:
    register_all()


@pytest.mark.parametrize("name", list(IDS))
def test_its_checker_is_content(name: str):
    from stable_baselines3.common.env_checker import check_env

    check_env(gym.make(name).unwrapped, warn=True, skip_render_check=True)


@pytest.mark.parametrize("name", list(IDS))
def test_ppo_trains(name: str):
    model = stable_baselines3.PPO("MultiInputPolicy", gym.make(name), n_steps=64, batch_size=32, n_epochs=2, seed=0, device="cpu")
    before = [p.detach().clone() for p in model.policy.parameters()]
    model.learn(256)
    assert model.num_timesteps == 256
    assert all(np.isfinite(p.detach().numpy()).all() for p in model.policy.parameters())
    assert any((a != b).any() for a, b in zip(before, model.policy.parameters(), strict=True))


@pytest.mark.parametrize("name", list(IDS))
def test_dqn_trains(name: str):
    sizes = {"learning_starts": 50, "buffer_size": 1000, "batch_size": 32, "target_update_interval": 50}
    model = stable_baselines3.DQN("MultiInputPolicy", gym.make(name), **sizes, seed=0, device="cpu")
    model.learn(300)
    assert model.num_timesteps == 300
    assert all(np.isfinite(p.detach().numpy()).all() for p in model.policy.parameters())


def test_masked_ppo_chooses_what_is_legal_alone():
    contrib = pytest.importorskip("sb3_contrib", reason="sb3_contrib is not installed")
    env = gym.make("gpuyard/PickJob-v0", window=16)
    model = contrib.MaskablePPO("MultiInputPolicy", env, n_steps=64, batch_size=32, n_epochs=2, seed=0, device="cpu")
    model.learn(256)
    seen, _ = env.reset(seed=1)
    for _ in range(50):
        action, _ = model.predict(seen, action_masks=env.unwrapped.action_masks())
        seen, _, over, _, info = env.step(action)
        assert not info["illegal"]
        if over:
            break
