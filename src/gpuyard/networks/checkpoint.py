"""A trained policy as one safetensors file: the arrays that `networks.spec` describes, and a manifest as JSON text in the metadata.

PyTorch, JAX and numpy read it with the safetensors library. A file from outside can do no harm: nothing is executed, sizes
are bounded before anything is read, and every fault is one line that names the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuyard.arrays import Array
from gpuyard.errors import CheckpointError, DataError
from gpuyard.features.schema import Schema
from gpuyard.files import is_file, parse_json
from gpuyard.networks.manifest import NAME, Manifest, TrainingRecord, Use, manifest_from_dict, manifest_to_dict
from gpuyard.networks.shapes import check_arrays
from gpuyard.networks.tensor_file import Caps, Pathlike, read_arrays, write_arrays
from gpuyard.registry import unknown_name

__all__ = [
    "SHIPPED", "Checkpoint", "Manifest", "TrainingRecord", "Use", "check_schema", "find_checkpoint", "read_arrays", "read_checkpoint",
    "shipped_names", "write_arrays", "write_checkpoint",
]  # fmt: skip

KEY = "gpuyard"  # names the manifest in the metadata
SUFFIX = ".safetensors"
PREFIX = "learned:"
SHIPPED = Path(__file__).parent / "shipped"
POLICY_CAPS = Caps(file=64 << 20, header=2 << 20, tensors=1_000)
_SHOWN = 5  # features in a message
_LONGEST = 1_000  # characters of a message


@dataclass(frozen=True)
class Checkpoint:
    """A saved policy. `Network.of(manifest.network, arrays)` evaluates it."""

    manifest: Manifest
    arrays: Mapping[str, Array]


def write_checkpoint(path: Pathlike, manifest: Manifest, arrays: Mapping[str, Array]) -> None:
    """Write a policy as one file, whole or not at all. What could not be read again is refused."""
    check_arrays(manifest.network, arrays, str(path))
    text = json.dumps(manifest_to_dict(manifest), separators=(",", ":"), allow_nan=False)
    write_arrays(path, arrays, {KEY: text}, caps=POLICY_CAPS)


def read_checkpoint(path: Pathlike) -> Checkpoint:
    """Read the policy in a file and check its arrays against its manifest."""
    try:
        arrays, meta = read_arrays(path, caps=POLICY_CAPS)
        if KEY not in meta:
            raise CheckpointError(f"{path}: a safetensors file without a gpuyard manifest", hint="make one with gpuyard train")
        where = f"{path}: manifest"
        manifest = manifest_from_dict(parse_json(meta[KEY], where, strict=True), where)
        check_arrays(manifest.network, arrays, str(path))
    except (DataError, UnicodeEncodeError) as error:
        text = " ".join(str(error).split())[:_LONGEST]
        raise CheckpointError(text if str(path) in text else f"{path}: {text}") from None
    return Checkpoint(manifest, arrays)


def check_schema(manifest: Manifest, schema: Schema) -> None:
    """Refuse a checkpoint whose network was made for features other than those of `schema`, and name them."""
    made = manifest.schema
    if made.hash == schema.hash:
        return
    about = f"checkpoint {manifest.name!r}"
    hint = "train it again, or use the version of gpuyard that made it"
    if made.decision != schema.decision:
        raise CheckpointError(
            f"{about}: decides on a {made.decision[:100]!r}, not on a {schema.decision!r}",
            hint="use it for the decision it was made for",
        )
    differences = [
        *_differences("row", made.rows, schema.rows),
        *_differences("context", made.context, schema.context),
    ]
    if made.version != schema.version:
        differences.append(f"version {made.version} of the features, not {schema.version}")
    raise CheckpointError(f"{about}: made for other features: {'; '.join(differences)}", hint=hint)


def _differences(what: str, made: tuple[str, ...], now: tuple[str, ...]) -> list[str]:
    """Say which features of one kind a checkpoint lacks and which it has in excess."""
    if made == now:
        return []
    gone, new = [name for name in made if name not in now], [name for name in now if name not in made]
    texts = [f"{what} {word} {_listed(names)}" for word, names in (("has also", gone), ("lacks", new)) if names]
    return texts or [f"{what} has them in another order or number"]


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name[:100]) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def shipped_names(folder: Path = SHIPPED) -> tuple[str, ...]:
    """Return the names of the policies that come with gpuyard."""
    return tuple(sorted(path.stem for path in folder.glob(f"*{SUFFIX}") if NAME.fullmatch(path.stem)))


def find_checkpoint(text: str, folder: Path = SHIPPED) -> Path:
    """Return the file that `learned:NAME`, a policy in `folder`, or a path names."""
    names = shipped_names(folder)
    if text.startswith(PREFIX):
        name = text.removeprefix(PREFIX)
        if name not in names:
            raise unknown_name("learned policy", name, names)
        return folder / f"{name}{SUFFIX}"
    if not is_file(text):
        listed = f"name a file, or {PREFIX}NAME with NAME of: {', '.join(names) or 'none yet'}"
        hint = f"did you mean {PREFIX}{text}?" if text in names else listed
        raise CheckpointError(f"{text[:200]!r}: no such checkpoint", hint=hint)
    return Path(text)
