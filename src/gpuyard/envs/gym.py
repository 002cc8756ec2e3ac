"""The environments as Gymnasium knows them: one at a time, or many in one compiled call.

`gpuyard/PickJob-v0` and `-v1`, `gpuyard/PickHost-v0`, `gpuyard/Switch-v0` and `gpuyard/PickDevice-v0` take the options of their kind (see
its folder in `gpuyard.envs.kinds`) and `workload`, `cluster` and `split` (see `gpuyard.traces.recipes`):

    gymnasium.make("gpuyard/PickJob-v0", workload="family:shape=bursty on 8", window=32, objective="wait")
    gymnasium.make_vec("gpuyard/PickJob-v0", num_envs=256, vectorization_mode="vector_entry_point")
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from gpuyard.arrays import Array
from gpuyard.envs.base import Observation, check_actions, no_episode
from gpuyard.envs.kinds.base import EnvKind, find_env
from gpuyard.envs.kinds.engine import make_envs
from gpuyard.envs.vector import EngineEnvs
from gpuyard.errors import NoChoiceError, UsageError
from gpuyard.features.schema import Schema
from gpuyard.registry import unknown_name
from gpuyard.traces.recipes import EpisodeSource, Workloads, episode_number
from gpuyard.traces.splits import check_split

Seen = dict[str, Array]
LIMIT = 16.0  # log2 of a float32 is at most 128, and is divided by 16 or more; a spread is a quarter of at most 64; all else is at most 1
MOST_EMPTY = 1000  # episodes in a row without a choice


def space_of(kind: EnvKind, schema: Schema, rows: int, actions: int) -> spaces.Dict:
    """Return the space of `rows` (rows, features), if there are any, `context` (features,) and `mask` (actions,)."""
    parts: dict[str, gym.Space[Any]] = {}
    if rows:
        limit = np.tile(_limits(kind, schema.rows), (rows, 1))
        parts["rows"] = spaces.Box(-limit, limit, dtype=np.float32)
    limit = _limits(kind, schema.context)
    return spaces.Dict({**parts, "context": spaces.Box(-limit, limit, dtype=np.float32), "mask": spaces.MultiBinary(actions)})


def _limits(kind: EnvKind, names: Sequence[str]) -> Array:
    return np.array([np.finfo(np.float32).max if name in kind.unbounded else LIMIT for name in names], np.float32)


class OneEnv(gym.Env[Seen, np.int64]):
    """One environment at a time. `info["action_mask"]` (actions,) int8 says what may be chosen, as `mask` in the observation does.

    The seed given to `reset` decides the episode and all that follow it; a reset without one begins the next. An action that may not be
    chosen counts as the first that may, and `info["illegal"]` is true. After the last choice of an
    episode nothing is open any more, and the observation stays as it was.
    """

    def __init__(self, kind: EnvKind, schema: Schema, rows: int, actions: int) -> None:
        self.action_space = spaces.Discrete(actions)
        self.observation_space: gym.Space[Any] = space_of(kind, schema, rows, actions)
        self._seen: Observation | None = None
        self._over = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        if seed is None and self._seen is None:
            seed = int(self.np_random.integers(2**31))
        self._seen = self._next() if seed is None else self._first(seed)
        self._over = False
        return self._copy(), {"action_mask": self._copy()["mask"]}

    def step(self, action: np.int64) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """Choose `action`; after the end of an episode there must be a reset."""
        mask = self.action_masks()
        if self._over:
            raise UsageError("the episode is over: call reset()")
        illegal = not (0 <= int(action) < len(mask) and bool(mask[int(action)]))
        last = self._copy()
        reward, facts = self._choose(int(action))
        self._over = bool(facts)
        seen = last if facts else self._copy()
        info = {"action_mask": seen["mask"].copy(), "illegal": illegal}
        return seen, reward, bool(facts), False, info | ({"episode_facts": facts} if facts else {})

    def action_masks(self) -> Array:
        """Return (actions,) bool, as sb3-contrib's maskable learners ask for it."""
        mask: Array = self._shown().mask[0].copy()
        return mask

    @abstractmethod
    def _first(self, seed: int) -> Observation:
        """Begin the first episode of a seed."""

    @abstractmethod
    def _next(self) -> Observation:
        """Begin the next episode."""

    @abstractmethod
    def _choose(self, action: int) -> tuple[float, dict[str, Any]]:
        """Choose; returns the reward, and facts about the episode if it is over."""

    def _shown(self) -> Observation:
        if self._seen is None:
            raise no_episode()
        return self._seen

    def _copy(self) -> Seen:
        seen = self._shown()
        rows = {"rows": seen.rows[0].copy()} if seen.rows.shape[1] else {}
        return {**rows, "context": seen.context[0].copy(), "mask": seen.mask[0].astype(np.int8)}


