from __future__ import annotations

import io
import json
import pickle
import random
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from gpuyard.errors import DataError
from gpuyard.model.cluster import GpuType, Outage
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.jobs import JOB
from gpuyard.model.result import BIN, ROW, SEGMENT, Result
from gpuyard.model.storage import ARRAYS, MANIFEST
from gpuyard.model.workload import Workload


def example(jobs: int = 5) -> Result:
    """A result that uses every field, odd floats and odd labels."""
    generator = np.random.default_rng(7)
    columns = {
        "submit": np.sort(generator.random(jobs)),
        "gpus": np.full(jobs, 2.0),
        "walltime": np.full(jobs, np.inf),
        "user": np.arange(jobs) % 2,
    }
    workload = Workload.build(
        columns,
        generator.random(jobs) / 3,
        name="w \N{SNOWMAN}",
        users=("ann", "b\u00f6b\t\ud800"),
        partitions=("p",),
        classes=("c",),
        gpu_types=("a100|t4",),
        dropped={"no end": 3},
        logged_start=np.where(np.arange(jobs) % 2, np.nan, 1.5),
        notes=("two\nlines",),
    )
    table = np.zeros(jobs, ROW)
    table["start"] = np.where(np.arange(jobs) % 2, np.nan, 1 / 3)
    table["node"], table["status"] = -1, 3
    segments = np.zeros(1, SEGMENT)
    segments["devices"] = 2**63
    cluster = replace(load_cluster("hetero-demo"), outages=(Outage(1, 0.1, 0.2, 1),), speed=MappingProxyType({"c": {"t4": 1 / 3}}))
    totals = {"passes": 12.0, "busy/a100": 1 / 3, "odd": np.inf}
    manifest = {"rules": {"checkpoint": np.inf}, "seeds": (1, 2), "made": "simulated", "none": None, "exact": np.float64(0.1)}
    return Result(workload, cluster, "sjf/best/easy/none", 2**63, table, np.ones(3, BIN), segments, totals, manifest)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    example().save(tmp_path / "r")
    return tmp_path / "r"


def test_a_result_loads_back_equal_in_everything(folder: Path) -> None:
    saved, loaded = example(), Result.load(folder)
    assert loaded == saved
    for name in ("table", "timeline", "segments"):
        assert getattr(loaded, name).tobytes() == getattr(saved, name).tobytes()
        assert not getattr(loaded, name).flags.writeable
    mine, theirs = saved.workload, loaded.workload
    assert theirs.jobs == mine.jobs
    assert theirs.runtime.tobytes() == mine.runtime.tobytes()
    assert mine.logged_start is not None
    assert theirs.logged_start is not None
    assert theirs.logged_start.tobytes() == mine.logged_start.tobytes()
    assert (theirs.name, theirs.estimate_source, theirs.notes) == (mine.name, mine.estimate_source, mine.notes)
    assert theirs.dropped == mine.dropped
    assert theirs.jobs.users == mine.jobs.users
    assert loaded.cluster == saved.cluster
    assert loaded.totals == saved.totals
    assert (loaded.scheduler, loaded.seed) == (saved.scheduler, saved.seed)
    assert loaded.manifest["rules"] == {"checkpoint": np.inf}


def test_the_least_result_loads_back_equal(tmp_path: Path) -> None:
    workload = Workload.build({"submit": np.zeros(0)}, np.zeros(0))
    least = Result(workload, load_cluster("1"), "fcfs", 0, np.zeros(0, ROW), np.zeros(0, BIN), np.zeros(0, SEGMENT))
    least.save(tmp_path / "least")
    loaded = Result.load(tmp_path / "least")
    assert loaded == least
    assert loaded.workload.logged_start is None


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"scheduler": "x"}, {"totals": {"passes": 1.0}}, {"manifest": {}}, {"segments": np.zeros(0, SEGMENT)}]
)
def test_results_that_differ_are_not_equal(change: dict[str, Any]) -> None:
    assert replace(example(), **change) != example()


def test_the_same_result_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        example().save(tmp_path / name)
    for file in (MANIFEST, ARRAYS):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_numpy_reads_the_arrays_too(folder: Path) -> None:
    with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
        assert arrays["jobs"].dtype == JOB


def test_an_earlier_result_is_replaced_and_nothing_is_left_behind(folder: Path) -> None:
    smaller = example(2)
    smaller.save(folder)
    assert Result.load(folder) == smaller
    assert [item.name for item in folder.parent.iterdir()] == ["r"]


def test_parents_are_made_and_an_empty_folder_is_used(tmp_path: Path) -> None:
    example().save(tmp_path / "a" / "b" / "c")
    (tmp_path / "empty").mkdir()
    example().save(tmp_path / "empty")
    assert Result.load(tmp_path / "a" / "b" / "c") == Result.load(tmp_path / "empty")


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_is_no_result_is_never_replaced(tmp_path: Path, kind: str) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    target = {"folder": other, "file": other / "thesis.tex", "link": tmp_path / "link"}[kind]
    (tmp_path / "link").symlink_to(other)
    with pytest.raises(DataError, match="is not a saved result"):
        example().save(target)
    assert (other / "thesis.tex").read_text() == "years of work"


