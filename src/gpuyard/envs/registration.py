"""The Gymnasium ids."""

from __future__ import annotations

import gymnasium as gym

# id → where its class is; a new version is a new id
IDS = {
    "gpuyard/PickDevice-v0": "gpuyard.envs.pick_device:PickDevice",
}


def register_all() -> None:
    """Make the ids known to `gymnasium.make`; once is enough, twice does no harm."""
    for name, entry in IDS.items():
        if name not in gym.registry:
            gym.register(id=name, entry_point=entry)
