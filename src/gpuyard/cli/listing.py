"""`gpuyard list`: the names that can be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.output import Format, Output, Table, emit, short
from gpuyard.errors import UsageError

Record = dict[str, Any]


def listing(
    kind: Annotated[str | None, typer.Argument(help=f"One of {', '.join(KINDS)}.", show_default=False)] = None,
    how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:
    """List the names you can use: policies, metrics, workloads, readers, datasets, clusters, environments, learners, experiments, …"""
    from gpuyard.registry import unknown_name

    if kind is None:
        overview = [{"kind": name, "names": [r["name"] for r in records()]} for name, records in KINDS.items()]
        table = Table(("kind", "names"), [(str(r["kind"]), ", ".join(r["names"])) for r in overview], left=frozenset({0, 1}),
                      caption="gpuyard list KIND says more about each, gpuyard show NAME everything about one")  # fmt: skip
        records = [{"kind": r["kind"], "name": n} for r in overview for n in r["names"]]
        emit(Output([table], {str(r["kind"]): r["names"] for r in overview}, records), how)
        return
    kind = _OTHER_KINDS.get(kind, kind)
    if kind + "s" in KINDS:  # `list metric`
        kind += "s"
    if kind == "policies":
        _list_policies(how)
        return
    if kind not in KINDS:
        raise unknown_name("kind", kind, [*KINDS, "policies"])
    records = KINDS[kind]()
    if not records:
        raise UsageError(f"no {kind} are available", hint="learners need pip install 'gpuyard[learn]'" if kind == "learners" else "")
    header = tuple(records[0])
    rows = [tuple(short(v) if isinstance(v, float) else str(v) for v in record.values()) for record in records]
    numeric = {k for k, name in enumerate(header) if isinstance(records[0][name], float)}
    emit(Output([Table(header, rows, left=frozenset(range(len(header))) - numeric)], records, records), how)


def _list_policies(how: Format) -> None:
    """List what may stand in each slot of a scheduler, and the deciders."""
    found = {kind: KINDS[kind]() for kind in POLICIES}
    header = ("name", "is", "parameters")
    records = [{"kind": kind} | {name: record[name] for name in header} for kind, each in found.items() for record in each]
    tables = [
        Table(header, [tuple(str(record[name]) for name in header) for record in each], kind, left=frozenset(range(len(header))))
        for kind, each in found.items()
    ]
    text = ["A scheduler is ORDERING/PLACEMENT/BACKFILL/PREEMPTION, e.g. sjf/fewest/easy, or a decider."]
    emit(Output(tables, found, records, text), how)


def parameters_text(params: Iterable[tuple[str, Any]]) -> str:
    """Write parameters as `power=2, limit=10`."""
    return ", ".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in params if not _hidden(value))


def _hidden(value: Any) -> bool:
    from gpuyard.model.units import Range

    return not isinstance(value, (str, int, float, Range))


def registry(module: str, name: str) -> Any:
    """Import a registry only when it is asked for: `gpuyard list metrics` loads no learner."""
    return getattr(import_module(f"gpuyard.{module}"), name)


def _listed(module: str, name: str, columns: Callable[[Any], Record] = lambda each: {}) -> Callable[[], list[Record]]:
    """Make rows for the entries of a registry: name, title, and what `columns` says about each."""
    return lambda: [{"name": key, "is": each.title} | columns(each) for key, each in registry(module, name).items()]


def _parameters(policy: Any) -> Record:
    return {"parameters": parameters_text(policy.params)}


def _arguments(each: Any) -> Record:
    return {"parameters": parameters_text((p.name, p.default) for p in each.parameters)}


def _preemption(policy: Any) -> Record:
    return {"parameters": parameters_text([*policy.params, *([("every", policy.every)] if policy.function else [])])}


def _transforms() -> list[Record]:
    of_workloads = _listed("traces", "TRANSFORMS", lambda t: {"of": "workload"} | _arguments(t))
    return of_workloads() + _listed("traces", "CLUSTER_TRANSFORMS", lambda t: {"of": "cluster"} | _arguments(t))()


def _devices() -> list[Record]:
    from gpuyard.model.presets import DEVICES

    return [
        {"name": name, "speed": float(each.speed), "TFLOPS": float(each.tflops), "memory (GB)": float(each.memory),
         "idle (W)": float(each.idle_watts), "busy (W)": float(each.busy_watts)}
        for name, each in DEVICES.items()
    ]  # fmt: skip


def _learned() -> list[Record]:
    from gpuyard.networks.checkpoint import find_checkpoint, read_checkpoint, shipped_names

    found = {name: read_checkpoint(find_checkpoint(f"learned:{name}")).manifest for name in shipped_names()}
    return [
        {"name": f"learned:{name}", "is": each.title, "decides about": each.schema.decision, "objective": each.objective,
         "learner": each.training.learner}
        for name, each in found.items()
    ]  # fmt: skip


def _environments() -> list[Record]:
    from gpuyard.envs.kinds.base import environments

    return [
        {"name": each.label, "is": each.title, "id": each.id, "objective": each.objective,
         "seen": f"{len(each.schema.rows)} features of each row, {len(each.schema.context)} of the situation"}
        for _, each in environments().items()
    ]  # fmt: skip


def _learners() -> list[Record]:
    from gpuyard.learn.base import learners

    return [{"name": name, "is": each.title} for name, each in learners().items()]


def _experiments() -> list[Record]:
    from gpuyard.experiments.design.spec import load_experiment, shipped

    found = [load_experiment(name) for name in shipped()]
    return [{"name": each.name, "is": each.title, "question": each.question} for each in found]


KINDS: Mapping[str, Callable[[], list[Record]]] = {
    "orderings": _listed(
        "policies", "ORDERINGS", lambda p: _parameters(p) | {"reads the clock": "yes" if p.reads_clock else "no", "source": p.source}
    ),
    "placements": _listed("policies", "PLACEMENTS", lambda p: _parameters(p) | {"span": p.span}),
    "backfills": _listed("policies", "BACKFILLS", _parameters),
    "preemptions": _listed("policies", "PREEMPTIONS", _preemption),
    "switches": _listed("policies", "SWITCHES", _parameters),
    "deciders": _listed("policies", "DECIDERS", lambda p: _parameters(p) | {"builds on": p.inner.label if p.inner else ""}),
    "metrics": _listed("metrics", "METRICS", lambda m: {"unit": m.unit, "better": m.better, "one per": m.kind, "formula": m.formula}),
    "workloads": _listed("traces", "GENERATORS", _arguments),
    "transforms": _transforms,
    "changes": _listed("experiments.questions.sites", "SITE_CHANGES", _arguments),
    "readers": _listed("traces", "READERS", lambda r: {"files": " ".join(r.globs)} | _arguments(r)),
    "estimates": _listed("traces", "ESTIMATES", _arguments),
    "datasets": _listed("traces", "DATASETS", lambda d: {"bytes": f"{d.size:,}", "licence": d.licence}),
    "clusters": _listed("model.presets", "PRESETS"),
    "devices": _devices,
    "learned": _learned,
    "environments": _environments,
    "objectives": _listed("envs.reward", "OBJECTIVES", lambda o: {"weights": parameters_text(o.weights.items()), "judged by": o.metric}),
    "learners": _learners,
    "experiments": _experiments,
}
POLICIES = ("orderings", "placements", "backfills", "preemptions", "switches", "deciders")
_OTHER_KINDS = {
    "policy": "policies", "schedulers": "policies", "scheduler": "policies", "switch": "switches", "presets": "clusters",
    "generators": "workloads", "traces": "datasets", "gpus": "devices", "formats": "readers", "checkpoints": "learned",
    "agents": "learned", "envs": "environments", "studies": "experiments", "perturbations": "transforms",
}  # fmt: skip
