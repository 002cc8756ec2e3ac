"""The training tasks in JAX, on CPU or GPU: the same networks as in PyTorch, without a library of layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.workbench.data import POOL, image_batches, text_batches
from gpuyard.workbench.task import CLASSES, HEADS, PATCH, VOCABULARY, Scale, TaskRequest, scale_of

Weights = dict[str, Any]
Arrays = Any  # an array, or dictionaries of arrays
Forward = Callable[[Weights, Any], Any]  # weights, inputs → scores
RATE, DECAY, FAST, SLOW = 1e-3, 0.01, 0.9, 0.999  # of AdamW


class JaxTraining:
    """Steps of AdamW on batches that are used in turn."""

    def __init__(
        self, device: jax.Device, weights: Weights, forward: Forward, inputs: Array, labels: Array, *, frozen: tuple[str, ...] = ()
    ) -> None:
        self._device = device
        trained = {name: value for name, value in weights.items() if not name.startswith(frozen or ("\0",))}
        fixed = {name: value for name, value in weights.items() if name not in trained}
        zeros = {name: np.zeros_like(value) for name, value in trained.items()}
        self._state = self._placed({"weights": trained, "mean": zeros, "square": zeros, "steps": np.zeros((), np.float32)})
        self._fixed, self._inputs, self._labels = (self._placed(each) for each in (fixed, inputs, labels))
        self._update = _update_of(forward)
        self._last: Any = None
        self.device = "cpu" if device.platform == "cpu" else "gpu"
        self.device_name = "cpu" if self.device == "cpu" else str(device.device_kind)

    def step(self, number: int) -> None:
        """Do one step of the optimiser."""
        batch = number % POOL
        self._state, self._last = self._update(self._state, self._fixed, self._inputs[batch], self._labels[batch])

    def settle(self) -> float:
        """Wait for the device and return the loss."""
        return float(self._last) if self._last is not None else float("nan")

    def arrays(self) -> dict[str, Array]:
        """Return the weights and what the optimiser remembers."""
        state = self._state
        found = {f"{part}.{name}": np.array(value) for part in ("weights", "mean", "square") for name, value in state[part].items()}
        return found | {"steps": np.array(state["steps"])}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take over what `arrays` returned."""
        parts = {
            part: {name.removeprefix(f"{part}."): value for name, value in arrays.items() if name.startswith(f"{part}.")}
            for part in ("weights", "mean", "square")
        }
        self._state = self._placed({**parts, "steps": arrays["steps"]})

    def _placed(self, value: Arrays) -> Any:
        return jax.device_put(value, self._device)


def _update_of(forward: Forward) -> Any:
    """Compile a step of AdamW on the mean cross entropy."""

    def loss(weights: Weights, fixed: Weights, inputs: jax.Array, labels: jax.Array) -> Any:
        scores = jax.nn.log_softmax(forward({**fixed, **weights}, inputs))
        return -jnp.take_along_axis(scores, labels[..., None], -1).mean()

    def update(state: dict[str, Any], fixed: Weights, inputs: jax.Array, labels: jax.Array) -> tuple[dict[str, Any], Any]:
        value, slope = jax.value_and_grad(loss)(state["weights"], fixed, inputs, labels)
        steps = state["steps"] + 1
        mean = jax.tree.map(lambda m, g: FAST * m + (1 - FAST) * g, state["mean"], slope)
        square = jax.tree.map(lambda s, g: SLOW * s + (1 - SLOW) * g * g, state["square"], slope)

        def moved(weight: jax.Array, m: jax.Array, s: jax.Array) -> Any:
            size = jnp.sqrt(s / (1 - SLOW**steps)) + 1e-8
            return weight * (1 - RATE * DECAY) - RATE * (m / (1 - FAST**steps)) / size

        weights = jax.tree.map(moved, state["weights"], mean, square)
        return {"weights": weights, "mean": mean, "square": square, "steps": steps}, value

    return jax.jit(update, donate_argnums=(0,))


# ── the networks ──


def _normal(x: jax.Array, weights: Weights, name: str) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weights[f"{name}.scale"] + weights[f"{name}.shift"]


