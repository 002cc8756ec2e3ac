"""Register the Gymnasium ids on import. Gymnasium imports this module itself where the id names it:

gymnasium.make("gpuyard.envs.registration:gpuyard/PickJob-v0")
"""

from __future__ import annotations

import warnings

import gymnasium as gym

from gpuyard.envs.kinds.base import EnvKind, environments

IDS: dict[str, EnvKind] = {kind.id: kind for _, kind in environments().items() if kind.entry_point}  # a new version is a new id


def register_all() -> None:
    """Make the ids known to `gymnasium.make`; calling it twice does no harm.

    A version is a set of features, not a repair: Gymnasium is not to call the first ones out of date.
    """
    warnings.filterwarnings("ignore", message=".*environment gpuyard/.* is out of date", category=DeprecationWarning)
    for name, kind in IDS.items():
        if name not in gym.registry:
            gym.register(id=name, entry_point=kind.entry_point, vector_entry_point=kind.vector_entry_point, kwargs={"kind": name})


register_all()
