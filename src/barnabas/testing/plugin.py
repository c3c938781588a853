"""Pytest fixtures: a cluster of its own for every test that asks for one, and a topic on it.

    def test_orders(barnabas_cluster, barnabas_topic): ...

    @pytest.mark.barnabas(brokers=3, options={"log.retention.ms": 60000})
    def test_failover(barnabas_cluster): ...

The brokers of all tests are forked from one process, which lives as long as the session, so that each is there within a
fraction of a second. A worker of pytest-xdist is a session of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing.cluster import Cluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "barnabas(brokers=1, options={}, in_process=False): what the cluster of barnabas_cluster is like"
    )


@pytest.fixture(scope="session")
def _barnabas_warden() -> Iterator[None]:
    """Keeps the process from which brokers are forked between the tests."""
    from barnabas.testing.cluster import keep_warden

    with keep_warden():
        yield


@pytest.fixture
def barnabas_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A running `barnabas.testing.Cluster` that no other test sees; `@pytest.mark.barnabas(...)` has its arguments."""
    from barnabas.testing.cluster import Cluster

    marker = request.node.get_closest_marker("barnabas")
    cluster = Cluster(*marker.args, **marker.kwargs) if marker else Cluster()
    if not cluster.in_process:
        request.getfixturevalue("_barnabas_warden")
    with cluster:
        yield cluster


@pytest.fixture
def barnabas_topic(barnabas_cluster: Cluster) -> str:
    """The name of a new topic with one partition on `barnabas_cluster`."""
    return barnabas_cluster.create_topic()
