"""The process that compiles the parts of the engine beside the entry: when there is one, and that none is left behind."""

from __future__ import annotations

import subprocess
import sys

import numba
import pytest

from gpuyard.engine.compiler import diskcache, parts
from gpuyard.engine.compiler.diskcache import compile_cached, is_missing_on_disk
from gpuyard.engine.compiler.jit import INTERPRETED, WORD

pytestmark = pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")


@pytest.fixture
def started(monkeypatch):
    """Two cores, no code on disk, and children that do what the test says; returns those that were started."""
    children = []

    class Child(subprocess.Popen):
        def __init__(self, *arguments, **keywords):
            super().__init__(*arguments, **keywords)
            children.append(self)

    monkeypatch.setattr(parts.subprocess, "Popen", Child)
    monkeypatch.setattr(parts, "is_missing_on_disk", lambda function, signature: True)
    monkeypatch.setattr(parts, "_cores", lambda: 2)
    return children


def test_the_parts_are_there_when_the_entry_is(started, monkeypatch, tmp_path):
    monkeypatch.setattr(parts, "_COMMAND", f"import time, pathlib; time.sleep(0.2); pathlib.Path({str(tmp_path / 'made')!r}).touch()")
    with parts.compiled_beside():
        assert not (tmp_path / "made").exists()
    assert (tmp_path / "made").exists()
    assert [child.returncode for child in started] == [0]


def test_the_other_process_finds_the_same_package(started, monkeypatch):
    monkeypatch.setattr(
        parts, "_COMMAND", f"import gpuyard; raise SystemExit(0 if gpuyard.__file__ == {sys.modules['gpuyard'].__file__!r} else 3)"
    )
    with parts.compiled_beside():
        pass
    assert [child.returncode for child in started] == [0]


def test_an_interrupted_compilation_leaves_no_process(started, monkeypatch):
    monkeypatch.setattr(parts, "_COMMAND", "import time; time.sleep(600)")
    with pytest.raises(KeyboardInterrupt), parts.compiled_beside():
        raise KeyboardInterrupt
    assert started[0].returncode is not None


def test_a_process_that_fails_is_not_missed(started, monkeypatch):
    """The parts are compiled here when they are asked for."""
    monkeypatch.setattr(parts, "_COMMAND", "raise SystemExit(1)")
    with parts.compiled_beside():
        pass
    assert parts.address() > 0


@pytest.mark.parametrize(("what", "value"), [("_cores", lambda: 1), ("is_missing_on_disk", lambda function, signature: False)])
def test_one_core_or_nothing_to_compile_starts_none(started, monkeypatch, what, value):
    monkeypatch.setattr(parts, what, value)
    with parts.compiled_beside():
        pass
    assert started == []


def test_missing_is_what_the_disk_could_have(tmp_path, monkeypatch):
    def double(x):
        return x + x

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    assert is_missing_on_disk(double, WORD(WORD))
    compile_cached(numba.njit(double), WORD(WORD))
    assert not is_missing_on_disk(double, WORD(WORD))
    assert is_missing_on_disk(double, numba.float64(numba.float64))
    monkeypatch.setattr(diskcache, "PrivateCache", no_folder)
    assert not is_missing_on_disk(double, WORD(WORD))


def no_folder(function):
    raise RuntimeError("cannot cache function: no locator available")
