"""`gpuyard list`: the names that can be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.output import Format, Output, Table, emit, short
from gpuyard.errors import UsageError

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
    """List what there is: policies, metrics, workloads, readers, datasets, clusters, environments, learners, experiments, …"""
    from gpuyard.registry import unknown_name

    if kind is None:
        overview = [{"kind": name, "names": [r["name"] for r in records()]} for name, records in KINDS.items()]
        table = Table(("kind", "names"), [(str(r["kind"]), ", ".join(r["names"])) for r in overview], left=frozenset({0, 1}),
                      caption="gpuyard list KIND tells more about each, gpuyard show NAME all about one")  # fmt: skip
        emit(
            Output(
                [table],
                {str(r["kind"]): r["names"] for r in overview},
                [{"kind": r["kind"], "name": n} for r in overview for n in r["names"]],
            ),
            how,
        )
        return
    if kind not in KINDS:
        raise unknown_name("kind", kind, list(KINDS))
    records = KINDS[kind]()
    if not records:
        raise UsageError(f"there are no {kind} here", hint="learners need pip install 'gpuyard[learn]'" if kind == "learners" else "")
    header = tuple(records[0])
    rows = [tuple(short(v) if isinstance(v, float) else str(v) for v in record.values()) for record in records]
    numeric = {k for k, name in enumerate(header) if isinstance(records[0][name], float)}
    emit(Output([Table(header, rows, left=frozenset(range(len(header))) - numeric)], records, records), how)


def parameters_text(params: Iterable[tuple[str, Any]]) -> str:
    """`power=2, limit=10`."""
    return ", ".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in params if not _hidden(value))


def _hidden(value: Any) -> bool:
    from gpuyard.model.units import Range

    return not isinstance(value, (str, int, float, Range))


def _orderings() -> list[Record]:
    from gpuyard.policies import ORDERINGS

    return [
        {"name": name, "is": each.title, "parameters": parameters_text(each.params), "reads the clock": "yes" if each.reads_clock else "no",
         "source": each.source}
        for name, each in ORDERINGS.items()
    ]  # fmt: skip


def _placements() -> list[Record]:
    from gpuyard.policies import PLACEMENTS

    return [
        {"name": name, "is": each.title, "parameters": parameters_text(each.params), "span": each.span} for name, each in PLACEMENTS.items()
    ]


def _backfills() -> list[Record]:
    from gpuyard.policies import BACKFILLS

    return [{"name": name, "is": each.title, "parameters": parameters_text(each.params)} for name, each in BACKFILLS.items()]


def _preemptions() -> list[Record]:
    from gpuyard.policies import PREEMPTIONS

    return [
        {"name": name, "is": each.title, "parameters": parameters_text([*each.params, *([("every", each.every)] if each.function else [])])}
        for name, each in PREEMPTIONS.items()
    ]


def _switches() -> list[Record]:
    from gpuyard.policies import SWITCHES

    return [{"name": name, "is": each.title, "parameters": parameters_text(each.params)} for name, each in SWITCHES.items()]


def _deciders() -> list[Record]:
    from gpuyard.policies import DECIDERS

    return [
        {"name": name, "is": each.title, "parameters": parameters_text(each.params), "builds on": each.inner.label if each.inner else ""}
        for name, each in DECIDERS.items()
    ]


def _metrics() -> list[Record]:
    from gpuyard.metrics import METRICS

    return [
        {"name": name, "is": each.title, "unit": each.unit, "better": each.better, "one per": each.kind, "formula": each.formula}
        for name, each in METRICS.items()
    ]


def _workloads() -> list[Record]:
    from gpuyard.traces import GENERATORS

    return [
        {"name": name, "is": each.title, "parameters": parameters_text((p.name, p.default) for p in each.parameters)}
        for name, each in GENERATORS.items()
    ]


def _transforms() -> list[Record]:
    from gpuyard.traces import CLUSTER_TRANSFORMS, TRANSFORMS

    return [
        {"name": name, "is": each.title, "of": of, "parameters": parameters_text((p.name, p.default) for p in each.parameters)}
        for of, registry in (("workload", TRANSFORMS), ("cluster", CLUSTER_TRANSFORMS))
        for name, each in registry.items()
    ]


def _datasets() -> list[Record]:
    from gpuyard.traces import DATASETS

    return [{"name": name, "is": each.title, "bytes": f"{each.size:,}", "licence": each.licence} for name, each in DATASETS.items()]


def _readers() -> list[Record]:
    from gpuyard.traces import READERS

    return [
        {
            "name": name,
            "is": each.title,
            "files": " ".join(each.globs),
            "parameters": parameters_text((p.name, p.default) for p in each.parameters),
        }
        for name, each in READERS.items()
    ]


def _estimates() -> list[Record]:
    from gpuyard.traces import ESTIMATES

    return [
        {"name": name, "is": each.title, "parameters": parameters_text((p.name, p.default) for p in each.parameters)}
        for name, each in ESTIMATES.items()
    ]


def _clusters() -> list[Record]:
    from gpuyard.model.presets import PRESETS

    return [{"name": name, "is": each.title} for name, each in PRESETS.items()]


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

    return [
        {"name": name, "is": each.title, "weights": parameters_text(each.weights.items()), "judged by": each.metric}
        for name, each in OBJECTIVES.items()
    ]


def _learners() -> list[Record]:
    from gpuyard.learn.catalog import learners

    return [{"name": name, "is": each.title} for name, each in learners().items()]


def _experiments() -> list[Record]:
    from gpuyard.experiments.design.spec import load_experiment, shipped

    found = [load_experiment(name) for name in shipped()]
    return [{"name": each.name, "is": each.title, "question": each.question} for each in found]


_LISTS = (
    _orderings, _placements, _backfills, _preemptions, _switches, _deciders, _metrics, _workloads, _transforms, _readers, _estimates,
    _datasets, _clusters, _devices, _learned, _environments, _objectives, _learners, _experiments,
)  # fmt: skip
KINDS: Mapping[str, Callable[[], list[Record]]] = dict(zip(_KIND_NAMES, _LISTS, strict=True))
