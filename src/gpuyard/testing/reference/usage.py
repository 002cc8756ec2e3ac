"""The users' accounts in the reference simulator: recent usage, which decays with a half-life."""

from __future__ import annotations

import math
from fractions import Fraction

UNIT = Fraction(1, 2**20)  # of a GPU: what is held is rounded to it, half a unit upwards


class Accounts:
    """One account per user, in the order of their labels."""

    def __init__(self, users: int, half_life: float) -> None:
        self.mean_life = half_life / math.log(2.0)
        self.usage = [0.0] * users  # GPU-s
        self.held = [Fraction(0)] * users  # GPUs
        self.up_to = 0.0  # s

    def age(self, now: float) -> None:
        """Advance to now: usage decays and grows by what is held."""
        if now > self.up_to:
            lost = math.expm1(-(now - self.up_to) / self.mean_life)
            for user, held in enumerate(self.held):
                self.usage[user] += lost * (self.usage[user] - float(held) * self.mean_life)
            self.up_to = now

    def hold(self, user: int, gpus: float, now: float) -> None:
        """Give GPUs to the user."""
        self.age(now)
        self.held[user] += self._rounded(gpus)

    def release(self, user: int, gpus: float, now: float) -> None:
        """Take GPUs back from the user."""
        self.age(now)
        self.held[user] -= self._rounded(gpus)

    def parts(self, now: float) -> list[float]:
        """Return each user's part of all usage, now."""
        self.age(now)
        total = 0.0
        for usage in self.usage:
            total += usage
        return [usage / total if total > 0 else 0.0 for usage in self.usage]

    @staticmethod
    def _rounded(gpus: float) -> Fraction:
        return math.floor(Fraction(gpus) / UNIT + Fraction(1, 2)) * UNIT
