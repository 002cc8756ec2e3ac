"""The table in numpy, on the CPU."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.workbench.data import BEST, CUSTOMERS, DAYS, price_list, sales
from gpuyard.workbench.task import TaskRequest, scale_of


class NumpyTable:
    """Revenue by customer and by day over chunks of sales, and the best customers so far."""

    device, device_name = "cpu", "cpu"

    def __init__(self, asked: TaskRequest) -> None:
        self._seed, self._rows = asked.seed, scale_of(asked, "cpu").rows
        self._prices = price_list(asked.seed)
        self._customers, self._days = np.zeros(CUSTOMERS), np.zeros(DAYS)
        self._best = np.zeros(BEST, np.int64)

    def step(self, number: int) -> None:
        """Filter, join, sort, group and rank one chunk."""
        customer, item, day, amount = sales(self._seed, number, self._rows)
        kept = np.flatnonzero(amount > 1)
        kept = kept[np.argsort(day[kept], kind="stable")]
        revenue = amount[kept] * self._prices[item[kept]]
        self._customers += np.bincount(customer[kept], revenue, CUSTOMERS)
        self._days += np.bincount(day[kept], revenue, DAYS)
        self._best = np.argsort(-self._customers, kind="stable")[:BEST]

    def settle(self) -> float:
        """Return the revenue of the best customers."""
        return float(self._customers[self._best].sum())

    def arrays(self) -> dict[str, Array]:
        """Return the totals."""
        return {"customers": self._customers, "days": self._days, "best": self._best}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take over the totals."""
        self._customers, self._days, self._best = (arrays[name].copy() for name in ("customers", "days", "best"))


def make(asked: TaskRequest) -> NumpyTable:
    """Make the task; numpy has no GPU."""
    if asked.device == "gpu":
        raise UsageError("numpy does not use a GPU", hint="--library torch, or --device cpu")
    return NumpyTable(asked)
