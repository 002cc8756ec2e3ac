"""The environments follow Gymnasium: alone, in its own batches, and in ours."""

from __future__ import annotations

import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from gpuyard.envs.gym import SchedulingEnv, VectorGym
from gpuyard.envs.kinds.base import find_env
from gpuyard.envs.registration import IDS, register_all
from gpuyard.errors import GpuyardError, UnknownNameError, UsageError

ENGINE = [name for name in IDS if "PickDevice" not in name]
SMALL = {
    "gpuyard/PickJob-v0": {"workload": "lublin:jobs=40,nodes=16,load=1.2 on 2x8:gpu", "window": 8},
    "gpuyard/PickJob-v1": {"workload": "poisson:jobs=40,gpus=96,load=0.8 on hetero-demo", "window": 8},
    "gpuyard/PickHost-v0": {"workload": "eda:jobs=60,arrivals=1:3 on hosts:count=5,seed=1"},
    "gpuyard/Switch-v0": {"workload": "family:shape=bursty,gpus=4 on 4", "schedulers": ["fcfs", "sjf", "edf"], "every": 600.0},
    "gpuyard/Switch-v1": {
        "workload": "family:variant=gang,shape=bursty,gpus=4 on 4",
        "schedulers": ["fcfs", "sjf", "edf"],
        "every": 600.0,
    },
}


@pytest.fixture(autouse=True)
def ids() -> None:
    register_all()
    register_all()  # twice does no harm


def small(name: str, **more):
    return gym.make(name, **SMALL[name], **more)


@pytest.mark.parametrize("name", list(IDS))
def test_the_checker_is_content(name: str):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*is out of date")  # Gymnasium's word on every version but the last
        check_env(gym.make(name).unwrapped)


@pytest.mark.parametrize("name", ENGINE)
def test_the_ids_are_those_of_the_kinds(name: str):
    assert find_env(name).id == name


def random_episode(env, seed: int | None, rng: np.random.Generator) -> tuple[list, dict]:
    """Everything that is seen in an episode of random legal choices, and the last info."""
    seen, info = env.reset(seed=seed)
    found, over = [seen], False
    while not over:
        assert env.observation_space.contains(seen)
        assert seen["mask"].any()
        assert info["action_mask"].tolist() == seen["mask"].tolist() == env.unwrapped.action_masks().tolist()
        seen, reward, over, truncated, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
        assert not truncated
        assert not info["illegal"]
        found += [seen, np.array([reward])]
    assert env.observation_space.contains(seen)
    return found, info


def as_bytes(found: list) -> bytes:
    return b"".join(part.tobytes() for each in found for part in (each.values() if isinstance(each, dict) else [each]))


@pytest.mark.parametrize("name", ENGINE)
def test_the_seed_alone_decides(name: str):
    def played(env, seed):
        return as_bytes(random_episode(env, seed, np.random.default_rng(0))[0])

    env = small(name)
    first, second, following = played(env, 1), played(env, 2), played(env, None)
    other = small(name)
    assert played(other, 2) == second  # whatever came before
    assert played(other, None) == following
    assert played(other, 1) == first
    assert len({first, second, following}) == 3


@pytest.mark.parametrize("name", ENGINE)
def test_a_reset_in_the_middle_begins_the_next_episode(name: str):
    env, other = small(name), small(name)
    env.reset(seed=3)
    env.step(0)
    other.reset(seed=3)
    assert as_bytes([env.reset()[0]]) == as_bytes([other.reset()[0]])


@pytest.mark.parametrize("name", ENGINE)
def test_facts_at_the_end(name: str):
    env = small(name)
    for seed in range(3):
        found, info = random_episode(env, seed, np.random.default_rng(seed))
        facts = info["episode_facts"]
        metric = env.unwrapped.envs.opened.objective.metric
        assert facts["jobs"] == len(env.unwrapped.envs.episode(0)[0])
        assert np.isfinite(facts[metric])
        assert facts["illegal"] == 0
        assert facts["choices"] == (len(found) - 1) / 2
        assert facts["return"] == pytest.approx(sum(float(r[0]) for r in found[2::2]), rel=1e-4)
        assert facts["number"] >= 0
        assert all(part.tobytes() == found[-4 if len(found) > 3 else 0][key].tobytes() for key, part in found[-2].items())


