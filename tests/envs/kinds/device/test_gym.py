"""gpuyard/PickDevice-v0 follows Gymnasium."""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from gpuyard.envs.kinds.device.batch import DeviceConfig, DeviceEnvs
from gpuyard.envs.kinds.device.gym import PickDeviceEnv
from gpuyard.envs.registration import IDS, register_all
from gpuyard.errors import UsageError
from support.device_tasks import TaskEpisodes

SMALL = TaskEpisodes(jobs=12)


@pytest.fixture(autouse=True)
def ids() -> None:
    register_all()
    register_all()  # twice does no harm


@pytest.mark.parametrize("name", list(IDS))
def test_the_checker_is_content(name: str):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*is out of date")  # Gymnasium's word on every version but the last
        check_env(gym.make(name).unwrapped)


@pytest.mark.parametrize("physics", [False, True])
def test_episodes_end_and_observations_are_in_their_space(physics: bool):
    env = gym.make("gpuyard/PickDevice-v0", source=SMALL, config=DeviceConfig(physics=physics))
    seen, info = env.reset(seed=4)
    rng, lengths, length = np.random.default_rng(0), [], 0
    while len(lengths) < 3:
        assert env.observation_space.contains(seen)
        assert info["action_mask"].tolist() == seen["mask"].tolist()
        seen, reward, terminated, truncated, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
        assert reward < 0
        assert not truncated
        assert not info["illegal"]
        length += 1
        if terminated:
            lengths, length = [*lengths, length], 0
            seen, info = env.reset()
    assert lengths == [12, 12, 12]


def rollout(seed: int, episodes: int = 2) -> list[float]:
    env = gym.make("gpuyard/PickDevice-v0", source=SMALL)
    found = []
    for episode in range(episodes):
        env.reset(seed=seed if episode == 0 else None)
        done = False
        while not done:
            _, reward, done, _, _ = env.step(4)
            found.append(float(reward))
    return found


def test_seeded_and_the_next_episode_is_another():
    first = rollout(1)
    assert first == rollout(1)
    assert first != rollout(2)
    assert first[:12] != first[12:]


def test_an_illegal_action_is_told_of():
    env = gym.make("gpuyard/PickDevice-v0", source=TaskEpisodes(jobs=12, memory=type(SMALL.memory)(20, 30)))
    _, info = env.reset(seed=0)
    assert info["action_mask"].tolist() == [1, 1, 1, 1, 0, 0]
    assert env.step(5)[4]["illegal"]
    assert not env.step(0)[4]["illegal"]
    assert env.unwrapped.action_masks().tolist() == [True] * 4 + [False] * 2


def test_a_reset_in_the_middle_begins_another_episode():
    env = gym.make("gpuyard/PickDevice-v0", source=SMALL)
    first, _ = env.reset(seed=0)
    env.step(0)
    again, _ = env.reset()
    assert not np.array_equal(first["context"], again["context"])


def test_a_step_after_the_end_is_refused():
    env = gym.make("gpuyard/PickDevice-v0", source=SMALL)
    env.reset(seed=0)
    over = False
    while not over:
        over = env.step(0)[2]
    with pytest.raises(UsageError, match="the episode is over"):
        env.step(0)
    env.reset()
    assert not env.step(0)[2]


@pytest.mark.parametrize("actions", [[0], [0, 0, 0], 0])
def test_as_many_actions_as_environments(actions):
    envs = DeviceEnvs(SMALL, 2)
    envs.reset(0)
    with pytest.raises(UsageError, match="actions have the shape"):
        envs.step(np.array(actions))


def test_a_workload_and_options_as_in_the_others():
    def played(**settings) -> tuple[float, dict]:
        env = gym.make("gpuyard/PickDevice-v0", workload="tasks:jobs=10 on tasks", **settings)
        env.reset(seed=1)
        total, over = 0.0, False
        while not over:
            _, reward, over, _, info = env.step(0)
            total += float(reward)
        return total, info["episode_facts"]

    turnaround, facts = played()
    assert facts["jobs"] == 10
    assert turnaround == pytest.approx(-10 * facts["turnaround"], rel=1e-5)
    wait, same = played(objective="wait")
    assert same == facts
    assert turnaround < wait < 0
    assert played(split="test")[1] != facts


@pytest.mark.parametrize(
    "settings",
    [
        {"source": SMALL, "workload": "tasks:jobs=10 on tasks"},
        {"config": DeviceConfig(), "objective": "wait"},
        {"window": 3},
        {"render_mode": "ansi"},
        {"cluster": "tasks"},
    ],
)
def test_what_it_refuses(settings: dict):
    with pytest.raises(UsageError):
        PickDeviceEnv(**settings)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_batches_of_gymnasium_go_on_after_an_end(mode: str):
    envs = gym.make_vec("gpuyard/PickDevice-v0", num_envs=2, vectorization_mode=mode, workload="tasks:jobs=5 on tasks")
    envs.reset(seed=0)
    ended = np.array([envs.step(np.zeros(2, int))[2] for _ in range(13)])
    envs.close()
    assert np.flatnonzero(ended.all(axis=1)).tolist() == [4, 10]  # after an end, one step resets
    assert (ended.any(axis=1) == ended.all(axis=1)).all()
