"""`gpuyard list`: the names that can be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.output import Format, Output, Table, emit, short
from gpuyard.errors import UsageError

if TYPE_CHECKING:
    from gpuyard.policies import Backfill, Decider, Ordering, Placement, Switch
    from gpuyard.registry import Registry
    from gpuyard.traces.parameters import Registered

Record = dict[str, Any]
_KIND_NAMES = (
    "orderings", "placements", "backfills", "preemptions", "switches", "deciders", "metrics", "workloads", "transforms", "readers",
    "estimates", "datasets", "clusters", "devices", "learned", "environments", "objectives", "learners", "experiments",
)  # fmt: skip


def listing(
    kind: Annotated[str | None, typer.Argument(help=f"One of {', '.join(_KIND_NAMES)}.", show_default=False)] = None,
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
    if kind not in KINDS:
        raise unknown_name("kind", kind, list(KINDS))
    records = KINDS[kind]()
    if not records:
        raise UsageError(f"no {kind} are available", hint="learners need pip install 'gpuyard[learn]'" if kind == "learners" else "")
    header = tuple(records[0])
    rows = [tuple(short(v) if isinstance(v, float) else str(v) for v in record.values()) for record in records]
    numeric = {k for k, name in enumerate(header) if isinstance(records[0][name], float)}
    emit(Output([Table(header, rows, left=frozenset(range(len(header))) - numeric)], records, records), how)


def parameters_text(params: Iterable[tuple[str, Any]]) -> str:
    """Write parameters as `power=2, limit=10`."""
    return ", ".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in params if not _hidden(value))


def _hidden(value: Any) -> bool:
    from gpuyard.model.units import Range

    return not isinstance(value, (str, int, float, Range))


class Titled(Protocol):
    """Anything that is registered with a title."""

    @property
    def title(self) -> str: ...


T = TypeVar("T", bound=Titled)


def _listed(registry: Registry[T] | Mapping[str, T], columns: Callable[[T], Record]) -> list[Record]:
    """Return a row for each entry of a registry: name, title, and what `columns` says about it."""
    return [{"name": name, "is": each.title} | columns(each) for name, each in registry.items()]


def _parameters(policy: Ordering | Placement | Backfill | Switch | Decider) -> Record:
    return {"parameters": parameters_text(policy.params)}


def _arguments(each: Registered[Any]) -> Record:
    return {"parameters": parameters_text((p.name, p.default) for p in each.parameters)}


def _orderings() -> list[Record]:
    from gpuyard.policies import ORDERINGS

    return _listed(ORDERINGS, lambda p: _parameters(p) | {"reads the clock": "yes" if p.reads_clock else "no", "source": p.source})


def _placements() -> list[Record]:
    from gpuyard.policies import PLACEMENTS

    return _listed(PLACEMENTS, lambda p: _parameters(p) | {"span": p.span})


def _backfills() -> list[Record]:
    from gpuyard.policies import BACKFILLS

    return _listed(BACKFILLS, _parameters)


def _preemptions() -> list[Record]:
    from gpuyard.policies import PREEMPTIONS

    return _listed(PREEMPTIONS, lambda p: {"parameters": parameters_text([*p.params, *([("every", p.every)] if p.function else [])])})


def _switches() -> list[Record]:
    from gpuyard.policies import SWITCHES

    return _listed(SWITCHES, _parameters)


def _deciders() -> list[Record]:
    from gpuyard.policies import DECIDERS

    return _listed(DECIDERS, lambda p: _parameters(p) | {"builds on": p.inner.label if p.inner else ""})


def _metrics() -> list[Record]:
    from gpuyard.metrics import METRICS

    return _listed(METRICS, lambda m: {"unit": m.unit, "better": m.better, "one per": m.kind, "formula": m.formula})


def _workloads() -> list[Record]:
    from gpuyard.traces import GENERATORS

    return _listed(GENERATORS, _arguments)


def _transforms() -> list[Record]:
    from gpuyard.traces import CLUSTER_TRANSFORMS, TRANSFORMS

    of_workloads = _listed(TRANSFORMS, lambda t: {"of": "workload"} | _arguments(t))
    return of_workloads + _listed(CLUSTER_TRANSFORMS, lambda t: {"of": "cluster"} | _arguments(t))


def _datasets() -> list[Record]:
    from gpuyard.traces import DATASETS

    return _listed(DATASETS, lambda d: {"bytes": f"{d.size:,}", "licence": d.licence})


def _readers() -> list[Record]:
    from gpuyard.traces import READERS

    return _listed(READERS, lambda r: {"files": " ".join(r.globs)} | _arguments(r))


def _estimates() -> list[Record]:
    from gpuyard.traces import ESTIMATES

    return _listed(ESTIMATES, _arguments)


def _clusters() -> list[Record]:
    from gpuyard.model.presets import PRESETS

    return _listed(PRESETS, lambda _: {})


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
        {"name": each.name, "is": each.title, "id": each.id, "objective": each.objective,
         "seen": f"{len(each.schema.rows)} features of each row, {len(each.schema.context)} of the situation"}
        for _, each in environments().items()
    ]  # fmt: skip


def _objectives() -> list[Record]:
    from gpuyard.envs.reward import OBJECTIVES

    return _listed(OBJECTIVES, lambda o: {"weights": parameters_text(o.weights.items()), "judged by": o.metric})


def _learners() -> list[Record]:
    from gpuyard.learn.base import learners

    return _listed(learners(), lambda _: {})


def _experiments() -> list[Record]:
    from gpuyard.experiments.design.spec import load_experiment, shipped

    found = [load_experiment(name) for name in shipped()]
    return [{"name": each.name, "is": each.title, "question": each.question} for each in found]


_LISTS = (
    _orderings, _placements, _backfills, _preemptions, _switches, _deciders, _metrics, _workloads, _transforms, _readers, _estimates,
    _datasets, _clusters, _devices, _learned, _environments, _objectives, _learners, _experiments,
)  # fmt: skip
KINDS: Mapping[str, Callable[[], list[Record]]] = dict(zip(_KIND_NAMES, _LISTS, strict=True))