# ── on the engine ──


def options_of(kind: EnvKind, settings: Mapping[str, Any]) -> Any:
    """Return the options of a kind with these settings, lists as tuples."""
    names = [field.name for field in dataclasses.fields(kind.options)]
    for name in settings:
        if name not in names:
            raise unknown_name(f"option of {kind.id}:", name, [*names, "workload", "cluster", "split"])
    return kind.options(**{name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()})


def texts_of(kind: EnvKind, workload: str | Sequence[str]) -> list[str]:
    """Return the texts of workloads; the kind's own where none is given."""
    texts = [workload] if isinstance(workload, str) else list(workload)
    return [text for text in texts if text] or [kind.workload or kind.example]


def source_of(kind: EnvKind, workload: str | Sequence[str], cluster: str, split: str) -> EpisodeSource:
    """Return the source of episodes."""
    if cluster and not workload:
        raise UsageError(f"{kind.id}: a cluster without a workload", hint="give workload=… too")
    return Workloads(texts_of(kind, workload), cluster).part(check_split(split))


class SchedulingEnv(OneEnv):
    """A simulation with one decision left open; a new workload for every episode. `settings` are the options of the kind.

    At the end `info["episode_facts"]` has the value of the objective's metric under its name, `jobs`, `choices`, `illegal` (choices),
    `return` and `number`, that of the episode in the source. `purpose` is what `gpuyard.networks.export` must know about a network that
    was trained here.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}

    def __init__(
        self,
        kind: str,
        workload: str | Sequence[str] = "",
        cluster: str = "",
        split: str = "train",
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise unknown_name("render mode", render_mode, self.metadata["render_modes"])
        self.kind = find_env(kind)
        self.render_mode = render_mode
        self.source = source_of(self.kind, workload, cluster, split)
        self.options = options_of(self.kind, settings)
        self.purpose = self.kind.purpose(self.options, texts_of(self.kind, workload), cluster, self.source)
        self._opened = dataclasses.replace(self.options.left_open(), recorded=True)
        self._seed, self._number, self._turn = 0, 0, 0
        self.envs = self._made(0)  # a batch of one, with the episode that is under way
        super().__init__(self.kind, self.envs.schema, self.envs.rows, self.envs.actions)

    def render(self) -> Any:
        """Return a text of at most 100 columns, or a picture (height, width, 3) u1; None without a render mode."""
        if self.render_mode is None:
            return None
        from gpuyard.envs import viewer

        self._shown()
        return viewer.RENDERERS[self.render_mode](viewer.EnvView.of(self.envs, 0, getattr(self.options, "schedulers", ())))

    def _made(self, number: int) -> EngineEnvs:
        episode = self.source.episode(number)
        return EngineEnvs(self._opened, lambda _: (episode.workload, episode.cluster), [number], 1, threads=1)

    def _first(self, seed: int) -> Observation:
        self._seed, self._turn = seed, -1
        return self._next()

    def _next(self) -> Observation:
        for _ in range(MOST_EMPTY):
            self._turn += 1
            self._number = episode_number(self._seed, 0, self._turn)
            self.envs = self._made(self._number)
            if self.envs.actions != int(self.action_space.n):  # type: ignore[attr-defined]
                what = f"an episode with {self.envs.actions} hosts, the first had {self.action_space.n}"  # type: ignore[attr-defined]
                raise UsageError(f"{self.source.text}: {what}", hint="all clusters of one environment need the same number")
            try:
                return self.envs.reset(0)
            except NoChoiceError:
                continue
        raise NoChoiceError(f"{self.source.text}: {MOST_EMPTY} episodes in a row without a choice", hint="raise its load")

    def _choose(self, action: int) -> tuple[float, dict[str, Any]]:
        over = len(self.envs.choose(np.array([action])))
        return float(self.envs.reward[0]), self.envs.facts(0) if over else {}


class VectorGym(VectorEnv[Seen, Array, Array]):
    """`num_envs` simulations that are stepped in one compiled call, over a pool of `pool` episodes (an option of the kind).

    A seed decides which episodes come in which order. Where an episode ends, the next one begins in the same step, and as Gymnasium has
    it `info["final_obs"]` has the observation before the last choice, which stands at the end, and `info["final_info"]` what one
    environment has in its info at the end, `episode_facts` too. Without `facts` these are left out and nothing is recorded for them,
    which is faster. The arrays are copies.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}

    def __init__(
        self,
        kind: str,
        num_envs: int = 1,
        workload: str | Sequence[str] = "",
        cluster: str = "",
        split: str = "train",
        facts: bool = True,
        **settings: Any,
    ) -> None:
        self.kind = find_env(kind)
        self._facts = facts
        source, options = source_of(self.kind, workload, cluster, split), options_of(self.kind, settings)
        self.purpose = self.kind.purpose(options, texts_of(self.kind, workload), cluster, source)
        made = make_envs(source, options, num_envs, 0, recorded=facts)
        self.envs = made
        self.num_envs = num_envs
        self.single_action_space = spaces.Discrete(made.actions)
        self.single_observation_space = space_of(self.kind, made.schema, made.rows, made.actions)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._seen: Seen = {}

    def reset(self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Begin the first episodes of the seed, or the next ones."""
        if isinstance(seed, list):
            raise UsageError("the environments of a batch share one seed", hint="give a single number")
        super().reset(seed=seed)
        if seed is None and not self._seen:
            seed = int(self.np_random.integers(2**31))
        self._seen = self._copy(self.envs.skip() if seed is None else self.envs.reset(seed))
        return self._seen, {"action_mask": self._seen["mask"], "_action_mask": np.ones(self.num_envs, bool)}

    def step(self, actions: Array) -> tuple[Seen, Array, Array, Array, dict[str, Any]]:
        """Choose `actions` (num_envs,)."""
        last = self._shown()
        check_actions(actions, self.num_envs)
        chosen = np.asarray(actions).astype(np.int64)
        legal = last["mask"][np.arange(self.num_envs), np.clip(chosen, 0, self.envs.actions - 1)].astype(bool)
        illegal = ~legal | (chosen < 0) | (chosen >= self.envs.actions)
        over = self.envs.choose(chosen)
        reward, info = self.envs.reward.astype(np.float64), self._final(over, last, illegal)
        done = np.zeros(self.num_envs, bool)
        if len(over):
            done[over] = True
            self.envs.begin_next(over)
        self._seen = self._copy(self.envs.observation)
        info |= {"action_mask": self._seen["mask"], "_action_mask": np.ones(self.num_envs, bool)}
        if not done.all():
            info |= {"illegal": illegal & ~done, "_illegal": ~done}
        return self._seen, reward, done, np.zeros(self.num_envs, bool), info

    def _final(self, over: Array, last: Seen, illegal: Array) -> dict[str, Any]:
        """Collect the last observations and infos of the episodes that ended, in those environments."""
        found: dict[str, Any] = {}
        for e in over.tolist():
            seen = {name: part[e] for name, part in last.items()}
            info = {"action_mask": seen["mask"], "illegal": bool(illegal[e])}
            info |= {"episode_facts": self.envs.facts(e)} if self._facts else {}
            found = self._add_info(found, {"final_obs": seen, "final_info": info}, e)
        return found

    def action_masks(self) -> Array:
        """Return (num_envs, actions) bool: what may be chosen."""
        mask: Array = self._shown()["mask"].astype(bool)
        return mask

    def _shown(self) -> Seen:
        if not self._seen:
            raise no_episode()
        return self._seen

    @staticmethod
    def _copy(seen: Observation) -> Seen:
        rows = {"rows": seen.rows.copy()} if seen.rows.shape[1] else {}
        return {**rows, "context": seen.context.copy(), "mask": seen.mask.astype(np.int8)}
