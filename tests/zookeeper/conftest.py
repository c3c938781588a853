"""One ZooKeeper for the tests that leave it alone; each has a path of its own in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers import ZooKeeperServer


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
