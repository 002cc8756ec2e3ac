"""Trainings: curves as they grow, and settings."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi import Path as InPath

from gpuyard.errors import GpuyardError
from gpuyard.files import read_bytes
from gpuyard.learn.run.folder import BEST, CONFIG, METRICS, read_config
from gpuyard.web.folders import FolderList, FoundFolder, ReadOnce
from gpuyard.web.plain import plain, thinned

Name = Annotated[str, InPath(pattern="^[0-9a-f]{16}$")]
MOST_BYTES = 64_000_000
MOST_SETTINGS = 300
LATELY = 90.0  # s since the last update, up to which a training is taken to be under way


def training_router(folders: FolderList) -> APIRouter:
    """Return what is asked about trainings."""
    api = APIRouter(prefix="/api/training", tags=["training"])
    read = ReadOnce(_curves, (METRICS, CONFIG))

    @api.get("")
    def trainings() -> dict[str, Any]:
        """List the trainings, the last first."""
        found = sorted((_listed(each, read) for each in folders.all("training")), key=lambda each: -each["changed"])
        return {"trainings": found, "now": time.time()}

    @api.get("/{name}")
    def training(name: Name) -> dict[str, Any]:
        """Return the curves of a training, some hundred points each, and its settings."""
        path = folders.find(name, "training")
        return {"name": name, "state": _state(path), "now": time.time(), **read.get(path)}

    return api


def _state(path: Path) -> str:
    metrics = path / METRICS
    return "running" if metrics.exists() and time.time() - metrics.stat().st_mtime < LATELY else "stopped"


def _listed(found: FoundFolder, read: ReadOnce[dict[str, Any]]) -> dict[str, Any]:
    path = found.path
    told: dict[str, Any] = {"name": found.name, "folder": plain(found.shown), "state": "damaged", "changed": 0.0, "problem": ""}
    try:
        changed = max((each.stat().st_mtime for each in (path / METRICS, path / CONFIG) if each.exists()), default=0.0)
        curves = read.get(path)
        return told | {
            "state": _state(path),
            "changed": changed,
            "best": (path / BEST).exists(),
            **{k: curves[k] for k in ("about", "last", "updates")},
        }
    except (GpuyardError, OSError) as error:
        return told | {"problem": plain(str(error))[:300], "about": "", "last": {}, "updates": 0}


def _curves(path: Path) -> dict[str, Any]:
    """Read the lines of a training: a column for each number. A line that is being written is left out."""
    data = read_bytes(path / METRICS, MOST_BYTES, "metrics") if (path / METRICS).exists() else b""
    rows = [row for line in data.splitlines() if (row := _row(line))]
    shown = [rows[k] for k in thinned(len(rows))]
    names = list(dict.fromkeys(name for row in shown for name in row if name not in ("update", "steps")))[:60]
    settings = list(_flat(read_config(path / CONFIG)))
    known = dict(settings)
    about = " · ".join(str(known[name]) for name in ("env", "env.id", "kind", "learner", "learner.name", "environment") if name in known)
    return {
        "updates": len(rows), "x": [row.get("steps", row.get("update")) for row in shown], "about": plain(about)[:200],
        "curves": [{"name": name, "values": [row.get(name) for row in shown]} for name in names], "last": rows[-1] if rows else {},
        "settings": [[plain(name), plain(str(value))[:300]] for name, value in settings[:MOST_SETTINGS]],
    }  # fmt: skip


def _row(line: bytes) -> dict[str, float | None]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    numbers = {key: value for key, value in found.items() if isinstance(value, int | float) and not isinstance(value, bool)}
    return {plain(key)[:60]: plain(float(value)) if math.isfinite(value) else None for key, value in numbers.items()}


def _flat(table: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in table.items():
        found += _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else [(f"{before}{key}", value)]
    return found
