"""Values in JSON's terms and back: what a manifest may hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpuyard.errors import DataError

_MAX_DEPTH = 50
_NONFINITE = "$float"  # {"$float": "inf"}: JSON has no number for it


def to_plain(value: object, path: str, depth: int = 0) -> Any:
    """The value as text, numbers, lists and dicts: tuples become lists, infinities and NaN `{"$float": "inf"}`.

    `path` names the value in errors.
    """
    if depth > _MAX_DEPTH:
        raise DataError(f"{path}: nested more than {_MAX_DEPTH} deep")
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {_NONFINITE: str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise DataError(f"{path}: key {wrong[0]!r} is not a text")
        return {key: to_plain(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    raise DataError(f"{path}: a {type(value).__name__} cannot be saved", hint="use text, numbers, lists and tables")


def from_plain(value: Any, depth: int = 0) -> Any:
    """The value that `to_plain` was given, with lists for tuples."""
    if depth > _MAX_DEPTH:
        raise DataError(f"manifest: nested more than {_MAX_DEPTH} deep")
    if isinstance(value, dict):
        if set(value) == {_NONFINITE}:
            return _nonfinite(value[_NONFINITE])
        return {key: from_plain(item, depth + 1) for key, item in value.items()}
    return [from_plain(item, depth + 1) for item in value] if isinstance(value, list) else value


def _nonfinite(text: object) -> float:
    if text not in ("inf", "-inf", "nan"):
        raise DataError(f"{_NONFINITE} = {str(text)[:60]!r} is none of inf, -inf, nan")
    return float(str(text))
