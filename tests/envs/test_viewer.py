"""Pictures of environments."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from gpuyard.envs.kinds.job.kind import PickJob
from gpuyard.envs.registration import register_all
from gpuyard.envs.viewer import COLUMNS, EnvView, as_picture, as_text
from gpuyard.testing.strategies import random_case
from support.playing import at_random, one_episode, play

NAMES = ("gpuyard/PickJob-v0", "gpuyard/PickHost-v0", "gpuyard/Switch-v0")


def after(name: str, steps: int, mode: str):
    register_all()
    env = gym.make(name, render_mode=mode)
    _, info = env.reset(seed=2)
    for _ in range(steps):
        *_, over, _, info = env.step(int(np.flatnonzero(info["action_mask"])[0]))
        if over:
            break
    return env


@pytest.mark.parametrize("steps", [0, 40, 10**6])
@pytest.mark.parametrize("name", NAMES)
def test_text(name: str, steps: int):
    env = after(name, steps, "ansi")
    text = env.render()
    lines = text.splitlines()
    assert all(len(line) <= COLUMNS for line in lines)
    assert ("the episode is over" in text) == (steps == 10**6)
    jobs = len(env.unwrapped.envs.episode(0)[0])
    assert f"of {jobs} jobs over" in lines[0]


def test_the_choosable_jobs_are_marked():
    env = after("gpuyard/PickJob-v0", 60, "ansi")
    scene = EnvView.of(env.unwrapped.envs, 0)
    assert [w.choosable for w in scene.waiting] == env.unwrapped.action_masks()[: len(scene.waiting)].tolist()
    assert env.render().count("▸") == sum(w.choosable for w in scene.waiting)


def test_the_choosable_hosts_are_marked():
    env = after("gpuyard/PickHost-v0", 60, "ansi")
    mask = env.unwrapped.action_masks()
    marked = [line.split()[0].startswith("▸") for line in env.render().splitlines() if line.strip().lstrip("▸").startswith("n")]
    assert marked[: len(mask)] == mask.tolist()


@pytest.mark.parametrize("name", NAMES)
def test_picture(name: str):
    before, later = (after(name, steps, "rgb_array").render() for steps in (0, 50))
    assert before.dtype == np.uint8
    assert before.shape == later.shape == (560, 1000, 3)
    assert (before != later).any()
    assert len(np.unique(later.reshape(-1, 3), axis=0)) > 5


def test_without_a_mode_there_is_none():
    register_all()
    env = gym.make("gpuyard/PickJob-v0")
    env.reset(seed=0)
    assert env.unwrapped.render() is None


@pytest.mark.parametrize("seed", range(12))
def test_anything_can_be_drawn(seed: int):
    """Shares, pools, nodes without devices, partitions, outages."""
    case = random_case(seed + 40)
    envs = one_episode(PickJob().left_open(), case.workload, case.cluster, case.rules)
    rng, drawn = np.random.default_rng(seed), 0

    def rule(envs, seen):
        nonlocal drawn
        scene = EnvView.of(envs, 0)
        assert all(len(line) <= COLUMNS for line in as_text(scene).splitlines())
        use = scene.use(np.linspace(scene.since, scene.now + 1, 20))
        assert ((use >= 0) & (use <= 1)).all()
        if drawn == 0:
            as_picture(scene)
        drawn += 1
        return at_random(rng)(envs, seen)

    played = play(envs, rule)
    assert (played is None) == (drawn == 0)


def test_the_log_grows():
    """More runs than a new log has room for."""
    register_all()
    env = gym.make("gpuyard/PickJob-v0", workload="lublin:jobs=1500,nodes=16,load=1.0 on 2x8:gpu", window=8)
    env.reset(seed=0)
    over = False
    while not over:
        over = env.step(0)[2]
    result = env.unwrapped.envs.result(0)
    assert set(result.segments["job"]) == set(range(1500))
    held = (result.segments["gpus"] * (result.segments["end"] - result.segments["start"])).sum()
    assert held == pytest.approx(result.table["gpu_seconds"].sum())


def words_of(scene: EnvView, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Every text of a picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    figures = []
    draw = FigureCanvasAgg.draw

    def kept(canvas: FigureCanvasAgg) -> None:
        figures.append(canvas.figure)
        draw(canvas)

    monkeypatch.setattr(FigureCanvasAgg, "draw", kept)
    as_picture(scene)
    return {text.get_text() for text in figures[0].findobj(Text)}


def test_shares_in_use_have_a_scale(monkeypatch: pytest.MonkeyPatch):
    env = after("gpuyard/PickHost-v0", 60, "rgb_array").unwrapped
    assert {"0 %", "50 %", "100 %", "in use, of the scarcest of GPUs, cores and memory"} <= words_of(EnvView.of(env.envs, 0), monkeypatch)


@pytest.mark.parametrize(("name", "unit"), [("gpuyard/PickJob-v0", "GPUs"), ("gpuyard/PickHost-v0", "cores")])
@pytest.mark.parametrize("steps", [40, 10**6])
def test_the_unit_does_not_change_when_nobody_waits(name: str, unit: str, steps: int, monkeypatch: pytest.MonkeyPatch):
    scene = EnvView.of(after(name, steps, "rgb_array").unwrapped.envs, 0)
    words = words_of(scene, monkeypatch)
    assert ("no job waits" in words) == (steps == 10**6)
    assert words & {"GPUs", "cores"} == {unit}
