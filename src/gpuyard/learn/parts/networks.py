"""Networks in JAX, in the form of gpuyard.networks.spec; gpuyard.networks.network evaluates the same arrays without JAX.

All functions take any number of leading axes: rows (…, n, features), context (…, features), mask (…, actions).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from gpuyard.arrays import Array
from gpuyard.networks.shapes import NORMALISATION, check_spec, tensor_shapes, value_shapes
from gpuyard.networks.spec import NetworkSpec

Params = dict[str, jax.Array]
AnyArray = jax.Array | Array

ILLEGAL = -1e9  # score of an illegal choice: finite, so that probability × logarithm is 0 and not NaN
SMALL_GAIN = 0.01  # of the last layer of the head: at first all choices are nearly equal
ACTS: Mapping[str, Callable[[jax.Array], jax.Array]] = {"relu": jax.nn.relu, "tanh": jnp.tanh}


# ---- parameters


def shapes(spec: NetworkSpec) -> dict[str, tuple[int, ...]]:
    """Return name → shape of every array of a network and its value head; without rows there is no `rows.mean` and `rows.scale`."""
    check_spec(spec)
    return tensor_shapes(spec) | value_shapes(spec)


def init(spec: NetworkSpec, key: jax.Array) -> Params:
    """Draw orthogonal weights (Saxe et al. 2014) with gain √2, or 0.01 in the last layer of the head; biases 0, no normalisation."""
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    last = f"head.{len(spec.head_layers)}.weight"
    last_of_value = f"value_head.{len(spec.value_layers)}.weight"
    gains = {last: SMALL_GAIN, last_of_value: 1.0, "query.weight": 1.0, "key.weight": 1.0, "value.weight": 1.0}
    return {
        name: jnp.asarray(_orthogonal(shape, random) * gains.get(name, math.sqrt(2)))
        if name.endswith(".weight")
        else jnp.full(shape, 1.0 if name.endswith(".scale") else 0.0, jnp.float32)
        for name, shape in shapes(spec).items()
    }


def parameter_count(spec: NetworkSpec) -> int:
    """Count the numbers that are trained."""
    return sum(math.prod(shape) for name, shape in shapes(spec).items() if name not in NORMALISATION)


def trained(params: Params) -> Params:
    """Return the arrays that gradients change."""
    return {name: each for name, each in params.items() if name not in NORMALISATION}


def normalisation(params: Params) -> Params:
    """Return the arrays that running statistics change."""
    return {name: each for name, each in params.items() if name in NORMALISATION}


def _orthogonal(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    out, width = shape
    if not min(shape):
        return np.zeros(shape, np.float32)
    q, r = np.linalg.qr(random.normal(size=(max(shape), min(shape))))
    q *= np.sign(np.diagonal(r))
    return (q if out >= width else q.T).astype(np.float32)


# ---- evaluation


def apply(spec: NetworkSpec, params: Params, rows: AnyArray, context: AnyArray, mask: AnyArray) -> jax.Array:
    """Return scores (…, actions), ILLEGAL where the mask is false."""
    if spec.rows:
        return _row_scores(spec, params, *_encode_rows(spec, params, rows, context), mask)
    outputs = distribution(spec, params, context)
    scores = outputs[..., 0] if spec.atoms == 1 else jax.nn.softmax(outputs) @ support(spec)
    return jnp.where(mask, scores, ILLEGAL)


def value(spec: NetworkSpec, params: Params, rows: AnyArray, context: AnyArray, mask: AnyArray) -> jax.Array:
    """Return the value of the situation (…,)."""
    if spec.rows:
        return _row_value(spec, params, *_encode_rows(spec, params, rows, context), mask)
    return mlp(params, "value_head", len(spec.value_layers) + 1, encode_context(spec, params, context), spec.act)[..., 0]


def apply_and_value(spec: NetworkSpec, params: Params, rows: AnyArray, context: AnyArray, mask: AnyArray) -> tuple[jax.Array, jax.Array]:
    """Both, with the encoders evaluated once."""
    if not spec.rows:
        return apply(spec, params, rows, context, mask), value(spec, params, rows, context, mask)
    h, e = _encode_rows(spec, params, rows, context)
    return _row_scores(spec, params, h, e, mask), _row_value(spec, params, h, e, mask)


def distribution(spec: NetworkSpec, params: Params, context: AnyArray) -> jax.Array:
    """Return the head's outputs (…, actions, atoms) without rows; softmax over atoms gives the distribution on `support`."""
    outputs = mlp(params, "head", len(spec.head_layers) + 1, encode_context(spec, params, context), spec.act)
    return outputs.reshape(*outputs.shape[:-1], spec.actions, spec.atoms)


def support(spec: NetworkSpec) -> jax.Array:
    """Return the values (atoms,) that a distribution is over."""
    return jnp.linspace(spec.low, spec.high, spec.atoms, dtype=jnp.float32)


def encode_context(spec: NetworkSpec, params: Params, context: AnyArray) -> jax.Array:
    """Return the encoded context of a network without rows."""
    z = normalised(params, "context", context)
    now, history = z[..., : spec.context - spec.history], z[..., spec.context - spec.history :]
    memory = hidden(params, "memory", len(spec.memory_layers), history, spec.act)
    return hidden(params, "context", len(spec.context_layers), jnp.concatenate([now, memory], -1), spec.act)


