"""`gpuyard show`: everything about one thing, whatever it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuyard.cli.common import inputs, options
from gpuyard.cli.common.output import Format, Output, Table, emit, short
from gpuyard.cli.listing import KINDS, parameters_text, registry
from gpuyard.errors import DataError, UsageError
from gpuyard.registry import unknown_name

Facts = list[tuple[str, str]]


@options.grouped(without=("apply",))
def show(
    name: Annotated[str, typer.Argument(
        help="A policy, metric, workload, reader, cluster or device; a scheduler (sjf/best/easy); a file; a saved result's folder; "
        "a checkpoint, an environment, a learner, an experiment or its folder.",
        show_default=False)],
    *,
    reading: inputs.Reading,
    cluster: Annotated[str | None, typer.Option(metavar="C", help="Show the load of a workload on this cluster.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of a generated workload.")] = 0,
    how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """Say what something is: its definition, parameters and source; for a file or a saved result, what it holds."""
    if (Path(name) / "manifest.json").exists():
        return _show_result(name, how)
    if (Path(name) / "experiment.json").exists():
        from gpuyard.cli.run import show_results

        return show_results(Path(name), how)
    found = [*_named(name)] if reading.reader is None else []
    found = found or [_other(name, reading, inputs.check_seed(seed), cluster)]
    tables = [Table(("is", kind), facts, title=name, left=frozenset({0, 1})) for kind, facts in found]
    data = [{"kind": kind, "name": name} | dict(facts) for kind, facts in found]
    emit(Output(tables, data, [{"kind": kind, "fact": label, "text": text} for kind, facts in found for label, text in facts]), how)
    return None


def _show_result(name: str, how: Format) -> None:
    from gpuyard.cli.simulate import DEFAULT_METRICS, describe, tell
    from gpuyard.model.result import Result

    result = Result.load(name)
    output = describe(result, DEFAULT_METRICS)
    facts = [(str(key), _text(value)) for key, value in result.manifest.items()]
    facts += [("jobs", f"{len(result):,}"), ("segments", f"{len(result.segments):,}" if len(result.segments) else "not kept")]
    tell(result)
    manifest = Table(("manifest", ""), facts, title=f"result in {name}", left=frozenset({0, 1}))
    emit(Output([manifest, *output.tables], output.data | {"manifest": dict(result.manifest)}, output.records), how)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return short(value)
    return ", ".join(f"{k} {_text(v)}" for k, v in value.items()) if hasattr(value, "items") else str(value)


# ── by name ──


def _named(name: str) -> Iterator[tuple[str, Facts]]:
    """Find everything of that name; some names, such as srpt, are in more than one registry."""
    for kind, facts_of in _REGISTRIES.items():
        facts = facts_of(name)
        if facts:
            yield kind, [(label, text) for label, text in facts if text]


def _found_in(module: str, name_of_registry: str, facts_of: Callable[[Any], Facts]) -> Callable[[str], Facts]:
    """Look a name up in a registry; there are no facts where it does not have the name."""
    return lambda name: facts_of(known[name]) if name in (known := registry(module, name_of_registry)) else []


def _policy(each: Any) -> Facts:
    function = getattr(each, "function", None)
    facts = [("title", each.title), ("definition", _doc(function)), ("parameters", parameters_text(each.params))]
    facts += [("source", getattr(each, "source", "")), ("span over nodes", getattr(each, "span", ""))]
    if hasattr(each, "reads_clock"):
        facts.append(("reads the clock", f"{'yes' if each.reads_clock else 'no'}: {each.keyed}"))
    if getattr(each, "every", 0):
        facts.append(("timer", f"every {each.every:g} s"))
    return [*facts, ("code", _code(function))]


def _decider(each: Any) -> Facts:
    return [
        ("title", each.title), ("definition", _doc(each.make)), ("parameters", parameters_text(each.params)),
        ("builds on", each.inner.label if each.inner else ""), ("timer", f"every {each.every:g} s" if each.every else ""),
        ("written", f"{each.name}:PARAMETER=NUMBER,…" + ("(SCHEDULER)" if each.inner else "")),
    ]  # fmt: skip


def _doc(function: Any) -> str:
    return inspect.cleandoc(function.__doc__ or "") if function is not None else ""


def _code(function: Any) -> str:
    """Return the code of a rule, without decorators and docstring."""
    if function is None:
        return ""
    try:
        lines = inspect.getsource(function).splitlines()
    except OSError:
        return ""
    first = next(k for k, line in enumerate(lines) if line.startswith("def "))
    return "\n".join(line for line in lines[first:] if '"""' not in line)


