"""The Gymnasium ids. Importing this module makes them known; Gymnasium does so itself where the id names the module:

gymnasium.make("gpuyard.envs.registration:gpuyard/PickJob-v0")
"""

from __future__ import annotations

import gymnasium as gym

# id → where its class is, the class of many at once, and the arguments of both; a new version is a new id
_ENGINE = ("gpuyard.envs.gym:SchedulingEnv", "gpuyard.envs.gym:VectorGym")
IDS: dict[str, tuple[str, str | None, dict[str, str]]] = {
    "gpuyard/PickJob-v0": (*_ENGINE, {"kind": "PickJob"}),
    "gpuyard/PickHost-v0": (*_ENGINE, {"kind": "PickHost"}),
    "gpuyard/Switch-v0": (*_ENGINE, {"kind": "Switch"}),
    "gpuyard/PickDevice-v0": ("gpuyard.envs.kinds.device.gym:PickDevice", None, {}),
}


def register_all() -> None:
    """Make the ids known to `gymnasium.make`; once is enough, twice does no harm."""
    for name, (one, many, arguments) in IDS.items():
        if name not in gym.registry:
            gym.register(id=name, entry_point=one, vector_entry_point=many, kwargs=dict(arguments))


register_all()
