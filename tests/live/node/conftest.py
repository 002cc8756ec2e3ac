"""A node under test: a real daemon in its own process, which can be killed and started again; and a disk that is soon full."""

from __future__ import annotations

import os
import subprocess
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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk: a full disk is NOT tested")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