def _metric(name: str) -> Facts:
    from gpuyard.metrics import is_metric, resolve

    if not is_metric(name):
        return []
    each, aggregation = resolve(name)
    return [
        ("title", each.title), ("definition", each.description), ("formula", each.formula), ("unit", each.unit), ("better", each.better),
        ("one value per", each.kind), ("aggregation", aggregation), ("jobs", each.covers), ("nan when", each.missing),
        ("source", each.source),
    ]  # fmt: skip


def _traces(each: Any, *first: tuple[str, str]) -> Facts:
    """Describe an entry of a registry of `gpuyard.traces`; the facts in `first` come first."""
    facts = [*first, ("title", each.title), ("definition", _doc(each.function))]
    for p in each.parameters:
        text = parameters_text([(p.name, p.default)])
        facts += [("parameter", text + (f"  of {', '.join(p.choices)}" if p.choices else ""))] if text else []
    return facts


def _transform(name: str) -> Facts:
    of_workloads = _found_in("traces", "TRANSFORMS", lambda each: _traces(each, ("of", "workloads")))
    return of_workloads(name) or _found_in("traces", "CLUSTER_TRANSFORMS", lambda each: _traces(each, ("of", "clusters")))(name)


def _dataset(each: Any) -> Facts:
    return [
        ("title", each.title), ("address", each.url), ("size", f"{each.size:,} bytes"), ("sha256", each.sha256), ("licence", each.licence),
        ("cite", each.citation), ("read it", f"gpuyard show dataset:{each.name}"),
    ]  # fmt: skip


def _checkpoint(text: str) -> Facts:
    """Return what the manifest of a checkpoint says."""
    from gpuyard.networks.checkpoint import PREFIX, find_checkpoint, read_checkpoint
    from gpuyard.policies.learned import is_learned
    from gpuyard.traces.splits import describe

    if not is_learned(text) or (text.startswith(PREFIX) and "/" in text):
        return []
    manifest = read_checkpoint(find_checkpoint(text)).manifest
    training, network = manifest.training, manifest.network
    parts = [
        (f"{what} on", describe(use))
        for what, uses in (("trained", training.workloads), ("validated", training.validation))
        for use in uses
    ]
    layers = ", ".join(f"{name} {'-'.join(map(str, sizes))}" for name, sizes in (
        ("rows", network.row_layers), ("context", network.context_layers), ("memory", network.memory_layers), ("head", network.head_layers),
    ) if sizes)  # fmt: skip
    return [
        ("title", manifest.title), ("decides about", manifest.schema.decision), ("with", _text(dict(manifest.choices))),
        ("objective", manifest.objective), ("learner", f"{training.learner}, {training.steps:,} choices, seed {training.seed}"), *parts,
        ("network", f"{layers}, pool {network.pool}"), ("sees of a row", ", ".join(manifest.schema.rows)),
        ("sees of the situation", ", ".join(manifest.schema.context)), ("schema", manifest.schema.hash), ("command", manifest.command),
    ]  # fmt: skip


def _environment(name: str) -> Facts:
    from gpuyard.envs.kinds.base import environments

    kinds = environments()
    if name not in kinds:
        return []
    each = kinds[name]
    settings = [("setting", f"{key}={value!r}") for key, value in vars(each.options()).items()]
    return [
        ("id", each.id), ("title", each.title), ("definition", _doc(each.options)), ("objective", each.objective),
        ("sees of a row", ", ".join(each.schema.rows)), ("sees of the situation", ", ".join(each.schema.context)), *settings,
    ]  # fmt: skip


def _learner(name: str) -> Facts:
    from gpuyard.learn.base import learners

    if (not name.isidentifier() and "-" not in name) or name not in (known := learners()):
        return []
    each = known[name]
    return [("title", each.title), ("definition", _doc(each.make)), *(("setting", f"{k}={v!r}") for k, v in vars(each.config()).items())]


def _preset(name: str) -> Facts:
    from gpuyard.model.presets import PRESETS

    return [("title", PRESETS[name].title), *_cluster(name)] if name in PRESETS else []


def _cluster(text: str) -> Facts:
    from gpuyard.model.cluster_file import describe_cluster, load_cluster

    return describe_cluster(load_cluster(text))


def _device(name: str) -> Facts:
    from gpuyard.model.presets import DEVICES

    if name.lower() not in DEVICES:
        return []
    each = DEVICES[name.lower()]
    units = {"speed": "× A100", "tflops": "TFLOPS", "memory": "GB", "idle_watts": "W", "busy_watts": "W"}
    return [(key, f"{getattr(each, key):g} {unit}") for key, unit in units.items()]


def _experiment(name: str) -> Facts:
    from gpuyard.experiments.design.spec import shipped

    return _experiment_facts(name) if name in shipped() else []


