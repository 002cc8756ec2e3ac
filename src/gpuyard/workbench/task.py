"""The jobs of the workbench: steps of real work, with a state that can be saved and restored."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Protocol

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.registry import unknown_name


@dataclass(frozen=True)
class Scale:
    """How large the work of a step is."""

    width: int  # of the language model
    layers: int
    context: int  # tokens of a sequence
    sequences: int  # of a batch
    image: int  # pixels of a side
    channels: int  # of the first convolution
    images: int  # of a batch
    rows: int  # of a chunk of the table


SCALES: Mapping[str, Scale] = MappingProxyType(
    {
        "small": Scale(width=64, layers=2, context=32, sequences=8, image=16, channels=8, images=16, rows=50_000),
        "large": Scale(width=512, layers=6, context=256, sequences=16, image=64, channels=64, images=128, rows=4_000_000),
    }
)
HEADS = 4
VOCABULARY = 64  # tokens of the generated text
CLASSES = 8  # of the generated images
RATE, DECAY, FAST, SLOW = 1e-3, 0.01, 0.9, 0.999  # of AdamW
PATCH = 8  # pixels of a side, for the ViT; at most half of an image

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "lm": "fine-tune the upper half of a small language model on generated text",
        "cnn": "train a convolutional network on generated images",
        "vit": "train a vision transformer on generated images",
        "etl": "filter, join, group and rank the rows of a generated table",
    }
)
_TRAINING = ("lm", "cnn", "vit")
_MODULES: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "torch": ("gpuyard.workbench.on_torch", (*_TRAINING, "etl")),
        "jax": ("gpuyard.workbench.on_jax", _TRAINING),
        "numpy": ("gpuyard.workbench.on_numpy", ("etl",)),
    }
)  # the library that a job asks for → where its tasks are made, and which; the first that is installed is taken


class Task(Protocol):
    """Work in steps. The state after n steps does not depend on where they were interrupted."""

    device: str  # cpu or gpu
    device_name: str

    def step(self, number: int) -> None:
        """Do step `number`, from 0; the device may still be busy with it on return."""

    def settle(self) -> float:
        """Wait for the device, and return the last loss, or for a table the checksum so far."""

    def arrays(self) -> dict[str, Array]:
        """Return everything that has changed since the beginning."""

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take over what `arrays` returned."""


@dataclass(frozen=True)
class TaskRequest:
    """The task that is asked for."""

    kind: str
    library: str = "auto"
    device: str = "auto"
    scale: str = "auto"  # large on a GPU, small on a CPU
    seed: int = 0
    threads: int = 1


def make_task(asked: TaskRequest) -> tuple[Task, str]:
    """Make the task with the library asked for, or the first installed one that can; return its name too."""
    if asked.kind not in KINDS:
        raise unknown_name("kind of work", asked.kind, list(KINDS))
    name = library_for(asked.kind, asked.library)
    return import_module(_MODULES[name][0]).make(asked), name


def library_for(kind: str, library: str) -> str:
    """Return the library to use; one that is missing or cannot do this work is refused."""
    if library != "auto":
        if library not in _MODULES:
            raise unknown_name("library", library, list(_MODULES))
        if kind not in _MODULES[library][1]:
            raise UsageError(f"{library} has no {kind}", hint=f"{library} does {', '.join(_MODULES[library][1])}")
        if not installed(library):
            raise UsageError(f"{library} is not installed", hint="--library auto takes what is there")
        return library
    for name, (_, kinds) in _MODULES.items():
        if kind in kinds and installed(name):
            return name
    raise UsageError(f"{kind} needs torch or jax, and neither is installed", hint="pip install 'gpuyard[learn]' brings jax")


def can_do(kind: str, library: str) -> bool:
    """Return whether this kind of work can be done here."""
    try:
        return bool(library_for(kind, library))
    except UsageError:
        return False


def installed(library: str) -> bool:
    """Return whether a library can be imported, without importing it."""
    try:
        return importlib.util.find_spec(library) is not None
    except (ImportError, ValueError):
        return False


def scale_of(asked: TaskRequest, device: str) -> Scale:
    """Return the size of a step on that device."""
    name = ("small" if device == "cpu" else "large") if asked.scale == "auto" else asked.scale
    if name not in SCALES:
        raise unknown_name("scale", name, list(SCALES))
    return SCALES[name]
