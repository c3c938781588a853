"""One connection to the broker under test for each test; brokers with settings of their own where a test asks for one.

All of it also runs with Apache Kafka in Barnabas's place (`BARNABAS_TEST_PEER=kafka`), which decides what the right
answer is. What is ours alone is marked with `barnabas_only` and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.broker.group_client import Group
from tests.broker.servers import start
from tests.broker.wire_client import Client
from tests.peers import Broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.address) as connected:
        yield connected


@pytest.fixture
def connect() -> Iterator[Callable[[Broker | str], Client]]:
    """Opens further connections, which end with the test."""
    with ExitStack() as stack:
        yield lambda broker: stack.enter_context(Client(broker if isinstance(broker, str) else broker.address))


@pytest.fixture
def group(broker: Broker) -> Iterator[Group]:
    """A group of its own; what its members leave open is closed with the test."""
    with Group(broker.address) as made:
        yield made


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Starts brokers with settings of their own, which are stopped with the test."""
    with ExitStack() as stack:

        def begin(settings: dict[str, str] | None = None, directory: str = "own") -> Broker:
            broker = start(tmp_path / directory, settings)
            stack.enter_context(broker)
            return broker

        yield begin
