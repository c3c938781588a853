"""One ZooKeeper for the run; every test has a path of its own in it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.peers import ZooKeeperServer


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def zookeeper_path(zookeeper: ZooKeeperServer) -> str:
    """What to connect to: a path that is not there yet."""
    return f"{zookeeper.address}/tests/{uuid.uuid4().hex[:12]}"
