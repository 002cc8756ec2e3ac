"""The verbs of a node, against a real daemon in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.live.node.core import NodeSettings
from gpuyard.live.node.starting import start_node
from support.nodes import clear


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a node that does not run yet."""
    folder = tmp_path / "node"
    monkeypatch.setenv("GPUYARD_NODE", str(folder))
    yield folder
    clear(folder)


@pytest.fixture(scope="module")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A node with four CPU slots that the tests of a file share; first come, first served, which needs no engine."""
    folder = tmp_path_factory.mktemp("shared") / "node"
    start_node(folder, NodeSettings(scheduler="plain", cpus=4))
    yield folder
    clear(folder)


@pytest.fixture
def node(shared_node: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node that runs."""
    monkeypatch.setenv("GPUYARD_NODE", str(shared_node))
    return shared_node
