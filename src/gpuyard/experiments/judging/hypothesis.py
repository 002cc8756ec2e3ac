"""What a log would gain if some of its jobs could be stopped, of which nothing says so: a hypothesis, and the sentence about it."""

from __future__ import annotations

from dataclasses import dataclass

from gpuyard.experiments.judging.statistics import Interval
from gpuyard.experiments.judging.text import change_in_words
from gpuyard.model.units import format_seconds

RULE = "saf/fewest/easy"
RANKED = "saf/fewest/easy/gittins"
_WOULD = ("would fall", "would rise", "would stay as it is", "would not clearly change")


@dataclass(frozen=True)
class Terms:
    """What is assumed of the jobs."""

    share: float = 0.5
    checkpoint: float = 600.0  # s between checkpoints
    writing: float = 0.02  # of that time, to write one
    restart: float = 60.0  # s

    @property
    def change(self) -> str:
        """The transform that makes it so."""
        return f"preemptible:share={self.share:g},checkpoint={self.checkpoint:g},writing={self.writing:g},restart={self.restart:g}"


@dataclass(frozen=True)
class WhatIf:
    """The same jobs under smallest area first with EASY, and with stops in the order of a Gittins rank if some jobs could be stopped.

    Changes are shares of the value without stops; those of classes are of their mean wait.
    """

    terms: Terms
    scheduler: str  # that stops
    wait: tuple[float, float]  # s, mean without stops and with them
    change: Interval
    slowdown: Interval
    stoppable: Interval
    others: Interval
    longest: tuple[float, float]  # s, without stops and with them

    @property
    def words(self) -> str:
        """Say what would be gained, and that it is not known whether it could be; classes of jobs where theirs is clear."""
        terms, (before, after) = self.terms, (format_seconds(each) for each in self.wait)
        assumed = (
            f"drawn at random; checkpoints every {format_seconds(terms.checkpoint)} that cost {100 * terms.writing:g} % of the time;"
            f" {format_seconds(terms.restart)} for a restart"
        )
        longest = " to ".join(map(format_seconds, self.longest))
        parts = [
            f"the mean wait {change_in_words(self.change, _WOULD)}, from {before} to {after}",
            f"the mean bounded slowdown {change_in_words(self.slowdown, _WOULD)}",
            *(f"the mean wait of {who} {change_in_words(each, _WOULD)}" for who, each in self._classes if each.low > 0 or each.high < 0),
            f"the longest wait would go from {longest}",
        ]
        return (
            f"A supposition: if {100 * terms.share:g} % of the jobs could be stopped ({assumed}), with {self.scheduler} instead of {RULE}"
            f" {'; '.join(parts)}."
        )

    @property
    def _classes(self) -> tuple[tuple[str, Interval], ...]:
        return ("the jobs that could be stopped", self.stoppable), ("the others", self.others)