def _dense(x: jax.Array, weights: Weights, name: str) -> Any:
    return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _block(x: jax.Array, weights: Weights, name: str, *, causal: bool) -> Any:
    batch, length, width = x.shape
    parts = _dense(_normal(x, weights, f"{name}.before"), weights, f"{name}.mix").reshape(batch, length, 3, HEADS, width // HEADS)
    seen = jax.nn.dot_product_attention(parts[:, :, 0], parts[:, :, 1], parts[:, :, 2], is_causal=causal)
    x = x + _dense(seen.reshape(batch, length, width), weights, f"{name}.out")
    inner = jax.nn.gelu(_dense(_normal(x, weights, f"{name}.between"), weights, f"{name}.up"))
    return x + _dense(inner, weights, f"{name}.down")


def _language(scale: Scale) -> Forward:
    def forward(weights: Weights, tokens: jax.Array) -> Any:
        x = weights["tokens"][tokens] + weights["places"]
        for layer in range(scale.layers):
            x = _block(x, weights, f"block{layer}", causal=True)
        return _dense(_normal(x, weights, "norm"), weights, "head")

    return forward


def _vision(scale: Scale) -> Forward:
    def forward(weights: Weights, images: jax.Array) -> Any:
        count, side = images.shape[0], scale.image // PATCH
        patches = images.reshape(count, 3, side, PATCH, side, PATCH).transpose(0, 2, 4, 1, 3, 5).reshape(count, side * side, -1)
        x = _dense(patches, weights, "patches") + weights["places"]
        for layer in range(scale.layers):
            x = _block(x, weights, f"block{layer}", causal=False)
        return _dense(_normal(x, weights, "norm").mean(1), weights, "head")

    return forward


def _convolutions(weights: Weights, images: jax.Array) -> Any:
    x = images
    for stage in range(3):
        for part in range(2):
            kernel = weights[f"conv{stage}{part}"]
            x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))
            # over the batch and the picture, as a batch normalisation does in training
            x = (x - x.mean((0, 2, 3), keepdims=True)) / jnp.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-5)
            x = jax.nn.relu(x)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return _dense(x.mean((2, 3)), weights, "head")


def _drawn(random: np.random.Generator, *shape: int, inside: int) -> Array:
    drawn: Array = (random.standard_normal(shape) / np.sqrt(inside)).astype(np.float32)
    return drawn


def _dense_weights(random: np.random.Generator, name: str, inside: int, outside: int) -> Weights:
    return {f"{name}.weight": _drawn(random, inside, outside, inside=inside), f"{name}.bias": np.zeros(outside, np.float32)}


def _norm_weights(name: str, width: int) -> Weights:
    return {f"{name}.scale": np.ones(width, np.float32), f"{name}.shift": np.zeros(width, np.float32)}


def _transformer(random: np.random.Generator, scale: Scale, places: int, outside: int) -> Weights:
    width = scale.width
    found: Weights = {"places": _drawn(random, places, width, inside=width), **_norm_weights("norm", width)}
    found |= _dense_weights(random, "head", width, outside)
    for layer in range(scale.layers):
        name = f"block{layer}"
        found |= _norm_weights(f"{name}.before", width) | _norm_weights(f"{name}.between", width)
        for part, inside, out in (("mix", width, 3 * width), ("out", width, width), ("up", width, 4 * width), ("down", 4 * width, width)):
            found |= _dense_weights(random, f"{name}.{part}", inside, out)
    return found


def make(asked: TaskRequest) -> JaxTraining:
    """Make the task on the device asked for."""
    device = _device(asked.device)
    scale = scale_of(asked, "cpu" if device.platform == "cpu" else "gpu")
    random = np.random.default_rng([asked.seed, 0x6E6574])
    if asked.kind == "lm":
        tokens = text_batches(asked.seed, scale.sequences, scale.context + 1).astype(np.int32)
        weights = _transformer(random, scale, scale.context, VOCABULARY)
        weights["tokens"] = _drawn(random, VOCABULARY, scale.width, inside=1)
        frozen = ("tokens", "places", *(f"block{layer}." for layer in range(scale.layers // 2)))
        return JaxTraining(device, weights, _language(scale), tokens[..., :-1], tokens[..., 1:], frozen=frozen)
    images, labels = image_batches(asked.seed, scale.images, scale.image)
    if asked.kind == "vit":
        weights = _transformer(random, scale, (scale.image // PATCH) ** 2, CLASSES)
        weights |= _dense_weights(random, "patches", 3 * PATCH * PATCH, scale.width)
        return JaxTraining(device, weights, _vision(scale), images, labels.astype(np.int32))
    weights, inside = {}, 3
    for stage, outside in enumerate((scale.channels, 2 * scale.channels, 4 * scale.channels)):
        for part, width in enumerate((inside, outside)):
            weights[f"conv{stage}{part}"] = _drawn(random, outside, width, 3, 3, inside=9 * width)
        inside = outside
    return JaxTraining(device, weights | _dense_weights(random, "head", inside, CLASSES), _convolutions, images, labels.astype(np.int32))


def _device(asked: str) -> Any:
    if asked == "cpu":
        return jax.devices("cpu")[0]
    found = jax.devices()[0]
    if asked == "gpu" and found.platform == "cpu":
        raise UsageError("jax sees no GPU", hint="--device auto takes the CPU then")
    return found
