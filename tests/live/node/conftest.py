"""A node under test: a real daemon in its own process, which can be killed and started again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.nodes import TriedNode


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[TriedNode]:
    """A node that is not started yet."""
    node = TriedNode(tmp_path / "node")
    yield node
    assert "Traceback" not in node.close()


@pytest.fixture
def node(stopped: TriedNode) -> TriedNode:
    """A node that runs."""
    return stopped.start()
