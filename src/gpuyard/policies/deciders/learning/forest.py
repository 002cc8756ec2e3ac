"""A random forest as plain arrays: fitted with scikit-learn (`gpuyard.learn.devices`), saved as safetensors, evaluated with numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.networks.tensor_file import read_arrays, write_arrays

_FORM = "gpuyard-forest-1"
_DTYPES = {"roots": "<i4", "feature": "<i4", "left": "<i4", "right": "<i4", "threshold": "<f8", "value": "<f8"}


@dataclass(frozen=True, eq=False)
class Forest:
    """All trees in one table of nodes. A leaf has `left` −1; children come after their parent."""

    features: int
    roots: Array  # (trees,) i4: node of each root
    feature: Array  # (nodes,) i4: the feature compared; 0 at a leaf
    threshold: Array  # (nodes,) f8: left if the feature, as float32, is not above it
    left: Array  # (nodes,) i4
    right: Array  # (nodes,) i4
    value: Array  # (nodes, outputs) f8: the prediction at a leaf

    @classmethod
    def of(cls, model: object) -> Forest:
        """Take the trees of a fitted RandomForestRegressor."""
        trees = [each.tree_ for each in model.estimators_]  # type: ignore[attr-defined]
        starts = np.cumsum([0] + [tree.node_count for tree in trees])
        joined: dict[str, list[Array]] = {name: [] for name in _DTYPES}
        for start, tree in zip(starts.tolist(), trees, strict=False):
            inner = tree.children_left >= 0
            joined["left"].append(np.where(inner, tree.children_left + start, -1))
            joined["right"].append(np.where(inner, tree.children_right + start, -1))
            joined["feature"].append(np.where(inner, tree.feature, 0))
            joined["threshold"].append(np.where(inner, tree.threshold, 0.0))
            joined["value"].append(tree.value[:, :, 0])
        joined["roots"].append(starts[:-1])
        arrays = {name: np.ascontiguousarray(np.concatenate(parts), _DTYPES[name]) for name, parts in joined.items()}
        return cls(int(model.n_features_in_), **arrays)  # type: ignore[attr-defined]

    def predict(self, x: Array) -> Array:
        """Return (samples, outputs) for x (samples, features): the mean over the trees."""
        seen = np.asarray(x, np.float32)
        at = np.broadcast_to(self.roots, (len(seen), len(self.roots))).copy()
        sample = np.arange(len(seen))[:, None]
        while (inner := self.left[at] >= 0).any():
            goes_left = seen[sample, self.feature[at]] <= self.threshold[at]
            at = np.where(inner, np.where(goes_left, self.left[at], self.right[at]), at)
        mean: Array = self.value[at].mean(axis=1)
        return mean

    def save(self, path: str | PathLike[str]) -> None:
        """Write it as a safetensors file."""
        write_arrays(path, self.arrays, {"form": _FORM, "features": str(self.features)})

    @property
    def arrays(self) -> dict[str, Array]:
        """Return its arrays by name."""
        return {name: getattr(self, name) for name in _DTYPES}

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Forest:
        """Read the forest in a file that `save` wrote; anything else is refused."""
        arrays, metadata = read_arrays(path)
        if metadata.get("form") != _FORM:
            raise DataError(f"{path}: is not a forest")
        text = metadata.get("features", "")
        return cls.of_arrays(arrays, int(text) if text.isdecimal() and len(text) < 6 else 0, str(path))

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array], features: int, where: str) -> Forest:
        """Make a forest of arrays from outside; those that are not a forest of so many features are refused."""
        if set(arrays) != set(_DTYPES):
            raise DataError(f"{where}: is not a forest")
        made = cls(features, **arrays)
        made._check(where)
        return made

    def _check(self, path: str) -> None:
        """Check that every sample reaches a leaf, in every tree."""
        nodes = len(self.left)
        shaped = all(a.shape == (nodes,) for a in (self.feature, self.threshold, self.left, self.right))
        shaped = shaped and self.value.ndim == 2 and len(self.value) == nodes and self.roots.ndim == 1
        plain = all(getattr(self, name).dtype == np.dtype(kind) for name, kind in _DTYPES.items())
        if not (plain and shaped):
            raise DataError(f"{path}: the arrays of this forest do not fit together")
        here, inner = np.arange(nodes), self.left >= 0
        down = (self.left > here) & (self.right > here) & (self.left < nodes) & (self.right < nodes)
        known = (self.feature >= 0) & (self.feature < self.features)
        rooted = len(self.roots) > 0 and bool(((self.roots >= 0) & (self.roots < nodes)).all())
        if not ((down & known)[inner].all() and rooted and np.isfinite(self.value).all() and not np.isnan(self.threshold).any()):
            raise DataError(f"{path}: the trees of this forest are broken")
