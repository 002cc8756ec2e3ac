"""The networks that `gpuyard.learn` trains and `gpuyard.networks.network` evaluates in compiled code.

All arrays are float32; a layer has `weight` (out, in) and `bias` (out,). `act` is relu or tanh. Only rows that may be chosen count.

    x_i = (row_i − rows.mean) · rows.scale          z = (context − context.mean) · context.scale

**Rows to choose from** (`actions` = 0: as many as there are rows):

    h_i = row.{0…}(x_i), act after every layer; no layers: x_i
    e   = context.{0…}(z), act after every layer; no layers: z
    c   = nothing (pool "none"), the mean of h_i ("mean"), or ("attention") for each of `heads` heads
          Σ_i softmax_i(q · k_i / √d) v_i  with q = query.weight e, k_i = key.weight h_i, v_i = value.weight h_i,
          d = width / heads; concatenated
    score_i = head.{0…}([h_i, e, c]), act between layers, the last is linear with one output
    value   = value_head.{0…}([mean of h_i, e]), likewise; used in training only

**A fixed number of actions** (no rows): z = [now, history]; the last `history` features of the context, if any, go through

    m   = memory.{0…}(history), act after every layer      (the regime embedding)
    e   = context.{0…}([now, m]), act after every layer
    y   = head.{0…}(e), act between layers, linear last, `actions` × `atoms` outputs
    score_a = y_a, or with atoms > 1 the mean Σ_k softmax_k(y_a) · support_k of a distribution, support from `low` to `high`
    value   = value_head.{0…}(e), used in training only

The highest score among the permitted choices wins; of equal scores the lowest number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class NetworkSpec:
    """The shape of a network, in the terms of this module's docstring."""

    rows: int  # features of a row; 0: no rows
    context: int
    actions: int = 0  # 0: one per row
    row_layers: tuple[int, ...] = ()
    context_layers: tuple[int, ...] = ()
    memory_layers: tuple[int, ...] = ()
    head_layers: tuple[int, ...] = (32, 16)  # hidden ones; the last, linear layer is not listed
    value_layers: tuple[int, ...] = (32,)
    history: int = 0  # how many of the last features of the context are history
    pool: Literal["none", "mean", "attention"] = "none"
    heads: int = 1
    act: Literal["relu", "tanh"] = "relu"
    atoms: int = 1
    low: float = 0.0  # the support of a distribution begins here
    high: float = 0.0
