"""Fixtures for tests that talk to a running broker.

`BARNABAS_TEST_PEER=kafka` puts Apache Kafka in Barnabas's place: a test that fails there too asks for something that
Kafka does not do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.peers import QUICK_JVM, BarnabasServer, KafkaServer


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasServer | KafkaServer]:
    """One broker for the whole run: a test keeps to topics of its own names."""
    directory = tmp_path_factory.mktemp("broker")
    server: BarnabasServer | KafkaServer
    if os.environ.get("BARNABAS_TEST_PEER") == "kafka":
        server = KafkaServer(directory / "kafka", jvm=(*QUICK_JVM, "-Xmx1G"))
    else:
        server = BarnabasServer(directory / "barnabas")
    with server:
        yield server
