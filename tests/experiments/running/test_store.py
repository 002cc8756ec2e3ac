"""The folder of an experiment: written, killed, damaged, full, and given to somebody else."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gpuyard.errors import DataError, GpuyardError, UsageError
from gpuyard.experiments.design.kinds import RunRecord
from gpuyard.experiments.design.spec import Experiment, load_experiment
from gpuyard.experiments.judging.curves import Curve
from gpuyard.experiments.judging.summary import summarise
from gpuyard.experiments.running import runner
from gpuyard.experiments.running.results import load_results
from gpuyard.experiments.running.runner import run
from gpuyard.experiments.running.store import COMPLETE, EXPERIMENT, MANIFESTS, PARTS, RUNS, Store
from gpuyard.experiments.running.workers import Here

ABOUT = {"gpuyard": "1.0"}
RECORD = {"name": "x", "axes": {"seeds": [1, 2]}}


def records(unit: int, width: int = 2) -> list[RunRecord]:
    return [
        RunRecord(
            unit * width + k,
            {"scheduler": f"s{k}", "training_seed": None, "wait": float("nan") if k else 1.5 * unit},
            {"cdf": Curve(np.array([0.0, 1.0]), np.array([np.nan, np.inf]), ("a", "ü"))},
            {"run": unit * width + k, "text": "line\u2028one\x85two\nthree"},
        )
        for k in range(width)
    ]


def filled(path: Path, units: int = 3) -> Store:
    path.mkdir(exist_ok=True)
    store = Store(path)
    store.begin(RECORD, ABOUT)
    for unit in reversed(range(units)):
        store.add(unit, records(unit))
    return store


# ── written ──


def test_parts_become_tables_in_the_order_of_runs(tmp_path: Path) -> None:
    store = filled(tmp_path)
    assert store.done() == {0, 1, 2}
    assert not store.complete
    store.finish(6)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([COMPLETE, EXPERIMENT, "curves.parquet", MANIFESTS, RUNS])
    frame = store.read(RUNS)
    assert frame.columns == ["run", "scheduler", "training_seed", "wait"]
    assert frame["run"].to_list() == [0, 1, 2, 3, 4, 5]
    assert frame["wait"].to_list()[::2] == [0.0, 1.5, 3.0]
    assert frame["wait"].is_nan().to_list() == [False, True] * 3
    assert frame["training_seed"].dtype == pl.Int64
    curve = store.read("curves.parquet").row(5, named=True)
    assert curve["run"] == 5
    assert curve["x"] == [0.0, 1.0]
    assert np.isnan(curve["y"][0])
    assert curve["y"][1] == np.inf
    assert curve["labels"] == ["a", "ü"]
    assert [line["run"] for line in store.manifests()] == [0, 1, 2, 3, 4, 5]
    assert store.manifests()[0]["text"] == "line\u2028one\x85two\nthree"


def test_the_order_in_which_parts_come_does_not_show(tmp_path: Path) -> None:
    for name, order in (("a", (0, 1, 2)), ("b", (2, 0, 1))):
        store = Store(tmp_path / name)
        for unit in order:
            store.add(unit, records(unit))
        store.finish(6)
    for file in (RUNS, "curves.parquet", COMPLETE):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_finish_can_be_done_again_after_a_kill_at_any_of_its_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path / "whole").finish(6)
    names = (RUNS, "curves.parquet", MANIFESTS, COMPLETE)
    for at, when in [(name, when) for name in names for when in ("before", "after")]:
        folder = tmp_path / f"{at}-{when}"
        store, write = filled(folder), Store.write

        def dying(self: Store, name: str, data: bytes, at: str = at, when: str = when, write: Callable[..., None] = write) -> None:
            if name == at and when == "before":
                (self.path / f"{name}.part").write_bytes(data[:10])
                raise KeyboardInterrupt
            write(self, name, data)
            if name == at:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Store, "write", dying)
            with pytest.raises(KeyboardInterrupt):
                store.finish(6)
        assert store.complete == (at == COMPLETE and when == "after")
        if not store.complete:
            with pytest.raises(UsageError, match="not complete"):
                store.read(RUNS)
            assert store.done() == {0, 1, 2}
            store.finish(6)
        store.clean()
        assert content(folder) == content(tmp_path / "whole")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_runs_that_are_missing_or_there_twice_are_not_merged(tmp_path: Path) -> None:
    store = filled(tmp_path)
    with pytest.raises(DataError, match="6 Runs are there, and 8 were expected"):
        store.finish(8)
    store.add(1, [records(1)[0]] * 2)
    with pytest.raises(DataError, match="8 Runs are there, and 6 were expected"):
        store.finish(6)
    assert not store.complete
    with pytest.raises(DataError, match="parts"):
        Store(tmp_path / "nothing").finish(1)


def test_neighbouring_units_share_a_file_and_the_end_is_the_same(tmp_path: Path) -> None:
    one_by_one = filled(tmp_path / "a")
    together = Store(tmp_path / "b")
    together.begin(RECORD, ABOUT)
    together.add_all({2: records(2), 0: records(0)})
    assert together.done() == {0, 2}
    assert len(list((tmp_path / "b" / PARTS).iterdir())) == 2
    together.add_all({1: records(1)})
    together.add_all({})
    one_by_one.finish(6)
    together.finish(6)
    assert content(tmp_path / "a") == content(tmp_path / "b")
    more = Store(tmp_path / "c")
    more.add_all({number: records(number) for number in (3, 4, 5, 7)})
    assert (more.done(), len(list((tmp_path / "c" / PARTS).iterdir()))) == ({3, 4, 5, 7}, 2)


# ── whose it is ──


def test_half_written_files_are_removed_and_count_as_not_done(tmp_path: Path) -> None:
    store = filled(tmp_path)
    half = tmp_path / PARTS / "0000003-0123456789abcdef.parquet.part"
    half.write_bytes(b"PAR1")
    assert store.done() == {0, 1, 2}
    assert not half.exists()


def test_a_process_killed_before_anything_was_written_down_leaves_a_folder_that_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("123")
    (tmp_path / f"{EXPERIMENT}.part").write_bytes(b'{"form')
    assert Store(tmp_path).begin(RECORD, ABOUT) is False
    assert sorted(path.name for path in tmp_path.iterdir()) == [EXPERIMENT, "lock"]
    assert Store(tmp_path).begin(RECORD, ABOUT) is True


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, small_file: Callable[..., Path]) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match="thesis: is not empty and holds no experiment"):
        run(load_experiment(str(small_file())), folder, Here())
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]
    with pytest.raises(GpuyardError, match="thesis.tex"):
        run(load_experiment(str(small_file())), folder / "thesis.tex", Here())


def test_another_experiment_or_version_is_refused_and_the_difference_named(tmp_path: Path) -> None:
    store = filled(tmp_path)
    with pytest.raises(UsageError, match=r"holds another experiment \(x\): axes.seeds differs"):
        store.begin({"name": "x", "axes": {"seeds": [1, 3]}}, ABOUT)
    with pytest.raises(UsageError, match="begun with gpuyard 1.0"):
        store.begin(RECORD, {"gpuyard": "1.1"})
    assert store.begin(RECORD, {"gpuyard": "1.0", "python": "other"})


def test_the_lock_is_for_one_and_goes_with_it(tmp_path: Path) -> None:
    with (
        Store(tmp_path / "a").locked(),
        pytest.raises(UsageError, match=rf"a: in use by another gpuyard process \({os.getpid()}\)"),
        Store(tmp_path / "a").locked(),
    ):
        pass
    with Store(tmp_path / "a").locked():
        pass


# ── damaged ──


def part(store: Store) -> Path:
    return sorted((store.path / PARTS).iterdir())[1]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.write_bytes(bytes(data))


def renamed(path: Path, data: bytes) -> None:
    """Other content, under the name that belongs to it."""
    path.unlink()
    path.with_name(f"{path.name[:7]}-{hashlib.sha256(data).hexdigest()[:16]}.parquet").write_bytes(data)


def frame_bytes(**columns: list[object]) -> bytes:
    import io

    target = io.BytesIO()
    pl.DataFrame(columns).write_parquet(target)
    return target.getvalue()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "flipped": flip,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: renamed(path, os.urandom(300)),
    "garbage between magic words": lambda path: renamed(path, b"PAR1" + b"\xff" * 300 + b"PAR1"),
    "text": lambda path: renamed(path, b"x"),
    "no columns of ours": lambda path: renamed(path, frame_bytes(run=["a"], curves=["{}"], manifest=["{}"])),
    "a folder": lambda path: (path.unlink(), path.mkdir())[1],
}


@pytest.mark.parametrize("how", list(DAMAGES))
def test_a_damaged_part_is_named_and_can_be_done_again(tmp_path: Path, how: str) -> None:
    filled(tmp_path / "whole").finish(6)
    store = filled(tmp_path / "x")
    DAMAGES[how](part(store))
    bad = part(store)
    with pytest.raises(DataError, match=bad.name):
        store.finish(6)
    assert not store.complete
    shutil.rmtree(bad) if bad.is_dir() else bad.unlink()
    assert store.done() == {0, 2}
    store.add(1, records(1))
    store.finish(6)
    assert content(tmp_path / "x") == content(tmp_path / "whole")


def test_a_part_whose_columns_do_not_fit(tmp_path: Path) -> None:
    store = filled(tmp_path)
    renamed(part(store), frame_bytes(run=[2, 3], wait=["a", "b"], curves=["{}", "{}"], manifest=["{}", "{}"]))
    with pytest.raises(DataError, match="parts do not fit together"):
        store.finish(6)


@pytest.mark.parametrize(
    "text", ["[", "[]", '{"a": 1}', '{"a": ["x", "y", []]}', '{"a": ["AAAA", "AAAA", []]}', '{"a": [[0.5], [1.0], []]}']
)
def test_a_part_whose_curves_are_something_else(tmp_path: Path, text: str) -> None:
    store = filled(tmp_path)
    renamed(part(store), frame_bytes(run=[2, 3], curves=[text, text], manifest=["{}", "{}"]))
    with pytest.raises(DataError, match="curves of Run 2 cannot be read"):
        store.finish(6)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "results"
    run(tiny(), folder, Here())
    return folder


def tiny(seeds: tuple[int, ...] = (0, 1)) -> Experiment:
    from gpuyard.experiments.design.spec import Axes

    axes = Axes(("demo:jobs=20 on 8",), schedulers=("fcfs", "sjf"), seeds=seeds, objectives=("wait",))
    return Experiment("tiny", "Tiny", "", "simulations", axes, curves=("cdf.wait",))


@pytest.mark.parametrize("how", ["flipped", "cut", "empty", "absent"])
@pytest.mark.parametrize("name", [RUNS, "curves.parquet", MANIFESTS, COMPLETE, EXPERIMENT])
def test_a_damaged_file_of_finished_results_is_named(tmp_path: Path, finished: Path, name: str, how: str) -> None:
    folder = tmp_path / "results"
    shutil.copytree(finished, folder)
    path = folder / name
    path.unlink() if how == "absent" else DAMAGES[how](path)
    if (name, how) == (EXPERIMENT, "flipped"):
        path.write_bytes(path.read_bytes().replace(b'"format"', b'"farmot"'))
    message = (
        "not complete" if (name, how) == (COMPLETE, "absent") else "holds no experiment" if (name, how) == (EXPERIMENT, "absent") else name
    )
    with pytest.raises(GpuyardError, match=message) as raised:
        found = load_results(folder)
        assert len(found.manifests) == 4
        assert len(found.curves("cdf.wait")) == 4
    assert "\n" not in str(raised.value)


OTHER_AXES = {
    "another scheduler": ('"sjf"', '"ljf"'),
    "another order": ('"fcfs",\n    "sjf"', '"sjf",\n    "fcfs"'),
    "other seeds": ('"seeds": [\n    0,\n    1', '"seeds": [\n    0,\n    7'),
    "another metric": ('"wait"', '"bsld"'),
}


@pytest.mark.parametrize("old, new", OTHER_AXES.values(), ids=OTHER_AXES.keys())
def test_an_experiment_that_disagrees_with_its_runs_is_refused(tmp_path: Path, finished: Path, old: str, new: str) -> None:
    folder = tmp_path / "results"
    shutil.copytree(finished, folder)
    path = folder / EXPERIMENT
    text = path.read_text()
    indented = json.dumps(json.loads(text), indent=1)
    changed = indented.replace(old, new)
    assert changed != indented
    path.write_text(changed)
    with pytest.raises(DataError, match=r"runs\.parquet"):
        summarise(load_results(folder))


@pytest.mark.parametrize("name", ["a" * 300, "~nobody-of-that-name/x"])
def test_a_folder_of_an_impossible_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(GpuyardError, match="holds no experiment"):
        load_results(tmp_path / name)
    if "~" not in name:
        with pytest.raises(DataError, match="File name too long"):
            run(tiny(), tmp_path / name, Here())


HOSTILE = {
    COMPLETE: [b"[]", b"{}", b'{"files": []}', b'{"files": {"runs.parquet": "x"}}', b"[" * 100_000, b"\xff"],
    EXPERIMENT: [b"[]", b"{}", b'{"format": "gpuyard-experiment", "version": 1, "experiment": {}}', b"[" * 100_000, b"NaN"],
}


@pytest.mark.parametrize(("name", "data"), [(name, data) for name, each in HOSTILE.items() for data in each])
def test_hostile_json_is_refused(tmp_path: Path, finished: Path, name: str, data: bytes) -> None:
    folder = tmp_path / "results"
    shutil.copytree(finished, folder)
    (folder / name).write_bytes(data)
    with pytest.raises(DataError, match=name):
        load_results(folder)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"run": [0]}, "has no column"),
        ({"wait": ["a"]}, "column 'wait' does not hold numbers"),
        ({"scheduler": [1]}, "does not hold texts"),
    ],
)
def test_tables_whose_hash_is_right_and_whose_columns_are_not(
    tmp_path: Path, finished: Path, columns: dict[str, list[object]], message: str
) -> None:
    folder = tmp_path / "results"
    shutil.copytree(finished, folder)
    good: dict[str, list[object]] = {
        "run": [0], "workload": ["w"], "cluster": ["c"], "change": [""], "estimate": [""], "seed": [0], "scheduler": ["fcfs"],
        "training_seed": [0], "wait": [1.0],
    }  # fmt: skip
    data = frame_bytes(**(columns if len(columns) == 1 and "run" in columns else good | columns))
    (folder / RUNS).write_bytes(data)
    complete = json.loads((folder / COMPLETE).read_text())
    complete["files"][RUNS]["sha256"] = hashlib.sha256(data).hexdigest()
    (folder / COMPLETE).write_text(json.dumps(complete))
    with pytest.raises(DataError, match=f"{RUNS}.*{message}"):
        load_results(folder)


def test_finished_results_are_not_run_again(finished: Path) -> None:
    before = content(finished)
    outcome = run(tiny(), finished, Here())
    assert outcome.done_before == outcome.runs == 4
    assert {name: data for name, data in content(finished).items() if name != "lock"} == {
        name: data for name, data in before.items() if name != "lock"
    }
    summarise(load_results(finished))


# ── no room ──


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 100 kB."""
    path = tmp_path / "disk"
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(path)], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def test_a_full_disk_loses_nothing_and_the_rest_is_done_when_there_is_room(
    tmp_path: Path, tiny_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "SAVED_EVERY", 0.0)  # a file for each unit, so that some fit
    folder, seeds = tiny_disk / "results", tuple(range(12))
    (tiny_disk / "ballast").write_bytes(b"x" * 40_000)
    with pytest.raises(GpuyardError, match=f"cannot be written: {os.strerror(errno.ENOSPC)}.*kept"):
        run(tiny(seeds), folder, Here())
    done = Store(folder).done()
    assert 0 < len(done) < 12
    assert not list(folder.rglob("*.part"))
    (tiny_disk / "ballast").unlink()
    subprocess.run(["mount", "-o", "remount,size=2m", str(tiny_disk)], check=True)
    outcome = run(tiny(seeds), folder, Here())
    assert outcome.done_before == 2 * len(done)
    run(tiny(seeds), tmp_path / "whole", Here())
    for name in (RUNS, "curves.parquet"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


LIMITED = """
import resource, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_store import tiny
from gpuyard.errors import GpuyardError
from gpuyard.experiments.running import runner
from gpuyard.experiments.running.runner import run
from gpuyard.experiments.running.workers import Here
from gpuyard.engine.compiler.entry import engine
runner.SAVED_EVERY = 0.0
engine()
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))
try:
    run(tiny(tuple(range(12))), Path({folder!r}), Here())
except GpuyardError as error:
    print(error)
    sys.exit(7)
"""


def test_a_limit_on_the_size_of_files_while_tables_are_written(tmp_path: Path) -> None:
    """Parts fit, what they are merged into does not."""
    folder = tmp_path / "results"
    code = LIMITED.format(here=str(Path(__file__).parent), folder=str(folder), limit=16_000)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 7, done.stderr
    assert "cannot be written: File too large" in done.stdout
    assert len(Store(folder).done()) == 12
    assert not Store(folder).complete
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    outcome = run(tiny(tuple(range(12))), folder, Here())
    assert outcome.done_before == outcome.runs == 24
    assert len(load_results(folder)) == 24
