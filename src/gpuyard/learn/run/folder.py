"""The folder of a training run: who uses it, what is in it, and how that is written.

    config.json         all that was asked for, resolved       state.safetensors   all that is needed to go on
    best.safetensors    the policy with the best validation    last.safetensors    the policy as it was last saved
    metrics.jsonl       one line per update                    tensorboard/        the same for TensorBoard
    lock                held while a process trains in it

Files are written beside their place and then moved there: whatever happens, each is whole, the old one or the new one.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuyard.errors import DataError, GpuyardError, UsageError
from gpuyard.learn.base import Arrays
from gpuyard.model.plain import from_plain, to_plain
from gpuyard.networks.checkpoint import read_arrays, write_arrays

CONFIG, STATE, BEST, LAST, METRICS, BOARD, LOCK = (
    "config.json", "state.safetensors", "best.safetensors", "last.safetensors", "metrics.jsonl", "tensorboard", "lock",
)  # fmt: skip
WORTHLESS = {CONFIG, BOARD, LOCK}  # where nothing else is, nothing is lost
PROGRESS = "progress"  # in the metadata of the state: JSON


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """An error of the file system becomes one line that names the file."""
    try:
        yield
    except OSError as error:
        raise GpuyardError(f"{path}: cannot be written: {error.strerror or error}") from error


def write_text(path: Path, text: str) -> None:
    """Whole or not at all."""
    beside = path.with_name(path.name + ".part")
    with writing(path):
        try:
            with beside.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


class Folder:
    """Make one with `created` or `found`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def board(self) -> Path:
        return self.path / BOARD

    @property
    def best(self) -> Path:
        return self.path / BEST

    @property
    def last(self) -> Path:
        return self.path / LAST

    @classmethod
    def created(cls, path: Path) -> Folder:
        """A new folder, an empty one, or one in which a training failed before anything was learned; another is refused."""
        with writing(path):
            if path.exists() and (not path.is_dir() or not {entry.name for entry in path.iterdir()} <= WORTHLESS):
                hint = "add --resume to go on, or give another --out" if (path / CONFIG).exists() else "give another --out"
                raise UsageError(f"{path}: exists already", hint=hint)
            path.mkdir(parents=True, exist_ok=True)
        return cls(path)

    @classmethod
    def found(cls, path: Path) -> Folder:
        """The folder of an earlier run; without its configuration it is none."""
        if not (path / CONFIG).is_file():
            raise UsageError(f"{path}: no training run to resume", hint="leave out --resume to begin one")
        return cls(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """While this process uses it. The lock goes with the process, however that ends."""
        path = self.path / LOCK
        with writing(path):
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                owner = os.read(handle, 20).decode("ascii", "replace").strip() or "unknown"
                raise UsageError(f"{self.path}: in use by another process, {owner}", hint="wait for it, or give another --out") from None
            with writing(path):
                os.ftruncate(handle, 0)
                os.write(handle, str(os.getpid()).encode())
            yield
        finally:
            os.close(handle)

    # ── configuration ──

    def write_config(self, config: Mapping[str, Any]) -> None:
        write_text(self.path / CONFIG, json.dumps(to_plain(config, "configuration"), indent=2, ensure_ascii=False) + "\n")

    def read_config(self) -> dict[str, Any]:
        path = self.path / CONFIG
        try:
            table = from_plain(json.loads(path.read_text("utf-8")))
        except OSError as error:
            raise DataError(f"{path}: {error.strerror or error}") from None
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: not a configuration: {error}") from None
        if not isinstance(table, dict):
            raise DataError(f"{path}: not a configuration")
        return table

    # ── state ──

    def has_state(self) -> bool:
        """Whether there is anything to go on from."""
        return (self.path / STATE).is_file()

    def write_state(self, learner: Arrays, progress: Mapping[str, Any]) -> None:
        """What the learner saved and where the training stands, in one file, so that they cannot come apart."""
        write_arrays(self.path / STATE, learner, {PROGRESS: json.dumps(to_plain(progress, "progress"))})

    def read_state(self) -> tuple[Arrays, dict[str, Any]]:
        """What `write_state` was given."""
        path = self.path / STATE
        arrays, texts = read_arrays(path)
        try:
            progress = from_plain(json.loads(texts[PROGRESS]))
        except (KeyError, ValueError, RecursionError):
            raise DataError(f"{path}: does not say where the training stood") from None
        return arrays, progress

    # ── metrics ──

    def add_metrics(self, row: Mapping[str, Any]) -> None:
        """One line more."""
        path = self.path / METRICS
        with writing(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(to_plain(row, "metrics")) + "\n")

    def cut_metrics(self, update: int) -> None:
        """Without the lines after an update, which are to be written again, and without one that was cut short."""
        path = self.path / METRICS
        if path.is_file():
            kept = [line for line in path.read_text("utf-8", "replace").splitlines() if _update_of(line) <= update]
            write_text(path, "".join(line + "\n" for line in kept))


def _update_of(line: str) -> float:
    try:
        return float(json.loads(line)["update"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