def test_a_failed_save_leaves_the_earlier_result(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("gpuyard.model.storage._write_arrays", full)
    with pytest.raises(DataError, match="No space left"):
        example(2).save(folder)
    assert Result.load(folder) == example()
    assert [item.name for item in folder.parent.iterdir()] == ["r"]


@pytest.mark.parametrize(
    "change",
    [
        {"manifest": {"thing": object()}},
        {"manifest": {1: 2}},
        {"table": np.zeros(5)},
        {"cluster": replace(load_cluster("4"), types=(GpuType("a|b"),))},
    ],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        replace(example(), **change).save(tmp_path / "r")
    assert not list(tmp_path.iterdir())


def test_a_manifest_that_contains_itself_is_refused(tmp_path: Path) -> None:
    endless: dict[str, Any] = {}
    endless["self"] = endless
    with pytest.raises(DataError, match="deep"):
        replace(example(), manifest=endless).save(tmp_path / "r")


@pytest.mark.parametrize("path", ["nowhere", "a\0b", ""])
def test_a_missing_folder(tmp_path: Path, path: str) -> None:
    with pytest.raises(DataError):
        Result.load(tmp_path / "x" / path if path else tmp_path)


def set_in(path: str, value: object) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        *steps, last = path.split(".")
        for step in steps:
            data = data[step]
        data[last] = value

    return change


def without(key: str) -> Callable[[Any], None]:
    return lambda data: data.pop(key)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (set_in("version", 4), "version 4"),
        (set_in("version", "1"), "not a whole number"),
        (set_in("format", "other"), "not a result"),
        (without("format"), "not a result"),
        (without("workload"), "missing"),
        (without("cluster"), "no \\[\\[nodes\\]\\]"),
        (without("seed"), "seed is missing"),
        (set_in("seed", 1.5), "not a whole number"),
        (set_in("extra", 1), "unknown key 'extra'"),
        (set_in("scheduler", ["x"]), "not a text"),
        (set_in("totals", [1]), "not a table"),
        (set_in("totals.passes", "12"), "not a number"),
        (set_in("totals.passes", {"$float": "12"}), "none of inf"),
        (set_in("manifest", "x"), "not a table"),
        (set_in("workload.users", ["only one"]), "user = 1 has no label"),
        (set_in("workload.notes", "text"), "not a list of texts"),
        (set_in("workload.dropped", {"x": -1}), "below 0"),
        (set_in("workload.surprise", 1), "unknown key"),
        (set_in("cluster.nodes", []), "no \\[\\[nodes\\]\\]"),
        (set_in("cluster.span_nodes", None), "not a number"),
    ],
)
def test_a_changed_manifest_is_refused(folder: Path, change: Callable[[Any], None], says: str) -> None:
    data = json.loads((folder / MANIFEST).read_text())
    change(data)
    (folder / MANIFEST).write_text(json.dumps(data))
    with pytest.raises(DataError, match=says):
        Result.load(folder)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"a": NaN}', b'{"seed": ' + b"9" * 10_000 + b"}", b"null"])
def test_a_manifest_that_is_no_json_is_refused(folder: Path, raw: bytes) -> None:
    (folder / MANIFEST).write_bytes(raw)
    with pytest.raises(DataError):
        Result.load(folder)


def test_a_deep_manifest_is_refused(folder: Path) -> None:
    text = (folder / MANIFEST).read_text()
    at = text.index('"manifest": {') + len('"manifest": {')
    (folder / MANIFEST).write_text(text[:at] + '"deep": ' + "[" * 300 + "]" * 300 + "," + text[at:])
    with pytest.raises(DataError, match="deep"):
        Result.load(folder)


def test_every_truncation_is_refused(folder: Path) -> None:
    whole = (folder / ARRAYS).read_bytes()
    for length in [*range(0, len(whole), 97), len(whole) - 1]:
        (folder / ARRAYS).write_bytes(whole[:length])
        with pytest.raises(DataError):
            Result.load(folder)


def test_no_changed_byte_gives_another_error_or_another_result(folder: Path) -> None:
    whole = (folder / ARRAYS).read_bytes()
    picks = random.Random(3)
    for _ in range(300):
        raw = bytearray(whole)
        raw[picks.randrange(len(raw))] ^= 1 << picks.randrange(8)
        (folder / ARRAYS).write_bytes(raw)
        try:
            assert Result.load(folder) == example()  # a byte that carries nothing: a date, an attribute
        except DataError:
            continue


def rewrite(folder: Path, change: Callable[[dict[str, bytes]], None], compression: int = zipfile.ZIP_STORED) -> None:
    """Write arrays.npz anew with other members."""
    with zipfile.ZipFile(folder / ARRAYS) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(folder / ARRAYS, "w", compression) as archive:
        for name, raw in members.items():
            archive.writestr(name, raw)


def npy(array: np.ndarray[Any, Any], *, allow_pickle: bool = False) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=allow_pickle)
    return stream.getvalue()


