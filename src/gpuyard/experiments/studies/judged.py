"""The stage for networks that judge every job inside the engine, where nothing can be stepped and nothing permuted.

What such a network sees is recorded at snapshots along its runs. Whole runs are repeated with a feature held at its mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.experiments.studies.stage import Disturb, RecordedChoice, Stage, snapshots_of
from gpuyard.networks.network import Network
from gpuyard.policies import Scheduler
from gpuyard.traces.recipes import Episode


class JudgedStage(Stage):
    """Episodes that are run as a whole. The choice at a snapshot is the job that goes first."""

    def _record(self, episodes: Sequence[Episode]) -> None:
        scheduler, judged = self.contender.scheduler, self.contender.kind.explaining.judged
        assert isinstance(scheduler, Scheduler) and judged is not None
        for done, episode in enumerate(episodes):
            before = len(self.seen)
            for snapshot in snapshots_of(self.contender, scheduler, [episode], self._rng, lambda _: None):
                rows, context, areas = judged(scheduler, snapshot)
                if len(rows) > 1:
                    scores = -np.log2(areas)  # by the table
                    seen = RecordedChoice(rows, context, scores, 0, len(self.episodes), snapshot.now)
                    chosen = int(np.argmax(self._scores(seen, rows, context)))
                    self.seen.append(RecordedChoice(rows, context, scores, chosen, len(self.episodes), snapshot.now))
            if len(self.seen) > before:
                self.episodes.append(episode)
                self.returns.append(self._run(episode, self.contender.checkpoint.arrays))
            self._progress(done + 1)
        if not self.episodes:
            hint = f"try a workload with more load, and jobs that may be stopped, e.g. --workload '{self.contender.kind.example}'"
            raise UsageError(f"{self.contender.text}: no two jobs that may be stopped compete in these episodes", hint=hint)

    def _scores(self, each: RecordedChoice, rows: Array, context: Array) -> Array:
        """Return minus the log2 of the areas: those of the table, and what the network multiplies them by."""
        scores: Array = each.scores - self.network.scores(rows, context)
        return scores

    def _again(self, k: int, of_row: bool, disturb: Disturb) -> Callable[[int], float]:
        mean = float(self._values(k, of_row).mean())
        arrays = held_at(self.network, k, of_row, mean)
        return lambda number: self._run(self.episodes[number], arrays)

    def _run(self, episode: Episode, arrays: Mapping[str, Array]) -> float:
        """Run an episode with a network of these arrays; return its objective, higher is better."""
        made = self.contender
        manifest, kind = made.checkpoint.manifest, made.kind
        criterion = kind.objective_for(manifest.objective, made.options)
        results = kind.results(episode, kind.scheduler(manifest.network, arrays, made.options), made.options)
        mean = sum(map(criterion.measure, results)) / len(results)
        return mean if criterion.better == "higher" else -mean


def held_at(network: Network, k: int, of_row: bool, value: float) -> Mapping[str, Array]:
    """Return the arrays of a network without pooling or history that takes feature k to have this value."""
    spec, arrays = network.spec, {name: array.copy() for name, array in network.arrays.items()}
    layers, prefix = (spec.row_layers, "row") if of_row else (spec.context_layers, "context")
    layer = f"{prefix}.0" if layers else "head.0"
    column = k if layers or of_row else (spec.row_layers[-1] if spec.row_layers else spec.rows) + k
    norm = "rows" if of_row else "context"
    seen = (value - arrays[f"{norm}.mean"][k]) * arrays[f"{norm}.scale"][k]
    arrays[f"{layer}.bias"] += arrays[f"{layer}.weight"][:, column] * seen
    arrays[f"{layer}.weight"][:, column] = 0.0
    return arrays
