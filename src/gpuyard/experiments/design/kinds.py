"""How the Runs of a unit are made, by kind of experiment; pure: the same context and unit give the same numbers anywhere.

A worker gets a `Context` once, as plain data, and then numbers of units.
"""

from __future__ import annotations

import hashlib
import math
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gpuyard import __version__
from gpuyard.engine.batch import batches
from gpuyard.engine.simulation import simulate_many
from gpuyard.errors import DataError, UsageError
from gpuyard.experiments.design.cells import Cell, Entry, Sources, cells_of, check_unseen, column, count_runs, entries_of, exists, files_of
from gpuyard.experiments.design.spec import Experiment, from_table, placed
from gpuyard.experiments.design.varying import fill
from gpuyard.experiments.judging.bounds import bounds
from gpuyard.experiments.judging.curves import Curve, check_curve, curve_of
from gpuyard.files import user_path
from gpuyard.metrics import counts, measure_many, resolve
from gpuyard.model.result import Result
from gpuyard.model.rules import Rules
from gpuyard.model.units import shorten
from gpuyard.policies import AnyScheduler, Decider, parse_scheduler
from gpuyard.policies.learned import programs_in
from gpuyard.registry import Registry, unknown_name
from gpuyard.traces.recipes import Episode, Recipe, parse_recipe

LATENCY = "decision_latency"  # a wall-clock figure: it stands in the manifest, not among the numbers that repeat
ENTROPY = "choice_entropy"  # beside it: most schedulers have none


@dataclass(frozen=True)
class Context:
    """Everything that a worker needs to know, in plain values."""

    experiment: Mapping[str, Any]  # its record
    agents: Mapping[str, bytes] = field(default_factory=dict)  # label of an entry → checkpoint file
    version: str = __version__  # of the process that asks; numbers of another version are not comparable


@dataclass(frozen=True)
class RunRecord:
    """The values that are kept from one Run."""

    run: int
    values: Mapping[str, Any]  # columns
    curves: Mapping[str, Curve]
    manifest: Mapping[str, Any]


@dataclass(frozen=True)
class Unit:
    """A cell at a seed; `first` is the number of its first Run."""

    number: int
    cell: int
    seed: int
    first: int