def normalised(params: Params, part: str, x: AnyArray) -> jax.Array:
    """Return `rows` or `context` as the layers see them."""
    return (jnp.asarray(x) - params[f"{part}.mean"]) * params[f"{part}.scale"]


def dense(params: Params, name: str, x: jax.Array) -> jax.Array:
    """Apply one linear layer."""
    return x @ params[f"{name}.weight"].T + params[f"{name}.bias"]


def hidden(params: Params, name: str, layers: int, x: jax.Array, act: str) -> jax.Array:
    """Apply layers with an activation after each."""
    for number in range(layers):
        x = ACTS[act](dense(params, f"{name}.{number}", x))
    return x


def mlp(params: Params, name: str, layers: int, x: jax.Array, act: str) -> jax.Array:
    """Apply layers with an activation between them, the last one linear."""
    return dense(params, f"{name}.{layers - 1}", hidden(params, name, layers - 1, x, act))


def _encode_rows(spec: NetworkSpec, params: Params, rows: AnyArray, context: AnyArray) -> tuple[jax.Array, jax.Array]:
    x = normalised(params, "rows", rows)
    z = normalised(params, "context", context)
    h = hidden(params, "row", len(spec.row_layers), x, spec.act)
    return h, hidden(params, "context", len(spec.context_layers), z, spec.act)


def _row_scores(spec: NetworkSpec, params: Params, h: jax.Array, e: jax.Array, mask: AnyArray) -> jax.Array:
    """Score rows with the head's first layer split: what all rows share is multiplied once, not once for each row."""
    weight = params["head.0.weight"]
    width = h.shape[-1]
    together = jnp.concatenate([e, POOLS[spec.pool](spec, params, h, e, mask)], -1)
    shared = together @ weight[:, width:].T + params["head.0.bias"]
    y = h @ weight[:, :width].T + shared[..., None, :]
    for number in range(1, len(spec.head_layers) + 1):
        y = dense(params, f"head.{number}", ACTS[spec.act](y))
    return jnp.where(mask, y[..., 0], ILLEGAL)


def _row_value(spec: NetworkSpec, params: Params, h: jax.Array, e: jax.Array, mask: AnyArray) -> jax.Array:
    x = jnp.concatenate([_mean_of_rows(h, mask), e], -1)
    return mlp(params, "value_head", len(spec.value_layers) + 1, x, spec.act)[..., 0]


def _mean_of_rows(h: jax.Array, mask: AnyArray) -> jax.Array:
    counted = jnp.asarray(mask, h.dtype)
    return jnp.einsum("...n,...nf->...f", counted / jnp.maximum(counted.sum(-1, keepdims=True), 1), h)


def _attention_pool(spec: NetworkSpec, params: Params, h: jax.Array, e: jax.Array, mask: AnyArray) -> jax.Array:
    """Attend without computing keys and values row by row: q·k_i = (keyᵀ q)·h_i and Σ wᵢ vᵢ = value (Σ wᵢ hᵢ)."""
    width, heads = h.shape[-1], spec.heads
    each = width // heads
    query = (e @ params["query.weight"].T).reshape(*e.shape[:-1], heads, each)
    asked = jnp.einsum("...kd,kdf->...kf", query, params["key.weight"].reshape(heads, each, width))
    logits = jnp.einsum("...kf,...nf->...kn", asked, h) / math.sqrt(each)
    weights = jax.nn.softmax(jnp.where(mask[..., None, :], logits, ILLEGAL))
    seen = jnp.einsum("...kn,...nf->...kf", weights, h)
    found = jnp.einsum("...kf,kdf->...kd", seen, params["value.weight"].reshape(heads, each, width))
    return found.reshape(*found.shape[:-2], width)


POOLS: Mapping[str, Callable[[NetworkSpec, Params, jax.Array, jax.Array, AnyArray], jax.Array]] = {
    "none": lambda spec, params, h, e, mask: jnp.zeros((*e.shape[:-1], 0), h.dtype),
    "mean": lambda spec, params, h, e, mask: _mean_of_rows(h, mask),
    "attention": _attention_pool,
}


# ---- choices


def log_probabilities(scores: jax.Array) -> jax.Array:
    """Return the logarithms of the softmax (…, actions) over masked scores."""
    return jax.nn.log_softmax(scores)


def entropy(log_probability: jax.Array) -> jax.Array:
    """Return the entropy in nats (…,); illegal choices add nothing."""
    return -jnp.sum(jnp.exp(log_probability) * log_probability, -1)


def sample(scores: jax.Array, key: jax.Array) -> jax.Array:
    """Draw a choice each (…,) i4 with the probabilities of the softmax (Gumbel's trick); never an illegal one."""
    noise = jax.random.gumbel(key, scores.shape, scores.dtype)
    return jnp.argmax(jnp.where(scores > ILLEGAL / 2, scores + noise, -jnp.inf), -1).astype(jnp.int32)
