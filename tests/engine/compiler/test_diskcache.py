"""Compiled code on disk: damaged or foreign files are compiled again, said once, and never loaded."""

from __future__ import annotations

import importlib.util
import os
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import pytest
from numba import njit, types

from gpuyard.engine.compiler import diskcache
from gpuyard.engine.compiler.diskcache import compile_cached

SOURCE = "def twice(x):\n    return 2 * x\n"


class Trap:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "module", ModuleType("module"))  # what `compiled` puts there is gone after the test
    (tmp_path / "module.py").write_text(SOURCE)
    return tmp_path / "cache"


def compiled(cache: Path) -> Any:
    """Compile, or load, as a new process would; messages are said again."""
    diskcache._tell.cache_clear()
    spec = importlib.util.spec_from_file_location("module", cache.parent / "module.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["module"] = module  # where numba looks for it when it loads the code
    made = compile_cached(njit(module.twice), types.int64(types.int64))
    assert made(21) == 42
    return made


def loaded(made: Any) -> int:
    return sum(made.stats.cache_hits.values())


def files(cache: Path, suffix: str) -> list[Path]:
    return [path for path in cache.rglob("*") if path.suffix == suffix]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


DAMAGES = {
    "truncated": truncate,
    "one bit": flip,
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(os.urandom(1000)),
    "text": lambda path: path.write_text("not compiled code\n"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "not to be read": lambda path: path.chmod(0),
    "writable by others": lambda path: path.chmod(0o666),
}


def test_it_is_loaded_the_second_time(cache: Path, capsys: pytest.CaptureFixture[str]):
    assert loaded(compiled(cache)) == 0
    assert loaded(compiled(cache)) == 1
    assert capsys.readouterr().err == ""
    assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in (cache, *cache.iterdir()))


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_code_is_compiled_again_and_said_once(cache: Path, capsys: pytest.CaptureFixture[str], damage: Any, suffix: str):
    compiled(cache)
    (path,) = files(cache, suffix)
    damage(path)
    if os.access(path, os.R_OK) and path.is_file() and path.stat().st_mode & 0o777 == 0:
        pytest.skip("root reads every file")
    assert loaded(compiled(cache)) == 0
    said = capsys.readouterr().err.splitlines()
    assert sum("damaged or not yours; it is compiled again" in line for line in said) == 1
    if not path.is_dir():
        assert loaded(compiled(cache)) == 1  # it was repaired


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_foreign_pickle_is_not_opened(cache: Path, tmp_path: Path, suffix: str):
    compiled(cache)
    (path,) = files(cache, suffix)
    path.write_bytes(pickle.dumps(Trap(tmp_path / "it-was-run")))
    assert loaded(compiled(cache)) == 0
    assert not (tmp_path / "it-was-run").exists()


def test_code_of_other_versions_is_passed_over_in_silence(cache: Path, capsys: pytest.CaptureFixture[str]):
    compiled(cache)
    (path,) = files(cache, ".nbi")
    path.write_bytes(path.read_bytes().replace(b"numba 0.", b"numba 9."))
    assert loaded(compiled(cache)) == 0
    assert capsys.readouterr().err == ""


def test_a_folder_of_our_own_is_closed_to_others(cache: Path):
    compiled(cache)
    (folder,) = cache.iterdir()
    folder.chmod(0o777)
    assert loaded(compiled(cache)) == 1
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_folder_that_others_own_is_passed_over(cache: Path, monkeypatch: pytest.MonkeyPatch):
    compiled(cache)
    monkeypatch.setattr(diskcache, "_others_may_write", lambda about: True)
    monkeypatch.setattr(diskcache._PrivateImplementation, "_locator_classes", (diskcache._FolderGiven,))
    assert loaded(compiled(cache)) == 0


def test_without_a_folder_it_compiles_all_the_same(cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(diskcache._PrivateImplementation, "_locator_classes", ())
    compiled(cache)
    assert "NUMBA_CACHE_DIR" in capsys.readouterr().err


def test_what_cannot_be_saved_is_used_all_the_same(cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def full(self: Any, path: str, value: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(diskcache.SealedFiles, "_seal", full)
    compiled(cache)
    assert "cannot be saved (No space left on device)" in capsys.readouterr().err
