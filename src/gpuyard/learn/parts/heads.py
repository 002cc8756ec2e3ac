"""Dueling and noisy heads of value-based learners, and how they are folded into the plain network afterwards.

Dueling (Wang et al. 2016): Q = V + A − mean of A. The advantages A come from `head`, V from `value_head`, which has as many hidden
layers of the same width. Noise (Fortunato et al. 2018, factorised) is on the weights of `head` and `value_head`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gpuyard.arrays import Array
from gpuyard.learn.base import Arrays
from gpuyard.learn.parts import networks
from gpuyard.learn.parts.networks import AnyArray, Params
from gpuyard.networks.spec import NetworkSpec

SIGMA = 0.5  # initial noise × √(inputs of the layer)
_NOISE = "noise/"


def initial(spec: NetworkSpec, key: jax.Array, *, dueling: bool, noisy: bool) -> Params:
    """Draw the parameters that gradients change, for a spec whose value layers are those of the head."""
    params = networks.trained(networks.init(spec, key))
    if not dueling:
        params = {name: each for name, each in params.items() if not name.startswith("value_head.")}
    elif spec.atoms > 1:  # a distribution for V as well
        last = f"value_head.{len(spec.value_layers)}"
        params[f"{last}.weight"] = jnp.tile(params[f"{last}.weight"], (spec.atoms, 1)) * 0.01
        params[f"{last}.bias"] = jnp.zeros(spec.atoms, jnp.float32)
    if noisy:
        for name in [name for name in params if name.startswith(("head.", "value_head."))]:
            inputs = params[name.rsplit(".", 1)[0] + ".weight"].shape[1]
            params[_NOISE + name] = jnp.full(params[name].shape, SIGMA / math.sqrt(inputs), jnp.float32)
    return params


def quiet(params: Params) -> Params:
    """Return the means, without noise."""
    return {name: each for name, each in params.items() if not name.startswith(_NOISE)}


def noise_size(params: Mapping[str, Any]) -> int:
    """Count the random numbers that `perturbed` needs: one for each input and output of a noisy layer."""
    return sum(sum(each.shape) for name, each in params.items() if name.startswith(_NOISE) and name.endswith(".weight"))


def perturbed(params: Params, noise: jax.Array) -> Params:
    """Return means plus noise, from `noise_size` standard normal numbers; equal to `quiet` where no layer is noisy."""
    found, used = quiet(params), 0
    for weight in sorted(name[len(_NOISE) :] for name in params if name.startswith(_NOISE) and name.endswith(".weight")):
        bias = weight.removesuffix("weight") + "bias"
        outs, ins = params[weight].shape
        drawn = noise[used : used + outs + ins]
        used += outs + ins
        drawn = jnp.sign(drawn) * jnp.sqrt(jnp.abs(drawn))
        found[weight] = params[weight] + params[_NOISE + weight] * jnp.outer(drawn[:outs], drawn[outs:])
        found[bias] = params[bias] + params[_NOISE + bias] * drawn[:outs]
    return found


def outputs(spec: NetworkSpec, params: Params, rows: AnyArray, context: AnyArray, mask: AnyArray, *, dueling: bool) -> jax.Array:
    """Return (…, actions, atoms), not masked where there are no rows: values, or with atoms > 1 logits of distributions."""
    if spec.rows:
        return _row_values(spec, params, rows, context, mask, dueling=dueling)[..., None]
    found = networks.distribution(spec, params, context)
    if not dueling:
        return found
    e = networks.encode_context(spec, params, context)
    value = networks.mlp(params, "value_head", len(spec.value_layers) + 1, e, spec.act)
    return value[..., None, :] + found - found.mean(-2, keepdims=True)


def _row_values(spec: NetworkSpec, params: Params, rows: AnyArray, context: AnyArray, mask: AnyArray, *, dueling: bool) -> jax.Array:
    if not dueling:
        return networks.apply(spec, params, rows, context, mask)
    advantage, value = networks.apply_and_value(spec, params, rows, context, mask)
    legal = jnp.where(mask, advantage, 0.0)
    mean = legal.sum(-1) / jnp.maximum(mask.sum(-1), 1)
    return jnp.where(mask, advantage + (value - mean)[..., None], networks.ILLEGAL)


def expected(spec: NetworkSpec, found: jax.Array, mask: AnyArray) -> jax.Array:
    """Return (…, actions): values, or means of distributions; ILLEGAL where the mask is false."""
    values = found[..., 0] if spec.atoms == 1 else jax.nn.softmax(found) @ networks.support(spec)
    return jnp.where(mask, values, networks.ILLEGAL)


def plain(spec: NetworkSpec, params: Params, *, dueling: bool) -> tuple[NetworkSpec, Arrays]:
    """Return the network in the form of gpuyard.networks.spec, without noise.

    Without rows its scores are the Q-values. A dueling network over rows keeps its advantages as scores: they differ from the
    Q-values by the same amount in every row, so the same row wins.
    """
    arrays = {name: np.asarray(each, dtype=np.float32) for name, each in quiet(params).items()}
    kept = {name: each for name, each in arrays.items() if not name.startswith("value_head.")}
    if not dueling or spec.rows:
        return replace(spec, value_layers=()), kept
    wide = tuple(2 * width for width in spec.head_layers)
    return replace(spec, head_layers=wide, value_layers=()), kept | _folded(spec, arrays)


def _folded(spec: NetworkSpec, arrays: Arrays) -> Arrays:
    """Put both streams side by side in each hidden layer of the head; the last layer adds them up."""
    found: Arrays = {}
    last = len(spec.head_layers)
    for number in range(last):
        a, v = arrays[f"head.{number}.weight"], arrays[f"value_head.{number}.weight"]
        apart = [[a, np.zeros((len(a), v.shape[1]), np.float32)], [np.zeros((len(v), a.shape[1]), np.float32), v]]
        found[f"head.{number}.weight"] = np.vstack([a, v]) if number == 0 else np.block(apart)
        found[f"head.{number}.bias"] = np.concatenate([arrays[f"head.{number}.bias"], arrays[f"value_head.{number}.bias"]])
    advantage = _less_mean(arrays[f"head.{last}.weight"].reshape(spec.actions, spec.atoms, -1))
    value = np.broadcast_to(arrays[f"value_head.{last}.weight"], advantage.shape)
    weight = advantage + value if last == 0 else np.concatenate([advantage, value], axis=-1)
    bias = _less_mean(arrays[f"head.{last}.bias"].reshape(spec.actions, spec.atoms)) + arrays[f"value_head.{last}.bias"]
    outs = spec.actions * spec.atoms
    return found | {f"head.{last}.weight": weight.reshape(outs, -1), f"head.{last}.bias": bias.reshape(outs)}


def _less_mean(values: Array) -> Array:
    found: Array = values - values.mean(axis=0, keepdims=True)
    return found
