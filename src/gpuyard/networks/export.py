"""Turn a network that was trained in PyTorch, JAX or numpy into a checkpoint: arrays, checked by shape, without any framework.

    export_network("mine.safetensors", model.state_dict(), env.unwrapped.purpose, act="tanh")

`weights` are a state dict, a pytree of parameters, or pairs (weight (out, in), bias (out,)) in order. A layer is known by the names of
its arrays: `weight` (out, in) as in PyTorch, `kernel` or `w` (in, out) as in Flax and Haiku, with `bias` or `b`, or without one.
They are one of two things:

- **One chain of layers**, with `act` between them. Where there are rows to choose from (jobs, hosts, devices), it sees one row and the
  context side by side and gives one score; it is applied to each row. Where there is a fixed number of actions (a switch), it sees the
  context and gives a score for each.
- **Stacks by name**, `{"row": …, "context": …, "head": …}`, each a chain of its own, joined as `gpuyard.networks.spec` says.

Two arguments say what shapes cannot. `layers` names those layers that make the choice, in order, where there are others
too (a value function) or the order is another. `seen` and `scores`, observations and what the network said to them, are compared with what
the checkpoint says, so that a wrong activation or orientation is found at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError, UsageError
from gpuyard.features.schema import Schema
from gpuyard.networks.checkpoint import Checkpoint, Manifest, TrainingRecord, Use, write_checkpoint
from gpuyard.networks.manifest import NAME
from gpuyard.networks.network import Network
from gpuyard.networks.spec import NetworkSpec
from gpuyard.networks.tensor_file import Pathlike
from gpuyard.registry import unknown_name

Act = Literal["relu", "tanh"]
Pool = Literal["none", "mean"]
STACKS = ("row", "context", "memory", "head")
PARTS = ("rows", "context", "mask")  # of an observation
ELSE = "what does not fit can decide as a class with decide(snapshot)"
TOLERANCE = 1e-4  # of the largest score: sums are taken in another order
MOST_COMPARED = 256  # observations
MOST_ARRAYS = 1_000
_WEIGHTS: Mapping[str, Callable[[Array], Array]] = {
    "weight": lambda array: array,  # (out, in)
    "kernel": lambda array: array.T,  # (in, out)
    "w": lambda array: array.T,
}
_BIASES = ("bias", "b")


@dataclass(frozen=True)
class Purpose:
    """The decision that a network is for, the scheduler around it, and the data that it was trained on.

    Environments have theirs as `env.unwrapped.purpose`.
    """

    schema: Schema  # what it sees
    choices: Mapping[str, Any] = field(default_factory=dict)  # the rest of the scheduler, as in `Manifest.choices`
    objective: str = "bsld"
    workloads: tuple[str, ...] = ()  # as `gpuyard train` takes them; `gpuyard evaluate` holds back a part of them
    cluster: str = ""  # for workloads that name none
    trained_on: tuple[Use, ...] = ()  # `gpuyard evaluate` refuses to judge it on these


class Layer(NamedTuple):
    """A linear layer."""

    name: str
    weight: Array  # (out, in) f4
    bias: Array  # (out,) f4


def export_network(
    path: Pathlike, weights: object, purpose: Purpose, *, act: Act, layers: Sequence[str] = (),
    inputs: Sequence[str] = (), pool: Pool = "none", mean: Mapping[str, Any] | None = None,
    std: Mapping[str, Any] | None = None, seen: Mapping[str, Any] | None = None, scores: object = None, name: str = "", title: str = "",
    learner: str = "own", seed: int = 0, steps: int = 0,
) -> Checkpoint:  # fmt: skip
    """Write a network as a checkpoint, which `gpuyard compare --scheduler FILE`, `evaluate` and the engine use; return it.

    `layers`: names of layers, or beginnings of names, in order; see above. `inputs`: what the first layer of a chain sees side by side, of
    `rows`, `context` and `mask`; `tuple(env.observation_space)` is the order of Stable-Baselines3. `pool`: what the head also sees of all
    rows. `mean` and `std` (of `rows`, `context`): inputs are (x − mean) / std. `seen` and `scores`: observations, each part with a leading
    axis, and what the network says to them, (n, actions), or (n, rows).
    """
    given = _Given.of(weights, purpose, layers)
    spec, arrays = given.stacked(act, pool) if given.stacks else given.chained(act, tuple(inputs))
    arrays |= _normalisation(purpose.schema, mean or {}, std or {})
    file = Path(path)
    plain = file.stem.lower()
    training = TrainingRecord(
        learner, {"workloads": list(purpose.workloads), "cluster": purpose.cluster}, seed, steps, tuple(purpose.trained_on)
    )
    manifest = Manifest(
        name or (plain if NAME.fullmatch(plain) else "own"), title or "Trained elsewhere", purpose.schema, spec, purpose.objective,
        purpose.choices, training, _versions(), "gpuyard.networks.export",
    )  # fmt: skip
    if (seen is None) != (scores is None):
        raise UsageError("seen and scores belong together", hint="give both or none")
    if seen is not None:
        _compare(Network.of(spec, arrays), seen, _numbers(scores, "scores"))
    write_checkpoint(file, manifest, arrays)
    return Checkpoint(manifest, arrays)


def _versions() -> dict[str, str]:
    found = {"numpy": np.__version__}
    with suppress(PackageNotFoundError):
        found["gpuyard"] = version("gpuyard")
    return found


# ── layers from state dicts and pytrees ──


def linear_layers(weights: object, layers: Sequence[str] = ()) -> list[Layer]:
    """Return the linear layers in a state dict, a pytree or a list of pairs, in order: those that `layers` names, or all."""
    found: dict[str, dict[str, Array]] = {}
    for count, (path, array) in enumerate(_leaves(weights, ())):
        if count >= MOST_ARRAYS:
            raise DataError(f"more than {MOST_ARRAYS:,} arrays", hint="name the layers that make the choice: layers=(…)")
        parent, _, leaf = path.rpartition(".")
        found.setdefault(parent, {})[leaf] = array
    if isinstance(layers, str):
        raise UsageError(f"layers: expected a list of names, got {layers!r}", hint=f"layers=({layers!r},)")
    names = [name for prefix in layers for name in _under(prefix, list(found))] if layers else list(found)
    return [_layer(name, found[name]) for name in names]


def _leaves(tree: object, path: tuple[str, ...]) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of a tree with their paths, dots between; a pair of arrays is a layer without names."""
    if isinstance(tree, Mapping):
        for key, each in tree.items():
            yield from _leaves(each, (*path, str(key)))
    elif isinstance(tree, list | tuple):
        pair = len(tree) == 2 and not any(isinstance(each, Mapping | list | tuple) for each in tree)
        for key, each in zip(("weight", "bias") if pair else map(str, range(len(tree))), tree, strict=True):
            yield from _leaves(each, (*path, key))
    else:
        name = ".".join(path) or "weights"
        yield name, _numbers(tree, name)