def test_an_illegal_action_is_the_first_legal_one():
    env, other = small("gpuyard/PickJob-v0"), small("gpuyard/PickJob-v0")
    seen, info = env.reset(seed=0)
    other.reset(seed=0)
    told = 0
    for _ in range(30):
        wrong = np.flatnonzero(info["action_mask"] == 0)
        action = int(wrong[-1]) if len(wrong) else 0
        seen, reward, over, _, info = env.step(action)
        again, reward_again, _, _, info_again = other.step(int(np.flatnonzero(other.unwrapped.action_masks())[0]))
        told += info["illegal"]
        assert info["illegal"] == bool(len(wrong))
        assert not info_again["illegal"]
        assert as_bytes([seen]) == as_bytes([again])
        assert reward == reward_again
        if over:
            break
    assert told > 0


@pytest.mark.parametrize("action", [-1, 10**6])
def test_an_action_out_of_range_is_an_illegal_one(action: int):
    env = small("gpuyard/Switch-v0").unwrapped
    env.reset(seed=0)
    assert env.step(action)[4]["illegal"]


# ── batches ──


@pytest.mark.parametrize("name", list(IDS))
def test_batches_of_gymnasium(name: str):
    envs = gym.make_vec(name, num_envs=2, vectorization_mode="sync")
    seen, _ = envs.reset(seed=0)
    for _ in range(5):
        seen, reward, *_ = envs.step(envs.action_space.sample())
    assert envs.observation_space.contains(seen)
    assert reward.shape == (2,)


@pytest.mark.parametrize("name", ENGINE)
def test_batches_of_ours(name: str):
    envs = gym.make_vec(name, num_envs=6, vectorization_mode="vector_entry_point", pool=8, **SMALL[name])
    assert isinstance(envs, VectorGym)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    seen, info = envs.reset(seed=4)
    rng, ends = np.random.default_rng(0), 0
    for _ in range(700):
        last = seen
        assert envs.observation_space.contains(seen)
        assert (info["action_mask"] == seen["mask"]).all()
        seen, reward, terminated, truncated, info = envs.step([rng.choice(np.flatnonzero(mask)) for mask in seen["mask"]])
        assert reward.dtype == np.float64
        assert terminated.dtype == truncated.dtype == bool
        assert not truncated.any()
        assert not info["illegal"].any()
        assert ("final_obs" in info) == terminated.any()
        for e in np.flatnonzero(terminated):
            ends += 1
            assert all((part == last[key][e]).all() for key, part in info["final_obs"][e].items())
    assert ends > 2


class InTurn:
    """A source for one environment: the episodes that environment `env` of a batch has, one after the other."""

    def __init__(self, source, batch: VectorGym, seed: int, env: int) -> None:
        self._source, self._numbers, self._draw, self._turn = source, batch.envs._numbers, (seed, env), 0

    def episode(self, number: int):
        which = int(np.random.default_rng([*self._draw, self._turn]).integers(len(self._numbers)))
        self._turn += 1
        return self._source.episode(self._numbers[which])


def one_by_one(name: str, batch: VectorGym, seed: int) -> gym.vector.SyncVectorEnv:
    """Gymnasium's own batch of single environments that have the episodes of ours."""

    def made(env: int):
        found = SchedulingEnv(name, **SMALL[name])
        found.source = InTurn(found.source, batch, seed, env)
        return found

    return gym.vector.SyncVectorEnv([lambda e=e: made(e) for e in range(batch.num_envs)], autoreset_mode=AutoresetMode.SAME_STEP)


