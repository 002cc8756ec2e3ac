"""How many choices a second PPO learns from, end to end, when the environments cost nothing.

    python benchmarks/ppo.py [--device cpu|gpu] [--envs N] [--rollout T] [--minibatches M] [--network NAME] [--width W] [--rounds R]

Observations are random arrays of 50 rows × 10 features and a context of 8, made before; two epochs. Times are this machine's.
"""

from __future__ import annotations

import argparse

import numpy as np

from gpuyard.arrays import Array
from gpuyard.envs.base import Observation, Step
from gpuyard.features.schema import Schema
from gpuyard.learn.parts import networks
from gpuyard.learn.ppo import Ppo, PpoConfig

ROWS, KEPT = 50, 4


class Random:
    """Environments that go round a few observations."""

    schema = Schema("host", 1, tuple("abcdefghij"), tuple("klmnopqr"))
    actions = ROWS

    def __init__(self, count: int) -> None:
        self.count, self._now = count, 0
        random = np.random.default_rng(0)
        self._steps = [self._made(random) for _ in range(KEPT)]

    def _made(self, random: np.random.Generator) -> Step:
        rows = random.normal(size=(self.count, ROWS, len(self.schema.rows))).astype(np.float32)
        mask = random.random((self.count, ROWS)) < 0.7
        mask[:, 0] = True
        context = random.normal(size=(self.count, len(self.schema.context))).astype(np.float32)
        reward = random.normal(size=self.count).astype(np.float32)
        return Step(Observation(rows, context, mask), reward, random.random(self.count) < 0.01)

    def reset(self, seed: int) -> Observation:
        return self._steps[0].observation

    def step(self, actions: Array) -> Step:
        self._now = (self._now + 1) % KEPT
        return self._steps[self._now]

    def save(self) -> dict[str, Array]:
        return {"now": np.array(self._now)}

    def restore(self, saved: dict[str, Array]) -> Observation:
        self._now = int(saved["now"])
        return self._steps[self._now].observation


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--envs", type=int, default=256)
    parser.add_argument("--rollout", type=int, default=64)
    parser.add_argument("--minibatches", type=int, default=16)
    parser.add_argument("--network", default="host")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    config = PpoConfig(rollout=asked.rollout, minibatches=asked.minibatches, network=asked.network, width=asked.width, device=asked.device)
    learner = Ppo(Random(asked.envs), config, seed=0)
    first = learner.update()
    facts = [learner.update() for _ in range(asked.rounds)]
    steps = asked.envs * asked.rollout
    collect, learn = (np.median([each[f"time/{part}"] for each in facts]) for part in ("collect", "learn"))
    print(f"{networks.parameter_count(learner.spec)} parameters, {steps} choices an update, on {learner.device.device_kind}")
    print(f"{steps / (collect + learn):,.0f} steps/s; collect {1e3 * collect:.0f} ms, learn {1e3 * learn:.0f} ms an update")
    print(f"first update, with compiling: {first['time/collect'] + first['time/learn']:.1f} s")


if __name__ == "__main__":
    main()