def _is_experiment(path: Path) -> bool:
    """Return whether a TOML file has axes. One that cannot be read is not an experiment, and is reported as something else."""
    from gpuyard.files import read_toml

    try:
        return "axes" in read_toml(path, "an experiment")
    except DataError:
        return False


def _experiment_facts(name: str) -> Facts:
    from gpuyard.experiments.design.spec import load_experiment, shipped
    from gpuyard.experiments.running.agents import labels_of

    found, path = load_experiment(name), shipped().get(name, Path(name))
    axes = [(axis, ", ".join(str(value) or "(none)" for value in values)) for axis, values in vars(found.axes).items() if any(values)]
    axes += [(f"varied: {name}", ", ".join(values)) for name, values in found.vary.items()]
    trained = ", ".join(label for label, _, _ in labels_of(found))
    return [("title", found.title), ("question", found.question), *axes, ("agents", trained), *found.names.items(), ("file", str(path))]


_REGISTRIES: dict[str, Callable[[str], Facts]] = {
    "ordering": _found_in("policies", "ORDERINGS", _policy),
    "placement": _found_in("policies", "PLACEMENTS", _policy),
    "backfill": _found_in("policies", "BACKFILLS", _policy),
    "preemption": _found_in("policies", "PREEMPTIONS", _policy),
    "switch rule": _found_in("policies", "SWITCHES", _policy),
    "decider": _found_in("policies", "DECIDERS", _decider),
    "metric": _metric,
    "workload generator": _found_in("traces", "GENERATORS", _traces),
    "transform": _transform,
    "change of a site": _found_in("experiments.questions.sites", "SITE_CHANGES", _traces),
    "reader": _found_in("traces", "READERS", lambda each: _traces(each, ("files", " ".join(each.globs)))),
    "estimate source": _found_in("traces", "ESTIMATES", _traces),
    "dataset": _found_in("traces", "DATASETS", _dataset),
    "cluster": _preset,
    "device": _device,
    "checkpoint": _checkpoint,
    "environment": _environment,
    "objective": _found_in(
        "envs.reward",
        "OBJECTIVES",
        lambda each: [("title", each.title), ("weights", parameters_text(each.weights.items())), ("judged by", each.metric)],
    ),
    "learner": _learner,
    "experiment": _experiment,
}


# ── what is not a name ──


def _other(text: str, reading: inputs.Reading, seed: int, cluster: str | None) -> tuple[str, Facts]:
    """Describe a cluster (file or short form), a workload (file or generator with parameters) or a scheduler."""
    path = Path(text)
    if text.endswith(".toml") and path.is_file() and _is_experiment(path):
        return "experiment", _experiment_facts(text)
    if text.endswith(".toml") or (text[:1].isdigit() and "/" not in text and not path.is_file()):
        return "cluster", _cluster(text)
    if (path.is_file() and path.suffix != ".py") or reading.names_workload(text) or _looks_like_trace(path):
        from gpuyard.cli.common.workload_facts import facts_of

        return "workload", facts_of(reading.load(text, seed), cluster)
    if path.is_dir():
        raise DataError(f"{text}: not a saved result", hint="gpuyard simulate … --out DIR writes one")
    if "/" in text or ":" in text:
        return _scheduler(text)
    if kinds := get_close_matches(text, [*KINDS, "policies"], n=1, cutoff=0.8):
        raise UsageError(f"unknown name {text!r}", hint=f"did you mean gpuyard list {kinds[0]}?")
    raise unknown_name("name", text, list(dict.fromkeys(str(record["name"]) for records in KINDS.values() for record in records())))


def _looks_like_trace(path: Path) -> bool:
    from gpuyard.traces import reader_of

    try:
        return reader_of(path) is not None
    except (UsageError, DataError):
        return False


def _scheduler(text: str) -> tuple[str, Facts]:
    from gpuyard.policies import Decider, Meta, parse_scheduler

    made = parse_scheduler(text)
    if isinstance(made, Meta):
        rule = [("label", made.label), ("rule", f"{made.rule.label}: {made.rule.title}")]
        return "meta-scheduler", rule + [(str(k), each.label) for k, each in enumerate(made.schedulers)]
    if isinstance(made, Decider):
        inner = [("builds on", made.inner.label)] if made.inner else []
        return "decider", [("label", made.label), ("does", made.title), *inner, *((name, f"{value:g}") for name, value in made.params)]
    slots = [(slot, getattr(made, slot)) for slot in ("ordering", "placement", "backfill", "preemption")]
    return "scheduler", [("label", made.label), *((slot, f"{each.label}: {each.title}") for slot, each in slots)]
