"""The pages that describe the house name what is there: files, folders, decorators, rooms and their order."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "gpuyard"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
OVERVIEW = (ROOT / "docs" / "concepts" / "overview.md").read_text(encoding="utf-8")


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the table under a heading, without its first two lines."""
    section = page.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


TO_ADD = {row[0]: row[1] for row in rows(CONTRIBUTING, "To add …")}


@pytest.mark.parametrize("what", TO_ADD)
def test_files_to_touch_exist(what):
    names = re.findall(r"`([\w./]+)`", TO_ADD[what])
    paths = [name for name in names if "/" in name or name in {path.name for path in PACKAGE.iterdir()}]
    assert paths, f"{what}: no file is named"
    assert [path for path in paths if not ((PACKAGE / path).exists() or (ROOT / path).exists())] == []


@pytest.mark.parametrize(
    "what",
    ["ordering", "placement", "metric", "reader", "generator", "learner", "feature", "decision kind", "resource", "backfill rule", "figure",
     "perturbation"],
)  # fmt: skip
def test_every_extension_has_a_row(what):
    assert any(what in each for each in TO_ADD)


def test_decorators_exist():
    source = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    named = {name for text in TO_ADD.values() for name in re.findall(r"`@(\w+)`", text)}
    assert {name for name in named if not re.search(rf"^def {name}\(", source, re.M)} == set()


def test_rooms_are_the_folders():
    rooms = [row[0].strip("`") for row in rows(OVERVIEW, "The rooms")]
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert set(rooms) == folders


def test_order_of_imports_is_the_contract():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["type"] == "layers")
    assert " > ".join(layer.replace("(", "").replace(")", "") for layer in layers) in CONTRIBUTING


def test_the_lock_has_hashes_and_is_installed_with_them():
    lock = (ROOT / "requirements" / "dev.lock").read_text(encoding="utf-8")
    pins = [pin for pin in re.split(r"(?<!\\)\n", lock) if pin and not pin.startswith("#")]
    assert len(pins) > 50
    assert [pin.split()[0] for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.+]+( \\\n    --hash=sha256:[0-9a-f]{64})+", pin)] == []
    assert "--require-hashes -r requirements/dev.lock" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_what_the_demo_installs_is_the_part_of_the_lock_that_it_needs():
    done = subprocess.run([sys.executable, "requirements/desk.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    desk = (ROOT / "requirements" / "desk.lock").read_text(encoding="utf-8")
    assert desk == done.stdout, "run python requirements/desk.py > requirements/desk.lock"
    names = set(re.findall(r"^([\w.-]+)==", desk, re.MULTILINE))
    assert {"numpy", "numba", "typer", "polars", "matplotlib", "highspy", "hatchling"} <= names
    assert not names & {"jax", "ray", "playwright", "mypy", "pandas", "scipy"}
    assert "--require-hashes -r requirements/desk.lock" in (ROOT / "Makefile").read_text(encoding="utf-8")