def _numbers(given: object, name: str) -> Array:
    """Return an array, or a tensor of PyTorch wherever it is, as float32."""
    if hasattr(given, "detach"):
        given = given.detach().cpu().float()
    try:
        return np.asarray(given).astype(np.float32)
    except (TypeError, ValueError):
        raise DataError(f"{name}: is not an array of numbers but {type(given).__name__}") from None


def _under(prefix: str, names: Sequence[str]) -> list[str]:
    found = [name for name in names if name == prefix or name.startswith(f"{prefix}.")]
    if not found:
        raise unknown_name("layer", prefix, list(names))
    return found


def _layer(name: str, arrays: Mapping[str, Array]) -> Layer:
    """Read the arrays of one layer; refuse what is not a linear layer."""
    where = f"layer {name!r}" if name else "weights"
    weights = [leaf for leaf in arrays if leaf in _WEIGHTS]
    others = [leaf for leaf in arrays if leaf not in _WEIGHTS and leaf not in _BIASES]
    if len(weights) != 1 or others:
        what = ", ".join(arrays)
        raise DataError(f"{where}: {what} is not a linear layer", hint=f"layers=(…) names those that make the choice; {ELSE}")
    weight = _WEIGHTS[weights[0]](arrays[weights[0]])
    if weight.ndim != 2:
        raise DataError(f"{where}: {weights[0]} has shape {arrays[weights[0]].shape}, a linear layer has two axes", hint=ELSE)
    bias = next((arrays[leaf] for leaf in _BIASES if leaf in arrays), np.zeros(len(weight), np.float32))
    if bias.shape != (len(weight),):
        hint = "transpose it: pairs are (weight (out, in), bias (out,))" if bias.shape == (weight.shape[1],) else ""
        raise DataError(f"{where}: weight has shape {weight.shape}, bias {bias.shape}", hint=hint)
    return Layer(name, weight, bias)


