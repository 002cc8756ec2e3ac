"""Results on disk: a folder with `manifest.json` (text) and `arrays.npz` (plain arrays, stored uncompressed).

Nothing is ever unpickled. Every array has one allowed dtype and a size that must agree with the file's, so a hostile file can
neither run code nor ask for more memory than it is long. A folder appears whole or not at all.
"""

from __future__ import annotations

import ast
import json
import os
import secrets
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.cluster_file import cluster_from_dict, cluster_to_dict
from gpuyard.model.fields import Fields
from gpuyard.model.jobs import COLUMNS, JOB, LABELS
from gpuyard.model.plain import from_plain, to_plain
from gpuyard.model.result import BIN, REASONS, ROW, SEGMENT, STATUS, Result
from gpuyard.model.workload import Workload

FORMAT = "gpuyard-result"
VERSION = 2
MANIFEST, ARRAYS = "manifest.json", "arrays.npz"
MAX_MANIFEST_BYTES = 1 << 29
_F8 = np.dtype("f8")
_DTYPES = {"jobs": JOB, "runtime": _F8, "logged_start": _F8, "table": ROW, "timeline": BIN, "segments": SEGMENT}
_OPTIONAL = frozenset({"logged_start"})


def save_result(result: Result, folder: str | os.PathLike[str]) -> None:
    """Write the result as a new folder; an earlier result there is replaced, anything else is left alone and refused.

    Cost: about 200 bytes a job.
    """
    target = Path(folder)
    text = json.dumps(_manifest(result), indent=1, allow_nan=False)
    try:
        _refuse_foreign(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        work = _beside(target)
        work.mkdir()
        try:
            _write(work / MANIFEST, text.encode("ascii"))
            _write_arrays(work / ARRAYS, _arrays(result))
            _swap(work, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except (OSError, ValueError) as error:
        raise DataError(f"{target}: the result cannot be saved: {error}") from None


def load_result(folder: str | os.PathLike[str]) -> Result:
    """The result in a folder that `save_result` wrote, equal to what was saved."""
    source = Path(folder)
    try:
        where = str(source / MANIFEST)
        root = Fields(_read_json(source / MANIFEST), where)
        if root.text("format", "") != FORMAT:
            raise DataError(f"{where}: not a result", hint=f"a result has format = {FORMAT!r}")
        version = root.whole("version")
        if version != VERSION:
            raise DataError(f"{where}: version {version}; this gpuyard reads version {VERSION}")
        arrays = _read_arrays(source / ARRAYS)
    except (OSError, ValueError) as error:
        raise DataError(f"{source}: the result cannot be read: {error}") from None
    result = Result(
        workload=_workload(root.table("workload"), arrays, str(source / ARRAYS)),
        cluster=cluster_from_dict(_mapping(root, "cluster"), where=f"{where}: [cluster]"),
        scheduler=root.text("scheduler", limit=100_000),
        seed=root.whole("seed", low=-(2**63), high=2**64 - 1),
        table=_sealed(arrays["table"]),
        timeline=_sealed(arrays["timeline"]),
        segments=_sealed(arrays["segments"]),
        totals=_totals(root, where),
        manifest=MappingProxyType(from_plain(_mapping(root, "manifest"))),
    )
    root.done()
    _check_result(result, str(source / ARRAYS))
    return result


def _manifest(result: Result) -> dict[str, Any]:
    work, cluster = result.workload, cluster_to_dict(result.cluster)
    if cluster_from_dict(cluster) != result.cluster:
        raise DataError(f"cluster {result.cluster.name}: has values that a cluster file cannot hold")
    about: dict[str, Any] = {
        "name": work.name,
        "estimate_source": work.estimate_source,
        "dropped": {reason: int(count) for reason, count in work.dropped.items()},
        "notes": list(work.notes),
    }
    return {
        "format": FORMAT,
        "version": VERSION,
        "scheduler": result.scheduler,
        "seed": int(result.seed),
        "workload": about | {key: list(getattr(work.jobs, key)) for key in LABELS.values()},
        "cluster": to_plain(cluster, "cluster"),
        "totals": to_plain(result.totals, "totals"),
        "manifest": to_plain(result.manifest, "manifest"),
    }


def _arrays(result: Result) -> dict[str, Array]:
    work = result.workload
    arrays = {"jobs": work.jobs.table, "runtime": work.runtime}
    if work.logged_start is not None:
        arrays["logged_start"] = work.logged_start
    arrays |= {"table": result.table, "timeline": result.timeline, "segments": result.segments}
    for name, array in arrays.items():
        if array.dtype != _DTYPES[name]:
            raise DataError(f"result: {name} has dtype {array.dtype}, not {_DTYPES[name]}")
    return arrays


def _refuse_foreign(target: Path) -> None:
    """Only an earlier result, or an empty folder, may be replaced."""
    if not target.exists() and not target.is_symlink():
        return
    if target.is_symlink() or not target.is_dir() or not {item.name for item in target.iterdir()} <= {MANIFEST, ARRAYS}:
        raise DataError(f"{target}: exists and is not a saved result", hint="name another folder")


def _swap(work: Path, target: Path) -> None:
    """Put `work` where `target` is. The earlier result comes back if that fails."""
    if not target.exists():
        work.rename(target)
        return
    earlier = _beside(target)
    target.rename(earlier)
    try:
        work.rename(target)
    except OSError:
        earlier.rename(target)
        raise
    shutil.rmtree(earlier, ignore_errors=True)


def _beside(target: Path) -> Path:
    """A new hidden name in the same folder, so that a rename does not leave the disk."""
    return target.parent / f".{target.name}.{secrets.token_hex(6)}.tmp"


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """An .npz that `numpy.load` also reads, the same bytes for the same arrays (no clock time in it)."""
    with path.open("wb") as stream:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            for name, array in arrays.items():
                entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
                with archive.open(entry, "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
        stream.flush()
        os.fsync(stream.fileno())


def _read_json(path: Path) -> object:
    def refuse(text: str) -> float:
        raise DataError(f"{path}: {text} is not a number in JSON")

    with path.open("rb") as stream:
        raw = stream.read(MAX_MANIFEST_BYTES + 1)
    if len(raw) > MAX_MANIFEST_BYTES:
        raise DataError(f"{path}: more than {MAX_MANIFEST_BYTES:,} bytes")
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON: {str(error)[:200]}") from None


def _read_arrays(path: Path) -> dict[str, Array]:
    size = path.stat().st_size
    if not path.is_file():
        raise DataError(f"{path}: not a file")
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            if len(entries) != len(archive.infolist()) or not set(_DTYPES) - _OPTIONAL <= set(entries) <= set(_DTYPES):
                raise DataError(f"{path}: holds {sorted(entries)[:20]}, not {sorted(_DTYPES)}")
            for name, entry in entries.items():
                if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 or entry.file_size > size:
                    raise DataError(f"{path}: {name} is not stored plainly")
            return {name: _read_array(archive.read(entry), name, path) for name, entry in entries.items()}
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{path}: damaged: {error}", hint="it is cut short or was changed") from None


def _read_array(raw: bytes, name: str, path: Path) -> Array:
    """The array in the bytes of an .npy file (format 1.0): one dimension, the dtype of its name, exactly as long as it says.

    The header is read here and not by numpy, whose parser lets half a dozen kinds of exceptions out on bad input.
    """
    start = 10 + int.from_bytes(raw[8:10], "little")
    try:
        about = ast.literal_eval(raw[10:start].decode("latin-1"))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        about = None
    if raw[:8] != b"\x93NUMPY\x01\x00" or not isinstance(about, dict) or set(about) != {"descr", "fortran_order", "shape"}:
        raise DataError(f"{path}: {name} has a damaged header")
    dtype, shape = _DTYPES[name], about["shape"]
    if about["descr"] != np.lib.format.dtype_to_descr(dtype):
        raise DataError(f"{path}: {name} has dtype {str(about['descr'])[:200]!r}, not {dtype}")
    count, rest = divmod(len(raw) - start, dtype.itemsize)
    if rest or shape != (count,):
        raise DataError(f"{path}: {name} says shape {str(shape)[:60]} and holds {len(raw) - start} bytes")
    return np.frombuffer(raw, dtype, offset=start).copy()


def _mapping(root: Fields, key: str) -> dict[str, Any]:
    root.table(key)  # refuses what is no table
    value = root.peek(key) if key in root else {}
    return value if isinstance(value, dict) else {}


def _totals(root: Fields, where: str) -> Mapping[str, float]:
    totals = {name: from_plain(value) for name, value in _mapping(root, "totals").items()}
    for name, value in totals.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DataError(f"{where}: [totals]: {name[:60]!r} is not a number")
    return MappingProxyType(totals)


def _workload(fields: Fields, arrays: Mapping[str, Array], where: str) -> Workload:
    """Rebuilt through `Workload.build`, so that what is loaded passes every check that a reader's jobs pass."""
    dropped = fields.table("dropped")
    table, logged = arrays["jobs"], arrays.get("logged_start")
    if logged is not None and len(logged) != len(table):
        raise DataError(f"{where}: logged_start has {len(logged)} values for {len(table)} jobs")
    labels: dict[str, Any] = {key: fields.texts(key) for key in LABELS.values()}
    made = Workload.build(
        {column: table[column] for column in COLUMNS},
        arrays["runtime"],
        name=where,
        **labels,
        dropped={reason: dropped.whole(reason) for reason in dropped.names},
        logged_start=logged,
        notes=fields.texts("notes"),
    )
    if made.jobs.table.tobytes() != table.tobytes():
        raise DataError(f"{where}: the jobs are not in order of submit, or lack an estimate")
    made = replace(made, name=fields.text("name", limit=100_000), estimate_source=fields.text("estimate_source"))
    fields.done()
    return made


def _check_result(result: Result, where: str) -> None:
    """Every index of the result points at something."""
    table, segments, jobs, nodes = result.table, result.segments, len(result.workload), len(result.cluster.nodes)
    if len(table) != jobs:
        raise DataError(f"{where}: {len(table)} rows for {jobs} jobs")
    bounds = (
        ("status", table["status"], 0, len(STATUS)),
        ("reason", table["reason"], 0, len(REASONS)),
        ("node", table["node"], -1, nodes),
        ("segment's job", segments["job"], 0, jobs),
        ("segment's node", segments["node"], 0, nodes),
    )
    for what, values, low, stop in bounds:
        bad = (values < low) | (values >= stop)
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(f"{where}: row {row + 1}: {what} = {values[row]} is not in {low}..{stop - 1}")


def _sealed(array: Array) -> Array:
    array.flags.writeable = False
    return array
