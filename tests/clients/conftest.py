"""The client's clusters: Barnabas, and Apache Kafka as the outside judge."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.peers import QUICK_JVM, Broker, KafkaServer


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with KafkaServer(tmp_path_factory.mktemp("kafka") / "kafka", jvm=(*QUICK_JVM, "-Xmx512m")) as server:
        yield server


@pytest.fixture(params=["barnabas", "kafka"])
def cluster(request: pytest.FixtureRequest) -> str:
    """The address of a broker; every test that takes it runs on both."""
    if request.param == "barnabas" and os.environ.get("BARNABAS_TEST_PEER") == "kafka":
        pytest.skip("BARNABAS_TEST_PEER=kafka: Apache Kafka stands in Barnabas's place")
    server: Broker = request.getfixturevalue("broker" if request.param == "barnabas" else "kafka")
    return server.address
