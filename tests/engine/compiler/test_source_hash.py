"""Compiled code is never served from a cache that was made from other sources, wherever a kernel is moved."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpuyard
from gpuyard.engine.compiler import sources
from gpuyard.engine.compiler.sources import source_hash

FILES = {
    "__init__.py": "",
    "top.py": "from gpuyard.kernels.one import (\n    first,\n    second,\n)\n",
    "kernels/__init__.py": "",
    "kernels/one.py": "from gpuyard import shared\n\ndef first(): pass\n\ndef second():\n    from gpuyard.late import thing\n",
    "late.py": "thing = 1\n",
    "shared.py": "LIMIT = 1\n",
    "apart.py": "other = 1\n",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    for name, text in FILES.items():
        path = tmp_path / "gpuyard" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    monkeypatch.setattr(sources, "_ROOT", tmp_path)
    return tmp_path / "gpuyard"


def hash_of_a_fresh_start():
    """The hash as the next process finds it: one process reads each source once."""
    sources._read.cache_clear()
    return source_hash("gpuyard.top")


@pytest.mark.parametrize("name", [name for name in FILES if name != "apart.py" and not name.endswith("__init__.py")])
def test_the_hash_changes_with_every_module_that_is_imported(package, name):
    before = hash_of_a_fresh_start()
    (package / name).write_text(FILES[name] + "# changed\n", "utf-8")
    assert hash_of_a_fresh_start() != before > 0


def test_the_hash_does_not_change_with_other_modules(package):
    before = hash_of_a_fresh_start()
    (package / "apart.py").write_text("other = 2\n", "utf-8")
    assert hash_of_a_fresh_start() == before


def test_the_hash_changes_when_a_module_moves(package):
    before = hash_of_a_fresh_start()
    (package / "kernels" / "one.py").rename(package / "kernels" / "two.py")
    (package / "top.py").write_text(FILES["top.py"].replace("kernels.one", "kernels.two"), "utf-8")
    assert hash_of_a_fresh_start() != before


def test_the_hash_follows_a_kernel_to_its_new_module(package):
    """The old module only passes the name on: what counts is where the code is now."""
    (package / "kernels" / "two.py").write_text("def first(): return 1\n", "utf-8")
    (package / "kernels" / "one.py").write_text("from gpuyard.kernels.two import first\n\ndef second(): pass\n", "utf-8")
    before = hash_of_a_fresh_start()
    (package / "kernels" / "two.py").write_text("def first(): return 2\n", "utf-8")
    assert hash_of_a_fresh_start() != before


KERNEL = "from gpuyard.engine.compiler.jit import inner\n\n\n@inner\ndef answer(x):\n    return x + {}\n"
ENTRY = """
from gpuyard.engine.compiler.sources import source_hash
from gpuyard.engine.compiler.jit import WORD, entry
from gpuyard.probe_kernel import answer


def compiled(source):
    @entry(WORD(WORD))
    def call(x):
        return answer(x) if source != 0 else -9

    return call


call = compiled(source_hash(__name__))
print(call(40), sum(call.stats.cache_hits.values()))
"""


def test_a_kernel_that_moved_is_compiled_again(tmp_path):
    """The whole package, copied, with a kernel of its own that moves to another module and computes something else."""
    copy = tmp_path / "gpuyard"
    shutil.copytree(Path(gpuyard.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__", "shipped"))
    (copy / "probe.py").write_text(ENTRY, "utf-8")
    (copy / "probe_kernel.py").write_text(KERNEL.format(2), "utf-8")

    def run():
        space = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "NUMBA_DISABLE_JIT": "0"}
        done = subprocess.run([sys.executable, "-c", "import gpuyard.probe"], env=space, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert run() == ["42", "0"]
    assert run() == ["42", "1"]  # from the cache
    (copy / "probe_moved.py").write_text(KERNEL.format(3), "utf-8")
    (copy / "probe_kernel.py").write_text("from gpuyard.probe_moved import answer\n", "utf-8")
    assert run() == ["43", "0"]
    assert run() == ["43", "1"]