class Prepared:
    """An experiment ready to be run: cells, schedulers and workloads."""

    def __init__(self, context: Context, *, programs: bool = True) -> None:
        self._programs = programs
        self.experiment: Experiment = from_table(context.experiment, f"{context.experiment.get('name')}")
        self.kind = KINDS[self.experiment.kind]
        self.cells: list[Cell] = cells_of(self.experiment) if self.kind.has_workloads else [NO_CELL]
        self.entries: list[Entry] = entries_of(self.experiment)
        self.runs = count_runs(self.experiment, len(self.cells))
        self.sources = Sources(self.experiment.axes.seeds)
        self._agents = context.agents
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._schedulers: dict[str, AnyScheduler] = {}
        self._check_names()

    def _check_names(self) -> None:
        """Check that the names in the file exist, and refuse settings that this kind does not use."""
        experiment = self.experiment
        for name in experiment.curves if self.kind.has_workloads else ():
            with placed(f"{experiment.name}: curves"):
                check_curve(name)
        axes = experiment.axes
        idle: dict[str, Any] = {"[settings]": experiment.settings} if self.kind.has_workloads else {
            "[axes] workloads": axes.workloads, "[axes] clusters": axes.clusters != ("",), "[axes] changes": axes.changes != ("",),
            "[axes] estimates": axes.estimates != ("",), "curves": experiment.curves, "[[examples]]": experiment.examples,
            "[agents]": experiment.agents,
        }  # fmt: skip
        for key, given in idle.items():
            if given:
                raise DataError(f"{experiment.name}: {key}: experiments of kind {experiment.kind!r} have none", hint="leave it out")
        known = list(dict.fromkeys((*PLACE, *(column(name) for cell in self.cells for name in cell.parameters))))
        for name in experiment.judge.groups:
            if name not in known:
                raise unknown_name(f"parameter in {experiment.name}: [judge] groups:", name, known)

    @cached_property
    def units(self) -> list[Unit]:
        """All units, in the order of the axes."""
        seeds, width = self.experiment.axes.seeds, len(self.entries)
        return [
            Unit(c * len(seeds) + s, c, seed, (c * len(seeds) + s) * width) for c in range(len(self.cells)) for s, seed in enumerate(seeds)
        ]

    @cached_property
    def rules(self) -> Rules:
        given = self.experiment.rules
        return Rules(**asdict(given))

    def schedulers_on(self, cell: Cell) -> list[AnyScheduler]:
        """Return the scheduler of each entry on a cell, compiled."""
        return [self._scheduler(entry, cell) for entry in self.entries]

    def schedulers_of(self, entry: Entry) -> list[AnyScheduler]:
        """Return what an entry is on the cells: one scheduler, unless its text has holes that the workloads fill."""
        return list({self.text_of(entry, cell): self._scheduler(entry, cell) for cell in self.cells}.values())

    def _scheduler(self, entry: Entry, cell: Cell) -> AnyScheduler:
        """Read and compile the scheduler of an entry, once."""
        text = self.text_of(entry, cell)
        if text not in self._schedulers:
            with placed(f"{self.experiment.name}: scheduler {entry.label!r}"):
                made = parse_scheduler(text)
                if not isinstance(made, Decider):
                    made.program()
            self._schedulers[text] = made
        return self._schedulers[text]

    @property
    def ready(self) -> list[Entry]:
        """All entries except agents that are not trained yet, and programs where none may be run."""
        trained = [entry for entry in self.entries if entry.name not in self.experiment.agents or entry.label in self._agents]
        return trained if self._programs else [entry for entry in trained if entry not in self.programs]

    @property
    def programs(self) -> list[Entry]:
        """The entries whose schedulers are programs (`FILE.py:NAME`)."""
        named = [entry for entry in self.entries if entry.name not in self.experiment.agents]
        return [entry for entry in named if any(programs_in(self.experiment.text_of(entry.name)))]

    def text_of(self, entry: Entry, cell: Cell) -> str:
        """The text of a scheduler on a cell; for an agent, the path of its checkpoint here."""
        if entry.name not in self.experiment.agents:
            return fill(self.experiment.text_of(entry.name), cell.parameters)
        if entry.label not in self._agents:
            raise UsageError(f"{entry.label}: the agent is not trained yet")
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="gpuyard-agents-")
        path = Path(self._folder.name) / f"{entry.label}.safetensors"
        if not path.exists():
            path.write_bytes(self._agents[entry.label])
        return str(path)

    def inputs(self) -> dict[str, str]:
        """Map what the numbers depend on besides the experiment's text (logs, checkpoints, programs) to a hash of its content."""
        if not self.kind.has_workloads:
            return {}
        agents = self.experiment.agents
        trained_on = [parse_recipe(text, agent.cluster) for agent in agents.values() for text in agent.workloads]
        texts = [text for recipe in (*(cell.recipe for cell in self.cells), *trained_on) for text in (recipe.base, recipe.cluster)]
        paths = [user_path(text) for text in dict.fromkeys(texts) if exists(text, Path.is_file)]
        schedulers = [made for entry in self.ready if entry.name not in agents for made in self.schedulers_of(entry)]
        paths += [path for made in schedulers for path in files_of(made)]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in dict.fromkeys(paths)}

    def check(self) -> None:
        """Find whatever is wrong with schedulers and data, before the first Run."""
        self.kind.check(self)


@dataclass(frozen=True)
class ExperimentKind:
    """A way to make Runs."""

    name: str
    execute: Callable[[Prepared, Unit], list[RunRecord]]
    check: Callable[[Prepared], None]
    has_workloads: bool = True


KINDS: Registry[ExperimentKind] = Registry("kind of experiment")
NO_CELL = Cell("", Recipe(""), {}, "", "")  # of a kind whose units are seeds alone


