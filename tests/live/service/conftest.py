"""A service for each door, which the tests of a file share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.services import TriedService


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TriedService]:
    """On a Unix socket."""
    service = TriedService(tmp_path_factory.mktemp("service"))
    yield service
    assert "Traceback" not in service.close()


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TriedService]:
    """On a port, with a token."""
    service = TriedService(tmp_path_factory.mktemp("service"), http=True)
    yield service
    assert "Traceback" not in service.close()
