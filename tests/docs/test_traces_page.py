"""benchmarks/traces.py: what it says about files, and that it fails where one is not read."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 07:05:55,,1,66.0,11cb48\n"


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("traces_benchmark", ROOT / "benchmarks" / "traces.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "traces_benchmark", module)  # data classes look their module up
    spec.loader.exec_module(module)
    return module


def called(traces: ModuleType, monkeypatch: pytest.MonkeyPatch, *paths: Path) -> int:
    monkeypatch.setattr(sys, "argv", ["traces.py", *map(str, paths)])
    code = traces.main()
    assert isinstance(code, int)
    return code


def test_the_page(traces: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    good, azure = tmp_path / "good", tmp_path / "azure.csv"
    good.write_text(PHILLY)
    azure.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n")
    assert called(traces, monkeypatch, good, azure) == 0
    out = capsys.readouterr().out
    assert "| `good` | philly | 1 | 1 no run time | `philly`: 552 nodes, 3,205 devices | nan | 0 |" in out
    assert "| `azure.csv` | requests to a language model (Azure 2023), which have token counts but no run times |" in out
    assert "| `good` | 0s | 1.00 |" in out


def test_a_file_that_is_not_read_is_a_failure(
    traces: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    odd, broken = tmp_path / "odd.dat", tmp_path / "broken.csv"
    odd.write_text("hello\n")
    broken.write_text(PHILLY.replace("66.0,1", "x,1"))
    assert called(traces, monkeypatch, odd, broken) == 1
    found = capsys.readouterr()
    assert "odd.dat: no reader takes it" in found.err
    assert "broken.csv:2: runtime = 'x' is not a number" in found.err


def test_the_page_names_every_trace_that_is_here(shared: Path) -> None:
    page = (ROOT / "docs" / "reference" / "traces.md").read_text(encoding="utf-8")
    for path in sorted((shared / "traces").rglob("*")):
        if path.is_file():
            assert f"`{path.relative_to(shared / 'traces').as_posix()}`" in page
