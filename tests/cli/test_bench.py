"""`gpuyard bench`: the built-in benchmark, and the script of a checkout."""

from __future__ import annotations

import csv
import io

from gpuyard.cli import bench


def test_the_short_benchmark(cli, monkeypatch):
    small = tuple(bench.BenchCase("lublin:jobs=200", "256", case.scheduler) for case in bench.CASES)
    monkeypatch.setattr(bench, "CASES", small)
    code, out, _ = cli("bench", "--short", "--runs", 1, "-f", "csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["scheduler"] for row in rows] == [case.scheduler for case in small]
    assert float(rows[0]["ratio"]) == 1.0
    assert all(float(row["jobs_per_s"]) > 0 for row in rows)


def test_the_script_of_a_checkout_is_run_and_its_code_returned(cli, monkeypatch, tmp_path):
    script = tmp_path / "benchmarks" / "bench.py"
    script.parent.mkdir()
    script.write_text("raise SystemExit(3)\n")
    monkeypatch.setattr(bench, "SCRIPT", script)
    code, out, err = cli("bench")
    assert (code, out) == (3, "")
    assert "running benchmarks/bench.py" in err


def test_wrong_number_of_runs(cli):
    assert cli("bench", "--short", "--runs", 0).code == 2
