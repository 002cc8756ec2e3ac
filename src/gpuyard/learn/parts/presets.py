"""Networks by name, for each kind of decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuyard.errors import UsageError
from gpuyard.features.schema import Schema
from gpuyard.networks.shapes import check_spec
from gpuyard.networks.spec import NetworkSpec
from gpuyard.registry import Registry


@dataclass(frozen=True)
class Sizes:
    """Sizes that a preset may use: widths, and the shape of the decision."""

    rows: int
    context: int
    actions: int
    width: int
    history: int


NETWORKS: Registry[tuple[bool, Callable[[Sizes], NetworkSpec]]] = Registry("network")


def network(name: str, *, of_rows: bool) -> Callable[[Callable[[Sizes], NetworkSpec]], Callable[[Sizes], NetworkSpec]]:
    """Register a preset, for decisions with rows or without."""
    return NETWORKS.register(name, lambda make: (of_rows, make))


@network("kernel", of_rows=True)
def _kernel(s: Sizes) -> NetworkSpec:
    """One small network applied to each row and the context; rows do not see each other (Mao et al. 2019; Zhang et al. 2020)."""
    return NetworkSpec(s.rows, s.context, head_layers=(s.width, s.width // 2), value_layers=(s.width,))


@network("pool", of_rows=True)
def _pool(s: Sizes) -> NetworkSpec:
    w = s.width
    return NetworkSpec(s.rows, s.context, row_layers=(w,), context_layers=(w,), head_layers=(w, w // 2), value_layers=(w,), pool="mean")


@network("deeprm", of_rows=True)
def _deeprm(s: Sizes) -> NetworkSpec:
    """One hidden layer over each job, the mean of all jobs in sight and the state of the cluster, after DeepRM (Mao et al. 2016).

    There one layer of 20 sees a picture of the cluster and of ten jobs, with weights of its own for each of the ten. Here features take the
    place of pictures, and jobs share weights.
    """
    return NetworkSpec(s.rows, s.context, head_layers=(s.width,), value_layers=(s.width,), pool="mean")


@network("attention", of_rows=True)
def _attention(s: Sizes) -> NetworkSpec:
    w = s.width
    return NetworkSpec(
        s.rows, s.context, row_layers=(w,), context_layers=(w,), head_layers=(w,), value_layers=(w,), pool="attention", heads=2
    )


@network("host", of_rows=True)
def _host(s: Sizes) -> NetworkSpec:
    """Attention at half the width: about 2,400 parameters at width 32, 10 features a row and 8 of the context."""
    return _attention(Sizes(s.rows, s.context, s.actions, s.width // 2, s.history))


@network("mlp", of_rows=False)
def _mlp(s: Sizes) -> NetworkSpec:
    """A plain network; it sees history, if any, as it is."""
    return NetworkSpec(0, s.context, s.actions, context_layers=(s.width, s.width), head_layers=(), value_layers=())


@network("memory", of_rows=False)
def _memory(s: Sizes) -> NetworkSpec:
    """A network whose history goes through two separate layers: the regime embedding."""
    w = s.width
    return NetworkSpec(
        0, s.context, s.actions, context_layers=(w, w), head_layers=(), value_layers=(), history=s.history, memory_layers=(w, w // 2)
    )


def network_for(schema: Schema, actions: int, kind: str = "", width: int = 32, history: int = 0) -> NetworkSpec:
    """Return the preset `kind` for a decision; without a name kernel where there are rows, else mlp, or memory if there is history.

    `history` says how many of the last context features are history.
    """
    usual = "kernel" if schema.rows else ("memory" if history else "mlp")
    of_rows, make = NETWORKS[kind or usual]
    if of_rows != bool(schema.rows):
        fitting = ", ".join(name for name, (rows, _) in NETWORKS.items() if rows == bool(schema.rows))
        has = "rows" if schema.rows else "no rows"
        raise UsageError(f"network {kind!r} does not fit the decision {schema.decision!r}, which has {has}", hint=f"fitting: {fitting}")
    if kind == "memory" and not history:
        raise UsageError("network 'memory' needs an environment that observes history", hint="use mlp")
    made = make(Sizes(len(schema.rows), len(schema.context), actions, width, history))
    check_spec(made, f"network {kind or usual} of width {width}")
    return made
