"""`gpuyard whatif` and `gpuyard size` on a small log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuyard.traces import write_swf
from support.sites import site


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("site") / "site.swf"
    write_swf(site(1, jobs=1500).log, path)
    return str(path)


def test_whatif(cli, log) -> None:
    found = cli("whatif", log, "--change", "merge", "--change", "demand:1.2")
    assert "all partitions as one" in found.out
    assert "20 % more demand: " in found.out.lower()
    assert "no --cluster: 3 pools" in found.err
    assert "as it is" in found.out


def test_whatif_as_data(cli, log) -> None:
    data = json.loads(cli("whatif", log, "--change", "scale:1.1", "--cluster", "512@1+192@2+64@3", "-f", "json").out)
    assert [row["change"] for row in data["sites"]] == ["", "scale:1.1"]
    assert data["sites"][1]["gpus"] == 563 + 211 + 70


def test_a_wrong_change_is_refused_before_anything_is_read(cli) -> None:
    found = cli("whatif", "no-such-file.swf", "--change", "nodse:1")
    assert found.code == 2
    assert "did you mean 'nodes'" in found.err


def test_size(cli, log) -> None:
    found = cli("size", log, "--cluster", "512@1+192@2+64@3", "--wait", "20m", "--partition", "3")
    assert "mean wait of at most 20" in found.out
    data = json.loads(cli("size", log, "--cluster", "768", "--wait", "10s", "-f", "json").out)
    assert data["unit"] == "processors"
    assert {row["count"] for row in data["tried"]} >= {768}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((), "no target"),
        (("--wait", "1m", "--p95", "2m"), "several targets"),
        (("--deadlines", "200%"), "not a share"),
        (("--wait", "x"), "not a time"),
    ],
)
def test_targets(cli, log, given, words) -> None:
    found = cli("size", log, *given)
    assert (found.code, words in found.err) == (2, True)
