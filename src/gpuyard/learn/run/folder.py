"""The folder of a training run: its lock and its files.

    config.json         the resolved settings                  state.safetensors   what a resumed run needs
    best.safetensors    the policy with the best validation    last.safetensors    the policy as last saved
    update-000100.safetensors and so on: the policies after these updates, where the training keeps them
    metrics.jsonl       one line per update                    tensorboard/        the same for TensorBoard
    lock                held while a process trains here

Every file is whole at every moment, the old one or the new one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from gpuyard.errors import DataError, UsageError
from gpuyard.files import PARTIAL, from_plain, locked, parse_json, read_bytes, to_plain, write_bytes, writing
from gpuyard.learn.base import Arrays
from gpuyard.networks.checkpoint import read_arrays, write_arrays

CONFIG, STATE, BEST, LAST, METRICS, BOARD, LOCK = (
    "config.json", "state.safetensors", "best.safetensors", "last.safetensors", "metrics.jsonl", "tensorboard", "lock",
)  # fmt: skip
DISPENSABLE = {CONFIG, f"{CONFIG}{PARTIAL}", BOARD, LOCK}  # a folder with nothing else may be used again
MAX_CONFIG_BYTES = 64_000_000
KEPT = re.compile(r"update-([0-9]{6,})\.safetensors")
PROGRESS = "progress"  # in the metadata of the state: JSON


def read_config(path: Path) -> dict[str, Any]:
    """Read the configuration that a training wrote; what is in it is checked by the caller."""
    table = from_plain(parse_json(read_bytes(path, MAX_CONFIG_BYTES, "a configuration"), str(path)))
    if not isinstance(table, dict):
        raise DataError(f"{path}: not a configuration")
    return table


class Folder:
    """The folder of one training. Make it with `created`, or find an earlier one with `found`."""

    def __init__(self, path: Path) -> None:
        self.path, self.board, self.best, self.last = path, path / BOARD, path / BEST, path / LAST

    @classmethod
    def created(cls, path: Path) -> Folder:
        """Make the folder. One that exists may only be empty, or left by a training that failed before its first update."""
        with writing(path):
            if path.exists() and (not path.is_dir() or not {entry.name for entry in path.iterdir()} <= DISPENSABLE):
                hint = "add --resume to continue, or give another --out" if (path / CONFIG).exists() else "give another --out"
                raise UsageError(f"{path}: exists already", hint=hint)
            path.mkdir(parents=True, exist_ok=True)
        return cls(path)

    @classmethod
    def found(cls, path: Path) -> Folder:
        """Find the folder of an earlier run by its configuration."""
        if not (path / CONFIG).is_file():
            raise UsageError(f"{path}: no training run to resume", hint="leave out --resume to start one")
        return cls(path)

    def locked(self) -> AbstractContextManager[None]:
        """Hold the folder for this process alone."""
        return locked(self.path)

    # ── configuration ──

    def write_config(self, config: Mapping[str, Any]) -> None:
        text = json.dumps(to_plain(config, "configuration"), indent=2, ensure_ascii=False) + "\n"
        write_bytes(self.path / CONFIG, text.encode(), alone=True)

    def read_config(self) -> dict[str, Any]:
        return read_config(self.path / CONFIG)

    # ── state ──

    def has_state(self) -> bool:
        """Return whether there is a state to continue from."""
        return (self.path / STATE).is_file()

    def write_state(self, learner: Arrays, progress: Mapping[str, Any]) -> None:
        """Save the learner and the progress of the training in one file, so that they always belong together."""
        write_arrays(self.path / STATE, learner, {PROGRESS: json.dumps(to_plain(progress, "progress"))})

    def read_state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the learner's arrays and the progress that `write_state` saved."""
        path = self.path / STATE
        arrays, texts = read_arrays(path)
        try:
            return arrays, from_plain(parse_json(texts[PROGRESS], str(path)))
        except (KeyError, DataError):
            raise DataError(f"{path}: does not record the progress of a training") from None

    # ── policies that are kept ──

    def kept(self, update: int) -> Path:
        """Return the file of the policy after an update."""
        return self.path / f"update-{update:06d}.safetensors"

    def cut(self, update: int) -> None:
        """Remove the metrics and the kept policies of later updates, which will be written again."""
        self._cut_metrics(update)
        for path in self.path.iterdir():
            found = KEPT.fullmatch(path.name)
            if found and int(found[1]) > update:
                with writing(path):
                    path.unlink()

    # ── metrics ──

    def add_metrics(self, row: Mapping[str, Any]) -> None:
        """Append a line."""
        path = self.path / METRICS
        with writing(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(to_plain(row, "metrics")) + "\n")

    def _cut_metrics(self, update: int) -> None:
        """Remove the lines after an update, and a line that was cut short."""
        path = self.path / METRICS
        if path.is_file():
            kept = [line for line in path.read_text("utf-8", "replace").splitlines() if _update_of(line) <= update]
            write_bytes(path, "".join(line + "\n" for line in kept).encode(), alone=True)


def _update_of(line: str) -> float:
    try:
        return float(json.loads(line)["update"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
