"""Run an experiment in a folder: train what is to be trained, do what is not done yet, merge, keep examples.

Interrupted or killed at any moment, the same call goes on; the end is the same, byte for byte, but for times.
"""

from __future__ import annotations

import json
import platform
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpuyard import __version__
from gpuyard.engine.compiler.entry import engine
from gpuyard.engine.compiler.jit import INTERPRETED
from gpuyard.errors import UsageError
from gpuyard.experiments.design.kinds import Context, Prepared, Worker
from gpuyard.experiments.design.spec import Experiment, from_table, load_experiment
from gpuyard.experiments.running.agents import Trained, check_agents, labels_of, trainer_of
from gpuyard.experiments.running.examples import check_examples, keep_examples
from gpuyard.experiments.running.on_ray import OnRay
from gpuyard.experiments.running.store import AGENTS, EXPERIMENT, KEPT, MAX_BYTES, Store
from gpuyard.experiments.running.workers import Backend, check_workers, local
from gpuyard.files import json_bytes, read_bytes, user_path, writing
from gpuyard.model.units import shorten
from gpuyard.policies.learned import programs_in

SAVED_EVERY = 0.25  # s: what a killed process loses at most, besides what was under way
Progress = Callable[[str, int, int], None]  # what is done, how much, of how much


def backend_of(on: str, workers: int | None) -> Backend:
    """Choose where to run: `local`, `ray` (starts a Ray cluster here), or the address of a running one."""
    if on == "local":
        return local(check_workers(workers))
    if not on.strip():
        raise UsageError("--on: no place to run at is given", hint="local, ray, HOST:PORT or ray://HOST:PORT of a cluster, or auto")
    if on == "ray":
        return OnRay("", check_workers(workers))
    return OnRay(on, 0 if workers is None else check_workers(workers))


def experiment_named(text: str, *, quick: bool = False, values: Mapping[str, str] | None = None) -> Experiment:
    """Load an experiment by its name, from a TOML file, or again from the `experiment.json` in a folder of results.

    That file is resolved: it has no holes to fill and no short form. It may come from somebody else, so it may not name a program.
    """
    path = user_path(text)
    if path.name != EXPERIMENT:
        return load_experiment(text, quick=quick, values=values)
    if quick or values:
        raise UsageError(f"{path}: what was run has no --quick and nothing to --set", hint="change a .toml file instead")
    table = Store(path.parent).read_experiment()["experiment"]
    for program in programs_in(table):
        raise UsageError(f"{path}: names a program, {shorten(program)}, which is not run", hint="if you trust it, name it in a .toml file")
    return from_table(table, str(path))


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a call."""

    runs: int  # in all
    done_before: int
    seconds: float
    trained: int  # agents, in this call


def run(experiment: Experiment, folder: Path, backend: Backend, *, command: str = "", progress: Progress | None = None) -> RunOutcome:
    """Make all Runs, with results in the folder; `progress` is called as Runs and agents are done."""
    report = progress or (lambda what, done, total: None)
    began, store = time.perf_counter(), Store(folder)
    plain = checked(experiment)  # before anything is written
    store.refuse_others()
    with store.locked():
        store.begin(experiment.record(), about(command) | {"inputs": plain.inputs()})
        if store.complete:
            store.verify()
            store.clean()
            return RunOutcome(plain.runs, plain.runs, time.perf_counter() - began, 0)
        if not INTERPRETED:
            engine()  # compiled once, before several processes ask for it
        agents, trained = _agents(experiment, store, backend, report)
        context = Context(experiment.record(), agents)
        prepared = Prepared(context)
        if experiment.agents:
            prepared.check()
        before = _do_units(prepared, context, store, backend, report)
        keep_examples(prepared, store)
        store.finish(prepared.runs)
    return RunOutcome(prepared.runs, before, time.perf_counter() - began, trained)


def checked(experiment: Experiment, *, programs: bool = True) -> Prepared:
    """Prepare an experiment; refuses whatever can be known to be wrong before agents are trained and Runs are made.

    Without `programs`, schedulers that are programs are left alone: to check one is to run its file.
    """
    made = Prepared(Context(experiment.record()), programs=programs)
    made.check()
    check_examples(experiment)
    check_agents(experiment)
    return made


def about(command: str) -> dict[str, Any]:
    """Describe how the whole experiment was made; the manifest of each Run says the same about itself."""
    return {"gpuyard": __version__, "python": platform.python_version(), "platform": platform.platform(), "command": command}


def _do_units(prepared: Prepared, context: Context, store: Store, backend: Backend, report: Progress) -> int:
    """Do the units that are not done yet; returns how many Runs were done before."""
    width, done = len(prepared.entries), store.done()
    left = [unit.number for unit in prepared.units if unit.number not in done]
    before = prepared.runs - len(left) * width
    finished, saved, unsaved = before, 0.0, {}
    report("runs", finished, prepared.runs)
    with closing(backend.run(partial(Worker, context), left)) as outcomes:
        try:
            for number, records in outcomes:
                unsaved[number] = records
                if time.monotonic() - saved >= SAVED_EVERY:
                    store.add_all(unsaved)
                    unsaved, saved = {}, time.monotonic()
                finished += width
                report("runs", finished, prepared.runs)
        finally:
            store.add_all(unsaved)
    return before


def _agents(experiment: Experiment, store: Store, backend: Backend, report: Progress) -> tuple[dict[str, bytes], int]:
    """Return the checkpoints of all agents, training those that are missing."""
    wanted = [label for label, _, _ in labels_of(experiment)]
    if not wanted:
        return {}, 0
    folder = store.path / AGENTS
    with writing(folder, hint=KEPT):
        folder.mkdir(parents=True, exist_ok=True)
    missing = [label for label in wanted if not (folder / f"{label}.json").exists()]
    for label in set(wanted) - set(missing):
        _forget_training(store, label)  # a killed process may have left it
    make = trainer_of(experiment, missing, folder)
    done = len(wanted) - len(missing)
    report("agents", done, len(wanted))
    with closing(backend.run(make, range(len(missing)))) as outcomes:
        for _, trained in outcomes:
            keep_agent(store, trained)
            done += 1
            report("agents", done, len(wanted))
    return {label: read_bytes(folder / f"{label}.safetensors", MAX_BYTES, "a checkpoint") for label in wanted}, len(missing)


def keep_agent(store: Store, trained: Trained) -> None:
    """Write the checkpoint, then its record, which marks it as whole; the training's own folder is no longer needed."""
    store.write(f"{AGENTS}/{trained.label}.safetensors", trained.checkpoint)
    record: Mapping[str, Any] = {
        "label": trained.label, "objective": trained.objective, "steps": trained.steps, "wall_s": round(trained.seconds, 3),
        "curve": json.loads(json.dumps(trained.curve)),
    }  # fmt: skip
    store.write(f"{AGENTS}/{trained.label}.json", json_bytes(record))
    _forget_training(store, trained.label)


def _forget_training(store: Store, label: str) -> None:
    shutil.rmtree(store.path / AGENTS / f"{label}.training", ignore_errors=True)