# ── layers as a network ──


@dataclass(frozen=True)
class _Given:
    """The layers as they were given, and what they are for."""

    purpose: Purpose
    stacks: Mapping[str, Sequence[Layer]]  # by name; empty: one chain
    chain: Sequence[Layer]

    @classmethod
    def of(cls, weights: object, purpose: Purpose, layers: Sequence[str]) -> _Given:
        if isinstance(weights, Mapping) and "head" in weights and set(weights) <= set(STACKS) and not layers:
            return cls(purpose, {name: linear_layers(each) for name, each in weights.items()}, ())
        chain = linear_layers(weights, layers)
        if not chain:
            raise DataError("no layers in these weights", hint="give a state dict, a pytree, or pairs of weight and bias")
        for before, after in pairwise(chain):
            if after.weight.shape[1] != len(before.weight):
                what = (
                    f"layer {after.name!r} takes {after.weight.shape[1]} numbers, and {before.name!r} before it gives {len(before.weight)}"
                )
                raise DataError(what, hint="name the layers that make the choice, in order: layers=(…)")
        return cls(purpose, {}, chain)

    def chained(self, act: Act, inputs: tuple[str, ...]) -> tuple[NetworkSpec, dict[str, Array]]:
        """Return a network whose head alone does the work."""
        schema = self.purpose.schema
        outputs = len(self.chain[-1].weight)
        self._check_outputs(outputs)
        weight, bias = self._first(outputs, inputs)
        head = [Layer(self.chain[0].name, weight, bias), *self.chain[1:]]
        hidden = tuple(len(layer.weight) for layer in head[:-1])
        rows = len(schema.rows)
        spec = NetworkSpec(rows, len(schema.context), 0 if rows else outputs, head_layers=hidden, value_layers=(), act=act)
        return spec, _named("head", head)

    def _first(self, actions: int, inputs: tuple[str, ...]) -> tuple[Array, Array]:
        """Return the first layer for inputs in the order row, context. The mask is 1 wherever a choice is scored."""
        schema, first = self.purpose.schema, self.chain[0]
        widths = {"rows": len(schema.rows), "context": len(schema.context), "mask": 1 if schema.rows else actions}
        usual = ("rows", "context") if schema.rows else ("context",)
        if not inputs:
            inputs = ("rows",) if schema.rows and first.weight.shape[1] == widths["rows"] else usual
        for name in inputs:
            if not widths.get(name):
                raise unknown_name("input", name, [part for part in PARTS if widths[part]])
        if sum(widths[name] for name in inputs) != first.weight.shape[1] or len(set(inputs)) < len(inputs):
            raise self._wrong_width(first.weight.shape[1], inputs, widths)
        parts = dict(zip(inputs, np.split(first.weight, np.cumsum([widths[name] for name in inputs])[:-1], axis=1), strict=True))
        empty = {name: np.zeros((len(first.weight), widths[name]), np.float32) for name in usual}
        bias = first.bias + parts["mask"].sum(axis=1) if "mask" in parts else first.bias
        return np.concatenate([parts.get(name, empty[name]) for name in usual], axis=1), bias

    def _wrong_width(self, seen: int, inputs: tuple[str, ...], widths: Mapping[str, int]) -> DataError:
        known = " + ".join(f"{widths[name]} ({name})" for name in inputs)
        what = f"layer {self.chain[0].name!r} takes {seen} numbers, the inputs have {known}"
        if not self.purpose.schema.rows and seen == widths["context"] + widths["mask"]:
            return DataError(what, hint="inputs=('context', 'mask')")
        return DataError(what, hint=f"a network scores one row at a time; {ELSE}" if self.purpose.schema.rows else ELSE)

    def _check_outputs(self, outputs: int) -> None:
        schema, last = self.purpose.schema, self.chain[-1].name
        if schema.rows and outputs != 1:
            what = f"layer {last!r} gives {outputs} numbers, and a {schema.decision} gets one score"
            raise DataError(what, hint=f"a network is asked about one row at a time; {ELSE}")
        schedulers = self.purpose.choices.get("schedulers")
        if isinstance(schedulers, list | tuple) and len(schedulers) != outputs:
            raise DataError(f"layer {last!r} gives {outputs} scores, and there are {len(schedulers)} schedulers to choose from")

    def stacked(self, act: Act, pool: Pool) -> tuple[NetworkSpec, dict[str, Array]]:
        """Return a network of several stacks, as they are."""
        schema, stacks = self.purpose.schema, self.stacks
        sizes = {name: tuple(len(layer.weight) for layer in stacks.get(name, ())) for name in STACKS}
        if not sizes["head"]:
            raise DataError("the head has no layers")
        memory = stacks.get("memory", ())
        spec = NetworkSpec(
            len(schema.rows), len(schema.context), 0 if schema.rows else sizes["head"][-1], sizes["row"], sizes["context"], sizes["memory"],
            sizes["head"][:-1], (), memory[0].weight.shape[1] if memory else 0, pool, act=act,
        )  # fmt: skip
        return spec, {key: array for name, layers in stacks.items() for key, array in _named(name, layers).items()}