def assert_same(one, other, where: str = "") -> None:
    """Alike to the last key, mask and value, the dtypes of arrays too; but for the numbers of episodes."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one.keys() - {"number"}:
            assert_same(one[key], other[key], f"{where}/{key}")
    elif isinstance(one, np.ndarray) and one.dtype == object:
        for a, b in zip(one, other, strict=True):
            assert_same(a, b, where)
    elif one is None or other is None:
        assert one is other, where
    else:
        assert one.dtype == other.dtype and one.tolist() == other.tolist(), where


@pytest.mark.parametrize("name", ENGINE)
def test_a_batch_says_what_single_environments_say(name: str):
    envs = VectorGym(name, num_envs=3, pool=4, **SMALL[name])
    alone = one_by_one(name, envs, 5)
    (seen, info), (other, other_info) = envs.reset(seed=5), alone.reset(seed=5)
    assert_same(info, other_info)
    rng, ends = np.random.default_rng(1), 0
    while ends < 6:
        assert_same(seen, other)
        actions = rng.integers(0, envs.single_action_space.n, 3)  # illegal ones too
        numbers = [envs.envs.number(e) for e in range(3)]
        seen, reward, terminated, _, info = envs.step(actions)
        other, other_reward, other_terminated, _, other_info = alone.step(actions)
        assert reward.tolist() == other_reward.tolist() and terminated.tolist() == other_terminated.tolist()
        assert_same(info, other_info)
        for e in np.flatnonzero(terminated):
            facts = info["final_info"]["episode_facts"]
            assert facts["number"][e] == numbers[e] and facts["_number"][e]
        ends += int(terminated.sum())


def test_a_batch_without_facts_measures_nothing():
    envs = VectorGym("PickHost", num_envs=2, pool=2, facts=False, **SMALL["gpuyard/PickHost-v0"])
    envs.reset(seed=0)
    info: dict = {}
    while "final_info" not in info:
        *_, info = envs.step(np.zeros(2, int))
    assert set(info["final_info"]) == {"action_mask", "_action_mask", "illegal", "_illegal"}
    assert not envs.envs.opened.recorded


@pytest.mark.parametrize("name", ENGINE)
def test_a_batch_is_seeded_whatever_the_number_of_threads(name: str):
    def played(threads: int, seeds: tuple[int, ...]) -> list[bytes]:
        envs = VectorGym(name, num_envs=7, pool=8, threads=threads, **SMALL[name])
        found = []
        for seed in seeds:
            steps = [envs.reset(seed=seed)[0]]
            for _ in range(120):
                seen, reward, *_ = envs.step(
                    steps[-1]["mask"].argmax(1) if len(steps) % 2 else steps[-1]["mask"].shape[1] - 1 + np.zeros(7)
                )
                steps.append({**seen, "reward": reward})
            found.append(as_bytes(steps))
        return found

    first, second = played(1, (1, 2))
    assert first != second
    assert played(2, (2, 1)) == [second, first]
    assert played(7, (1,)) == [first]


def test_a_batch_goes_on_without_a_seed():
    envs = VectorGym("PickJob", num_envs=3, pool=8, **SMALL["gpuyard/PickJob-v0"])
    first = envs.reset(seed=0)[0]
    following = envs.reset()[0]
    assert as_bytes([first]) != as_bytes([following])
    assert as_bytes([envs.reset(seed=0)[0]]) == as_bytes([first])
    assert as_bytes([envs.reset()[0]]) == as_bytes([following])


def test_the_statistics_of_gymnasium_work_on_a_batch():
    made = gym.make_vec("gpuyard/PickHost-v0", num_envs=4, vectorization_mode="vector_entry_point", pool=4, **SMALL["gpuyard/PickHost-v0"])
    envs = gym.wrappers.vector.RecordEpisodeStatistics(made)
    envs.reset(seed=0)
    found = []
    while len(found) < 4:
        *_, terminated, _, info = envs.step(np.zeros(4, int))
        found += info["episode"]["r"][terminated].tolist() if terminated.any() else []
    assert all(value < 0 for value in found)


# ── refused ──

REFUSED = {
    "option": ({"windw": 3}, UnknownNameError, "did you mean 'window'"),
    "workload": ({"workload": "lubln:jobs=10 on 8"}, GpuyardError, "lubln"),
    "cluster alone": ({"cluster": "8"}, UsageError, "a cluster without a workload"),
    "no cluster": ({"workload": "family"}, UsageError, "no cluster"),
    "split": ({"split": "trian"}, UnknownNameError, "did you mean 'train'"),
    "render mode": ({"render_mode": "movie"}, UnknownNameError, "ansi, rgb_array"),
    "backfill": ({"backfill": "conservative"}, UsageError, "no conservative backfilling"),
    "depth": ({"backfill": "easy:depth=3"}, UsageError, "backfill has no depth"),
    "window": ({"window": 0}, UsageError, "does not lie in 1..100,000"),
    "gamma": ({"gamma": 1.5}, UsageError, "does not lie in (0, 1]"),
    "pool": ({"pool": 0}, UsageError, "at least one of each"),
    "baseline": ({"baseline": "milp"}, UsageError, "give one that is compiled"),
    "no choices": ({"workload": "lublin:jobs=1,nodes=16 on 2x8:gpu"}, GpuyardError, "without a choice"),
}


@pytest.mark.parametrize("settings, kind, words", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused(settings: dict, kind: type[Exception], words: str):
    with pytest.raises(kind) as refusal, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gym.make("gpuyard/PickJob-v0", **settings).reset(seed=0)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_what_else_is_refused():
    with pytest.raises(UsageError, match="backfill is none or skip"):
        gym.make("gpuyard/PickHost-v0", backfill="easy")
    with pytest.raises(UsageError, match="1 schedulers to choose from"):
        gym.make("gpuyard/Switch-v0", schedulers=["fcfs"])
    with pytest.raises(UsageError, match="call reset first"):
        gym.make("gpuyard/Switch-v0").unwrapped.step(0)
    with pytest.raises(UsageError, match="share one seed"):
        VectorGym("Switch", num_envs=2, pool=2).reset(seed=[1, 2])
    with pytest.raises(UsageError, match="all clusters of one environment need the same number"):
        env = gym.make("gpuyard/PickHost-v0", workload="eda:jobs=60,arrivals=1:3 on hosts:count=5,seed=1|hosts:count=6,seed=1")
        for seed in range(20):
            env.reset(seed=seed)
    with pytest.raises(UsageError, match="all environments of a batch need the same number"):
        VectorGym("PickHost", workload="eda:jobs=60,arrivals=1:3 on hosts:count=5,seed=1|hosts:count=6,seed=1", num_envs=2, pool=4)


# ── where there is nothing to choose ──


@pytest.mark.parametrize("name", ENGINE)
def test_a_step_after_the_end_is_refused(name: str):
    env = small(name)
    for _ in range(2):
        _, facts = random_episode(env, 3, np.random.default_rng(0))
        for _ in range(2):
            with pytest.raises(UsageError, match=r"the episode is over: call reset\(\)"):
                env.step(0)
        assert facts["episode_facts"]["choices"] == env.unwrapped.envs.counts(0)["choices"]


@pytest.mark.parametrize("name", list(IDS))
def test_a_step_before_the_first_reset_is_refused(name: str):
    env = gym.make(name).unwrapped
    with pytest.raises(UsageError, match="no episode has begun"):
        env.step(0)
    with pytest.raises(UsageError, match="no episode has begun"):
        env.envs.step(np.zeros(1, np.int32))


def test_many_before_the_first_reset():
    envs = VectorGym("PickJob", 3, pool=2, **SMALL["gpuyard/PickJob-v0"])
    for ask in (lambda: envs.step(np.zeros(3, int)), envs.action_masks, lambda: envs.envs.choose(np.zeros(3, int))):
        with pytest.raises(UsageError, match="no episode has begun"):
            ask()


@pytest.mark.parametrize("actions", [0, [0, 0], [[0, 0, 0]], [0, 0, 0, 0]])
def test_as_many_actions_as_environments(actions):
    envs = VectorGym("PickJob", 3, pool=2, **SMALL["gpuyard/PickJob-v0"])
    envs.reset(seed=0)
    with pytest.raises(UsageError, match="actions have the shape"):
        envs.step(np.array(actions))


def test_the_id_may_name_the_module():
    """Gymnasium then imports it."""
    code = "import gymnasium; print(gymnasium.make('gpuyard.envs.registration:gpuyard/PickJob-v0', window=8).action_space.n)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "8", done.stderr
    assert "out of date" not in done.stderr  # v1 sees more than v0, it does not replace it