def header(text: str) -> bytes:
    padded = text.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded.encode()


class Bomb:
    """Would create a file if it were ever unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (self.path, "w"))


@pytest.mark.parametrize(
    ("name", "raw", "says"),
    [
        ("runtime", None, "holds"),
        ("surprise", npy(np.zeros(1)), "holds"),
        ("runtime", npy(np.zeros(5, "f4")), "dtype '<f4'"),
        ("runtime", npy(np.zeros(5, ">f8")), "dtype '>f8'"),
        ("runtime", npy(np.zeros((5, 1))), "shape"),
        ("runtime", npy(np.zeros(4)), "4 runtimes for 5 jobs"),
        ("runtime", npy(np.full(5, np.nan)), "runtime = nan"),
        ("runtime", npy(np.full(5, -1.0)), "runtime = -1"),
        ("logged_start", npy(np.zeros(4)), "logged_start has 4"),
        ("table", npy(np.zeros(4, ROW)), "4 rows for 5 jobs"),
        ("table", npy(np.full(5, 99, "i1").astype([("status", "i1")])), "dtype"),
        ("runtime", header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}"), "says shape"),
        ("runtime", header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}"), "says shape"),
        ("runtime", header("__import__('os').abort()"), "damaged header"),
        ("runtime", header("(" * 110), "damaged header"),
        ("runtime", header("{'descr': '|O', 'fortran_order': False, 'shape': (5,)}") + b"0" * 40, "dtype '.O'"),
        ("runtime", b"", "damaged header"),
        ("runtime", b"\x93NUMPY\x09\x00", "damaged header"),
    ],
)
def test_a_hostile_array_is_refused(folder: Path, name: str, raw: bytes | None, says: str) -> None:
    def change(members: dict[str, bytes]) -> None:
        if raw is None:
            del members[f"{name}.npy"]
        else:
            members[f"{name}.npy"] = raw

    rewrite(folder, change)
    with pytest.raises(DataError, match=says):
        Result.load(folder)


def test_object_arrays_never_run(folder: Path, tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    bombs = np.array([Bomb(str(trap))] * 5, dtype=object)
    rewrite(folder, lambda members: members.update({"runtime.npy": npy(bombs, allow_pickle=True)}))
    with pytest.raises(DataError, match=r"dtype '.O'"):
        Result.load(folder)
    (folder / ARRAYS).write_bytes(pickle.dumps(Bomb(str(trap))))
    with pytest.raises(DataError):
        Result.load(folder)
    assert not trap.exists()


@pytest.mark.parametrize(
    ("name", "column", "value", "says"),
    [
        ("table", "status", 77, "status = 77"),
        ("table", "reason", -1, "reason = -1"),
        ("table", "node", 20, "node = 20"),
        ("segments", "job", 5, "segment's job = 5"),
        ("segments", "node", -1, "segment's node = -1"),
        ("jobs", "gpus", -1, "gpus = -1.0 is negative"),
        ("jobs", "estimate", np.nan, "lack an estimate"),
        ("jobs", "index", 9, "not in order"),
        ("jobs", "submit", 1e300, "submit"),
    ],
)
def test_a_value_that_points_nowhere_is_refused(folder: Path, name: str, column: str, value: float, says: str) -> None:
    with np.load(folder / ARRAYS) as arrays:
        array = arrays[name].copy()
    array[column][0] = value
    rewrite(folder, lambda members: members.update({f"{name}.npy": npy(array)}))
    with pytest.raises(DataError, match=says):
        Result.load(folder)


def test_a_compressed_archive_is_refused_so_that_it_cannot_explode(folder: Path) -> None:
    rewrite(folder, lambda members: members.update({"runtime.npy": bytes(50_000_000)}), zipfile.ZIP_DEFLATED)
    assert (folder / ARRAYS).stat().st_size < 200_000
    with pytest.raises(DataError, match="stored plainly"):
        Result.load(folder)


def test_a_missing_archive_is_refused(folder: Path) -> None:
    (folder / ARRAYS).unlink()
    with pytest.raises(DataError, match="cannot be read"):
        Result.load(folder)
    shutil.copytree(folder, folder / ARRAYS)
    with pytest.raises(DataError, match="not a file"):
        Result.load(folder)


def test_an_outage_that_never_ends_is_kept(tmp_path):
    made = replace(example(), cluster=replace(load_cluster("4"), outages=(Outage(0, 1.0, float("inf")),)))
    made.save(tmp_path / "r")
    assert Result.load(tmp_path / "r").cluster.outages == made.cluster.outages
