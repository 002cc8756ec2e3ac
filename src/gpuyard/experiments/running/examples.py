"""Whole results of a few Runs, for pictures of single jobs; for a learned switch, also its choices over time."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from gpuyard.engine.simulation import simulate
from gpuyard.errors import DataError
from gpuyard.experiments.design.cells import checkpoints_in
from gpuyard.experiments.design.kinds import Prepared
from gpuyard.experiments.design.spec import Example, Experiment, placed
from gpuyard.experiments.running.store import EXAMPLES, KEPT, Store, read_json
from gpuyard.experiments.studies.evaluation import contender
from gpuyard.experiments.studies.explaining import choices_over_time
from gpuyard.files import json_bytes, writing
from gpuyard.model.result import Result
from gpuyard.model.units import shorten
from gpuyard.policies import AnyScheduler, Meta
from gpuyard.traces.recipes import Episode, GeneratorSource, parse_recipe

INDEX = "index.json"


def keep_examples(prepared: Prepared, store: Store) -> None:
    """Simulate the examples again, here, and record which job held which devices when."""
    if not prepared.experiment.examples:
        return
    schedulers: dict[str, AnyScheduler] = {}
    for entry, scheduler in zip(prepared.entries, prepared.schedulers_on(prepared.cells[0]), strict=True):
        schedulers.setdefault(entry.name, scheduler)  # of an agent that of the first training seed
    index = []
    with writing(store.path / EXAMPLES, hint=KEPT):
        if (store.path / EXAMPLES).exists():
            shutil.rmtree(store.path / EXAMPLES)  # what a killed process left
        (store.path / EXAMPLES).mkdir()
    for k, example in enumerate(prepared.experiment.examples):
        episode = _episode(prepared.experiment, example)
        for j, name in enumerate(example.schedulers):
            scheduler = schedulers[name]
            folder = f"{k + 1}.{j + 1}-{_plain(name)}"
            result = simulate(episode.workload, episode.cluster, scheduler, example.seed, rules=prepared.rules, segments=True)
            result.save(store.path / EXAMPLES / folder)
            line: dict[str, Any] = {"folder": folder, "workload": episode.text, "seed": example.seed, "scheduler": name}
            if isinstance(scheduler, Meta) and scheduler.rule.network is not None:
                line["choices"] = choices_over_time(contender(checkpoints_in(scheduler)[0]), episode)
            index.append(line)
    store.write(f"{EXAMPLES}/{INDEX}", json_bytes({"examples": index}))


def check_examples(experiment: Experiment) -> None:
    """Refuse an example that cannot be simulated."""
    for k, example in enumerate(experiment.examples):
        with placed(f"{experiment.name}: [[examples]] #{k + 1}"):
            _episode(experiment, example)


def _episode(experiment: Experiment, example: Example) -> Episode:
    recipe = parse_recipe(experiment.names.get(example.workload, example.workload))
    if not recipe.is_generator:
        raise DataError(f"workload {shorten(example.workload)}: only of a generator")
    return GeneratorSource.of(recipe, (example.seed,)).episode(0)


def _plain(name: str) -> str:
    """Turn a label into a part of a folder's name."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[:60]


def load_examples(folder: Path) -> list[tuple[dict[str, Any], Result]]:
    """Load each example: its line of the index, and its result."""
    index = folder / EXAMPLES / INDEX
    if not index.exists():
        return []
    lines = read_json(index).get("examples")
    if not isinstance(lines, list) or not all(isinstance(line, dict) and isinstance(line.get("folder"), str) for line in lines):
        raise DataError(f"{index}: damaged")
    return [(line, Result.load(folder / EXAMPLES / Path(line["folder"]).name)) for line in lines]
