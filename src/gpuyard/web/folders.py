"""Finds experiments and trainings in folders, and gives each a name that says nothing of where it lies."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from gpuyard.errors import UsageError
from gpuyard.experiments.running.store import EXPERIMENT
from gpuyard.learn.run.folder import CONFIG, METRICS, STATE

DEPTH = 4
MOST_FOLDERS = 20_000  # looked into
MOST_FOUND = 500
FRESH = 3.0  # s for which a list is not made again
SKIPPED = {"node_modules", "__pycache__", "site-packages", "tensorboard", "parts", "examples"}
KEPT = 12  # things read and kept

T = TypeVar("T")


@dataclass(frozen=True)
class FoundFolder:
    """A folder of an experiment or a training."""

    name: str  # by which a browser asks for it
    path: Path
    shown: str  # relative to the folder that was given
    kind: str  # experiment or training


class FolderList:
    """A list of what lies below some folders. Links are not followed."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [root.expanduser().absolute() for root in roots]
        self._lock = threading.Lock()
        self._found: dict[str, FoundFolder] = {}
        self._at = -FRESH

    def all(self, kind: str) -> list[FoundFolder]:
        """List the folders of a kind."""
        with self._lock:
            if time.monotonic() - self._at >= FRESH:
                self._found = {each.name: each for each in self._look()}
                self._at = time.monotonic()
            return [each for each in self._found.values() if each.kind == kind]

    def find(self, name: str, kind: str) -> Path:
        """Return the folder of that name."""
        found = next((each for each in self.all(kind) if each.name == name), None)
        if found is None:
            raise UsageError(f"there is no such {kind}")
        return found.path

    def _look(self) -> Iterator[FoundFolder]:
        looked = found = 0
        for root in self._roots:
            for place, folders, files in os.walk(root):
                looked += 1
                path = Path(place)
                deep = len(path.relative_to(root).parts)
                folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in SKIPPED) if deep < DEPTH else []
                kind = "experiment" if EXPERIMENT in files else "training" if CONFIG in files and {METRICS, STATE} & set(files) else ""
                if kind:
                    found += 1
                    shown = path.relative_to(root).as_posix() if path != root else root.name
                    yield FoundFolder(hashlib.sha256(os.fsencode(path)).hexdigest()[:16], path, shown, kind)
                if looked >= MOST_FOLDERS or found >= MOST_FOUND:
                    return


class ReadOnce(Generic[T]):
    """Keeps what was made of files for as long as they have not changed."""

    def __init__(self, make: Callable[[Path], T], names: Sequence[str]) -> None:
        self._make, self._names = make, names
        self._lock = threading.Lock()
        self._kept: dict[Path, tuple[Any, T]] = {}

    def get(self, folder: Path) -> T:
        """Return what is made of a folder; one thread makes it, others wait."""
        with self._lock:
            mark = [_mark(folder / name) for name in self._names]
            known = self._kept.get(folder)
            if known is None or known[0] != mark:
                self._kept.pop(folder, None)
                while len(self._kept) >= KEPT:
                    self._kept.pop(next(iter(self._kept)))
                known = self._kept[folder] = (mark, self._make(folder))
            return known[1]


def _mark(path: Path) -> tuple[int, int]:
    with suppress(OSError):
        about = path.stat()
        return about.st_mtime_ns, about.st_size
    return 0, 0