def manifest_of(run: int, values: Mapping[str, Any], seconds: float, further: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of a Run: what it was, with what it was made, and how long it took."""
    place = {name: values[name] for name in values if name in _PLACE}
    return {
        "run": run, **place, **further, "gpuyard": __version__, "python": platform.python_version(), "platform": platform.platform(),
        "machine": platform.machine(), "wall_s": round(seconds, 6), "finished": round(time.time(), 3),
    }  # fmt: skip


PLACE = ("workload", "cluster", "change", "estimate")  # with the parameters of workloads, what tells cells apart
_PLACE = (*PLACE, "seed", "scheduler", "training_seed")


# ── simulations ──


def _simulate_unit(prepared: Prepared, unit: Unit) -> list[RunRecord]:
    experiment, cell = prepared.experiment, prepared.cells[unit.cell]
    episode = prepared.sources.episode(cell, unit.seed)
    cluster = cell.cluster or episode.cluster.name
    place: dict[str, Any] = {"workload": cell.workload, "cluster": cluster, "change": cell.change, "estimate": cell.estimate}
    place |= {column(name): value for name, value in cell.parameters.items()}
    proven = bounds(experiment.axes.objectives, episode.workload, episode.cluster, rules=prepared.rules)
    proven_values = {f"bound.{name}": math.nan if found is None else found.value for name, found in proven.items()}
    made: list[RunRecord] = []
    for results in _simulated(prepared, cell, episode, unit.seed):
        numbers, latencies = numbers_of(experiment, results), measure_many(results, [LATENCY, ENTROPY])
        for result, number, latency in zip(results, numbers, latencies, strict=True):
            k = len(made)
            entry = prepared.entries[k]
            values = place | {"seed": unit.seed, "scheduler": entry.name, "training_seed": entry.training_seed} | number
            curves = {name: curve_of(name, result) for name in experiment.curves}
            further = {
                "text": fill(experiment.text_of(entry.name), cell.parameters), "workload_text": episode.text,
                "estimates": result.workload.estimates, "decision_latency_us": latency[LATENCY],
                ENTROPY: None if math.isnan(latency[ENTROPY]) else latency[ENTROPY],
            }  # fmt: skip
            manifest = manifest_of(unit.first + k, values, float(result.manifest["wall_s"]), further)
            made.append(RunRecord(unit.first + k, values | _holding(proven_values, values), curves, manifest))
    return made


def _simulated(prepared: Prepared, cell: Cell, episode: Episode, seed: int) -> Iterator[list[Result]]:
    """Yield the results of all entries, in order: those of short runs together, those of long ones one at a time, to be dropped."""
    segments = any(resolve(name)[0].segments for name in prepared.experiment.measured)
    for batch in batches(prepared.schedulers_on(cell), len(episode.workload)):
        yield simulate_many(episode.workload, episode.cluster, batch, seed, rules=prepared.rules, segments=segments)


def _holding(bounds: Mapping[str, float], values: Mapping[str, Any]) -> dict[str, float]:
    """Drop the bounds of a Run in which some job did not end: its metrics show only how long that job had lasted so far."""
    return dict(bounds) if not values["n_unfinished"] else dict.fromkeys(bounds, math.nan)


def numbers_of(experiment: Experiment, results: Sequence[Result]) -> list[dict[str, Any]]:
    """Measure the metrics that are reproducible, and count how jobs ended, for each result."""
    names = [name for name in experiment.measured if resolve(name)[0].reproducible]
    measured = zip(measure_many(results, names), map(counts, results), strict=True)
    return [numbers | {f"n_{name}": count for name, count in ended.items()} for numbers, ended in measured]


def _check_simulations(prepared: Prepared) -> None:
    for cell in prepared.cells:
        if not cell.recipe.is_generator:  # a log is there, and long enough
            with placed(f"{prepared.experiment.name}: workload {shorten(cell.workload)}"):
                prepared.sources.episode(cell, prepared.experiment.axes.seeds[0])
    for entry in prepared.ready:
        for made in prepared.schedulers_of(entry):
            check_unseen(made, entry.label, prepared.cells, prepared.sources)


KINDS.add("simulations", ExperimentKind("simulations", _simulate_unit, _check_simulations))


# ── the change of distribution ──


def _shift_unit(prepared: Prepared, unit: Unit) -> list[RunRecord]:
    from gpuyard.experiments.studies.shift import curves_of, shift, shift_config, workload_curves

    experiment = prepared.experiment
    began = time.perf_counter()
    report = shift(unit.seed, shift_config(experiment.settings, experiment.name), [entry.name for entry in prepared.entries])
    seconds = time.perf_counter() - began
    found = []
    for k, entry in enumerate(prepared.entries):
        outcome = report.outcomes[entry.name]
        values: dict[str, Any] = {
            "workload": "tasks, shifted", "cluster": outcome.result.cluster.name, "change": "", "estimate": "", "seed": unit.seed,
            "scheduler": entry.name, "training_seed": None, **numbers_of(experiment, [outcome.result])[0], "speedup": outcome.speedup,
            "ratio_to_optimum": report.ratio(entry.name), "bound.turnaround": report.bound / len(outcome.result),
        }  # fmt: skip
        curves = curves_of(report, entry.name) | (workload_curves(report) if k == 0 else {})
        further = {
            "text": entry.name, "estimates": outcome.result.workload.estimates, "decider": outcome.result.manifest.get("decider", {}),
        }  # fmt: skip
        manifest = manifest_of(unit.first + k, values, seconds / len(prepared.entries), further)
        found.append(RunRecord(unit.first + k, values, curves, manifest))
    return found


def _check_shift(prepared: Prepared) -> None:
    from gpuyard.experiments.studies.shift import STRATEGIES, shift_config

    shift_config(prepared.experiment.settings, prepared.experiment.name)
    for entry in prepared.entries:
        if entry.name not in STRATEGIES:
            raise unknown_name("strategy", entry.name, list(STRATEGIES))


KINDS.add("shift", ExperimentKind("shift", _shift_unit, _check_shift, has_workloads=False))


# ── in a worker ──


class Worker:
    """A worker process prepares once and then makes units by number."""

    def __init__(self, context: Context) -> None:
        if context.version != __version__:
            raise UsageError(
                f"a worker has gpuyard {__version__}, and {context.version} is asked for", hint="install the same on every machine"
            )
        self._prepared = Prepared(context)

    def work(self, number: int) -> list[RunRecord]:
        """Make all Runs of a unit."""
        return self._prepared.kind.execute(self._prepared, self._prepared.units[number])
