"""What an earlier version wrote is opened. A file of each version of the database lies in data/, as SQL."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from gpuyard.errors import DataError
from gpuyard.live.node.jobs import RunState
from gpuyard.live.node.store import DATABASE, UPGRADES, VERSION, NodeStore
from support.nodes import TriedNode

DATA = Path(__file__).with_name("data")


def layout(path: Path) -> list[tuple[str, ...]]:
    """Return every table and index, and every column with its type and rules."""
    with sqlite3.connect(path) as database:
        names = database.execute("SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name").fetchall()
        columns = [(name, *map(str, row[1:])) for _, name in names for row in database.execute(f"PRAGMA table_info({name})")]
    return [*names, *sorted(columns, key=lambda row: (row[0], row[1]))]


def made(folder: Path, version: int) -> Path:
    """Make a database as that version of the layout had it."""
    path = folder / DATABASE
    with sqlite3.connect(path) as database:
        database.executescript((DATA / f"node-{version}.sql").read_text(encoding="utf-8"))
    return path


def test_the_layout_of_this_version_is_on_record(tmp_path):
    """Whoever changes the layout makes a new version, a step to it, and a file of it."""
    (tmp_path / "new").mkdir()
    (tmp_path / "old").mkdir()
    NodeStore(tmp_path / "new").close()
    assert layout(tmp_path / "new" / DATABASE) == layout(made(tmp_path / "old", VERSION))


@pytest.mark.parametrize("version", sorted(UPGRADES))
def test_an_older_layout_becomes_the_present_one(tmp_path, version):
    path = made(tmp_path, version)
    NodeStore(tmp_path).close()
    (tmp_path / "new").mkdir()
    NodeStore(tmp_path / "new").close()

    def facts(row: tuple[str, ...]) -> tuple[str, ...]:
        return row if len(row) == 2 else (*row[:4], *row[5:])  # a column that was added has a default, for the rows that were there

    assert [facts(row) for row in layout(path)] == [facts(row) for row in layout(tmp_path / "new" / DATABASE)]


def test_a_node_goes_on_with_the_jobs_of_the_version_before(tmp_path):
    made(tmp_path, VERSION - 1)
    node = TriedNode(tmp_path).start()
    try:
        first = node.job(1)
        assert (first.state, first.exit_code, first.energy, first.history) == (RunState.done, 0, 0.0, ("1: FAILED: exit code 3",))
        assert (first.asked.name, first.asked.walltime, first.retried) == ("first", 60.0, 1)
        second, third = node.ends(2, 3)  # the machine has booted since
        assert (second.state, second.attempt, second.losses) == (RunState.done, 2, 1)
        assert (third.state, third.exit_code) == (RunState.done, 0)
        assert node.state(4) == "PENDING"
        node.client.call("release", ids=[4])
        (fourth,) = node.ends(4)
        assert (fourth.state, fourth.exit_code) == (RunState.failed, 1)
        assert node.shell("true") == 5
        assert {row[1] for row in node.client.call("decisions", limit=10)["decisions"]} >= {2, 3, 4}
    finally:
        node.close()


def test_a_newer_database_is_left_alone(tmp_path):
    path = made(tmp_path, VERSION)
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(DataError, match=rf"version {VERSION + 1}; this gpuyard knows versions up to {VERSION}"):
        NodeStore(tmp_path)
    assert path.read_bytes()[96:] == before[96:]