def _named(stack: str, layers: Sequence[Layer]) -> dict[str, Array]:
    return {f"{stack}.{i}.{what}": getattr(layer, what) for i, layer in enumerate(layers) for what in ("weight", "bias")}


def _normalisation(schema: Schema, mean: Mapping[str, Any], std: Mapping[str, Any]) -> dict[str, Array]:
    """Return the arrays by which inputs are normalised."""
    widths = {name: len(names) for name, names in (("rows", schema.rows), ("context", schema.context)) if names or name == "context"}
    found: dict[str, Array] = {}
    for given in (*mean, *std):
        if given not in widths:
            raise unknown_name("input", given, list(widths))
    for name, width in widths.items():
        middle, spread = (_numbers(table.get(name, np.full(width, otherwise)), name) for table, otherwise in ((mean, 0.0), (std, 1.0)))
        if not (spread > 0).all():
            raise DataError(f"std of {name}: is not above 0 everywhere")
        found |= {f"{name}.mean": middle, f"{name}.scale": (1.0 / spread).astype(np.float32)}
    return found


def _compare(network: Network, seen: Mapping[str, Any], scores: Array) -> None:
    """Refuse a network whose scores are not those given."""
    parts = {name: np.asarray(_numbers(each, name)) for name, each in seen.items()}
    if "context" not in parts or scores.ndim != 2 or (network.spec.rows and "rows" not in parts):
        raise UsageError("seen and scores: expected observations with a leading axis, and (n, actions) scores")
    if any(len(part) != len(scores) for part in parts.values()):
        raise UsageError(f"seen and scores: {len(scores)} scores for {', '.join(f'{len(part)} {name}' for name, part in parts.items())}")
    for i in range(min(len(scores), MOST_COMPARED)):
        made = network.scores(parts["rows"][i] if network.spec.rows else np.empty((0, 0)), parts["context"][i])
        if made.shape != scores[i].shape:
            raise DataError(f"{len(scores[i])} scores given for an observation, and the network gives {len(made)}")
        legal = parts["mask"][i] > 0 if "mask" in parts else np.ones(len(made), bool)
        ours, theirs = made[legal], scores[i][legal].astype(np.float64)
        gap = float(np.abs(ours - theirs).max(initial=0.0))
        if not gap <= TOLERANCE * max(1.0, float(np.abs(theirs).max(initial=0.0))):
            what = f"the scores of observation {i} differ by {gap:.3g} from those given"
            raise DataError(what, hint=f"is act={network.spec.act!r} right, and are layers and inputs in order?")
